"""DynDL where the server of each task is given: how many tasks a server runs at the same time, and in which order.

A controller that moves state has decided where each key group goes; what is left is the restore there.  Costs are those
of DynDL, for tasks of different sizes: a local task of size w takes w, a remote one w * g_s(n), where n is the number
of slots that the server uses, or of its remote tasks if there are fewer.  Servers do not slow each other down, so each
is planned by itself: for every number of slots, its tasks go one after another to the slot that is free first (list
scheduling), local ones first, then the largest.  The number that ends first wins; among equals the smallest.

For k slots let `level` be the earliest time at which they can be done with all work, and `longest` the earliest end of
the largest task alone.  No schedule with k slots ends before either, and list scheduling ends by their sum (Graham,
SIAM J. Appl. Math. 17(2), 1969).  So the makespan is at most twice the lower bound.

Source of the costs: Jin, An, Zhou, Tang, Xiong, "DynDL", Applied Sciences 8(11), 2018, 2216, section 3.
"""

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from trimtab_models.dyndl.problem import TOLERANCE, Bools, Floats, Ints
from trimtab_models.instances.scheduling import RemoteCost


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GivenProblem:
    """T tasks on S servers; times and sizes in units of a local task of size 1.

    `running` = time left of each task that a server runs already; all of them count as remote.
    """

    server: Ints  # (T,)
    size: Floats  # (T,) > 0
    local: Bools  # (T,) whether the server holds the task's data
    slots: Ints  # (S,) >= 1, the most tasks at the same time
    costs: Sequence[RemoteCost]  # (S,)
    running: Sequence[Sequence[float]]  # (S,) >= 0

    def __post_init__(self) -> None:
        servers = len(self.slots)
        if len(self.costs) != servers or len(self.running) != servers:
            raise ValueError(f"{servers} servers need as many costs and running tasks")
        if not len(self.server) == len(self.size) == len(self.local):
            raise ValueError("every task needs a server, a size, and whether it is local")
        if len(self.server) and not 0 <= self.server.min() <= self.server.max() < servers:
            raise ValueError(f"the server of a task must be one of {servers}")
        if not (np.isfinite(self.size).all() and (self.size > 0).all() and (self.slots >= 1).all()):
            raise ValueError("sizes must be finite and above 0, slots at least 1")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GivenSchedule:
    """The schedule, and its makespan (0 without tasks) with the lower bound."""

    slots: Ints  # (S,) how many tasks each server runs at the same time; 1 where there are none
    start: Floats  # (T,) when each task begins
    makespan: float
    lower_bound: float

    @property
    def order(self) -> Ints:
        """(T,) the tasks in the order in which they begin; among equals by position."""
        return np.argsort(self.start, kind="stable")


def solve_given(problem: GivenProblem) -> GivenSchedule:
    """The number of slots, and the order, with which every server ends as early as list scheduling finds."""
    start = np.zeros(len(problem.server))
    slots = np.ones(len(problem.slots), np.int64)
    makespan = bound = 0.0
    for work in _by_server(problem, problem.costs):
        best = work.plan(1)
        least = best.bound
        for count in range(2, work.most + 1):
            found = work.plan(count, below=best.end - TOLERANCE)
            least = min(least, found.bound)
            if found.end < best.end - TOLERANCE:
                best = found
        slots[work.server], start[work.tasks] = best.slots, best.start
        makespan, bound = max(makespan, best.end), max(bound, least)
    return GivenSchedule(slots=slots, start=start, makespan=makespan, lower_bound=min(bound, makespan))


def with_costs(problem: GivenProblem, schedule: GivenSchedule, costs: Sequence[RemoteCost]) -> GivenSchedule:
    """The same numbers of slots and order per server under other costs, with the bound for those."""
    start = np.zeros(len(problem.server))
    makespan = bound = 0.0
    for work in _by_server(problem, costs):
        kept = work.plan(int(schedule.slots[work.server]))
        start[work.tasks] = kept.start
        makespan = max(makespan, kept.end)
        bound = max(bound, min(work.plan(count, below=0.0).bound for count in range(1, work.most + 1)))
    return GivenSchedule(slots=schedule.slots, start=start, makespan=makespan, lower_bound=min(bound, makespan))


@dataclass(frozen=True, slots=True)
class _ServerPlan:
    """One server with one number of slots; `end` = inf where the bound showed that it is not worth trying."""

    slots: int
    start: list[float]
    end: float
    bound: float


@dataclass(frozen=True, slots=True)
class _Work:
    """What one server has to do: its tasks in the order of their start, `locals_` of them local, which come first."""

    server: int
    tasks: Ints
    size: list[float]
    locals_: int
    running: list[float]  # descending
    most: int
    cost: RemoteCost

    def plan(self, slots: int, below: float = math.inf) -> _ServerPlan:
        """The list schedule with so many slots, unless it cannot end before `below`."""
        loads, taking = self._loads(slots), self._taking(slots)
        bound = _least_end(loads, taking)
        if bound >= below:
            return _ServerPlan(slots, [], math.inf, bound)
        start, end = [], 0.0
        for seconds in taking:
            free = loads[0]
            start.append(free)
            heapq.heapreplace(loads, free + seconds)
            if free + seconds > end:
                end = free + seconds
        return _ServerPlan(slots, start, end, bound)

    def _loads(self, slots: int) -> list[float]:
        """A heap: when each slot is free."""
        loads = [0.0] * slots
        for left in self.running:
            heapq.heapreplace(loads, loads[0] + left)
        return loads

    def _taking(self, slots: int) -> list[float]:
        """How long each task takes."""
        remote = len(self.size) - self.locals_ + len(self.running)
        factor = self.cost.at(min(slots, remote)) if remote else 1.0
        return self.size[: self.locals_] + [factor * size for size in self.size[self.locals_ :]]


def _by_server(problem: GivenProblem, costs: Sequence[RemoteCost]) -> Iterator[_Work]:
    """The servers that have tasks; local tasks come first, then the largest, then by position."""
    if not len(problem.server):
        return
    order = np.lexsort((-problem.size, ~problem.local, problem.server))
    servers, first, count = np.unique(problem.server[order], return_index=True, return_counts=True)
    local = np.bincount(problem.server[problem.local], minlength=len(problem.slots)).tolist()
    size: list[float] = problem.size[order].tolist()
    for server, begin, tasks in zip(servers.tolist(), first.tolist(), count.tolist(), strict=True):
        yield _Work(
            server=server,
            tasks=order[begin : begin + tasks],
            size=size[begin : begin + tasks],
            locals_=local[server],
            running=sorted(problem.running[server], reverse=True),
            most=min(int(problem.slots[server]), tasks + len(problem.running[server])),
            cost=costs[server],
        )


def _least_end(loads: Sequence[float], taking: Sequence[float]) -> float:
    """The earliest end on slots that are free at `loads`: of all work, evenly spread, and of the longest task alone."""
    free = sorted(loads)
    below, level, work = 0.0, 0.0, sum(taking)
    for used, load in enumerate(free, 1):
        below += load
        level = (work + below) / used
        if used == len(free) or level <= free[used]:
            break
    return max(level, free[0] + max(taking))
