"""Which key groups come first, where not all can: what the rules of the kind priority lead to.

The hand-overs of a plan begin in this order, and so do restores after a loss.  Where more key groups must leave their
workers, by a drain or by a rule, than one plan may move, those of a lower priority wait for the next one.
"""

from dataclasses import replace

import numpy as np

from trimtab_controller.decider.observing.rule import priorities
from trimtab_controller.decider.observing.view import DemandView
from trimtab_controller.plan import Plan


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
