"""The options of `trimtab rule add`, `remove` and `list`."""

import argparse

from trimtab_controller.cli.parsers.events import span
from trimtab_controller.cli.parsers.operator import add_cluster

RUN = "trimtab_controller.cli.rule:run"
HELP = "rules about where key groups may be, beside those in controller.toml: add, remove, list"
KINDS = ("pool", "exclude", "freeze", "pin", "zone", "spread", "priority")
REASON = "shown in the status, by `trimtab why` and in the controller's log"


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the command."""
    parser = commands.add_parser("rule", help=HELP)
    parser.set_defaults(run=RUN)
    actions = parser.add_subparsers(dest="function", metavar="ACTION", required=True)
    add = actions.add_parser("add", help="keep a rule from now on, and say what follows")
    _add_options(add)
    remove = actions.add_parser("remove", help="take back a rule that an operator has added")
    remove.add_argument("name", metavar="NAME", help="the rule's name")
    remove.add_argument("--reason", default="no reason given", metavar="TEXT", help=REASON)
    listed = actions.add_parser("list", help="all rules, those of controller.toml too")
    for each in (add, remove, listed):
        add_cluster(each)


def _add_options(add: argparse.ArgumentParser) -> None:
    add.add_argument("name", metavar="NAME", help="how status and `trimtab why` call it; no other rule has this name")
    add.add_argument("--kind", required=True, choices=KINDS, help="what it asks for")
    add.add_argument("--reason", required=True, metavar="TEXT", help=REASON)
    add.add_argument("--app", metavar="PATTERN", help="only key groups of these apps")
    add.add_argument("--operator", metavar="PATTERN", help="only key groups of these operators")
    add.add_argument("--key-groups", metavar="RANGES", help="only these key groups, such as 0-15,40")
    for name in ("worker", "host", "zone"):
        text = f"its {name}s; may be given more than once"
        add.add_argument(f"--{name}", dest=f"{name}s", action="append", metavar="PATTERN", help=text)
    add.add_argument("--priority", type=int, metavar="NUMBER", help="-100 to 100: the highest comes first")
    text = "when it ends: in 2h or 3d, or at a time with its zone, such as 2026-12-01T00:00:00Z"
    add.add_argument("--until", metavar="TIME", type=end, help=text)
    add.add_argument("--dry-run", action="store_true", help="say what would follow, and write nothing")


def end(text: str) -> tuple[float, bool]:
    """Seconds and True for a span from now, epoch seconds and False for a time."""
    from datetime import datetime

    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        try:
            return span(text), True
        except argparse.ArgumentTypeError as error:
            expected = "a number with s, m, h or d behind it, or a time with its zone: 2026-12-01T00:00:00Z"
            raise argparse.ArgumentTypeError(f"found {text[:80]!r}, expected {expected}") from error
    if found.tzinfo is None:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a time with its zone: 2026-12-01T00:00:00Z")
    return found.timestamp(), False
