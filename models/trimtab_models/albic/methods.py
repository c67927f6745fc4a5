"""The collocation methods of the file contract."""

from collections.abc import Mapping

import pymetis  # noqa: F401  (as OR-Tools, see below)

import trimtab_models.albic.model  # noqa: F401  (loads OR-Tools now, so that no plan waits for it)
from trimtab_models.albic.cola import solve_cola
from trimtab_models.albic.problem import problem_of
from trimtab_models.albic.solve import ALBIC_RESULT, encode_albic, solve, solve_on_hosts, warnings_of
from trimtab_models.balance.hosts import limits_in
from trimtab_models.balance.result import BALANCE_RESULT, encode_result
from trimtab_models.instances.snapshot import BalanceInstance, parse_snapshot
from trimtab_models.solving import Infeasible, PlanDocument, SolveMethod, StopRule


def _albic(instance: BalanceInstance, stop: StopRule, seed: int) -> PlanDocument | Infeasible:
    problem, limits = problem_of(instance), limits_in(instance)
    result = (
        solve(problem, stop=stop, seed=seed)
        if limits is None
        else solve_on_hosts(problem, limits, stop=stop, seed=seed)
    )
    if isinstance(result, Infeasible):
        return result
    return PlanDocument(document=encode_albic(instance, result), warnings=warnings_of(instance, result))


def _cola(instance: BalanceInstance, stop: StopRule, seed: int) -> PlanDocument | Infeasible:
    result = solve_cola(problem_of(instance), stop=stop, seed=seed)
    if isinstance(result, Infeasible):
        return result
    return PlanDocument(document=encode_result(instance, result, method="cola"))


METHODS: Mapping[str, SolveMethod] = {
    "albic": SolveMethod(
        read=parse_snapshot,
        solve=_albic,
        text="Balances, and brings key groups that exchange tuples onto one node, within a load distance (ALBIC).",
        result=ALBIC_RESULT,
    ),
    "cola": SolveMethod(
        read=parse_snapshot,
        solve=_cola,
        text="Baseline: partitions the graph of key groups from scratch, as COLA does; it ignores the budget.",
        result=BALANCE_RESULT,
    ),
}
