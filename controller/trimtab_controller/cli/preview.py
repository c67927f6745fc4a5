"""What the controller would do now, and what it knows: `trimtab plan`, `trimtab snapshot`."""

import argparse
import json
import time
from typing import Any

from rich.console import Console
from rich.text import Text

from trimtab_controller.cli.operator import CommandError, Target, console, new_table, print_json
from trimtab_controller.decider.machine import Decider
from trimtab_controller.decider.memory.memory import WindowResult
from trimtab_controller.decider.policies.instance import instance_of
from trimtab_controller.decider.values.decision import Decision, Planned, describe, names_of
from trimtab_controller.decider.values.reasons import NotReady
from trimtab_controller.decider.window.view import SmoothedView
from trimtab_controller.loop.preview import informed, preview_decision, read_cluster_state
from trimtab_controller.plan import Plan
from trimtab_controller.seen import CALM
from trimtab_process.exit_codes import DONE
from trimtab_protocol.messages.codec import document
from trimtab_protocol.wording import counted


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


def show_decision(decision: Decision, out: Console) -> None:
    """Print a decision and, if it is a plan, its moves."""
    out.print(Text(describe(decision)))
    if not isinstance(decision, Planned):
        return
    plan = decision.plan
    known = [move.state_bytes for move in plan.moves if move.state_bytes is not None]
    unmeasured = len(plan.moves) - len(known)
    unknown = f", {counted(unmeasured, 'key group')} of unknown size" if unmeasured else ""
    out.print(f"{sum(known):,} bytes of state{unknown}; {plan.status}, found in {plan.solve_s:.2f} s")
    out.print()
    table = new_table(("key group", "from", "to", "state bytes"), right=("state bytes",))
    for move in plan.moves:
        size = "unknown" if move.state_bytes is None else f"{move.state_bytes:,}"
        table.add_row(Text(str(move.key_group)), Text(move.source), Text(move.target), size)
    out.print(table)


def decision_document(decision: Decision) -> dict[str, Any]:
    """The decision as a JSON object."""
    kind, reason = names_of(decision)
    plan = _plan_document(decision.plan) if isinstance(decision, Planned) else None
    return {"kind": kind, "reason": reason, "text": describe(decision), "plan": plan}


def _plan_document(plan: Plan) -> dict[str, Any]:
    return {
        "app": plan.app,
        "reason": plan.detail,
        "status": plan.status,
        "load_distance_before": plan.before,
        "load_distance": plan.planned,
        "lower_bound": plan.lower_bound,
        "solve_seconds": plan.solve_s,
        "moves": [
            {"key_group": str(move.key_group), "from": move.source, "to": move.target, "state_bytes": move.state_bytes}
            for move in plan.moves
        ],
    }


def run_snapshot(args: argparse.Namespace, target: Target) -> int:
    """Write the present cluster to an instance file."""
    decider, now = read_decider(target)
    view = decider.view_to_plan(now, view_of(decider.known, args.app, "--app"))
    instance = instance_of(view, target.configuration.balance)
    text = json.dumps(document(instance), allow_nan=False)
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
