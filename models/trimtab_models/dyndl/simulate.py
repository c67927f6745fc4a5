"""Runs an online policy on a simulated cluster, and reports both makespans (settlement 8).

A core becomes idle at its initial load and at the end of every task.  At equal times the order is: ends, offers of
local tasks to the cores that became idle, waits that are over; each in the order of cores (settlement 6).  In event
time a running remote task ends at its start + g_s(r_s) with the *present* r_s, so each further remote task of its
server delays it, as in the paper's example 1.  The model's makespan ignores waits, and uses the final r_s for all.
"""

import heapq
import math
from dataclasses import dataclass

import numpy as np

from trimtab_models.dyndl.bound import lower_bound
from trimtab_models.dyndl.local import NOWHERE, plan_local
from trimtab_models.dyndl.online import OnlinePolicy, Start, Wait, WaitingPolicy, WaitingRule
from trimtab_models.dyndl.problem import TOLERANCE, Ints, ScheduleProblem, infeasible
from trimtab_models.dyndl.result import ScheduleResult, evaluate
from trimtab_models.solving.outcome import Infeasible
from trimtab_models.solving.stop import StopRule

Events = list[tuple[float, int]]  # a heap of (when, core)


@dataclass(frozen=True, slots=True, kw_only=True)
class OnlineParams:
    """The policy, and whether it picks remote tasks at random, like the paper's simulations, or by lowest id."""

    waiting: WaitingRule = WaitingRule.ADAPTIVE
    at_random: bool = False


def solve_online(
    problem: ScheduleProblem, *, stop: StopRule, seed: int = 0, params: OnlineParams = OnlineParams()
) -> ScheduleResult | Infeasible:
    """The schedule of Hadoop, DELAY or DynDLOn; `stop` only affects the bound."""
    if reason := infeasible(problem):
        return Infeasible(reason=reason)
    return simulate(problem, WaitingPolicy(problem, params.waiting, seed=seed if params.at_random else None), stop)


def simulate(problem: ScheduleProblem, policy: OnlinePolicy, stop: StopRule) -> ScheduleResult:
    """The schedule of `policy`; `problem` must be feasible."""
    simulation = _Simulation(problem, policy)
    event_makespan = simulation.run()
    score = evaluate(problem, simulation.core)
    bound = min(lower_bound(problem, plan_local(problem, stop)), score.makespan)
    return ScheduleResult(core=simulation.core, score=score, lower_bound=bound, event_makespan=event_makespan)


class _Simulation:
    def __init__(self, problem: ScheduleProblem, policy: OnlinePolicy) -> None:
        self._policy = policy
        self._costs = problem.costs
        self.core: Ints = np.full(problem.tasks, NOWHERE, np.int64)
        self._left = problem.tasks
        self._server_of: list[int] = problem.server_of.tolist()
        self._remote = [0] * problem.servers
        self._running: dict[int, tuple[float, bool]] = {}  # per busy core: (start, whether its task is local)
        self._idle_since: dict[int, float] = {}
        usable = np.flatnonzero(np.isfinite(problem.core_load))
        self._ends: Events = list(zip(problem.core_load[usable].tolist(), usable.tolist(), strict=True))
        self._waits: Events = []
        heapq.heapify(self._ends)

    def run(self) -> float:
        """Simulate until the last task has ended; returns when that was."""
        last = 0.0
        while self._left or self._running:
            now = min(events[0][0] for events in (self._ends, self._waits) if events)
            undecided = _due(self._waits, now)
            idle = sorted(core for core in _due(self._ends, now) if not self._put_off(core, now))
            for core in idle:
                if self._running.pop(core, None):
                    last = now
                self._idle_since[core] = now
                if (task := self._policy.take_local(self._server_of[core])) is not None:
                    self._start(core, task, now, local=True)
                else:
                    undecided.append(core)
            for core in sorted(undecided):
                self._decide(core, now)
        return last

    def _put_off(self, core: int, now: float) -> bool:
        """Whether the task on `core`, scheduled to end now, ends later because of further remote tasks."""
        if core not in self._running:
            return False
        since, local = self._running[core]
        end = since + (1.0 if local else self._cost(core))
        if end <= now + TOLERANCE:
            return False
        heapq.heappush(self._ends, (end, core))
        return True

    def _cost(self, core: int) -> float:
        server = self._server_of[core]
        return self._costs.one(server, self._remote[server])

    def _decide(self, core: int, now: float) -> None:
        match self._policy.decide(now, self._server_of[core], self._idle_since[core]):
            case Start(task=task, local=local):
                self._start(core, task, now, local=local)
            case Wait(until=until) if until < math.inf:
                heapq.heappush(self._waits, (until, core))

    def _start(self, core: int, task: int, now: float, *, local: bool) -> None:
        self.core[task] = core
        self._left -= 1
        self._remote[self._server_of[core]] += not local
        self._running[core] = (now, local)
        heapq.heappush(self._ends, (now + (1.0 if local else self._cost(core)), core))


def _due(events: Events, now: float) -> list[int]:
    """Remove and return the cores whose event is now."""
    cores = []
    while events and events[0][0] <= now + TOLERANCE:
        cores.append(heapq.heappop(events)[1])
    return cores
