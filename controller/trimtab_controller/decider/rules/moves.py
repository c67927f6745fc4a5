"""Whether moves keep the rules, and which key groups come first where not all can, by the rules of the kind priority.

The hand-overs of a plan begin in this order, and so do restores after a loss.  Where more key groups must leave their
workers, by a drain or by a rule, than one plan may move, those of a lower priority wait for the next one.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from trimtab_controller.decider.observing.placing import names, priorities
from trimtab_controller.decider.observing.view import DemandView
from trimtab_controller.plan import Plan
from trimtab_protocol.messages.names import WorkerId
from trimtab_protocol.wording import first_few


def with_priorities(view: DemandView, plan: Plan) -> Plan:
    """The plan, whose moves know their priority."""
    table = view.owned.joined(view.kept_table)
    found = priorities(view.rules, table)
    if found is None:
        return plan
    rows = table.places_of([move.key_group for move in plan.moves])
    moves = (
        replace(move, priority=int(found[row])) if row >= 0 else move
        for move, row in zip(plan.moves, rows.tolist(), strict=True)
    )
    return replace(plan, moves=tuple(moves))


def later(view: DemandView, most: int) -> tuple[int, ...]:
    """The rows of the key groups that must leave their workers, but wait for others, if a plan may move `most`."""
    found = priorities(view.rules, view.owned)
    if found is None:
        return ()
    due = np.flatnonzero(view.leaving | view.misplaced)
    if len(due) <= most:
        return ()
    least = -np.partition(-found[due], most - 1)[most - 1]
    return tuple(due[found[due] < least].tolist())


def broken_by(view: DemandView, moves: Mapping[int, WorkerId]) -> str:
    """The moves (row of the view -> target) that rules forbid, with these rules; empty if there are none."""
    if not view.rules:
        return ""
    places = {worker.id: place for place, worker in enumerate(view.workers)}
    found = []
    for row, target in moves.items():
        if by := view.places.against(row, places[target]):
            found.append(f"{view.owned[row].key_group} may not go to {target} by {names(by)}")
    return first_few(found) if found else ""
