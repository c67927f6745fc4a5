"""`trimtab approve`, `reject`, `move` and `undo`: what operators say about plans."""

import argparse
import sys
import time

from trimtab_controller.cli import operator
from trimtab_controller.cli.known import CommandError, Target, events_of
from trimtab_controller.cli.operator import asked_now, carry_out
from trimtab_controller.intents import plans
from trimtab_controller.intents.change import Change
from trimtab_controller.intents.plans import Looked
from trimtab_controller.loop.preview import informed, read_cluster_state


def run(args: argparse.Namespace) -> int:
    """Exit code: 0 done, 1 not possible, 2 wrong usage or configuration; the reason on standard error."""
    return operator.run_with(args, {"move": run_move, "undo": run_undo}.get(args.function, run_word))


def run_word(args: argparse.Namespace, target: Target) -> int:
    """Approve or reject a plan that waits."""
    decide = plans.approve if args.function == "approve" else plans.reject
    return carry_out(args, target, decide(asked_now(args, target), args.plan))


def run_move(args: argparse.Namespace, target: Target) -> int:
    """Move key groups to a worker."""
    moves = plans.placings(args.key_groups, args.worker)
    return carry_out(args, target, plans.move(asked_now(args, target), moves, look(target)))


def run_undo(args: argparse.Namespace, target: Target) -> int:
    """Move back what a plan has moved, after the operator has seen what that costs."""
    change = plans.undo(asked_now(args, target), args.plan, look(target), partly=args.partly)
    if not args.yes:
        _ask(change)
    return carry_out(args, target, change)


def _ask(change: Change) -> None:
    """Show what follows, and go on only if the user wants it.  Raises CommandError."""
    if not sys.stdin.isatty():
        told = "\n".join([change.text, *change.caveats])
        raise CommandError(f"{told}\nto do so without being asked, add --yes")
    print("\n".join([change.text, *change.caveats]))
    try:
        answer = input("Go on? [y/N] ")
    except EOFError:
        answer = ""
    if answer.strip().lower() not in ("y", "yes"):
        raise CommandError("nothing is done")


def look(target: Target) -> Looked:
    """What a controller would know now."""
    now = time.time()
    state = read_cluster_state(target.connection, target.configuration, now)
    decider = informed(state, target.configuration, now)
    return Looked(decider=decider, execution=state.found.execution, events=events_of(target, now))
