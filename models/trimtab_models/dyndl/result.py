"""The result of every scheduler in this package."""

from dataclasses import dataclass

from trimtab_models.dyndl.arrays import TOLERANCE, Ints
from trimtab_models.dyndl.evaluate import ScheduleScore
from trimtab_models.solving.outcome import PlanStatus


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScheduleResult:
    """A schedule and its proven bound.  `core` (T,) = core of every task; times in units of one local task."""

    core: Ints
    score: ScheduleScore
    lower_bound: float
    local_makespan: float | None = None  # offline: of phase I, without the forced tasks
    event_makespan: float | None = None  # online: when the simulated last task ended

    @property
    def status(self) -> PlanStatus:
        """Optimal if the makespan meets the bound."""
        proven = self.score.makespan <= self.lower_bound + TOLERANCE
        return PlanStatus.OPTIMAL if proven else PlanStatus.FEASIBLE

    @property
    def ratio(self) -> float:
        """Makespan / bound, 1 without tasks: how far the schedule is from the optimum at most."""
        return self.score.makespan / self.lower_bound if self.lower_bound else 1.0
