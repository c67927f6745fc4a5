"""The result of ALBIC, and its document: that of the balance methods, with predicted figures."""

from dataclasses import dataclass
from typing import Any

from trimtab_models.balance.encode import BALANCE_RESULT, describe_alert, encode_result
from trimtab_models.balance.result import BalanceResult
from trimtab_models.instances import BalanceInstance

ALBIC_RESULT = BALANCE_RESULT | {
    "predicted_load_distance": "Load distance with the loads as the plan's collocations change them (pp)."
}
"""Key of a plan -> what it says."""


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


def encode_albic(instance: BalanceInstance, result: AlbicResult) -> dict[str, Any]:
    """The result document for `instance` (with nothing in flight), without `solve_seconds`."""
    document = encode_result(instance, result.balance, method="albic")
    return document | {"predicted_load_distance": result.predicted_load_distance}


def warnings_of(instance: BalanceInstance, result: AlbicResult) -> tuple[str, ...]:
    """Warnings about the plan, one line each."""
    lines = [describe_alert(instance, alert) for alert in result.balance.alerts]
    if not result.within:
        lines.append(
            f"no attempt came within max_load_distance {instance.options.max_load_distance:g}: "
            f"the predicted load distance is {result.predicted_load_distance:.3g}"
        )
    return tuple(lines)
