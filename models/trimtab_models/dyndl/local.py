"""Phase I of DynDLOff: every task on a server that holds its data, as evenly as possible.

A server with n local tasks uses its n earliest *slots*: the least loaded core takes the next task, so the slots of a
server finish in ascending order.  MAX(s) is the finish time of its last used slot, MIN(s) + 1 that of its first free
one.  A *cost-reducing path* leads from server a to server b over tasks that can move to the next server, with
MAX(a) - MIN(b) > 1.  Moving every task on it by one server replaces the finish time MAX(a) by the earlier MIN(b) + 1.
If there are no such paths, the multiset of finish times is unique, and for every D as many tasks as possible end by D
(settlement 3; the paper's constraint 2, no improving *single* move, does not imply this).

The search starts from the server with the largest MAX.  If it fails, all servers that it reached are closed
(settlement 4).  From them, only servers with MIN >= MAX(a) - 1 can be reached, so no later path through them, from a
server with a smaller MAX, leads to an earlier finish.
"""

import heapq
from dataclasses import dataclass

import numpy as np

from trimtab_models.dyndl.problem import TOLERANCE, Floats, Ints, ScheduleProblem
from trimtab_models.solving.stop import StopRule

NOWHERE = -1


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
