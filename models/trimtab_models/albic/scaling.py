"""Whether the cluster has the right size: steps (b) and (c) of the adaptation round (Madsen et al. 2017, Algorithm 1).

The decision is made on a *potential* plan, as if moves cost no budget, since bringing talking key groups together can
save the nodes that their traffic seems to need. Out: when the kept nodes would be busier than `scale_out_above`, by
what brings them down to the target. In: as many nodes as the target allows, those with the least state to move first,
and only if the smaller cluster can be balanced and what is marked becomes empty. Between the two nothing happens.
"""

import math
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from trimtab_models.albic.problem import CollocationProblem
from trimtab_models.albic.solve import DEFAULT_PARAMS, Params, solve
from trimtab_models.balance.evaluate import evaluate
from trimtab_models.balance.problem import Ints
from trimtab_models.balance.solve import infeasible
from trimtab_models.solving.outcome import Infeasible
from trimtab_models.solving.stop import Stop

MOST_ROUNDS = 10  # of a potential plan; a few are usual


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Potential:
    """Where the key groups would be without budgets, and what is predicted there: load in percent of a node."""

    allocation: Ints
    load: float
    load_distance: float
    collocation: float


def potential(
    problem: CollocationProblem, *, stop: Stop, seed: int, params: Params = DEFAULT_PARAMS
) -> Potential | Infeasible:
    """The plan with unlimited budgets: rounds until nothing more is worth moving."""
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
    return Potential(
        allocation=home,
        load=float(state.balance.load.sum()),
        load_distance=evaluate(state.balance, home).load_distance,
        collocation=state.collocation(home),
    )


class Direction(Enum):
    """What to do about the number of nodes."""

    STAY = "stay"
    OUT = "out"
    IN = "in"


class Reason(Enum):
    """Why."""

    BUSY = "the kept nodes would be busier than allowed even when balanced and collocated"
    IDLE = "a smaller cluster carries the load at the target utilisation"
    RIGHT = "the load fits the kept nodes, and no smaller number of them"
    UNBALANCED = "a smaller cluster would carry the load but cannot be balanced or emptied"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """`capacity` is what the load needs at the target; `add` capacity to add, `nodes_to_add` of the median size.

    `remove` names the nodes to mark for removal, by position. `utilisation` is the mean that the potential plan and the
    forecast give the kept nodes, in percent.
    """

    direction: Direction
    reason: Reason
    utilisation: float
    capacity: float
    add: float = 0.0
    nodes_to_add: int = 0
    remove: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingPolicy:
    """Percent of the capacity of the kept nodes; `forecast` is the load to come in shares of the present load."""

    target: float = 60.0
    scale_out_above: float = 80.0
    forecast: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.target <= self.scale_out_above or not self.forecast > 0:
            raise ValueError("0 < target <= scale_out_above and forecast > 0 expected")

    def expected(self, load: float) -> float:
        """The load to be ready for: a forecast of less does not take away what is needed now."""
        return load * max(1.0, self.forecast)


def decide_scaling(
    problem: CollocationProblem, policy: ScalingPolicy, *, stop: Stop, seed: int, params: Params = DEFAULT_PARAMS
) -> Scaling | Infeasible:
    """Whether to add nodes, remove some, or stay."""
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
        return Scaling(
            direction=Direction.OUT,
            reason=Reason.BUSY,
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
            return Scaling(
                direction=Direction.IN,
                reason=Reason.IDLE,
                utilisation=utilisation,
                capacity=capacity,
                remove=tuple(sorted(spare[:tried])),
            )
        tried //= 2
    reason = Reason.UNBALANCED if spare else Reason.RIGHT
    return Scaling(direction=Direction.STAY, reason=reason, utilisation=utilisation, capacity=capacity)


def _spare_nodes(problem: CollocationProblem, spare_capacity: float) -> list[int]:
    """Kept nodes that together have at most the spare capacity, the cheapest to empty first; some node stays."""
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


def _works(smaller: CollocationProblem, policy: ScalingPolicy, stop: Stop, seed: int, params: Params) -> bool:
    """Whether the smaller cluster ends balanced, empty where marked, and no busier than the target."""
    plan = potential(smaller, stop=stop, seed=seed, params=params)
    if isinstance(plan, Infeasible):
        return False
    balance = smaller.balance
    empty = not balance.removing[plan.allocation].any()
    utilisation = policy.expected(plan.load) / float(balance.capacity[balance.kept].sum())
    balanced = plan.load_distance <= balance.max_load_distance
    return empty and balanced and utilisation <= policy.target * (1 + 1e-9)
