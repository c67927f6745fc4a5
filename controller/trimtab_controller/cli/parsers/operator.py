"""The options of the operator's commands."""

import argparse
from pathlib import Path

from trimtab_controller.cli.parsers.config_option import add_config

RUN = "trimtab_controller.cli.operator:run"
PREVIEW = "trimtab_controller.cli.preview:run"
OTHERS = {"plan": PREVIEW, "snapshot": PREVIEW, "size": "trimtab_controller.cli.size:run"}
"""Commands that need the decider, which takes a while to import."""
COMMANDS = {
    "status": "workers, loads, plan in flight, last decisions and their reasons",
    "plan": "what the controller would do now; changes nothing",
    "size": "how many workers an app needs for a multiple of its present input",
    "snapshot": "write the present state of the cluster to an instance file for `trimtab solve`",
    "drain": "move everything off a worker, a host or a zone, then stop its workers",
    "undrain": "cancel a drain",
    "forget": "drop an app, or a worker's name, that is gone for good",
    "pause": "start no new plan; a plan in flight is finished",
    "stop": "end the plans in flight: released key groups arrive, all others stay where they are",
    "resume": "end a pause or a hold",
}
"""Command -> help."""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the operator's commands."""
    for name, text in COMMANDS.items():
        parser = commands.add_parser(name, help=text)
        add_cluster(parser)
        _add_own_options(name, parser)
        parser.set_defaults(run=OTHERS.get(name, RUN), function=name)


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """Add the options that name the cluster, and `--json`."""
    where = parser.add_argument_group("cluster", "by --config, or by --bootstrap and --cluster")
    add_config(where)
    where.add_argument("--bootstrap", metavar="HOST:PORT", help="the Kafka brokers (no TLS, no password)")
    where.add_argument("--cluster", metavar="NAME", help="the name of the Trimtab cluster")
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def _add_own_options(name: str, parser: argparse.ArgumentParser) -> None:
    if name == "status":
        parser.add_argument("--all", action="store_true", help="list every worker, however many there are")
    if name in ("drain", "undrain"):
        parser.add_argument(
            "node", metavar="WORKER|HOST|zone:NAME", help="a worker, or all of a host or a zone, see `trimtab status`"
        )
    if name == "forget":
        parser.add_argument("app", metavar="APP", nargs="?", help="the app's id")
        parser.add_argument("--worker", metavar="NAME", help="forget this worker instead of an app")
    if name == "stop":
        parser.add_argument("app", metavar="APP", nargs="?", help="only the plan of this app")
        parser.add_argument("--pause", action="store_true", help="also start no new plan, as `trimtab pause` does")
    if name == "resume":
        text = "end a hold: carry on without the state that was lost with the journal"
        parser.add_argument("--accept-journal", action="store_true", help=text)
    if name in ("drain", "undrain", "forget", "pause", "stop", "resume"):
        text = "shown in the status and in the controller's log"
        parser.add_argument("--reason", default="no reason given", metavar="TEXT", help=text)
    if name == "size":
        parser.add_argument("app", metavar="APP", nargs="?", help="the app's id, if there are several")
        text = "how many times the present input (default: 1)"
        parser.add_argument("--rate", type=float, default=1.0, metavar="TIMES", help=text)
        text = "how many times the present state, in memory and on disks (default: 1, it does not grow with the input)"
        parser.add_argument("--state", type=float, default=1.0, metavar="TIMES", help=text)
        text = "share of its CPU capacity that a worker may use then (default: 0.7)"
        parser.add_argument("--target", type=float, default=0.7, metavar="SHARE", help=text)
    if name == "snapshot":
        parser.add_argument("--app", metavar="ID", help="which app, if there are several")
        parser.add_argument("--out", type=Path, metavar="FILE", help="write to FILE instead of standard output")
