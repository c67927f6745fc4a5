"""What the controller would do now, and what it knows: `trimtab plan`, `trimtab snapshot`."""

import argparse
import json
import time

from trimtab_controller.cli.known import CommandError, Target
from trimtab_controller.cli.operator import DONE, console, print_json, run_with
from trimtab_controller.cli.plan_view import decision_document, show_decision
from trimtab_controller.decider.known import WindowResult
from trimtab_controller.decider.machine import Decider
from trimtab_controller.decider.observing.view import NotReady, SmoothedView
from trimtab_controller.decider.planning.instance import instance_of
from trimtab_controller.loop.preview import informed, preview_decision, read_cluster_state
from trimtab_controller.seen import CALM
from trimtab_models.instances import encode_snapshot


def run(args: argparse.Namespace) -> int:
    """Exit code: 0 done, 1 not possible, 2 wrong usage or configuration; the reason on standard error."""
    return run_with(args, run_plan if args.function == "plan" else run_snapshot)


def run_plan(args: argparse.Namespace, target: Target) -> int:
    """Print what the controller would do now, ignoring pause and minimum interval."""
    from trimtab_controller.solver.balance import answer

    now = time.time()
    decision = preview_decision(
        read_cluster_state(target.connection, target.configuration, now), target.configuration, now, answer
    )
    if args.json:
        print_json(decision_document(decision))
    else:
        show_decision(decision, console())
    return DONE


def run_snapshot(args: argparse.Namespace, target: Target) -> int:
    """Write the present cluster to an instance file."""
    decider, now = read_decider(target)
    view = decider.view_to_plan(now, view_of(decider.known, args.app, "--app"))
    instance = instance_of(view, target.configuration.balance)
    text = json.dumps(encode_snapshot(instance), allow_nan=False)
    if args.out is None:
        print(text)
        return DONE
    try:
        args.out.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{args.out}: {error.strerror or error}") from error
    return DONE


def read_decider(target: Target) -> tuple[Decider, float]:
    """A decider that knows what a controller would know now, and the time (epoch seconds).  Raises CommandError."""
    now, configuration = time.time(), target.configuration
    decider = informed(read_cluster_state(target.connection, configuration, now), configuration, now)
    missing = decider.known.not_ready
    if missing is not None:
        raise _no_whole_window(missing)
    return decider, now


def view_of(known: WindowResult, app: str | None, option: str) -> SmoothedView:
    """The view of the app that `option` names, or of the only one.  Raises CommandError."""
    views = {name: view for name, view in known.views.items() if app in (None, name)}
    if len(views) != 1:
        raise CommandError(f"which app? {option} is one of {', '.join(known.views) or 'none, no app reports'}")
    view = next(iter(views.values()))
    if isinstance(view, NotReady):
        raise _no_whole_window(view)
    return view


def _no_whole_window(missing: NotReady) -> CommandError:
    """What is missing, and what to do about it."""
    runbook = f"`trimtab runbook {missing.reason}` says what to do"
    then = "ask again after the next window" if missing.reason in CALM else runbook
    return CommandError(f"no complete snapshot: {missing.reason}: {missing.detail}; {then}")
