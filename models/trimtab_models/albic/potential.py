"""The potential plan: what free moves make of the loads (Madsen et al. 2017, Algorithm 1, step b).

The size of a job is decided by it, because collocation can save the nodes that remote traffic seems to need, and a
smaller cluster must be one that can be balanced.  It is not carried out.
"""

from dataclasses import replace

from trimtab_models.albic.problem import CollocationProblem
from trimtab_models.albic.solve import solve, solve_on_hosts
from trimtab_models.balance.hosts import HostLimits
from trimtab_models.balance.problem import Ints
from trimtab_models.solving import Infeasible, StopRule

MOST_ROUNDS = 10  # a few are usual


def potential(
    problem: CollocationProblem, limits: HostLimits | None, *, stop: StopRule, seed: int
) -> Ints | Infeasible:
    """The allocation after rounds with unlimited budgets, until no further move is worth it."""
    state = problem.unlimited()
    for _ in range(MOST_ROUNDS):
        if limits is None:
            result = solve(state, stop=stop, seed=seed)
        else:
            # What stays on the nodes that were home first is still there, so their homes in the limits are the first.
            usage = limits.usage.copy()
            usage[0] = state.balance.load
            result = solve_on_hosts(state, replace(limits, usage=usage), stop=stop, seed=seed)
        if isinstance(result, Infeasible):
            return result
        settled = (result.balance.allocation == state.balance.home).all()
        state = state.moved_to(result.balance.allocation)
        if settled or stop():
            break
    return state.balance.home
