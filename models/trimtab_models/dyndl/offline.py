"""DynDLOff: all initial loads are known.

Jin, An, Zhou, Tang, Xiong, "DynDL: Scheduling Data-Locality-Aware Tasks with Dynamic Data Transfer Cost for
Multicore-Server-Based Big Data Clusters", Applied Sciences 8(11), 2018, 2216, section 5.

Phase I computes the best local assignment B (`plan_local`).  Phase II sorts the tasks by finish time in B, latest
first. Deadline i makes the first i tasks remote and is the finish time of the next one.  It *passes* if that many
remote tasks fit before it, beside the local ones.  The result is the better schedule of the last index k that passes
and k + 1. With the exact fill (settlement 5) its makespan is at most twice the optimum.

Forced tasks never finish in B, so they come first, and an index below their number cannot be used.

Phase I of DynDLOff: every task on a server that holds its data, as evenly as possible.

A server with n local tasks uses its n earliest *slots*: the least loaded core takes the next task, so the slots of a
server finish in ascending order.  MAX(s) is the finish time of its last used slot, MIN(s) + 1 that of its first free
one.  A *cost-reducing path* leads from server a to server b over tasks that can move to the next server, with
MAX(a) - MIN(b) > 1.  Moving every task on it by one server replaces the finish time MAX(a) by the earlier MIN(b) + 1.
If there are no such paths, the multiset of finish times is unique, and for every D as many tasks as possible end by D
(settlement 3; the paper's constraint 2, no improving *single* move, does not imply this).

The search starts from the server with the largest MAX.  If it fails, all servers that it reached are closed
(settlement 4).  From them, only servers with MIN >= MAX(a) - 1 can be reached, so no later path through them, from a
server with a smaller MAX, leads to an earlier finish.

How many remote tasks fit on top of given core loads, and when the last of them ends.

For a server with loads L(p) and r remote tasks of cost g = g_s(r):

    r_max(s, D) = the largest r with  sum over cores p with L(p) < D of floor((D - L(p)) / g_s(r)) >= r
    M_s(r)      = the earliest finish of r equal remote tasks, the r-th smallest of all L(p) + j * g_s(r), j >= 1

(DynDL, section 5.2; settlements 1, 2 and 5.)  M_s(r) grows with r, so r_max(s, D) is the number of r with M_s(r) <= D.
Assigning remote tasks one by one, each to the server with the smallest M_s(r_s + 1), therefore ends earliest.

With total = sum of (D - L(p)) and gamma = the largest r with r * g_s(r) <= total, gamma - cores <= r_max <= gamma
(the paper's theorem 1).  Both searches bisect for all servers at once.

A cheap lower bound on the makespan of every assignment.

By time D at most #{t: F_B(t) <= D} tasks can end locally, since B lets as many local tasks end by D as possible.  At
most sum of r_max(s, D), on the initial loads, can end remotely.  So no assignment ends before the smallest D with

    #{F_B <= D} + sum over s of r_max(s, D) >= T.

LIST: assigns each task, in order of ids, to the core on which it is predicted to end first.

A baseline of DynDL (Applied Sciences 8(11), 2018, 2216, section 6.1.1). The prediction knows the dynamic remote cost: a
remote task on server s makes all remote tasks of s cost g_s(r_s + 1).  It ignores that this delays other cores.
"""

import heapq
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from trimtab_models.dyndl.problem import TOLERANCE, Bools, Floats, Ints, ScheduleProblem, infeasible
from trimtab_models.dyndl.result import ScheduleResult, evaluate
from trimtab_models.solving import Infeasible, StopRule

NOWHERE = -1
DECIMALS = 9  # finish times that differ by less are ties, broken by task id


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LocalPlan:
    """The assignment B.  Forced tasks have no core and never finish."""

    core: Ints  # (T,), NOWHERE for forced tasks
    finish: Floats  # (T,), F_B; inf for forced tasks
    balanced: bool  # False if the search for paths was stopped early

    @property
    def makespan(self) -> float:
        """When the last local task ends; 0 without local tasks."""
        return float(self.finish[self.core != NOWHERE].max(initial=0.0))


def plan_local(problem: ScheduleProblem, stop: StopRule) -> LocalPlan:
    """The assignment B: a greedy start, then paths until there are none, or until `stop`."""
    slots = _ServerSlots(problem)
    balanced = _remove_paths(problem, slots, stop)
    core, finish = [NOWHERE] * problem.tasks, [np.inf] * problem.tasks
    for server, tasks in enumerate(slots.tasks_of):
        for task, (end, place) in zip(sorted(tasks), slots.slots_of[server], strict=False):
            core[task], finish[task] = place, end
    return LocalPlan(core=np.array(core, np.int64), finish=np.array(finish, np.float64), balanced=balanced)


class _ServerSlots:
    """The tasks on each server, and its slots as far as they were needed."""

    def __init__(self, problem: ScheduleProblem) -> None:
        self.tasks_of: list[dict[int, None]] = [{} for _ in range(problem.servers)]  # in order of arrival
        self.slots_of: list[list[tuple[float, int]]] = [[] for _ in range(problem.servers)]  # finish, core
        self._heaps = _heaps(problem)
        self.next = [heap[0][0] + 1.0 if heap else np.inf for heap in self._heaps]  # MIN(s) + 1
        for task, holders in enumerate(problem.holders):
            if holders:
                self.add(task, min(holders, key=self.next.__getitem__))

    def last(self, server: int) -> float:
        """MAX(s), the finish time of the last used slot; -inf if none is used."""
        used = len(self.tasks_of[server])
        return self.slots_of[server][used - 1][0] if used else -np.inf

    def add(self, task: int, server: int) -> None:
        """Put `task` into the next slot of `server`."""
        heap, slots, tasks = self._heaps[server], self.slots_of[server], self.tasks_of[server]
        if len(tasks) == len(slots):
            load, core = heap[0]
            slots.append((load + 1.0, core))
            heapq.heapreplace(heap, slots[-1])
        tasks[task] = None
        self.next[server] = slots[len(tasks)][0] if len(tasks) < len(slots) else heap[0][0] + 1.0

    def remove(self, task: int, server: int) -> None:
        """Remove `task`; the last slot of `server` becomes free."""
        tasks = self.tasks_of[server]
        del tasks[task]
        self.next[server] = self.slots_of[server][len(tasks)][0]


def _heaps(problem: ScheduleProblem) -> list[list[tuple[float, int]]]:
    """(load, position) of the cores of every server, ascending, so a heap; at most as many as tasks can come."""
    order = np.lexsort((problem.core_load, problem.server_of))
    most = np.bincount(problem.copy_server, minlength=problem.servers) + 1
    chosen = order[np.arange(len(order)) - problem.first[problem.server_of] < most[problem.server_of]]
    cores = list(zip(problem.core_load[chosen].tolist(), chosen.tolist(), strict=True))
    ends = np.cumsum(np.minimum(most, np.diff(problem.first))).tolist()
    return [cores[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def _remove_paths(problem: ScheduleProblem, slots: _ServerSlots, stop: StopRule) -> bool:
    """Move tasks along cost-reducing paths until there are none (True), or until `stop` (False)."""
    closed = [False] * problem.servers
    largest = [(-slots.last(server), server) for server, tasks in enumerate(slots.tasks_of) if tasks]
    heapq.heapify(largest)
    while largest:
        if stop():
            return False
        latest, source = largest[0]
        if closed[source] or -latest != slots.last(source):  # closed, or its MAX has decreased since
            heapq.heappop(largest)
            if not closed[source] and slots.tasks_of[source]:
                heapq.heappush(largest, (-slots.last(source), source))
            continue
        path = _find_path(problem, slots, closed, source)
        if path:
            for task, server, target in path:
                slots.remove(task, server)
                slots.add(task, target)
            heapq.heappush(
                largest, (-slots.last(path[0][2]), path[0][2])
            )  # the MAX of the last server of the path has increased
    return True


def _find_path(
    problem: ScheduleProblem, slots: _ServerSlots, closed: list[bool], source: int
) -> list[tuple[int, int, int]]:
    """Moves (task, from, to) of a shortest cost-reducing path from `source`, last move first.

    If there is none, the list is empty and all servers that were reached are closed.
    """
    tasks_of, following, holders = slots.tasks_of, slots.next, problem.holders
    enough = slots.last(source) - TOLERANCE
    came: dict[int, tuple[int, int]] = {source: (NOWHERE, NOWHERE)}
    reached = [source]
    for server in reached:  # grows during the loop: breadth-first search
        for task in tasks_of[server]:
            for target in holders[task]:
                if target in came or closed[target]:
                    continue
                came[target] = (task, server)
                if following[target] < enough:
                    return _moves_to(target, came)
                reached.append(target)
    for server in reached:
        closed[server] = True
    return []


def _moves_to(target: int, came: dict[int, tuple[int, int]]) -> list[tuple[int, int, int]]:
    moves = []
    task, server = came[target]
    while task != NOWHERE:
        moves.append((task, server, target))
        target = server
        task, server = came[target]
    return moves


class RemoteRoom:
    """The room for remote tasks on top of `load` (P,)."""

    def __init__(self, problem: ScheduleProblem, load: Floats) -> None:
        self._problem = problem
        self._load = load
        self._rows: dict[int, list[float]] = {}

    def most(self, deadline: float) -> Ints:
        """(S,) r_max(s, deadline), at most T."""
        problem, servers = self._problem, self._problem.servers
        free = np.flatnonzero(self._load < deadline - TOLERANCE)
        server, room = problem.server_of[free], deadline - self._load[free]
        cores = np.bincount(server, minlength=servers)
        total = np.bincount(server, room, servers)
        costs = problem.costs

        def fluid(r: Ints) -> Bools:
            return total / costs.at(r) + cores * TOLERANCE >= r

        def whole(r: Ints) -> Bools:
            fitting = np.floor(room / costs.at(r)[server] + TOLERANCE)
            return np.bincount(server, fitting, servers) >= r

        none = np.zeros(servers, np.int64)
        gamma = _largest(fluid, none, np.minimum(total + cores, problem.tasks).astype(np.int64))
        return _largest(whole, np.maximum(gamma - cores - 1, none), gamma)

    def finish(self, server: int, count: int) -> float:
        """M_s(count): the earliest end of the last of `count` >= 1 equal remote tasks; inf if never."""
        cost = self._problem.costs.one(server, count)
        row = self._row(server)
        if cost == math.inf or not row:
            return math.inf
        above = [load - row[0] for load in row]  # differences are exact even for huge loads
        below, used = 0.0, 0  # level that count * cost fills on the `used` least loaded cores
        for load in above:
            if load * used - below >= count * cost:
                break
            below += load
            used += 1
        level = (count * cost + below) / used
        whole = [int((level - load) / cost + TOLERANCE) for load in above[:used]]
        missing = count - sum(whole)
        if missing <= 0:
            return row[0] + max(load + tasks * cost for load, tasks in zip(above, whole, strict=False) if tasks)
        following = sorted(load + (tasks + 1) * cost for load, tasks in zip(above, whole, strict=False))
        return row[0] + following[missing - 1]

    def extend(self, remote: Ints, missing: int, deadline: float) -> float:
        """Add `missing` remote tasks to `remote` (S,), which holds r_max of `deadline` (-inf = nothing).

        Each goes to the server with the smallest M_s(r_s + 1).  Returns the end of the last one; inf if they do not fit
        at a finite cost, -inf if none is missing.
        """
        last = -math.inf
        if missing <= 0:
            return last
        keys = self._least_finish(remote + 1, deadline)
        heap = [(key, server, False) for server, key in enumerate(keys.tolist()) if key < math.inf]
        heapq.heapify(heap)
        while heap and missing:
            key, server, exact = heap[0]
            if exact:
                remote[server] += 1
                missing -= 1
                last = max(last, key)
            following = self.finish(server, int(remote[server]) + 1)
            if following < math.inf:
                heapq.heapreplace(heap, (following, server, True))
            else:
                heapq.heappop(heap)
        return math.inf if missing else last

    def place(self, server: int, count: int) -> list[int]:
        """The cores of `count` equal remote tasks, such that the last ends as early as possible."""
        cost = self._problem.costs.one(server, count)
        cores = self._problem.cores_of(server)
        heap = [(load, core) for load, core in zip(self._load[cores.start : cores.stop].tolist(), cores, strict=True)]
        heapq.heapify(heap)
        placed = []
        for _ in range(count):
            load, core = heap[0]
            placed.append(core)
            heapq.heapreplace(heap, (load + cost, core))
        return placed

    def _row(self, server: int) -> list[float]:
        """The finite loads of the cores of `server`, ascending."""
        if server not in self._rows:
            cores = self._problem.cores_of(server)
            row = self._load[cores.start : cores.stop]
            self._rows[server] = np.sort(row[np.isfinite(row)]).tolist()
        return self._rows[server]

    def _least_finish(self, count: Ints, deadline: float) -> Floats:
        """(S,) a lower bound on M_s(count) without sorting: the next end on any core after `deadline`.

        It is valid where `count` tasks do not fit by `deadline`.
        """
        problem = self._problem
        cost = problem.costs.at(count)[problem.server_of]
        with np.errstate(invalid="ignore"):
            ended = np.fmax(np.floor((deadline - self._load) / cost + TOLERANCE), 0.0)  # fmax: inf / inf counts as 0
            following = self._load + (ended + 1.0) * cost
        least = np.full(problem.servers, np.inf)
        cores = np.diff(problem.first)
        if len(following):
            least[cores > 0] = np.minimum.reduceat(following, problem.first[:-1][cores > 0])
        return least


def _largest(holds: Callable[[Ints], Bools], low: Ints, high: Ints) -> Ints:
    """(S,) the largest n in [low, high] with `holds(n)`, which is true at `low` and monotone."""
    low, high = low.copy(), high.copy()
    while (low < high).any():
        middle = (low + high + 1) // 2
        fits = holds(middle) | (middle == low)
        low = np.where(fits, middle, low)
        high = np.where(fits, high, middle - 1)
    return low


def lower_bound(problem: ScheduleProblem, local: LocalPlan) -> float:
    """The smallest such D; if `local` was stopped early, the earliest end of one task on any core."""
    if not problem.tasks:
        return 0.0
    if not local.balanced:
        return float(problem.core_load.min()) + 1.0
    room = RemoteRoom(problem, problem.core_load)
    finishes = np.sort(local.finish[np.isfinite(local.finish)])
    deadlines = np.unique(finishes)
    ended = np.searchsorted(finishes, deadlines, side="right")
    low, high = -1, len(deadlines)  # the condition fails at low and holds at high
    while high - low > 1:
        middle = (low + high) // 2
        if ended[middle] + int(room.most(float(deadlines[middle])).sum()) >= problem.tasks:
            high = middle
        else:
            low = middle
    at_most = float(deadlines[high]) if high < len(deadlines) else math.inf
    deadline = float(deadlines[low]) if low >= 0 else -math.inf
    remote = room.most(deadline)
    missing = problem.tasks - int(remote.sum()) - (int(ended[low]) if low >= 0 else 0)
    return min(at_most, room.extend(remote, missing, deadline))


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
