"""The options of `trimtab maintenance`."""

import argparse

from trimtab_controller.cli.parsers.events import span
from trimtab_controller.cli.parsers.operator import add_cluster

RUN = "trimtab_controller.cli.maintenance:run"
HELP = "drain the workers of a host, keep them off for some time, and start them again"


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the command."""
    parser = commands.add_parser("maintenance", help=HELP)
    add_cluster(parser)
    parser.add_argument("host", metavar="HOST", help="the host, as `trimtab status` has it")
    which = parser.add_mutually_exclusive_group(required=True)
    text = "how long the workers stay off, drain included, such as 90m, 2h or 1d"
    which.add_argument("--for", type=span, dest="span", metavar="SPAN", help=text)
    which.add_argument("--end", action="store_true", help="end a maintenance now: what was stopped is started")
    text = "shown in the status and in the controller's log"
    parser.add_argument("--reason", default="no reason given", metavar="TEXT", help=text)
    parser.set_defaults(run=RUN)
