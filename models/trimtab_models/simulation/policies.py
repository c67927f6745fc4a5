"""The policies of simulations by name: all methods for balance documents, the paper's ALBIC, and moving nothing."""

from collections.abc import Callable, Mapping
from functools import partial

from trimtab_models.albic.cola import solve_cola
from trimtab_models.albic.problem import CollocationProblem
from trimtab_models.albic.solve import AlbicParams, Strategy
from trimtab_models.albic.solve import solve as solve_albic
from trimtab_models.balance.construct import place_unplaced
from trimtab_models.balance.improve import Effort
from trimtab_models.balance.params import DEFAULT_PARAMS as THOROUGH
from trimtab_models.balance.params import BalanceParams
from trimtab_models.balance.problem import Ints, infeasible
from trimtab_models.balance.solve import solve, solve_flux
from trimtab_models.elastic.solve import solve as solve_elastic
from trimtab_models.solving.outcome import Infeasible
from trimtab_models.solving.stop import StopRule

Policy = Callable[[CollocationProblem, StopRule, int], Ints | Infeasible]
"""(problem, stop, seed) -> (K,) new node of every key group; the same seed gives the same plan."""

QUICK = BalanceParams(tolerance=0.05, effort=Effort(steps=200, steps_per_node=1), polish=Effort(steps=100))
"""For many rounds: far fewer steps than `trimtab solve`, for about the same load distances."""

__all__ = ["POLICIES", "QUICK", "THOROUGH", "Policy", "policy_named"]


def policy_named(name: str, params: BalanceParams = QUICK) -> Policy:
    """The policy `name` of `POLICIES`, balancing with `params`. Raises KeyError on another name."""
    return partial(POLICIES[name], params)


def _milp(params: BalanceParams, problem: CollocationProblem, stop: StopRule, seed: int) -> Ints | Infeasible:
    result = solve(problem.balance, stop=stop, seed=seed, params=params)
    return result if isinstance(result, Infeasible) else result.allocation


def _flux(params: BalanceParams, problem: CollocationProblem, stop: StopRule, seed: int) -> Ints | Infeasible:
    del params
    result = solve_flux(problem.balance, stop=stop, seed=seed)
    return result if isinstance(result, Infeasible) else result.allocation


def _albic(
    strategy: Strategy, params: BalanceParams, problem: CollocationProblem, stop: StopRule, seed: int
) -> Ints | Infeasible:
    result = solve_albic(problem, stop=stop, seed=seed, params=AlbicParams(strategy=strategy, balance=params))
    return result if isinstance(result, Infeasible) else result.balance.allocation


def _cola(params: BalanceParams, problem: CollocationProblem, stop: StopRule, seed: int) -> Ints | Infeasible:
    del params
    result = solve_cola(problem, stop=stop, seed=seed)
    return result if isinstance(result, Infeasible) else result.allocation


def _elastic(params: BalanceParams, problem: CollocationProblem, stop: StopRule, seed: int) -> Ints | Infeasible:
    del params
    result = solve_elastic(problem.balance, stop=stop, seed=seed)
    return result if isinstance(result, Infeasible) else result.plan.allocation


def _stay(params: BalanceParams, problem: CollocationProblem, stop: StopRule, seed: int) -> Ints | Infeasible:
    """Moves nothing; only places unplaced key groups."""
    del params, stop, seed
    reason = infeasible(problem.balance)
    return Infeasible(reason=reason) if reason else place_unplaced(problem.balance)


POLICIES: Mapping[str, Callable[[BalanceParams, CollocationProblem, StopRule, int], Ints | Infeasible]] = {
    "milp": _milp,
    "flux": _flux,
    "albic": partial(_albic, Strategy.MANY_PAIRS),
    "albic-paper": partial(_albic, Strategy.ONE_PAIR),
    "cola": _cola,
    "elastic": _elastic,
    "stay": _stay,
}
"""As published, `albic-paper` brings one pair per round together, and `cola` ignores the budget."""
