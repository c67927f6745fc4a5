"""What is known of a plan, or why there is none."""

from dataclasses import dataclass
from enum import Enum


class Status(Enum):
    """The words of the file contract."""

    OPTIMAL = "optimal"  # the objective is within the tolerance of the proven bound
    FEASIBLE = "feasible"
    UNCHANGED = "unchanged"  # no move: nothing better was found or is allowed
    INFEASIBLE = "infeasible"


@dataclass(frozen=True, slots=True, kw_only=True)
class Infeasible:
    """No plan exists, and why."""

    reason: str
    status: Status = Status.INFEASIBLE
