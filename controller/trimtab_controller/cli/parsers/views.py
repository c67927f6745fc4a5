"""The options of the commands that show what the controller sees, knows, did and would do."""

import argparse
from pathlib import Path

from trimtab_controller.cli.parsers.options import add_cluster, span
from trimtab_protocol.messages.events import EventKind

COMMANDS = {
    "status": "workers, loads, plan in flight, last decisions and their reasons",
    "plan": "what the controller would do now; changes nothing",
    "size": "how many workers an app needs for a multiple of its present input",
    "snapshot": "write the present state of the cluster to an instance file for `trimtab solve`",
    "events": "what the controller decided and did, and why, for the last 30 days",
    "why": "where a key group is, by which plan, and what moving it would do; or why a plan makes its moves",
    "replay": "what the controller would have done with the recorded windows under other settings",
}
"""Command -> help."""
MODULES = {"plan": "preview", "snapshot": "preview"}
"""Commands that are not in a module of their own."""


def add_options(parser: argparse.ArgumentParser, command: str) -> None:
    """Add those of one of the commands."""
    add_cluster(parser)
    parser.set_defaults(run=f"trimtab_controller.cli.{MODULES.get(command, command)}:run_{command}")
    if command == "status":
        parser.add_argument("--all", action="store_true", help="list every worker, however many there are")
    if command == "size":
        parser.add_argument("app", metavar="APP", nargs="?", help="the app's id, if there are several")
        text = "how many times the present input (default: 1)"
        parser.add_argument("--rate", type=float, default=1.0, metavar="TIMES", help=text)
        text = "how many times the present state, in memory and on disks (default: 1, it does not grow with the input)"
        parser.add_argument("--state", type=float, default=1.0, metavar="TIMES", help=text)
        text = "share of its CPU capacity that a worker may use then (default: 0.7)"
        parser.add_argument("--target", type=float, default=0.7, metavar="SHARE", help=text)
    if command == "snapshot":
        parser.add_argument("--app", metavar="ID", help="which app, if there are several")
        parser.add_argument("--out", type=Path, metavar="FILE", help="write to FILE instead of standard output")
    if command == "events":
        parser.add_argument("--app", metavar="ID", help="only those of this app")
        text = "how far back, such as 90s, 15m, 6h or 7d (default: 1d)"
        parser.add_argument("--since", type=span, default="1d", metavar="SPAN", help=text)
        text = "only events of this kind"
        parser.add_argument("--kind", choices=[str(kind) for kind in EventKind], help=text)
        parser.add_argument("--follow", action="store_true", help="go on with new events, until Ctrl-C")
    if command == "why":
        text = "a key group, such as orders/sums/17, or a plan, such as 3.17"
        parser.add_argument("about", metavar="APP/OPERATOR/KEYGROUP|PLAN", help=text)
    if command == "replay":
        parser.add_argument("--app", metavar="ID", help="only this app")
        text = "how far back, such as 6h or 7d (default: 1d); the topic of snapshots keeps 7 days"
        parser.add_argument("--last", type=span, default="1d", metavar="SPAN", help=text)
        text = (
            "replay with this too, side by side; several keys are separated by commas, such as balance.load_distance=3"
        )
        parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE[,...]", help=text)
