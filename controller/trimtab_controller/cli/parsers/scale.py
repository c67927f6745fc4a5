"""The options of `trimtab scale`."""

import argparse

from trimtab_controller.cli.parsers.operator import add_cluster

RUN = "trimtab_controller.cli.scale:run"


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the command."""
    parser = commands.add_parser("scale", help="say how many workers an app should have, whatever its demand is")
    add_cluster(parser)
    parser.add_argument("app", metavar="APP", help="the app's id")
    parser.add_argument("workers", metavar="N", help="how many workers; `auto`: as its demand asks for again")
    text = "shown in the status and in the controller's log"
    parser.add_argument("--reason", default="no reason given", metavar="TEXT", help=text)
    parser.set_defaults(run=RUN)
