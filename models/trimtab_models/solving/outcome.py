"""The status of a plan, or why there is no plan."""

from dataclasses import dataclass
from enum import Enum


class PlanStatus(Enum):
    """The statuses of the file contract."""

    OPTIMAL = "optimal"  # the objective is within the tolerance of its proven bound
    FEASIBLE = "feasible"
    UNCHANGED = "unchanged"  # nothing moves: nothing better was found or is allowed
    INFEASIBLE = "infeasible"


@dataclass(frozen=True, slots=True, kw_only=True)
class Infeasible:
    """There is no plan, for this reason."""

    reason: str
    status: PlanStatus = PlanStatus.INFEASIBLE
