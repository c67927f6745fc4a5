"""Balance problems for tests: by hand in one line, of the paper's shape, or any at all; and what plans may not do."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
from hypothesis import strategies as st

from tests.narrow import of_type
from trimtab_models.balance.improve import Effort
from trimtab_models.balance.problem import BalanceProblem
from trimtab_models.balance.result import BalanceResult
from trimtab_models.balance.solve import BalanceParams, solve
from trimtab_models.simulation.workloads import uneven_cluster
from trimtab_models.solving import Never, StopRule

SHORT = BalanceParams(effort=Effort(steps=300, patience=100), polish=Effort(steps=50, patience=60))


def cluster(homes: Any, loads: Any, nodes: int, **changes: Any) -> BalanceProblem:
    """Key group k of `loads[k]` on node `homes[k]`; capacity 1, one byte of state each, no limits, unless changed."""
    given = {name: np.array(value) if isinstance(value, list) else value for name, value in changes.items()}
    fixed = {"load": np.array(loads, float), "home": np.array(homes, np.int64), "capacity": np.ones(nodes)}
    return BalanceProblem.plain(**fixed | given)


def solved(
    problem: BalanceProblem, params: BalanceParams = SHORT, *, stop: StopRule | None = None, seed: int = 0
) -> BalanceResult:
    return of_type(BalanceResult, solve(problem, stop=stop or Never(), seed=seed, params=params))


def searched(problem: BalanceProblem, params: BalanceParams = SHORT, *, stop: StopRule | None = None) -> BalanceResult:
    """As a larger problem is solved: these are small enough to be enumerated."""
    with patch("trimtab_models.balance.enumeration.PAIRS", -1):
        return solved(problem, params, stop=stop)


def by_bytes(nodes: int, change: int, share: float, *, each: int = 20, seed: int = 0) -> BalanceProblem:
    """`each` key groups a node, 20 % of the nodes changed by `change` percent; the budget is a share of all bytes."""
    problem = uneven_cluster(nodes, each * nodes, change, seed)
    state = np.exp(np.random.default_rng(seed).normal(0, 1, each * nodes))
    cost = 1e6 * state * np.sqrt(problem.load / problem.load.mean())
    return replace(problem, cost_bytes=cost, max_cost_bytes=share * float(cost.sum()))


@st.composite
def problems(
    draw: st.DrawFn,
    *,
    nodes: int = 4,
    marked: bool = True,
    unplaced: bool = True,
    limits: bool = True,
    budget: bool = False,
) -> BalanceProblem:
    """Up to 4 nodes and 6 key groups with everything that can be in a snapshot; at least one node is kept.

    `budget`: there is one, and it is tight.
    """
    nodes, key_groups = draw(st.integers(1, nodes)), draw(st.integers(0, 6))

    def each(strategy: st.SearchStrategy[Any], count: int) -> Any:
        return np.array(draw(st.lists(strategy, min_size=count, max_size=count)))

    removing = each(st.booleans(), nodes) if marked else np.zeros(nodes)
    removing[draw(st.integers(0, nodes - 1))] = False
    loads = st.one_of(st.sampled_from([0.0, 10.0, 10.0, 20.0]), st.floats(0, 40).map(lambda load: round(load, 2)))
    limited = limits and draw(st.booleans())
    kinds = [(True, False), (False, True), (True, True)]
    count, cost = draw(st.sampled_from(kinds if budget else [(False, False), *kinds]))
    return BalanceProblem(
        load=each(loads, key_groups).astype(float),
        cost_bytes=each(st.integers(1, 5), key_groups).astype(float),
        home=each(st.integers(-1 if unplaced else 0, nodes - 1), key_groups).astype(np.int64),
        pinned=each(st.sampled_from([False, False, False, True]), key_groups).astype(bool),
        capacity=each(st.sampled_from([0.5, 1.0, 1.0, 2.0]), nodes).astype(float),
        removing=removing.astype(bool),
        usage=each(st.integers(0, 4), key_groups).astype(float)[None, :] if limited else np.zeros((0, key_groups)),
        limit=each(st.integers(0, 10), nodes).astype(float)[None, :] if limited else np.zeros((0, nodes)),
        max_migrations=draw(st.integers(0, 4 if budget else 6)) if count else None,
        max_cost_bytes=draw(st.floats(0, 9 if budget else 15)) if cost else None,
    )


def broken_rules(problem: BalanceProblem, allocation: np.ndarray) -> list[str]:
    """The rules that `allocation` breaks, checked key group by key group. Limits only if all were placed before."""
    broken, moved = [], []
    now, after = np.zeros(problem.limit.shape), np.zeros(problem.limit.shape)
    for key_group, node in enumerate(allocation):
        home = problem.home[key_group]
        after[:, node] += problem.usage_on(key_group, node)
        if home >= 0:
            now[:, home] += problem.usage_on(key_group, home)
        if node == home:
            continue
        if problem.removing[node]:
            broken.append(f"{key_group} moved onto marked node {node}")
        if home >= 0:
            moved.append(key_group)
            if problem.pinned[key_group]:
                broken.append(f"{key_group} is pinned")
    if problem.max_migrations is not None and len(moved) > problem.max_migrations:
        broken.append("max_migrations")
    if problem.max_cost_bytes is not None and sum(problem.cost_bytes[moved]) > problem.max_cost_bytes:
        broken.append("max_cost_bytes")
    if (problem.home >= 0).all() and (after > np.maximum(problem.limit, now) + 1e-9).any():
        broken.append("limits")
    return broken


def objectives(
    problem: BalanceProblem, allocation: np.ndarray, loads: np.ndarray | None = None
) -> tuple[float, float, int, float]:
    """Load distance, its other side, moves and their bytes, node by node; with other `loads` (K,) than those given."""
    loads = problem.load if loads is None else loads
    mean = sum(loads) / sum(problem.capacity[~problem.removing])
    over = under = 0.0
    for node in range(len(problem.capacity)):
        deviation = sum(loads[allocation == node]) / problem.capacity[node] - mean
        over, under = max(over, deviation), max(under, 0.0 if problem.removing[node] else -deviation)
    moved = (allocation != problem.home) & (problem.home >= 0)
    return max(over, under), min(over, under), int(moved.sum()), float(problem.cost_bytes[moved].sum())


def load_distance(problem: BalanceProblem, allocation: np.ndarray, loads: np.ndarray | None = None) -> float:
    return objectives(problem, allocation, loads)[0]


def allowed_allocations(problem: BalanceProblem) -> Iterator[np.ndarray]:
    """Every allocation that breaks no rule."""
    nodes = range(len(problem.capacity))
    choices = []
    for key_group, home in enumerate(problem.home):
        kept = [node for node in nodes if not problem.removing[node]]
        if home >= 0 and problem.pinned[key_group]:
            kept = [home]
        elif home >= 0 and home not in kept:
            kept = [*kept, home]
        choices.append(kept)
    for index in np.ndindex(*map(len, choices)):
        allocation = np.array([choice[at] for choice, at in zip(choices, index, strict=True)], np.int64)
        if not broken_rules(problem, allocation):
            yield allocation


def optimum(problem: BalanceProblem) -> float:
    """The least load distance of all allowed allocations."""
    return min((load_distance(problem, allocation) for allocation in allowed_allocations(problem)), default=np.inf)
