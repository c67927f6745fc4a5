"""The methods `milp` and `flux` of the file contract."""

from collections.abc import Callable, Mapping
from functools import partial

from trimtab_models.balance.hosts import limits_in, solve_on_hosts
from trimtab_models.balance.problem import BalanceProblem, problem_of
from trimtab_models.balance.result import BALANCE_RESULT, BalanceResult, describe_alert, encode_result
from trimtab_models.balance.solve import BalanceParams, solve, solve_flux
from trimtab_models.instances.reading import parsed_instance
from trimtab_models.instances.snapshot import BalanceInstance
from trimtab_models.solving import Infeasible, PlanDocument, SolveMethod, StopRule


def _method(name: str, text: str, solver: Callable[..., BalanceResult | Infeasible]) -> SolveMethod:
    def planned(instance: BalanceInstance, stop: StopRule, seed: int) -> PlanDocument | Infeasible:
        problem: BalanceProblem = problem_of(instance)
        limits = limits_in(instance)

        def solved(part: BalanceProblem, until: StopRule) -> BalanceResult | Infeasible:
            return solver(part, stop=until, seed=seed)

        result = solved(problem, stop) if limits is None else solve_on_hosts(problem, limits, solved, stop=stop)
        if isinstance(result, Infeasible):
            return result
        return PlanDocument(
            document=encode_result(instance, result, method=name),
            warnings=tuple(describe_alert(instance, alert) for alert in result.alerts),
        )

    return SolveMethod(
        read=partial(parsed_instance, kind=BalanceInstance), solve=planned, text=text, result=BALANCE_RESULT
    )


METHODS: Mapping[str, SolveMethod] = {
    "milp": _method(
        "milp",
        "Finds the moves within a budget that bring the load distance closest to its proven bound.",
        partial(solve, params=BalanceParams(certify=True)),
    ),
    "flux": _method(
        "flux",
        "Baseline: moves key groups from the most to the least loaded node, as Flux does; drains as `milp` does.",
        solve_flux,
    ),
}
