"""`trimtab events`: what the controller decided and did, and why."""

import argparse
import re
import time

from rich.console import Console
from rich.text import Text

from trimtab_controller.cli import operator
from trimtab_controller.cli.known import CommandError, Target
from trimtab_controller.cli.operator import DONE, console, print_json
from trimtab_controller.kafka.events import follow_events, read_events
from trimtab_protocol.messages.events import Event, EventKind, event_document

SPAN = re.compile(r"([1-9][0-9]{0,6})([smhd])")
SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
COLOURS = {EventKind.CONCERN: "yellow", EventKind.HOLD: "red", EventKind.INTENT: "cyan", EventKind.MOVE: "red"}


def run(args: argparse.Namespace) -> int:
    """Exit code: 0 done, 1 not possible, 2 wrong usage or configuration; the reason on standard error."""
    return operator.run_with(args, run_events)


def run_events(args: argparse.Namespace, target: Target) -> int:
    """Print the events that are asked for, the oldest first."""
    read = read_events(target.connection, target.topics, time.time() - span_of(args.since))
    out = console()
    for event in read.events:
        _print(event, args, out)
    if args.follow:
        for event in follow_events(target.connection, read):
            _print(event, args, out)
    if not read.events and not args.json:
        print("no events in this time")
    if read.readable.refused:
        operator.refuse(f"{read.readable.refused} events cannot be read by this version, and are left out", DONE)
    return DONE


def span_of(text: str) -> float:
    """The seconds in `15m`, for example.  Raises CommandError."""
    found = SPAN.fullmatch(text)
    if found is None:
        raise CommandError(f"--since: found {text[:80]!r}, expected a number with its unit, such as 90s, 15m, 6h or 7d")
    return float(found[1]) * SECONDS[found[2]]


def _print(event: Event, args: argparse.Namespace, out: Console) -> None:
    if args.app not in (None, event.app) or args.kind not in (None, event.kind):
        return
    if args.json:
        print_json(event_document(event))
    else:
        out.print(line_of(event), soft_wrap=True)


def line_of(event: Event) -> Text:
    """One line about an event."""
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event.at))
    name = f"{event.kind} {event.phase}"
    reason = f" [{event.reason}]" if event.reason else ""
    plan = f"plan {event.plan}: " if event.plan and event.plan not in event.text else ""
    colour = COLOURS.get(event.kind, "") if event.phase != "ended" else ""  # type: ignore[call-overload]
    return Text.assemble(f"{at}  ", (f"{name:<16}", colour), f"  {plan}{event.text}{reason}")
