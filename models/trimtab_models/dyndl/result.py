"""The result of every scheduler in this package: its score by the model's formula, and its document.

Jin, An, Zhou, Tang, Xiong, "DynDL", Applied Sciences 8(11), 2018, section 3: the load of a core is its initial load
plus 1 per local and g_s(r_s) per remote task, where r_s counts every remote task of the server (settlement 1); the
makespan is the largest load of a core with a task.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from trimtab_models.dyndl.problem import TOLERANCE, Bools, Ints, ScheduleProblem, task_ids
from trimtab_models.instances.scheduling import SchedulingInstance
from trimtab_models.solving import PlanStatus

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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScheduleScore:
    """The makespan of an assignment, and its components."""

    makespan: float  # 0 without tasks
    local: Bools  # (T,)
    remote: Ints  # (S,) the remote tasks of every server

    @property
    def remote_tasks(self) -> int:
        """Number of tasks that run away from their data."""
        return int(self.remote.sum())


def evaluate(problem: ScheduleProblem, core: Ints) -> ScheduleScore:
    """The score of the assignment `core` (T,)."""
    server = problem.server_of[core]
    local = is_local(problem, server)
    remote = np.bincount(server[~local], minlength=problem.servers)
    cost = np.where(local, 1.0, problem.costs.at(remote)[server])
    load = problem.core_load + np.bincount(core, cost, len(problem.core_load))
    return ScheduleScore(makespan=float(load[core].max(initial=0.0)), local=local, remote=remote)


def is_local(problem: ScheduleProblem, server: Ints) -> Bools:
    """(T,) whether the server of each task holds its data."""
    local = np.zeros(problem.tasks, np.bool_)
    local[problem.copy_task[problem.copy_server == server[problem.copy_task]]] = True
    return local


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScheduleResult:
    """A schedule and its proven bound.  `core` (T,) = core of every task; times in units of one local task."""

    core: Ints
    score: ScheduleScore
    lower_bound: float
    local_makespan: float | None = None  # offline: of phase I, without the forced tasks
    event_makespan: float | None = None  # online: when the simulated last task ended

    @property
    def status(self) -> PlanStatus:
        """Optimal if the makespan meets the bound."""
        proven = self.score.makespan <= self.lower_bound + TOLERANCE
        return PlanStatus.OPTIMAL if proven else PlanStatus.FEASIBLE

    @property
    def ratio(self) -> float:
        """Makespan / bound, 1 without tasks: how far the schedule is from the optimum at most."""
        return self.score.makespan / self.lower_bound if self.lower_bound else 1.0


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
