"""Prints a decision as text or JSON: what would move, where to, and the predicted gain."""

from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from trimtab_controller.decider.decision import Decision, Planned
from trimtab_controller.decider.describe import describe, names_of
from trimtab_controller.plan import Plan
from trimtab_protocol.wording import counted


def show_decision(decision: Decision, console: Console) -> None:
    """Print a decision and, if it is a plan, its moves."""
    console.print(Text(describe(decision)))
    if not isinstance(decision, Planned):
        return
    plan = decision.plan
    known = [move.state_bytes for move in plan.moves if move.state_bytes is not None]
    unmeasured = len(plan.moves) - len(known)
    unknown = f", {counted(unmeasured, 'key group')} of unknown size" if unmeasured else ""
    console.print(f"{sum(known):,} bytes of state{unknown}; {plan.status}, found in {plan.solve_s:.2f} s")
    console.print()
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in ("key group", "from", "to", "state bytes"):
        table.add_column(name, justify="right" if name == "state bytes" else "left", overflow="fold")
    for move in plan.moves:
        size = "unknown" if move.state_bytes is None else f"{move.state_bytes:,}"
        table.add_row(Text(str(move.key_group)), Text(move.source), Text(move.target), size)
    console.print(table)


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
