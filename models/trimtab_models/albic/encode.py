"""ALBIC's result document: that of the balance methods, with predicted figures."""

from typing import Any

from trimtab_models.albic.result import AlbicResult
from trimtab_models.balance.encode import BALANCE_RESULT, describe_alert, encode_result
from trimtab_models.instances import BalanceInstance

ALBIC_RESULT = BALANCE_RESULT | {
    "predicted_load_distance": "Load distance with the loads as the plan's collocations change them (pp)."
}
"""Key of a plan -> what it says."""


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
