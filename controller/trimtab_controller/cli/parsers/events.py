"""The options of `trimtab events` and `trimtab why`."""

import argparse
import re

from trimtab_controller.cli.parsers.operator import add_cluster
from trimtab_protocol.messages.events import EventKind

RUN = "trimtab_controller.cli.events:run"
RUN_WHY = "trimtab_controller.cli.why:run"
SPAN = re.compile(r"([1-9][0-9]{0,6})([smhd])")
SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
COMMANDS = {
    "events": "what the controller decided and did, and why, for the last 30 days",
    "why": "where a key group is, since when and by which plan, and what moving it would do",
}
"""Command -> help."""


def span(text: str) -> float:
    """The seconds in `15m`, for example.  Raises ArgumentTypeError."""
    found = SPAN.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"found {text[:80]!r}, expected a number with s, m, h or d behind it")
    return float(found[1]) * SECONDS[found[2]]


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register both commands."""
    events = commands.add_parser("events", help=COMMANDS["events"])
    add_cluster(events)
    events.add_argument("--app", metavar="ID", help="only those of this app")
    text = "how far back, such as 90s, 15m, 6h or 7d (default: 1d)"
    events.add_argument("--since", type=span, default="1d", metavar="SPAN", help=text)
    text = "only events of this kind"
    events.add_argument("--kind", choices=[str(kind) for kind in EventKind], help=text)
    events.add_argument("--follow", action="store_true", help="go on with new events, until Ctrl-C")
    events.set_defaults(run=RUN)
    why = commands.add_parser("why", help=COMMANDS["why"])
    add_cluster(why)
    why.add_argument("key_group", metavar="APP/OPERATOR/KEYGROUP", help="such as orders/sums/17")
    why.set_defaults(run=RUN_WHY)
