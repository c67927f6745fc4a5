"""A reduced problem for tight budgets of migrations, small enough for CP-SAT.

Any plan better than the present one must take a minimum number of key groups from each node above the band, and bring a
minimum number to each node below it (R and S of `bound.py`).  If these moves use most of the budget, little else can
move.  What remains is a packing problem with few large pieces, at which local search is weak.  In the reduced problem
only nodes above the band give and only nodes below it receive, each at most `SPARE` key groups more than the minimum.
This may exclude the optimum: a plan that CP-SAT finds is valid, but infeasibility here proves nothing.

With a budget of bytes, the number of moves is not known.  There the key groups that may move are those with the fewest
bytes per load: from each node above the band twice its excess, and from all nodes twice what the deficits still lack.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from trimtab_models.balance.bound import CostConditions, CountConditions
from trimtab_models.balance.exact import ExactModel
from trimtab_models.balance.problem import UNPLACED, BalanceProblem, Bools, Ints

SPARE = 1
TIGHT = 0.75  # least share of the budget that the necessary moves must use
BOOLEANS = 12_000
BINDS_PP = 1.0  # below, a budget of bytes is not tight, and prices of loads and search do better
AMPLE = 2.0  # times the load that must move


@dataclass(frozen=True, slots=True, kw_only=True)
class Core:
    """The nodes allowed for each key group, and the minimum number that leaves and reaches each node (N,), if known."""

    nodes: list[list[int]]
    leaving: Ints | None = None
    arriving: Ints | None = None


def core_of(problem: BalanceProblem, conditions: CountConditions, reached: float) -> Core | None:
    """The core for plans with a load distance below `reached`; None if the budget is not tight or it is too large."""
    budget = problem.max_migrations
    leaving = conditions.mandatory(reached)
    if budget is None or leaving is None or not TIGHT * budget <= leaving.sum() <= budget:
        return None
    if (problem.home == UNPLACED).any():
        return None
    arriving = conditions.arrivals(reached)
    free, receivers = problem.movable & (leaving > 0)[problem.home], np.flatnonzero(arriving).tolist()
    if not 0 < int(free.sum()) * len(receivers) <= BOOLEANS:
        return None
    return Core(nodes=_allowed(problem, free, receivers), leaving=leaving, arriving=arriving)


def core_by_bytes(problem: BalanceProblem, proven: float) -> Core | None:
    """The core of a budget of bytes, for plans with a load distance near `proven`; None if it is too large or empty."""
    if problem.max_cost_bytes is None or proven < BINDS_PP or (problem.home == UNPLACED).any():
        return None
    conditions = CostConditions(problem, problem.max_cost_bytes)
    receivers = np.flatnonzero(conditions.lacking(proven)).tolist()
    chosen = conditions.candidates(proven, AMPLE)
    if not 0 < len(chosen) * len(receivers) <= BOOLEANS:
        return None
    free = np.zeros(len(problem.load), np.bool_)
    free[chosen] = True
    return Core(nodes=_allowed(problem, free, receivers))


def _allowed(problem: BalanceProblem, free: Bools, receivers: list[int]) -> list[list[int]]:
    return [
        sorted({home, *(node for node in receivers if problem.may(key_group, node))}) if leaves else [home]
        for key_group, (home, leaves) in enumerate(zip(problem.home.tolist(), free.tolist(), strict=True))
    ]


def solve_core(
    problem: BalanceProblem,
    core: Core,
    proven: float,
    reached: float,
    *,
    plan: Ints | None = None,
    seed: int,
    work: float,
    left_s: Callable[[], float] = lambda: np.inf,
) -> Ints | None:
    """(K,) the best plan found with load distance in [`proven`, `reached`], beginning with `plan`, if given.

    `work`, `left_s` as in `ExactModel.solve`.
    """
    nodes = core.nodes
    if plan is not None:
        nodes = [sorted({*at, node}) for at, node in zip(nodes, plan.tolist(), strict=True)]
    exact = ExactModel(problem, nodes, proven, reached)
    if plan is not None:
        exact.hint(plan)
    if core.leaving is not None and core.arriving is not None:
        exact.limit_movers(core.leaving, core.arriving, SPARE)
    return exact.solve(seed=seed, work=work, left_s=left_s).allocation
