"""LIST: assigns each task, in order of ids, to the core on which it is predicted to end first.

A baseline of DynDL (Applied Sciences 8(11), 2018, 2216, section 6.1.1). The prediction knows the dynamic remote cost: a
remote task on server s makes all remote tasks of s cost g_s(r_s + 1).  It ignores that this delays other cores.
"""

import numpy as np

from trimtab_models.dyndl.bound import lower_bound
from trimtab_models.dyndl.local import plan_local
from trimtab_models.dyndl.offline import evaluated
from trimtab_models.dyndl.problem import TOLERANCE, Floats, Ints, ScheduleProblem, infeasible
from trimtab_models.dyndl.result import ScheduleResult
from trimtab_models.solving.outcome import Infeasible
from trimtab_models.solving.stop import StopRule


def solve_list(problem: ScheduleProblem, *, stop: StopRule, seed: int = 0) -> ScheduleResult | Infeasible:
    """The schedule of LIST, the same for every `seed`; `stop` only affects the bound."""
    del seed
    if reason := infeasible(problem):
        return Infeasible(reason=reason)
    local = plan_local(problem, stop)
    return evaluated(problem, _List(problem).run(), lower_bound(problem, local), local)


class _List:
    """The work of every core, and the earliest end of one more task on every server."""

    def __init__(self, problem: ScheduleProblem) -> None:
        self._problem = problem
        self._local_load = problem.core_load.copy()  # (P,) initial loads and local tasks
        self._remote_on = np.zeros(len(problem.core_load))  # (P,) remote tasks
        self._remote = [0] * problem.servers  # r_s
        self._local_end: Floats = np.full(problem.servers, np.inf)
        self._remote_end: Floats = np.full(problem.servers, np.inf)
        for server in np.flatnonzero(problem.usable).tolist():
            self._predict(server)

    def run(self) -> Ints:
        """(T,) the core of every task."""
        problem = self._problem
        chosen = np.empty(problem.tasks, np.int64)
        places, forced_left = float(problem.costs.limit[problem.usable].sum()), len(problem.forced)
        for task, holders in enumerate(problem.holders):
            kept_free = bool(holders) and places <= forced_left  # reserve the last remote places for forced tasks
            end = np.full(problem.servers, np.inf) if kept_free else self._remote_end.copy()
            end[list(holders)] = self._local_end[list(holders)]
            server = _first_least(end)
            local = server in holders
            chosen[task] = self._add(server, local=local)
            places -= not local
            forced_left -= not holders
        return chosen

    def _add(self, server: int, *, local: bool) -> int:
        """Add one task; returns its core."""
        cores = self._problem.cores_of(server)
        core = cores.start + _first_least(self._ends(server, local=local))
        if local:
            self._local_load[core] += 1.0
        else:
            self._remote_on[core] += 1
            self._remote[server] += 1
        self._predict(server)
        return core

    def _predict(self, server: int) -> None:
        self._local_end[server] = self._ends(server, local=True).min()
        self._remote_end[server] = self._ends(server, local=False).min()

    def _ends(self, server: int, *, local: bool) -> Floats:
        """When one more task would end, for each core of `server`."""
        cores = self._problem.cores_of(server)
        load, remote_on = self._local_load[cores.start : cores.stop], self._remote_on[cores.start : cores.stop]
        remote, costs = self._remote[server], self._problem.costs
        if local:
            return load + 1.0 + (remote_on * costs.one(server, remote) if remote else 0.0)
        return load + (remote_on + 1.0) * costs.one(server, remote + 1)


def _first_least(ends: Floats) -> int:
    return int((ends <= ends.min() + TOLERANCE).argmax())
