"""The DynDL methods of the file contract.

`dyndl-off` gives the same plan for the same instance, with or without a time limit.  The online
methods run in deterministic mode, regardless of the seed.
"""

from collections.abc import Callable, Mapping
from functools import partial

from trimtab_models.dyndl.offline import solve_list, solve_offline
from trimtab_models.dyndl.online import OnlineParams, WaitingRule, solve_online
from trimtab_models.dyndl.problem import problem_of
from trimtab_models.dyndl.result import SCHEDULE_RESULT, ScheduleResult, encode_schedule
from trimtab_models.instances.reading import parsed_instance
from trimtab_models.instances.scheduling import SchedulingInstance
from trimtab_models.solving import Infeasible, PlanDocument, SolveMethod, StopRule

TEXTS = {
    WaitingRule.NONE: "Baseline: online, an idle core takes a remote task at once.",
    WaitingRule.FIXED: "Baseline: online, an idle core waits for a fixed time (`wait`) before it takes a remote task.",
    WaitingRule.ADAPTIVE: "Online: an idle core waits the longer, the more a remote task would cost on its server.",
}


def _method(name: str, text: str, solver: Callable[..., ScheduleResult | Infeasible], *, only: str = "") -> SolveMethod:
    absent = {"event_makespan", "phase1_makespan"} - {only}
    result = {key: meaning for key, meaning in SCHEDULE_RESULT.items() if key not in absent}

    def planned(instance: SchedulingInstance, stop: StopRule, seed: int) -> PlanDocument | Infeasible:
        problem = problem_of(instance)
        result = solver(problem, stop=stop, seed=seed)
        if isinstance(result, Infeasible):
            return result
        return PlanDocument(document=encode_schedule(instance, problem, result, method=name))

    return SolveMethod(read=partial(parsed_instance, kind=SchedulingInstance), solve=planned, text=text, result=result)


METHODS: Mapping[str, SolveMethod] = {
    "dyndl-off": _method(
        "dyndl-off",
        "Offline: schedules tasks near their data while remote ones slow each other down.",
        solve_offline,
        only="phase1_makespan",
    ),
    **{
        waiting.value: _method(
            waiting.value, text, partial(solve_online, params=OnlineParams(waiting=waiting)), only="event_makespan"
        )
        for waiting, text in TEXTS.items()
    },
    "list": _method(
        "list",
        "Baseline: each task in turn goes where it ends first (list scheduling).",
        solve_list,
        only="phase1_makespan",
    ),
}
