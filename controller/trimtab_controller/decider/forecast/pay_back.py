"""After what time the moves of a plan for balance have paid back what they cost.  Pure.

A restore costs its target a core for as long as it takes, and what waited for a key group during its pause is worked
off there.  A plan for a peak pays this twice: its moves are taken back when the peak is over.  That is set against the
load distance that it saves per second:

    pay-back = until all is restored + cost of the busiest target (pp s) / gain in load distance (pp)
"""

from collections import defaultdict
from dataclasses import dataclass

from trimtab_controller.decider.observing.owned import PERCENT_PER_CORE
from trimtab_controller.decider.observing.view import AppView
from trimtab_controller.decider.standbys.copies import Held
from trimtab_controller.execution.restores.costs import LearnedRestores
from trimtab_controller.plan import Move, Plan
from trimtab_controller.rows import row_after
from trimtab_protocol.messages.names import HostId, WorkerId


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What a move costs: `restores` = what was learned of restores, `pause_s` = how long a key group pauses."""

    restores: LearnedRestores
    held: Held
    pause_s: float

    def of(self, view: AppView, move: Move, load: float, size: int) -> tuple[float, float]:
        """Core seconds of the move and of the way back; its old owner may stay a standby, which lacks nothing."""
        pause = load / PERCENT_PER_CORE * self.pause_s
        share = self.held.lacking(move.key_group).get(move.target, 1.0)
        lacking = share * size if move.lacking_bytes is None else move.lacking_bytes
        there = self.restores.unit_s + lacking / self.restores.bytes_per_s
        row = (move.source, *self.held.standbys(move.key_group))
        stays = move.source in row_after(row, move.source, move.target, view.sites)
        kept = stays and view.memory_stays and view.standbys is not None
        back = self.restores.unit_s + (0.0 if kept else size / self.restores.bytes_per_s)
        return there + pause, back + pause


def pay_back_s(view: AppView, plan: Plan, costs: Costs) -> float:
    """Seconds until the moves of the plan have paid; infinite if they gain nothing."""
    gain = plan.before - plan.planned
    if not gain > 0.0:
        return float("inf")
    table, capacity = view.owned, {worker.id: worker.capacity for worker in view.workers}
    sizes = table.assumed_state_bytes
    busy: defaultdict[HostId, float] = defaultdict(float)
    paid: defaultdict[WorkerId, float] = defaultdict(float)
    for move, row in zip(plan.moves, table.places_of(each.key_group for each in plan.moves).tolist(), strict=True):
        there, back = costs.of(view, move, float(table.load[row]), int(sizes[row]))
        busy[plan.hosts[move.target]] += there
        paid[move.target] += PERCENT_PER_CORE * there / capacity[move.target]
        paid[move.source] += PERCENT_PER_CORE * back / capacity[move.source]
    return max(busy.values()) + max(paid.values()) / gain
