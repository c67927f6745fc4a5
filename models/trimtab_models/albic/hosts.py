"""ALBIC within limits of hosts: it knows those of nodes only, so a host's room is divided among its nodes."""

from dataclasses import replace

from trimtab_models.albic.problem import CollocationProblem
from trimtab_models.albic.result import AlbicResult
from trimtab_models.albic.solve import solve
from trimtab_models.balance.evaluate import evaluate
from trimtab_models.balance.hosts import HostLimits, within
from trimtab_models.solving.outcome import Infeasible
from trimtab_models.solving.stop import StopRule


def solve_on_hosts(
    problem: CollocationProblem, limits: HostLimits, *, stop: StopRule, seed: int
) -> AlbicResult | Infeasible:
    """The plan of one round, without arrivals that would fill a host beyond its limits."""
    divided = replace(problem, balance=limits.divided(problem.balance))
    result = solve(divided, stop=stop, seed=seed)
    if isinstance(result, Infeasible):
        return result
    kept = within(problem.balance, limits, result.balance)
    if kept is result.balance:
        return result
    return replace(
        result,
        balance=kept,
        predicted_load_distance=evaluate(problem.predicted(kept.allocation), kept.allocation).load_distance,
        collocation=problem.collocation(kept.allocation),
        predicted_load=float(problem.loads(kept.allocation).sum()),
    )
