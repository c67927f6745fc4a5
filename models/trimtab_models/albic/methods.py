"""The collocation methods of the file contract."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import pymetis  # noqa: F401  (as OR-Tools, see below)

import trimtab_models.albic.model  # noqa: F401  (loads OR-Tools now, so that no plan waits for it)
from trimtab_models.albic.cola import solve_cola
from trimtab_models.albic.problem import problem_of
from trimtab_models.albic.solve import AlbicResult, solve, solve_on_hosts
from trimtab_models.balance.hosts import limits_in
from trimtab_models.balance.result import BALANCE_RESULT, describe_alert, encode_result
from trimtab_models.instances.reading import parsed_instance
from trimtab_models.instances.snapshot import BalanceInstance
from trimtab_models.solving import Infeasible, PlanDocument, SolveMethod, StopRule

ALBIC_RESULT = BALANCE_RESULT | {
    "predicted_load_distance": "Load distance with the loads as the plan's collocations change them (pp)."
}
"""Key of a plan -> what it says."""


def _albic(instance: BalanceInstance, stop: StopRule, seed: int) -> PlanDocument | Infeasible:
    problem, limits = problem_of(instance), limits_in(instance)
    result = (
        solve(problem, stop=stop, seed=seed)
        if limits is None
        else solve_on_hosts(problem, limits, stop=stop, seed=seed)
    )
    if isinstance(result, Infeasible):
        return result
    return PlanDocument(document=_encoded(instance, result), warnings=_warnings(instance, result))


def _encoded(instance: BalanceInstance, result: AlbicResult) -> dict[str, Any]:
    document = encode_result(instance, result.balance, method="albic")
    return document | {"predicted_load_distance": result.predicted_load_distance}


def _warnings(instance: BalanceInstance, result: AlbicResult) -> tuple[str, ...]:
    lines = [describe_alert(instance, alert) for alert in result.balance.alerts]
    if not result.within:
        lines.append(
            f"no attempt came within max_load_distance {instance.options.max_load_distance:g}: "
            f"the predicted load distance is {result.predicted_load_distance:.3g}"
        )
    return tuple(lines)


def _cola(instance: BalanceInstance, stop: StopRule, seed: int) -> PlanDocument | Infeasible:
    result = solve_cola(problem_of(instance), stop=stop, seed=seed)
    if isinstance(result, Infeasible):
        return result
    return PlanDocument(document=encode_result(instance, result, method="cola"))


METHODS: Mapping[str, SolveMethod] = {
    "albic": SolveMethod(
        read=partial(parsed_instance, kind=BalanceInstance),
        solve=_albic,
        text="Balances, and brings key groups that exchange tuples onto one node, within a load distance (ALBIC).",
        result=ALBIC_RESULT,
    ),
    "cola": SolveMethod(
        read=partial(parsed_instance, kind=BalanceInstance),
        solve=_cola,
        text="Baseline: partitions the graph of key groups from scratch, as COLA does; it ignores the budget.",
        result=BALANCE_RESULT,
    ),
}
