"""`trimtab scale APP N`: an operator's word on the number of workers of an app."""

import argparse

from trimtab_controller.cli import operator
from trimtab_controller.cli.known import Target
from trimtab_controller.cli.operator import asked, asked_now, carry_out, read_intents
from trimtab_controller.cli.parsers.scale import AUTO
from trimtab_controller.intents import actions
from trimtab_controller.intents.names import app_named


def run(args: argparse.Namespace) -> int:
    """Exit code: 0 done, 1 not possible, 2 wrong usage or configuration; the reason on standard error."""
    return operator.run_with(args, run_scale)


def run_scale(args: argparse.Namespace, target: Target) -> int:
    """Tell the controller how many workers an app should have, or take that back."""
    app = app_named(args.app)
    if args.workers == AUTO:
        return carry_out(args, target, actions.scale_auto(asked(args, intents=read_intents(target)), app))
    return carry_out(args, target, actions.scale(asked_now(args, target), app, args.workers))
