"""The options of `trimtab events` and `trimtab why`."""

import argparse

from trimtab_controller.cli.parsers.operator import add_cluster
from trimtab_protocol.messages.events import EventKind

RUN = "trimtab_controller.cli.events:run"
RUN_WHY = "trimtab_controller.cli.why:run"
COMMANDS = {
    "events": "what the controller decided and did, and why, for the last 30 days",
    "why": "where a key group is, since when and by which plan, and what moving it would do",
}
"""Command -> help."""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register both commands."""
    events = commands.add_parser("events", help=COMMANDS["events"])
    add_cluster(events)
    events.add_argument("--app", metavar="ID", help="only those of this app")
    text = "how far back, such as 90s, 15m, 6h or 7d (default: 1d)"
    events.add_argument("--since", default="1d", metavar="SPAN", help=text)
    text = "only events of this kind"
    events.add_argument("--kind", choices=[str(kind) for kind in EventKind], help=text)
    events.add_argument("--follow", action="store_true", help="go on with new events, until Ctrl-C")
    events.set_defaults(run=RUN)
    why = commands.add_parser("why", help=COMMANDS["why"])
    add_cluster(why)
    why.add_argument("key_group", metavar="APP/OPERATOR/KEYGROUP", help="such as orders/sums/17")
    why.set_defaults(run=RUN_WHY)
