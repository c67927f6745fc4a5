"""The options of `trimtab scale`."""

import argparse

from trimtab_controller.cli.parsers.operator import add_cluster
from trimtab_protocol.messages.intents import MAX_WORKERS

RUN = "trimtab_controller.cli.scale:run"
AUTO = "auto"


def workers(text: str) -> int | str:
    """A number of workers, or AUTO.  Raises ArgumentTypeError."""
    if text == AUTO:
        return AUTO
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= MAX_WORKERS:
        raise argparse.ArgumentTypeError(
            f"found {text[:80]!r}, expected a number of workers from 1 to {MAX_WORKERS}, or {AUTO!r}"
        )
    return int(text)


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the command."""
    parser = commands.add_parser("scale", help="say how many workers an app should have, whatever its demand is")
    add_cluster(parser)
    parser.add_argument("app", metavar="APP", help="the app's id")
    text = "how many workers; `auto`: as its demand asks for again"
    parser.add_argument("workers", type=workers, metavar="N", help=text)
    text = "shown in the status and in the controller's log"
    parser.add_argument("--reason", default="no reason given", metavar="TEXT", help=text)
    parser.set_defaults(run=RUN)
