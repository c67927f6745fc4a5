"""The options of `trimtab events`, `why` and `replay`."""

import argparse
import re

from trimtab_controller.cli.parsers.operator import add_cluster
from trimtab_protocol.messages.events import EventKind

RUN = "trimtab_controller.cli.events:run"
RUN_WHY = "trimtab_controller.cli.why:run"
RUN_REPLAY = "trimtab_controller.cli.replay:run"
SPAN = re.compile(r"([1-9][0-9]{0,6})([smhd])")
SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
COMMANDS = {
    "events": "what the controller decided and did, and why, for the last 30 days",
    "why": "where a key group is, by which plan, and what moving it would do; or why a plan makes its moves",
    "replay": "what the controller would have done with the recorded windows under other settings",
}
"""Command -> help."""


def span(text: str) -> float:
    """The seconds in `15m`, for example.  Raises ArgumentTypeError."""
    found = SPAN.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"found {text[:80]!r}, expected a number with s, m, h or d behind it")
    return float(found[1]) * SECONDS[found[2]]


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the commands."""
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
    text = "a key group, such as orders/sums/17, or a plan, such as 3.17"
    why.add_argument("about", metavar="APP/OPERATOR/KEYGROUP|PLAN", help=text)
    why.set_defaults(run=RUN_WHY)
    replay = commands.add_parser("replay", help=COMMANDS["replay"])
    add_cluster(replay)
    replay.add_argument("--app", metavar="ID", help="only this app")
    text = "how far back, such as 6h or 7d (default: 1d); the topic of snapshots keeps 7 days"
    replay.add_argument("--last", type=span, default="1d", metavar="SPAN", help=text)
    text = "replay with this too, side by side; several keys are separated by commas, such as balance.load_distance=3"
    replay.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE[,...]", help=text)
    replay.set_defaults(run=RUN_REPLAY)
