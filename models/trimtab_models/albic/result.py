"""The result of ALBIC."""

from dataclasses import dataclass

from trimtab_models.balance.result import BalanceResult


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AlbicResult:
    """`balance` = the plan, evaluated with the given loads; predicted figures include what collocation saves.

    `within` = whether the predicted load distance is within maxLD; if not, no attempt was, and this is the closest.
    `partition_load` = the maxPL of the plan; 0 if it is the plan of the pure balance problem.
    """

    balance: BalanceResult
    predicted_load_distance: float
    collocation: float
    predicted_load: float  # sum over the key groups
    partition_load: float
    within: bool
