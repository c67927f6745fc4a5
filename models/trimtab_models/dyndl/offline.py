"""DynDLOff: all initial loads are known.

Jin, An, Zhou, Tang, Xiong, "DynDL: Scheduling Data-Locality-Aware Tasks with Dynamic Data Transfer Cost for
Multicore-Server-Based Big Data Clusters", Applied Sciences 8(11), 2018, 2216, section 5.

Phase I computes the best local assignment B (`local.py`).  Phase II sorts the tasks by finish time in B, latest first.
Deadline i makes the first i tasks remote and is the finish time of the next one.  It *passes* if that many remote tasks
fit before it, beside the local ones.  The result is the better schedule of the last index k that passes and k + 1.
With the exact fill (settlement 5) its makespan is at most twice the optimum.

Forced tasks never finish in B, so they come first, and an index below their number cannot be used.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from trimtab_models.dyndl.bound import lower_bound
from trimtab_models.dyndl.local import LocalPlan, plan_local
from trimtab_models.dyndl.problem import Floats, Ints, ScheduleProblem, infeasible
from trimtab_models.dyndl.result import ScheduleResult, evaluate
from trimtab_models.dyndl.room import RemoteRoom
from trimtab_models.solving.outcome import Infeasible
from trimtab_models.solving.stop import StopRule

DECIMALS = 9  # finish times that differ by less are ties, broken by task id


def solve_offline(problem: ScheduleProblem, *, stop: StopRule, seed: int = 0) -> ScheduleResult | Infeasible:
    """The schedule of DynDLOff, the same for every `seed`; if stopped early, B with the forced tasks added."""
    del seed
    if reason := infeasible(problem):
        return Infeasible(reason=reason)
    local = plan_local(problem, stop)
    bound = lower_bound(problem, local)
    phase = Remoting(problem, local)
    indices = [len(problem.forced)] if stop() else phase.last_passing()
    schedules = [evaluated(problem, core, bound, local) for core in phase.schedules(indices)]
    return min(schedules, key=lambda result: result.score.makespan)  # among equals the one with fewer remote tasks


def evaluated(problem: ScheduleProblem, core: Ints, bound: float, local: LocalPlan) -> ScheduleResult:
    """The result for the assignment `core` of an offline scheduler."""
    score = evaluate(problem, core)
    return ScheduleResult(core=core, score=score, lower_bound=min(bound, score.makespan), local_makespan=local.makespan)


class Remoting:
    """Phase II: makes the tasks remote that end last."""

    def __init__(self, problem: ScheduleProblem, local: LocalPlan) -> None:
        self._problem = problem
        self.core = local.core
        self.latest_first: Ints = np.lexsort((np.arange(problem.tasks), -np.round(local.finish, DECIMALS)))
        finishes = local.finish[self.latest_first]
        self._deadline: Floats = np.append(finishes, -np.inf)  # D[i]; index T, where nothing stays local, never passes

    def last_passing(self) -> list[int]:
        """k and k + 1, without those below the number of forced tasks or above T."""
        least, tasks = len(self._problem.forced), self._problem.tasks
        room = RemoteRoom(self._problem, self.load_without(least))
        passing, failing = least - 1, tasks
        while failing - passing > 1:
            middle = (passing + failing) // 2
            if int(room.most(float(self._deadline[middle])).sum()) >= middle:
                passing = middle
            else:
                failing = middle
        return [index for index in (passing, failing) if least <= index <= tasks]

    def schedules(self, indices: Sequence[int]) -> Iterator[Ints]:
        """(T,) the assignment A_i for each index i whose remote tasks fit at a finite cost."""
        for index in indices:
            room = RemoteRoom(self._problem, self.load_without(index))
            remote = self._remote_tasks(room, index, float(self._deadline[max(indices)]))
            if remote is not None:
                yield self._assigned(room, remote, index)

    def _remote_tasks(self, room: RemoteRoom, index: int, deadline: float) -> Ints | None:
        """(S,) the distribution of `index` remote tasks that ends earliest; `deadline` is one that does not pass."""
        remote = room.most(deadline)
        if remote.sum() > index:  # it does pass, by rounding: start from nothing
            deadline, remote = -np.inf, np.zeros_like(remote)
        last = room.extend(remote, index - int(remote.sum()), deadline)
        return remote if last < np.inf else None

    def _assigned(self, room: RemoteRoom, remote: Ints, index: int) -> Ints:
        core = self.core.copy()
        servers = np.flatnonzero(remote).tolist()
        core[self.latest_first[:index]] = [
            place for server in servers for place in room.place(server, int(remote[server]))
        ]
        return core

    def load_without(self, index: int) -> Floats:
        """(P,) the load of the cores without the first `index` tasks."""
        core = self.core[self.latest_first[index:]]
        load: Floats = self._problem.core_load + np.bincount(core, minlength=len(self._problem.core_load))
        return load
