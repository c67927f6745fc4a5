"""The options of the commands that ask the controller for something, from the table of actions; and of `rule list`."""

import argparse
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

from trimtab_controller.cli.parsers.options import add_cluster, span
from trimtab_protocol.actions import ACTIONS, NEEDED, Action, Field
from trimtab_protocol.messages.intents import MAX_WORKERS

RUN = "trimtab_controller.cli.actions:run_action"
RULE = "rules about where key groups may be, beside those in controller.toml: add, remove, list"
AUTO = "auto"
ELSEWHERE = {"accept-journal": "resume", "add-rule": "rule", "remove-rule": "rule"}
"""Actions that have no command of their own, and the command with an option or a subcommand for them."""
COMMANDS = {name: action.help for name, action in ACTIONS.items() if name not in ELSEWHERE} | {
    "resume": "end a pause or a hold",
    "rule": RULE,
}
"""Command -> help."""


def add_options(parser: argparse.ArgumentParser, command: str) -> None:
    """Add those of one of the commands."""
    if command != "rule":
        _add_action(parser, ACTIONS[command])
        return
    functions = parser.add_subparsers(metavar="ACTION", required=True)
    for name in ("add", "remove"):
        action = ACTIONS[f"{name}-rule"]
        _add_action(functions.add_parser(name, help=action.help), action)
    listed = functions.add_parser("list", help="all rules, those of controller.toml too")
    add_cluster(listed)
    listed.set_defaults(run="trimtab_controller.cli.status:run_rules")


def _add_action(parser: argparse.ArgumentParser, action: Action) -> None:
    add_cluster(parser)
    for field in action.fields:
        if field.name == "for_s":
            which = parser.add_mutually_exclusive_group(required=True)
            _add_field(which, action, field)
            text = "end a maintenance now: what was stopped is started"
            which.add_argument("--end", dest=field.name, action="store_const", const=None, help=text)
        else:
            _add_field(parser, action, field)
    if action.name == "resume":
        text = ACTIONS["accept-journal"].help
        parser.add_argument("--accept-journal", dest="action", action="store_const", const="accept-journal", help=text)
    if action.name == "undo":
        parser.add_argument("--yes", action="store_true", help="do not ask after the costs are shown")
    if action.name == "add-rule":
        parser.add_argument("--dry-run", action="store_true", help="say what would follow, and write nothing")
    default = None if action.reason_needed else "no reason given"
    text = "shown in the status, in the events and in the controller's log"
    parser.add_argument("--reason", default=default, required=action.reason_needed, metavar="TEXT", help=text)
    parser.set_defaults(run=RUN, action=action.name)


def _add_field(parser: "argparse._ActionsContainer", action: Action, field: Field) -> None:
    """Add the position, or the option, that a field is on the command line."""
    options: dict[str, Any] = {"metavar": field.metavar, "help": field.help}
    options["type"] = READERS.get((action.name, field.name), int if field.kind is int else str)
    if issubclass(field.kind, StrEnum):
        options["choices"] = [str(each) for each in field.kind]
    needed = field.default is NEEDED
    if field.flag is None:
        parser.add_argument(field.name, nargs="+" if field.many else None if needed else "?", **options)
    elif field.kind is bool:
        parser.add_argument(field.flag, action="store_true", help=field.help)
    else:
        options |= {"required": needed and not field.null, "default": None if needed else field.default}
        parser.add_argument(field.flag, dest=field.name, action="append" if field.many else "store", **options)


def workers(text: str) -> int | None:
    """A number of workers; None for `auto`.  Raises ArgumentTypeError."""
    if text == AUTO:
        return None
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= MAX_WORKERS:
        raise argparse.ArgumentTypeError(
            f"found {text[:80]!r}, expected a number of workers from 1 to {MAX_WORKERS}, or {AUTO!r}"
        )
    return int(text)


def end(text: str) -> float:
    """A time, or the end of a span from now, in epoch seconds.  Raises ArgumentTypeError."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        try:
            return time.time() + span(text)
        except argparse.ArgumentTypeError as error:
            expected = "a number with s, m, h or d behind it, or a time with its zone: 2026-12-01T00:00:00Z"
            raise argparse.ArgumentTypeError(f"found {text[:80]!r}, expected {expected}") from error
    if found.tzinfo is None:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a time with its zone: 2026-12-01T00:00:00Z")
    return found.timestamp()


READERS: Mapping[tuple[str, str], Callable[[str], Any]] = {
    ("scale", "workers"): workers,
    ("maintenance", "for_s"): span,
    ("add-rule", "until"): end,
}
"""How the values of fields are written on the command line."""
