"""What each move of a round has brought, by the first whole window after it.  Pure.

A move for balance has paid if its two workers are nearer to the mean load with it than they would be without it: the
farther one of them counts, with the load that the key group has at its new owner.  Whether a move that something else
wanted has paid, such as a drain, is not for loads to say.
"""

from collections.abc import Iterator

import numpy as np

from trimtab_controller.decider.events import MeasuredMove
from trimtab_controller.decider.observing.evaluate import evaluate
from trimtab_controller.decider.observing.view import DemandView
from trimtab_controller.execution.state import HandoverPhase, Round
from trimtab_controller.plan import PlanReason
from trimtab_protocol.messages.names import KeyGroup, WorkerId

MAX_MEASURED = 1_000
"""Moves of a round that are measured: the first ones."""


def measured_moves(row: Round, view: DemandView) -> tuple[MeasuredMove, ...]:
    """The moves that were made, with the load of each key group in the window; without those that moved on since."""
    moves = list(_made(row))[:MAX_MEASURED]
    if not moves:
        return ()
    found, table = evaluate(view), view.owned
    places = table.places_of([key_group for key_group, _, _ in moves])
    capacity = {worker.id: worker.capacity for worker in view.workers}
    draining = {worker.id for worker in view.workers if worker.draining}
    judged = row.kind is PlanReason.LOAD_DISTANCE and found.mean_load is not None
    told = []
    for (key_group, source, target), place in zip(moves, places.tolist(), strict=True):
        if place < 0 or table.workers[table.owner[place]] != target:
            continue
        load = float(table.load[place])
        known = (
            judged and not np.isnan(load) and {source, target} <= capacity.keys() and not {source, target} & draining
        )
        paid = None
        if known:
            loads, mean = found.worker_loads, found.mean_load or 0.0
            there, here = loads[source] - mean, loads[target] - mean
            back = max(abs(there + load / capacity[source]), abs(here - load / capacity[target]))
            paid = max(abs(there), abs(here)) < back
        told.append(
            MeasuredMove(
                key_group=key_group,
                source=source,
                target=target,
                load_pct=None if np.isnan(load) else load,
                paid=paid,
            )
        )
    return tuple(told)


def _made(row: Round) -> Iterator[tuple[KeyGroup, WorkerId, WorkerId]]:
    for handover in row.handovers:
        if handover.phase is HandoverPhase.DONE:
            for key_group in handover.key_groups:
                yield key_group, handover.source, handover.target
