"""What ALBIC returns."""

from dataclasses import dataclass

from trimtab_models.balance.result import BalanceResult


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AlbicResult:
    """`balance` is the plan as the given loads judge it; predicted figures count what collocation saves.

    `within` says whether the predicted load distance is inside maxLD; if not, no attempt was, and this is the nearest.
    `partition_load` is the maxPL that the plan was made with, 0 where it is the plan of the pure balance problem.
    """

    balance: BalanceResult
    predicted_load_distance: float
    collocation: float
    predicted_load: float  # sum over the key groups
    partition_load: float
    within: bool
