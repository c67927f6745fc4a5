"""The result of the standby model."""

from dataclasses import dataclass

from trimtab_models.standbys.evaluate import DomainLosses, StandbyScore
from trimtab_models.standbys.problem import Ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StandbyResult:
    """Standbys, what each loss then leads to, and a bound on the worst of it.

    `assignment` (K, wanted) = the standbys in order.  `lower_bound`: no assignment that gives every key group its
    standbys has a lower `score.worst` (percent of a worker).
    """

    assignment: Ints
    score: StandbyScore
    losses: DomainLosses
    lower_bound: float

    @property
    def gap(self) -> float:
        """Worst value - bound, in percent of a worker: how far the plan is from the optimum at most."""
        return max(0.0, self.score.worst - self.lower_bound)
