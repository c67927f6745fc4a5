"""The options of `trimtab rolling-restart`."""

import argparse

from trimtab_controller.cli.parsers.operator import add_cluster

RUN = "trimtab_controller.cli.restart:run"
HELP = "restart all workers of an app, host by host: each is drained, stopped and started by its agent"


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the command."""
    parser = commands.add_parser("rolling-restart", help=HELP)
    add_cluster(parser)
    parser.add_argument("app", metavar="APP", help="the app's id")
    text = "end a restart: workers that are stopped are started, the others stay as they are"
    parser.add_argument("--cancel", action="store_true", help=text)
    text = "shown in the status and in the controller's log"
    parser.add_argument("--reason", default="no reason given", metavar="TEXT", help=text)
    parser.set_defaults(run=RUN)
