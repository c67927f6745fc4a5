"""The online policies: DynDLOn, and the baselines Hadoop and DELAY. Initial loads are not known.

DynDL (Applied Sciences 8(11), 2018, 2216), section 4.  A core that becomes idle takes a local task if there is one.
Otherwise it takes a remote task after it has been idle for a *delay* (settlement 6):

    Hadoop   0
    DELAY    W
    DynDLOn  W if its server has no remote task, else max(g_s(r_s), W), r_s counting all remote tasks ever assigned

A server whose next remote task would have an infinite cost takes none.  Forced tasks (no usable replica) can only be
remote, so the last remote places with a finite cost are reserved for them.
"""

import math
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import numpy as np

from trimtab_models.dyndl.problem import TOLERANCE, ScheduleProblem


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
