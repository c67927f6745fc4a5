"""The collocation methods of the file contract."""

from collections.abc import Mapping

import trimtab_models.albic.model  # noqa: F401  (loads OR-Tools now, so that no plan waits for it)
from trimtab_models.albic.cola import solve_cola
from trimtab_models.albic.encode import encode_albic, warnings_of
from trimtab_models.albic.problem import problem_of
from trimtab_models.albic.solve import solve
from trimtab_models.balance.encode import encode_result
from trimtab_models.instances import BalanceInstance, parse_snapshot
from trimtab_models.solving.methods import Method, Plan
from trimtab_models.solving.outcome import Infeasible
from trimtab_models.solving.stop import Stop


def _albic(instance: BalanceInstance, stop: Stop, seed: int) -> Plan | Infeasible:
    result = solve(problem_of(instance), stop=stop, seed=seed)
    if isinstance(result, Infeasible):
        return result
    return Plan(document=encode_albic(instance, result), warnings=warnings_of(instance, result))


def _cola(instance: BalanceInstance, stop: Stop, seed: int) -> Plan | Infeasible:
    result = solve_cola(problem_of(instance), stop=stop, seed=seed)
    if isinstance(result, Infeasible):
        return result
    return Plan(document=encode_result(instance, result, method="cola"))


METHODS: Mapping[str, Method] = {
    "albic": Method(read=parse_snapshot, solve=_albic),
    "cola": Method(read=parse_snapshot, solve=_cola),
}
