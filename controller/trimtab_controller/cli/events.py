"""`trimtab events`: what the controller decided and did, and why."""

import argparse
import sys
import time

from rich.console import Console
from rich.text import Text

from trimtab_controller.cli import operator
from trimtab_controller.cli.operator import Target, console, print_json
from trimtab_controller.kafka.events import follow_events, read_events
from trimtab_process.exit_codes import DONE
from trimtab_protocol.messages.codec import document
from trimtab_protocol.messages.events import Event, EventKind
from trimtab_protocol.wording import local_time

COLOURS = {EventKind.CONCERN: "yellow", EventKind.HOLD: "red", EventKind.INTENT: "cyan", EventKind.MOVE: "red"}


def run_events(args: argparse.Namespace, target: Target) -> int:
    """Print the events that are asked for, the oldest first."""
    read = read_events(target.connection, target.topics, time.time() - args.since)
    out = console()
    shown = [event for event in read.events if _is_wanted(event, args)]
    for event in shown:
        _print(event, args, out)
    if read.readable.refused:
        operator.refuse(f"{read.readable.refused} events cannot be read by this version, and are left out", DONE)
    if args.follow:
        sys.stdout.flush()
        for event in follow_events(target.connection, read):
            if _is_wanted(event, args):
                _print(event, args, out)
                sys.stdout.flush()
    if not shown and not args.json:
        print("no such events in this time")
    return DONE


def _is_wanted(event: Event, args: argparse.Namespace) -> bool:
    return args.app in (None, event.app) and args.kind in (None, event.kind)


def _print(event: Event, args: argparse.Namespace, out: Console) -> None:
    if args.json:
        print_json({name: value for name, value in document(event).items() if name != "v"})
    else:
        out.print(line_of(event), soft_wrap=True)


def line_of(event: Event) -> Text:
    """One line about an event."""
    name = f"{event.kind} {event.phase}"
    reason = f" [{event.reason}]" if event.reason else ""
    plan = f"plan {event.plan}: " if event.plan and event.plan not in event.text else ""
    colour = COLOURS.get(event.kind, "") if event.phase != "ended" else ""  # type: ignore[call-overload]
    return Text.assemble(f"{local_time(event.at)}  ", (f"{name:<16}", colour), f"  {plan}{event.text}{reason}")
