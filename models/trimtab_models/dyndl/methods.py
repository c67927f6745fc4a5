"""The DynDL methods of the file contract.

`dyndl-off` gives the same plan for the same instance, with or without a time limit.  For the optimum of a small
instance call `exact.solve_exact`.  The online methods run in deterministic mode, regardless of the seed.
"""

from collections.abc import Callable, Mapping
from functools import partial

from trimtab_models.dyndl.encode import encode_schedule
from trimtab_models.dyndl.list_scheduling import solve_list
from trimtab_models.dyndl.offline import solve_offline
from trimtab_models.dyndl.online import Waiting
from trimtab_models.dyndl.problem import problem_of
from trimtab_models.dyndl.result import ScheduleResult
from trimtab_models.dyndl.simulate import OnlineParams, solve_online
from trimtab_models.instances.scheduling import SchedulingInstance, parse_scheduling
from trimtab_models.solving.methods import Method, Plan
from trimtab_models.solving.outcome import Infeasible
from trimtab_models.solving.stop import Stop


def _method(name: str, solver: Callable[..., ScheduleResult | Infeasible]) -> Method:
    def planned(instance: SchedulingInstance, stop: Stop, seed: int) -> Plan | Infeasible:
        problem = problem_of(instance)
        result = solver(problem, stop=stop, seed=seed)
        if isinstance(result, Infeasible):
            return result
        return Plan(document=encode_schedule(instance, problem, result, method=name))

    return Method(read=parse_scheduling, solve=planned)


METHODS: Mapping[str, Method] = {
    "dyndl-off": _method("dyndl-off", solve_offline),
    **{
        waiting.value: _method(waiting.value, partial(solve_online, params=OnlineParams(waiting=waiting)))
        for waiting in Waiting
    },
    "list": _method("list", solve_list),
}
