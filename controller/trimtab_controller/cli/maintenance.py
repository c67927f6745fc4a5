"""`trimtab maintenance HOST`: keep the workers of a host off for some time."""

import argparse

from trimtab_controller.cli import operator
from trimtab_controller.cli.known import Target
from trimtab_controller.cli.operator import asked_now, carry_out
from trimtab_controller.intents import maintenance
from trimtab_controller.intents.names import host_named


def run(args: argparse.Namespace) -> int:
    """Exit code: 0 done, 1 not possible, 2 wrong usage or configuration; the reason on standard error."""
    return operator.run_with(args, run_maintenance)


def run_maintenance(args: argparse.Namespace, target: Target) -> int:
    """Ask the controller to keep the workers off, or take that back."""
    host = host_named(args.host)
    if not args.end:
        maintenance.check_span(args.span)
    known = asked_now(args, target)
    if args.end:
        return carry_out(args, target, maintenance.end(known, host))
    return carry_out(args, target, maintenance.maintenance(known, host, args.span))
