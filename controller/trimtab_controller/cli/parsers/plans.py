"""The options of `trimtab approve`, `reject`, `move` and `undo`."""

import argparse

from trimtab_controller.cli.parsers.operator import add_cluster

RUN = "trimtab_controller.cli.plans:run"
COMMANDS = {
    "approve": "carry out a plan that waits for approval",
    "reject": "do not carry out a plan that waits for approval",
    "move": "move key groups to a worker, in a plan of their own",
    "undo": "move back what a plan has moved, in a plan of its own",
}
"""Command -> help."""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the commands about plans."""
    for name, text in COMMANDS.items():
        parser = commands.add_parser(name, help=text)
        add_cluster(parser)
        if name == "move":
            parser.add_argument("key_groups", metavar="APP/OPERATOR/N", nargs="+", help="such as orders/sums/17")
            parser.add_argument("worker", metavar="WORKER", help="the worker's name, as `trimtab status` shows it")
        else:
            parser.add_argument("plan", metavar="PLAN", help="its name, such as 3.17, as `trimtab status` shows it")
        if name == "undo":
            parser.add_argument("--yes", action="store_true", help="do not ask after the costs are shown")
            text = "take back what can go back, and say what cannot and why; otherwise all of it or nothing"
            parser.add_argument("--partly", action="store_true", help=text)
        text = "shown in the status, in the events and in the controller's log"
        needed = name == "reject"
        default = None if needed else "no reason given"
        parser.add_argument("--reason", default=default, required=needed, metavar="TEXT", help=text)
        parser.set_defaults(run=RUN, function=name)
