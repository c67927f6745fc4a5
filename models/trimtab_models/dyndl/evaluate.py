"""Evaluates an assignment by the model's formula, from scratch.

Jin, An, Zhou, Tang, Xiong, "DynDL", Applied Sciences 8(11), 2018, section 3: the load of a core is its initial load
plus 1 per local and g_s(r_s) per remote task, where r_s counts every remote task of the server (settlement 1); the
makespan is the largest load of a core with a task.
"""

from dataclasses import dataclass

import numpy as np

from trimtab_models.dyndl.arrays import Bools, Ints
from trimtab_models.dyndl.problem import ScheduleProblem


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
