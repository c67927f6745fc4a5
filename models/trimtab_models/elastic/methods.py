"""The method `elastic` of the file contract, with the documents of the balance model."""

from collections.abc import Iterator, Mapping

from trimtab_models.balance.drain import alerts
from trimtab_models.balance.encode import BALANCE_RESULT, describe_alert, encode_result
from trimtab_models.balance.problem import BalanceProblem, problem_of
from trimtab_models.elastic.solve import DEFAULT_PARAMS, ElasticResult, solve
from trimtab_models.instances import BalanceInstance, parse_snapshot
from trimtab_models.solving.methods import PlanDocument, SolveMethod
from trimtab_models.solving.outcome import Infeasible
from trimtab_models.solving.stop import StopRule


def _planned(instance: BalanceInstance, stop: StopRule, seed: int) -> PlanDocument | Infeasible:
    problem = problem_of(instance)
    result = solve(problem, stop=stop, seed=seed)
    if isinstance(result, Infeasible):
        return result
    return PlanDocument(
        document=encode_result(instance, result.plan, method="elastic"),
        warnings=tuple(_warnings(instance, problem, result)),
    )


def _warnings(instance: BalanceInstance, problem: BalanceProblem, result: ElasticResult) -> Iterator[str]:
    why = f"no other node has room for it under {DEFAULT_PARAMS.threshold:.0f} %, and no light one takes it"
    for key_group in (*result.forced, *result.refused):
        id_, node = instance.key_groups[key_group].id, instance.nodes[result.plan.allocation[key_group]].id
        if key_group in result.forced:
            yield f"key group {id_!r} is put on node {node!r} although it is full: {why}"
        else:
            yield f"key group {id_!r} stays on node {node!r}, which is draining: {why}"
    for alert in alerts(problem, result.plan.allocation, float("inf")):
        if alert.key_group not in result.refused:
            yield describe_alert(instance, alert)


METHODS: Mapping[str, SolveMethod] = {
    "elastic": SolveMethod(
        read=parse_snapshot,
        solve=_planned,
        text="Re-places only the key groups of lost and marked nodes, by greedy matching (Elastic Allocator).",
        result=BALANCE_RESULT,
    )
}
