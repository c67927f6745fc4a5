"""How many remote tasks fit on top of given core loads, and when the last of them ends.

For a server with loads L(p) and r remote tasks of cost g = g_s(r):

    r_max(s, D) = the largest r with  sum over cores p with L(p) < D of floor((D - L(p)) / g_s(r)) >= r
    M_s(r)      = the earliest finish of r equal remote tasks, the r-th smallest of all L(p) + j * g_s(r), j >= 1

(DynDL, section 5.2; settlements 1, 2 and 5.)  M_s(r) grows with r, so r_max(s, D) is the number of r with M_s(r) <= D.
Assigning remote tasks one by one, each to the server with the smallest M_s(r_s + 1), therefore ends earliest.

With total = sum of (D - L(p)) and gamma = the largest r with r * g_s(r) <= total, gamma - cores <= r_max <= gamma
(the paper's theorem 1).  Both searches bisect for all servers at once.
"""

import heapq
import math
from collections.abc import Callable

import numpy as np

from trimtab_models.dyndl.problem import TOLERANCE, Bools, Floats, Ints, ScheduleProblem


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
