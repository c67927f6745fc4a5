"""The result of a balance solver."""

from dataclasses import dataclass
from enum import Enum

from trimtab_models.balance.drain import Alert
from trimtab_models.balance.evaluate import BalanceScore
from trimtab_models.balance.problem import Ints
from trimtab_models.solving.outcome import PlanStatus


class SolveStage(Enum):
    """The solver's stage that produced the plan."""

    STAYED = "stayed"
    CONSTRUCTED = "constructed"
    ENUMERATED = "enumerated"
    IMPROVED = "improved"
    CERTIFIED = "certified"
    DRAINED = "drained"
    SECOND_SIDE = "second side"
    TRIMMED = "trimmed"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BalanceResult:
    """A plan and its proven bound.  `allocation` (K,) = the new node of every key group."""

    status: PlanStatus
    allocation: Ints
    score: BalanceScore
    lower_bound: float
    stage: SolveStage
    steps: int
    seed: int
    alerts: tuple[Alert, ...] = ()
    reversed_in_flight: tuple[int, ...] = ()  # key groups in flight that the plan sends to another node

    @property
    def gap_pp(self) -> float:
        """Load distance - lower bound, in pp: how far the plan is from the optimum at most."""
        return max(0.0, self.score.load_distance - self.lower_bound)
