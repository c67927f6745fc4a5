"""The online policies: DynDLOn, and the baselines Hadoop and DELAY. Initial loads are not known.

DynDL (Applied Sciences 8(11), 2018, 2216), section 4.  A core that becomes idle takes a local task if there is one.
Otherwise it takes a remote task after it has been idle for a *delay* (settlement 6):

    Hadoop   0
    DELAY    W
    DynDLOn  W if its server has no remote task, else max(g_s(r_s), W), r_s counting all remote tasks ever assigned

A server whose next remote task would have an infinite cost takes none.  Forced tasks (no usable replica) can only be
remote, so the last remote places with a finite cost are reserved for them.

Runs an online policy on a simulated cluster, and reports both makespans (settlement 8).

A core becomes idle at its initial load and at the end of every task.  At equal times the order is: ends, offers of
local tasks to the cores that became idle, waits that are over; each in the order of cores (settlement 6).  In event
time a running remote task ends at its start + g_s(r_s) with the *present* r_s, so each further remote task of its
server delays it, as in the paper's example 1.  The model's makespan ignores waits, and uses the final r_s for all.
"""

import heapq
import math
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import numpy as np

from trimtab_models.dyndl.offline import NOWHERE, lower_bound, plan_local
from trimtab_models.dyndl.problem import TOLERANCE, Ints, ScheduleProblem, infeasible
from trimtab_models.dyndl.result import ScheduleResult, evaluate
from trimtab_models.solving import Infeasible, StopRule

Events = list[tuple[float, int]]  # a heap of (when, core)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The core starts `task` now."""

    task: int
    local: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """The core does nothing until `until` (inf = for ever), then asks again."""

    until: float


Decision = Start | Wait
NEVER = Wait(until=math.inf)


class OnlinePolicy(Protocol):
    """Decides for one idle core at a time; assigns each task once."""

    def take_local(self, server: int) -> int | None:
        """The local task that a core of `server` starts now; None if there is none."""
        ...

    def decide(self, now: float, server: int, idle_since: float) -> Decision:
        """What a core of `server` does that has been idle since `idle_since`: start a task, or wait."""
        ...


class WaitingRule(Enum):
    """How long an idle core waits before it takes a remote task."""

    NONE = "hadoop"
    FIXED = "delay"
    ADAPTIVE = "dyndl-on"


class WaitingPolicy:
    """Hadoop, DELAY and DynDLOn: local tasks first, remote ones after a delay.

    Tasks are assigned by ascending position (deterministic mode); with `seed` remote ones at random (simulation mode).
    A decision takes amortised constant time.
    """

    def __init__(self, problem: ScheduleProblem, waiting: WaitingRule, *, seed: int | None = None) -> None:
        self._adaptive = waiting is WaitingRule.ADAPTIVE
        self._wait = 0.0 if waiting is WaitingRule.NONE else problem.wait
        self._costs = problem.costs
        self._left = problem.tasks
        self._taken = bytearray(problem.tasks)
        self._local = _queues(problem)
        self._remote = [0] * problem.servers  # r_s
        self._room = float(problem.costs.limit[problem.usable].sum())
        chance = None if seed is None else np.random.default_rng(seed)
        self._any = _Pool(list(range(problem.tasks)), self._taken, chance)
        self._forced = _Pool(problem.forced.tolist(), self._taken, chance)
        self._forced_left = len(problem.forced)
        self._is_forced = bytearray(problem.tasks)
        for task in problem.forced.tolist():
            self._is_forced[task] = 1

    def take_local(self, server: int) -> int | None:
        """See `OnlinePolicy`."""
        queue = self._local[server]
        while queue:
            task = queue.pop()
            if not self._taken[task]:
                self._take(task)
                return task
        return None

    def decide(self, now: float, server: int, idle_since: float) -> Decision:
        """See `OnlinePolicy`."""
        if (local := self.take_local(server)) is not None:
            return Start(task=local, local=True)
        remote = self._remote[server]
        if not self._left or self._costs.one(server, remote + 1) == math.inf:
            return NEVER
        delay = max(self._costs.one(server, remote), self._wait) if self._adaptive and remote else self._wait
        until = idle_since + delay
        if until > now + TOLERANCE:
            return Wait(until=until)
        task = self._forced.pick() if self._room <= self._forced_left else self._any.pick()
        self._take(task)
        self._remote[server] += 1
        self._room -= 1
        self._forced_left -= self._is_forced[task]
        return Start(task=task, local=False)

    def _take(self, task: int) -> None:
        self._taken[task] = 1
        self._left -= 1


def _queues(problem: ScheduleProblem) -> list[list[int]]:
    """The tasks that are local on each server, lowest last."""
    queues: list[list[int]] = [[] for _ in range(problem.servers)]
    for task in range(problem.tasks - 1, -1, -1):
        for server in problem.holders[task]:
            queues[server].append(task)
    return queues


class _Pool:
    """Tasks to pick from, in order or at random; skips those that are `taken`."""

    def __init__(self, tasks: list[int], taken: bytearray, chance: np.random.Generator | None) -> None:
        self._tasks = tasks
        self._taken = taken
        self._chance = chance
        if chance is None:
            tasks.reverse()

    def pick(self) -> int:
        """A task that is not taken.  There must be one."""
        while True:
            if self._chance is not None:
                at = int(self._chance.integers(len(self._tasks)))
                self._tasks[at], self._tasks[-1] = self._tasks[-1], self._tasks[at]
            task = self._tasks.pop()
            if not self._taken[task]:
                return task


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
