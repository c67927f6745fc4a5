"""What a solver of the balance problem returns."""

from dataclasses import dataclass
from enum import Enum

from trimtab_models.balance.drain import Alert
from trimtab_models.balance.evaluate import Score
from trimtab_models.balance.problem import Ints
from trimtab_models.solving.outcome import Status


class Stage(Enum):
    """How far the solver came."""

    STAYED = "stayed"
    CONSTRUCTED = "constructed"
    IMPROVED = "improved"
    CERTIFIED = "certified"
    DRAINED = "drained"
    SECOND_SIDE = "second side"
    TRIMMED = "trimmed"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BalanceResult:
    """A plan with its proof. `allocation` is (K,), the new node of every key group."""

    status: Status
    allocation: Ints
    score: Score
    lower_bound: float
    stage: Stage
    steps: int
    seed: int
    alerts: tuple[Alert, ...] = ()
    reversed_in_flight: tuple[int, ...] = ()  # key groups in flight that the plan sends elsewhere

    @property
    def gap_pp(self) -> float:
        """How far the plan may be from the best, in percentage points."""
        return max(0.0, self.score.load_distance - self.lower_bound)
