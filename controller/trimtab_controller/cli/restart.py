"""`trimtab rolling-restart APP`: restart all workers of an app, host by host."""

import argparse

from trimtab_controller.cli import operator
from trimtab_controller.cli.known import Target
from trimtab_controller.cli.operator import asked, asked_now, carry_out, read_intents
from trimtab_controller.intents import restart
from trimtab_controller.intents.names import app_named


def run(args: argparse.Namespace) -> int:
    """Exit code: 0 done, 1 not possible, 2 wrong usage or configuration; the reason on standard error."""
    return operator.run_with(args, run_restart)


def run_restart(args: argparse.Namespace, target: Target) -> int:
    """Ask the controller to restart the workers, or take that back."""
    app = app_named(args.app)
    if args.cancel:
        return carry_out(args, target, restart.cancel(asked(args, intents=read_intents(target)), app))
    known = asked_now(args, target)
    return carry_out(args, target, restart.rolling_restart(known, app))
