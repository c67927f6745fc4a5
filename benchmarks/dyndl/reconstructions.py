"""LTFPA, HTA and BAR, the other baselines of the DynDL paper, as reconstructions.

The paper describes them in a sentence or two (Applied Sciences 8(11), 2018, 2216, section 6.1.1), and their own papers
solve other problems.  No published figures are asserted.  On the instances of this package they are defined like this:

- LTFPA (Xie, Lu, INFOCOM 2015; Pandas): every task joins the queue, among those of its holders, that would serve it
  first.  An idle core serves its server's queue.  If that is empty, it takes the head of the queue that would last
  longest, if that is longer than a remote task takes.
- HTA (Fischer, Su, Yin, SPAA 2010): a remote task costs g_s(n), with n remote tasks in the *whole* cluster.  For every
  n, the n latest tasks of the best local assignment go where they end first at that cost.  The best n wins.
- BAR (Jin et al., CCGrid 2011): the same cost; n grows as long as the predicted makespan does not become later.
"""

import heapq
import math
from collections import deque
from collections.abc import Callable

import numpy as np

from trimtab_models.dyndl.offline import Remoting, evaluated, lower_bound, plan_local
from trimtab_models.dyndl.online import NEVER, Decision, Start, simulate
from trimtab_models.dyndl.problem import TOLERANCE, Ints, ScheduleProblem, infeasible
from trimtab_models.dyndl.result import ScheduleResult
from trimtab_models.solving import Infeasible, StopRule

NO_PREDICTION = "every remote task is predicted to cost infinitely much"


class LongestQueuePolicy:
    """LTFPA; forced tasks form a separate queue, served by cores without other work."""

    def __init__(self, problem: ScheduleProblem) -> None:
        self._costs = problem.costs
        self._places = float(problem.costs.limit[problem.usable].sum())
        self._replicas = problem.replicas
        self._remote = [0] * problem.servers
        self._forced = deque(problem.forced.tolist())
        self._queues: list[deque[int]] = [deque() for _ in range(problem.servers)]
        self._ends: list[list[float]] = [
            [] for _ in range(problem.servers)
        ]  # predicted, of all tasks that joined a queue
        rows = [[float(problem.core_load[core]) for core in problem.cores_of(s)] for s in range(problem.servers)]
        for row in rows:
            heapq.heapify(row)
        for task, holders in enumerate(problem.holders):
            if holders:
                server = min(holders, key=lambda holder: rows[holder][0])
                end = rows[server][0] + 1.0
                heapq.heapreplace(rows[server], end)
                self._queues[server].append(task)
                self._ends[server].append(end)
        self._longest = [(-ends[-1], server) for server, ends in enumerate(self._ends) if ends]
        heapq.heapify(self._longest)

    def take_local(self, server: int) -> int | None:
        """See `Policy`."""
        return self._queues[server].popleft() if self._queues[server] else None

    def decide(self, now: float, server: int, idle_since: float) -> Decision:
        """See `Policy`.  Queues only become shorter, so a core without work now never gets any."""
        if (own := self.take_local(server)) is not None:
            return Start(task=own, local=True)
        cost = self._costs.one(server, self._remote[server] + 1)
        task = None if cost == math.inf else self._far_task(now + cost)
        if task is None:
            return NEVER
        local = server in self._replicas[task]
        self._remote[server] += not local
        self._places -= not local
        return Start(task=task, local=local)

    def _far_task(self, end: float) -> int | None:
        """The head of the queue that would last longest, if beyond `end`; else a forced task."""
        while self._longest:
            last, server = -self._longest[0][0], self._longest[0][1]
            if not self._queues[server]:
                heapq.heappop(self._longest)
                continue
            if last <= end + TOLERANCE or self._places <= len(self._forced):
                break
            self._ends[server].pop()
            heapq.heapreplace(self._longest, (-self._ends[server][-1] if self._ends[server] else math.inf, server))
            return self._queues[server].popleft()
        return self._forced.popleft() if self._forced else None


def solve_ltfpa(problem: ScheduleProblem, *, stop: StopRule, seed: int = 0) -> ScheduleResult | Infeasible:
    """A reconstruction of LTFPA, the same for every `seed`."""
    del seed
    if reason := infeasible(problem):
        return Infeasible(reason=reason)
    return simulate(problem, LongestQueuePolicy(problem), stop)


def solve_hta(problem: ScheduleProblem, *, stop: StopRule, seed: int = 0) -> ScheduleResult | Infeasible:
    """A reconstruction of HTA, the same for every `seed`; if stopped early, the best n so far."""
    del seed
    return _by_total(problem, stop, goes_on=lambda predicted, best: True)


def solve_bar(problem: ScheduleProblem, *, stop: StopRule, seed: int = 0) -> ScheduleResult | Infeasible:
    """A reconstruction of BAR, the same for every `seed`."""
    del seed
    return _by_total(problem, stop, goes_on=lambda predicted, best: predicted <= best + TOLERANCE)


def _by_total(
    problem: ScheduleProblem, stop: StopRule, goes_on: Callable[[float, float], bool]
) -> ScheduleResult | Infeasible:
    """The schedule with the number of remote tasks that has the earliest predicted makespan, while `goes_on`."""
    if reason := infeasible(problem):
        return Infeasible(reason=reason)
    local = plan_local(problem, stop)
    remoting = Remoting(problem, local)
    best, chosen = math.inf, None
    for count in range(len(problem.forced), problem.tasks + 1):
        core, predicted = _predicted(problem, remoting, count)
        if not goes_on(predicted, best):
            break
        if predicted < best - TOLERANCE:
            best, chosen = predicted, core
        if chosen is not None and stop():
            break
    if chosen is None:
        return Infeasible(reason=NO_PREDICTION)
    return evaluated(problem, chosen, lower_bound(problem, local), local)


def _predicted(problem: ScheduleProblem, remoting: Remoting, count: int) -> tuple[Ints, float]:
    """The assignment with the `count` latest tasks remote, and its makespan if each costs g_s(`count`)."""
    cost = problem.costs.at(np.full(problem.servers, count))[problem.server_of].tolist()
    load = remoting.load_without(count)
    kept = remoting.core[remoting.latest_first[count:]]
    predicted = float(load[kept].max(initial=0.0))
    heap = [(end + cost[core], core) for core, end in enumerate(load.tolist()) if end + cost[core] < math.inf]
    heapq.heapify(heap)
    placed = []
    for _ in range(count):
        if not heap:
            return remoting.core, math.inf
        end, core = heap[0]
        placed.append(core)
        predicted = max(predicted, end)
        heapq.heapreplace(heap, (end + cost[core], core))
    assigned = remoting.core.copy()
    assigned[remoting.latest_first[:count]] = placed
    return assigned, predicted
