"""The Elastic Allocator on a snapshot: places the key groups of draining nodes and those of lost hosts.

All other key groups stay.  Resources are the load and everything with a limit.  For the 20 moves of a round at the
sizes of the paper, the matching takes less than a millisecond, with bound and score about one
(`benchmarks/placement/table.py`).

A key group that fits nowhere under the threshold, while no node is light, is refused: it stays on its draining node.  A
key group of a lost host cannot stay, so it goes where the balance model puts it, and the result says so.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from trimtab_models.balance.bound import lower_bound
from trimtab_models.balance.construct import place_unplaced
from trimtab_models.balance.drain import alerts
from trimtab_models.balance.evaluate import evaluate
from trimtab_models.balance.problem import UNPLACED, BalanceProblem, Floats, Ints, infeasible, problem_of
from trimtab_models.balance.result import BALANCE_RESULT, BalanceResult, describe_alert, encode_result
from trimtab_models.elastic.matching import HEAVY_FROM, NOWHERE, ResourceDemands, match
from trimtab_models.instances.reading import parsed_instance
from trimtab_models.instances.snapshot import BalanceInstance
from trimtab_models.solving import Infeasible, PlanDocument, SolveMethod, StopRule


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticParams:
    """`threshold` in percent; `operations` = trials of a key group on a node before the rest is spread evenly."""

    threshold: float = HEAVY_FROM
    operations: int = 1_000_000_000


DEFAULT_PARAMS = ElasticParams()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ElasticResult:
    """`plan` as of every balance method; `refused` stay on their draining node, `forced` had to be placed anyway."""

    plan: BalanceResult
    refused: tuple[int, ...]
    forced: tuple[int, ...]


def solve(
    problem: BalanceProblem, *, stop: StopRule, seed: int, params: ElasticParams = DEFAULT_PARAMS
) -> ElasticResult | Infeasible:
    """The plan of GMA within budgets, pins and limits.  Deterministic: `seed` has no effect."""
    if reason := infeasible(problem):
        return Infeasible(reason=reason)
    unplaced = problem.home == UNPLACED
    waiting = np.flatnonzero(unplaced | (problem.movable & problem.removing[problem.home]))
    kept = np.flatnonzero(problem.kept)
    allocation = problem.home.copy()
    allocation[waiting] = UNPLACED
    per_unit, used = _per_unit(problem)[:, kept], utilisation(problem, allocation)[:, kept]
    ceiling = np.full_like(used, 100.0)
    ceiling[0] = np.inf  # load has a threshold but no limit
    demands = ResourceDemands(
        used=used,
        demand=np.vstack((problem.load, problem.usage))[:, waiting],
        per_unit=per_unit,
        ceiling=ceiling,
        prices=problem.prices[:, waiting],
        allowances=problem.allowances,
    )
    matched = match(demands, threshold=params.threshold, operations=params.operations, stop=stop)
    allocation[waiting] = np.where(matched.node == NOWHERE, problem.home[waiting], kept[matched.node])
    refused = waiting[list(matched.refused)]
    forced = refused[unplaced[refused]]
    if len(forced):
        allocation = place_unplaced(replace(problem, home=allocation))
    return ElasticResult(
        plan=_result(problem, allocation, stop),
        refused=tuple(refused[~unplaced[refused]].tolist()),
        forced=tuple(forced.tolist()),
    )


def _result(problem: BalanceProblem, allocation: Ints, stop: StopRule) -> BalanceResult:
    score = evaluate(problem.tolerating(allocation), allocation)
    bound = lower_bound(problem, score.load_distance, stop)
    return BalanceResult.of(problem, allocation, score, bound)


def _per_unit(problem: BalanceProblem) -> Floats:
    """(1 + R, N) percent of a node per unit of load, and per unit of each limited resource."""
    with np.errstate(divide="ignore"):
        return np.vstack((1 / problem.capacity, 100 / problem.limit))


def utilisation(problem: BalanceProblem, allocation: Ints) -> Floats:
    """(1 + R, N) use in percent of each node's capacity: load, then each limited resource."""
    amounts = np.vstack((problem.node_loads(allocation), problem.usages(allocation)))
    return np.where(amounts > 0, amounts, 0) * np.where(amounts > 0, _per_unit(problem), 0)


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
        read=partial(parsed_instance, kind=BalanceInstance),
        solve=_planned,
        text="Re-places only the key groups of lost and marked nodes, by greedy matching (Elastic Allocator).",
        result=BALANCE_RESULT,
    )
}
