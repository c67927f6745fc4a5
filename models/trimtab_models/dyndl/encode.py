"""The result document of the file contract."""

from typing import Any

from trimtab_models.dyndl.problem import ScheduleProblem, task_ids
from trimtab_models.dyndl.result import ScheduleResult
from trimtab_models.instances.scheduling import SchedulingInstance

SCHEDULE_RESULT = {
    "method": "The method that made the schedule.",
    "makespan": "When the last core is done, by what the number of remote tasks on each server makes them cost.",
    "event_makespan": "When the last task ended in the simulated run of the online method.",
    "remote_tasks": "Tasks on a server that does not hold their data.",
    "lower_bound": "Proven: no schedule has a smaller makespan.",
    "phase1_makespan": "Makespan of the first phase, in which tasks are local, without those that must be remote.",
    "assignment": "Task to its `server`, its `core` there, and whether it is `local`.",
}
"""Key of a schedule -> what it says; times in units of one local task."""


def encode_schedule(
    instance: SchedulingInstance, problem: ScheduleProblem, result: ScheduleResult, *, method: str
) -> dict[str, Any]:
    """The result document for `problem`, the arrays of `instance`, without `solve_seconds`."""
    document: dict[str, Any] = {"method": method, "makespan": result.score.makespan}
    if result.event_makespan is not None:
        document["event_makespan"] = result.event_makespan
    document |= {"remote_tasks": result.score.remote_tasks, "lower_bound": result.lower_bound}
    if result.local_makespan is not None:
        document["phase1_makespan"] = result.local_makespan
    servers = problem.server_of[result.core]
    names = [server.id for server in instance.servers]
    document["assignment"] = {
        task: {"server": names[server], "core": core, "local": local}
        for task, server, core, local in zip(
            task_ids(instance),
            servers.tolist(),
            (result.core - problem.first[servers]).tolist(),
            result.score.local.tolist(),
            strict=True,
        )
    }
    return document
