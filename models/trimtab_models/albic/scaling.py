"""Decides whether to scale: steps (b) and (c) of the adaptation round (Madsen et al. 2017, Algorithm 1).

The decision is based on a *potential* plan with an unlimited budget, because collocation can save the nodes that remote
traffic seems to need.  Scale out: when the remaining nodes would be busier than `scale_out_above`, add capacity until
they are at the target.  Scale in: drain as many nodes as the target allows, those with the least state first, but only
if the smaller cluster can be balanced and the nodes can be emptied.  In between, nothing happens.
"""

import math
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from trimtab_models.albic.problem import CollocationProblem
from trimtab_models.albic.solve import DEFAULT_PARAMS, AlbicParams, solve
from trimtab_models.balance.evaluate import evaluate
from trimtab_models.balance.problem import Ints, infeasible
from trimtab_models.solving import Infeasible, StopRule

MOST_ROUNDS = 10  # most rounds of a potential plan; a few are usual


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PotentialPlacement:
    """The placement that unlimited budgets allow, and its predicted loads in percent of a node."""

    allocation: Ints
    load: float
    load_distance: float
    collocation: float


def potential(
    problem: CollocationProblem, *, stop: StopRule, seed: int, params: AlbicParams = DEFAULT_PARAMS
) -> PotentialPlacement | Infeasible:
    """The plan with unlimited budgets: rounds until no further move is worth it."""
    if reason := infeasible(problem.balance):
        return Infeasible(reason=reason)
    state = problem.unlimited()
    for _ in range(MOST_ROUNDS):
        result = solve(state, stop=stop, seed=seed, params=params)
        assert not isinstance(result, Infeasible), "some node is kept"
        settled = (result.balance.allocation == state.balance.home).all()
        state = state.moved_to(result.balance.allocation)
        if settled or stop():
            break
    home = state.balance.home
    return PotentialPlacement(
        allocation=home,
        load=float(state.balance.load.sum()),
        load_distance=evaluate(state.balance, home).load_distance,
        collocation=state.collocation(home),
    )


class ScalingDirection(Enum):
    """How the number of nodes should change."""

    STAY = "stay"
    OUT = "out"
    IN = "in"


class ScalingReason(Enum):
    """Reason of a scaling decision."""

    BUSY = "the kept nodes would be busier than allowed even when balanced and collocated"
    IDLE = "a smaller cluster carries the load at the target utilisation"
    RIGHT = "the load fits the kept nodes, and no smaller number of them"
    UNBALANCED = "a smaller cluster would carry the load but cannot be balanced or emptied"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingDecision:
    """A scaling decision.

    `capacity` = capacity that the load needs at the target; `add` = capacity to add, `nodes_to_add` = the same in nodes
    of median size; `remove` = positions of the nodes to drain; `utilisation` = mean of the remaining nodes by potential
    plan and forecast, in percent.
    """

    direction: ScalingDirection
    reason: ScalingReason
    utilisation: float
    capacity: float
    add: float = 0.0
    nodes_to_add: int = 0
    remove: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingPolicy:
    """Thresholds in percent of the remaining capacity; `forecast` = expected load / present load."""

    target: float = 60.0
    scale_out_above: float = 80.0
    forecast: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.target <= self.scale_out_above or not self.forecast > 0:
            raise ValueError("0 < target <= scale_out_above and forecast > 0 expected")

    def expected(self, load: float) -> float:
        """The load to plan for: the larger of the present and the forecast load."""
        return load * max(1.0, self.forecast)


def decide_scaling(
    problem: CollocationProblem,
    policy: ScalingPolicy,
    *,
    stop: StopRule,
    seed: int,
    params: AlbicParams = DEFAULT_PARAMS,
) -> ScalingDecision | Infeasible:
    """Whether to add nodes, drain some, or keep the size."""
    plan = potential(problem, stop=stop, seed=seed, params=params)
    if isinstance(plan, Infeasible):
        return plan
    balance = problem.balance
    kept_capacity = float(balance.capacity[balance.kept].sum())
    expected = policy.expected(plan.load)
    utilisation, capacity = expected / kept_capacity, expected / policy.target
    if utilisation > policy.scale_out_above:
        add = capacity - kept_capacity
        nodes = math.ceil(add / float(np.median(balance.capacity[balance.kept])) - 1e-9)
        return ScalingDecision(
            direction=ScalingDirection.OUT,
            reason=ScalingReason.BUSY,
            utilisation=utilisation,
            capacity=capacity,
            add=add,
            nodes_to_add=nodes,
        )
    spare = _spare_nodes(problem, kept_capacity - capacity)
    tried = len(spare)
    while tried:
        smaller = _without(problem, spare[:tried])
        if _works(smaller, policy, stop, seed, params):
            return ScalingDecision(
                direction=ScalingDirection.IN,
                reason=ScalingReason.IDLE,
                utilisation=utilisation,
                capacity=capacity,
                remove=tuple(sorted(spare[:tried])),
            )
        tried //= 2
    reason = ScalingReason.UNBALANCED if spare else ScalingReason.RIGHT
    return ScalingDecision(direction=ScalingDirection.STAY, reason=reason, utilisation=utilisation, capacity=capacity)


def _spare_nodes(problem: CollocationProblem, spare_capacity: float) -> list[int]:
    """Nodes with at most the spare capacity in total, cheapest to empty first; at least one node remains."""
    balance = problem.balance
    here = balance.home >= 0
    state = np.bincount(balance.home[here], balance.cost_bytes[here], len(balance.capacity))
    bound = np.bincount(balance.home[here & ~balance.movable], minlength=len(balance.capacity)) > 0
    kept = np.flatnonzero(balance.kept)
    chosen: list[int] = []
    for node in kept[np.argsort(state[kept] / balance.capacity[kept], kind="stable")].tolist():
        if bound[node] or balance.capacity[node] > spare_capacity or len(chosen) + 1 == len(kept):
            continue
        chosen.append(node)
        spare_capacity -= float(balance.capacity[node])
    return chosen


def _without(problem: CollocationProblem, nodes: list[int]) -> CollocationProblem:
    removing = problem.balance.removing.copy()
    removing[nodes] = True
    return replace(problem, balance=replace(problem.balance, removing=removing))


def _works(smaller: CollocationProblem, policy: ScalingPolicy, stop: StopRule, seed: int, params: AlbicParams) -> bool:
    """Whether the smaller cluster becomes balanced, at most at the target, with its draining nodes empty."""
    plan = potential(smaller, stop=stop, seed=seed, params=params)
    if isinstance(plan, Infeasible):
        return False
    balance = smaller.balance
    empty = not balance.removing[plan.allocation].any()
    utilisation = policy.expected(plan.load) / float(balance.capacity[balance.kept].sum())
    balanced = plan.load_distance <= balance.max_load_distance
    return empty and balanced and utilisation <= policy.target * (1 + 1e-9)
