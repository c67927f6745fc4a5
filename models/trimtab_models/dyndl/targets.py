"""DynDL's own targets for restores, where the plan that balances the load is indifferent; off-line and on-line.

A restore of size w on server s, beside n - 1 others, takes w * g_s(n).  A server that uses its best number of slots
restores one unit of size every `pace_s` = min over n of g_s(n) / n, so it ends with the restores `here` at

    end_s = max(running_s + pace_s * sum of w, longest of w * g_s(1))

The makespan is the last of these ends.  List scheduling (`given`) ends within the sum of both parts.  A worker that
has a part of the state on its disk restores only the rest: `less`.

`choose_targets` is DynDLOff for a batch: it starts with the targets that are given, and lets restores leave the server
that ends last, alone or in exchange for others.  No worker gets out of the limits that are given for it, so the balance
of the load stays what the caller allows, and the makespan never gets later.  `choose_online` is DynDLOn for a single
one: a free slot with a copy takes it at once, any other one only after a delay.

Source: Jin, An, Zhou, Tang, Xiong, "DynDL", Applied Sciences 8(11), 2018, 2216, sections 3 and 4, with sizes and the
limits of the workers as our additions.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from trimtab_models.dyndl.problem import TOLERANCE, Bools, Floats, Ints
from trimtab_models.instances.scheduling import RemoteCost
from trimtab_models.solving import StopRule
from trimtab_models.spared import Places, Spared, usage_on

TRIED = 8
"""Of the server that ends last, so many restores are tried in each step: the largest, and the smallest."""
PARTNERS = 64
"""How many restores of other servers are tried for an exchange: those on the servers that end first."""
OPERATIONS = 1_000_000
"""Trials of a restore on a worker in one search; it then takes about half a second at most."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TargetsProblem:
    """T restores, W workers on S servers, R resources of workers; sizes in units of a local restore.

    A restore adds `demand * per_unit` to what is `used` of each resource of its worker, less what is `spared` of the
    demand there; that must stay within `least` and `most`, or must have been outside with the given targets.  The last
    `of_servers` resources are those of servers: all workers of one have the same row, and use it together.
    """

    server: Ints  # (W,)
    size: Floats  # (T,) > 0, where nothing of the state is there
    less: Sequence[Mapping[int, float]]  # (T,) worker -> size > 0, where a part of it is there
    pace: Floats  # (S,) > 0, time per unit of size, at the best number of restores at a time
    alone: Floats  # (S,) time per unit of size of a restore without others
    running: Floats  # (S,) >= 0, time until the restores that run already have ended
    demand: Floats  # (R, T)
    per_unit: Floats  # (R, W)
    used: Floats  # (R, W) without these restores
    least: Floats  # (R, W)
    most: Floats  # (R, W)
    given: Ints  # (T,) the worker of each restore, without regard to what it costs
    of_servers: int = 0
    spared: Spared | None = None
    allowed: Bools | None = None  # (T, W) the workers that a restore may go to, beside the given one; None: all

    def __post_init__(self) -> None:
        tasks, workers, servers = len(self.size), len(self.server), len(self.pace)
        if not len(self.less) == len(self.given) == tasks or self.demand.shape[1:] != (tasks,):
            raise ValueError(f"{tasks} restores need as many copies, targets and demands")
        if not len(self.alone) == len(self.running) == servers:
            raise ValueError(f"{servers} servers need as many paces and running restores")
        shape = (len(self.demand), workers)
        if any(each.shape != shape for each in (self.per_unit, self.used, self.least, self.most)):
            raise ValueError(f"the resources of workers must be {shape}")
        if self.allowed is not None and self.allowed.shape != (tasks, workers):
            raise ValueError(f"allowed must have one flag for each of {tasks} restores and {workers} workers")
        if tasks and not (0 <= self.given.min() <= self.given.max() < workers):
            raise ValueError(f"a target must be one of {workers} workers")
        if not (np.isfinite(self.size).all() and (self.size > 0).all() and (self.pace > 0).all()):
            raise ValueError("sizes must be finite and above 0, paces above 0")

    def added(self, tasks: Places, workers: Places) -> Floats:
        """(R, ...) what these restores add on these workers."""
        demand = usage_on(self.demand, self.spared, tasks, workers)
        return np.asarray(np.nan_to_num(demand * self.per_unit[:, workers]))

    def may(self, tasks: Places, workers: Places) -> Bools:
        """Whether these restores may go to these workers."""
        if self.allowed is None:
            return np.ones(np.broadcast(tasks, workers).shape, np.bool_)
        found: Bools = self.allowed[tasks, workers]
        return found

    def size_on(self, task: int) -> Floats:
        """(W,) the size of a restore on each worker."""
        sizes = np.full(len(self.server), self.size[task])
        for worker, size in self.less[task].items():
            sizes[worker] = size
        return sizes

    def one(self, task: int, worker: int) -> float:
        """The size of a restore on one worker."""
        return self.less[task].get(worker, float(self.size[task]))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Targets:
    """The worker of each restore, the makespan, and what no targets can beat."""

    worker: Ints  # (T,)
    makespan: float
    lower_bound: float


def pace_of(cost: RemoteCost, slots: int) -> float:
    """The least time per unit of size of a server with so many slots."""
    return min(cost.at(n) / n for n in range(1, slots + 1))


def choose_targets(problem: TargetsProblem, *, stop: StopRule, operations: int = OPERATIONS) -> Targets:
    """The targets, found with at most so many trials of a restore on a worker; never later than those that are given.

    Each step takes at most TRIED * (W + PARTNERS) trials and lowers the end of the server that ends last.
    """
    search = _Search(problem)
    before = search.makespan
    left = operations
    if len(problem.size):
        for task in sorted(range(len(problem.size)), key=lambda task: -_saved(problem, task)):
            if not problem.less[task] or left <= 0 or stop():
                break
            left -= len(problem.server)
            search.to_copy(task, before)
        while left > 0 and not stop():
            left -= TRIED * (len(problem.server) + PARTNERS)
            if not search.level():
                break
    return Targets(
        worker=search.worker,
        makespan=search.makespan,
        lower_bound=min(targets_bound(problem), search.makespan),
    )


def targets_bound(problem: TargetsProblem) -> float:
    """No targets have an earlier makespan, whatever the limits of workers.

    By time D a server restores at most (D - running_s) / pace_s.  Every restore is at least as large as where the most
    of its state is, and takes at least that long alone on the best server.
    """
    if not len(problem.size):
        return 0.0
    size = np.array([min([float(own), *less.values()]) for own, less in zip(problem.size, problem.less, strict=True)])
    alone = float(problem.alone.min())
    longest = 0.0
    for task, less in enumerate(problem.less):
        held = [part * float(problem.alone[problem.server[at]]) for at, part in less.items()]
        longest = max(longest, min([float(problem.size[task]) * alone, *held]))
    workers = np.arange(len(problem.server))
    possible = problem.may(np.arange(len(size))[:, None], workers).any(axis=0) | np.isin(workers, problem.given)
    used = np.unique(problem.server[possible])
    order = used[np.argsort(problem.running[used], kind="stable")]
    free, rate = problem.running[order], 1.0 / problem.pace[order]
    level, work, speed, begun = 0.0, float(size.sum()), 0.0, 0.0
    for place in range(len(order)):
        speed += float(rate[place])
        begun += float(rate[place] * free[place])
        level = (work + begun) / speed
        if place + 1 == len(order) or level <= free[place + 1]:
            break
    return max(level, longest)


def makespan_of(problem: TargetsProblem, worker: Ints) -> float:
    """When the last server ends with these targets, by the formula above."""
    return _Search(problem, worker).makespan


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OnlineRestore:
    """One restore as it comes; times in units of a local restore, per worker.

    `free_in` = time until its server has a free slot, `beside` = the restores that its server runs, `allowed` = whether
    the balance of the load permits it; where it permits none, all count.
    """

    server: Ints  # (W,)
    size: float
    less: Mapping[int, float]
    costs: Sequence[RemoteCost]  # (S,)
    free_in: Floats  # (S,)
    beside: Ints  # (S,)
    allowed: Bools  # (W,)
    wait: float = 1.0
    preferred: Mapping[int, float] = field(default_factory=dict)


def choose_online(restore: OnlineRestore) -> int:
    """DynDLOn: the worker whose slot takes the restore first.

    A slot of a server with a copy takes it as soon as it is free.  Any other slot takes it after a delay: W if its
    server restores nothing, else max(g_s(n), W) with the n restores there.  Among equals: the one that ends first, then
    the one with the smaller value in `preferred`, then by position.
    """
    if not len(restore.server):
        raise ValueError("there is no worker to restore on")
    workers = np.flatnonzero(restore.allowed).tolist() or range(len(restore.server))

    def taken(worker: int) -> tuple[float, float, float, int]:
        server = int(restore.server[worker])
        beside, cost = int(restore.beside[server]), restore.costs[server]
        begin = float(restore.free_in[server])
        size = restore.less.get(worker)
        if size is None:
            begin += max(cost.at(beside), restore.wait) if beside else restore.wait
        end = begin + (restore.size if size is None else size) * cost.at(beside + 1)
        return begin, end, restore.preferred.get(worker, 0.0), worker

    return min(workers, key=taken)


def _saved(problem: TargetsProblem, task: int) -> float:
    """How much less a restore is at most where a part of its state is."""
    return float(problem.size[task]) - min(problem.less[task].values(), default=math.inf)


class _Search:
    """Targets that change one by one, with sums per server and worker."""

    def __init__(self, problem: TargetsProblem, worker: Ints | None = None) -> None:
        self._problem = problem
        self.worker: Ints = (problem.given if worker is None else worker).copy()
        tasks = range(len(self.worker))
        self._here = np.array([problem.one(task, at) for task, at in zip(tasks, self.worker.tolist(), strict=True)])
        """(T,) the size of each restore where it is."""
        on = problem.server[self.worker] if len(self.worker) else np.zeros(0, np.int64)
        self._sum = np.bincount(on, self._here, len(problem.pace)).astype(np.float64)
        self._used = problem.used.copy()
        self._own = len(problem.demand) - problem.of_servers
        """So many resources are those of workers; the others are those of servers."""
        for at, added in enumerate(problem.added(np.arange(len(self.worker)), self.worker)):
            if at < self._own:
                self._used[at] += np.bincount(self.worker, added, len(problem.server))
            else:
                self._used[at] += np.bincount(on, added, len(problem.pace))[problem.server]
        self._least = np.minimum(problem.least, self._used) - TOLERANCE
        self._most = np.maximum(problem.most, self._used) + TOLERANCE
        self._limited = bool(len(problem.demand))

    @property
    def makespan(self) -> float:
        """When the last server ends."""
        return float(self._ends().max()) if len(self.worker) else 0.0

    def to_copy(self, task: int, latest: float) -> bool:
        """Let a restore go where a part of its state is, if its server then ends by `latest`; whether it did."""
        present = int(self.worker[task])
        now = self._problem.one(task, present)
        holders = sorted(self._problem.less[task].items(), key=lambda each: (each[1], each[0]))
        for holder, size in holders:
            if size >= now:
                return False
            if not self._problem.may(task, holder):
                continue
            server = int(self._problem.server[holder])
            elsewhere = server != self._problem.server[present]
            end = self._sum[server] + size - (0.0 if elsewhere else now)
            if self._at(server, float(end), size) <= latest + TOLERANCE and self._fits({task: holder}):
                self._make({task: holder})
                return True
        return False

    def level(self) -> bool:
        """Let a restore leave the server that ends last, alone or else in exchange for another; whether one did."""
        ends = self._ends()
        last = int(ends.argmax())
        server_of = self._problem.server[self.worker]
        here = np.flatnonzero(server_of == last)
        if not len(here):
            return False  # only what runs already ends so late
        order = here[np.argsort(-self._here[here], kind="stable")]
        chosen = order if len(order) <= TRIED else np.concatenate((order[: TRIED // 2], order[-(TRIED // 2) :]))
        rests = [float(self._here[order[int(task == order[0])]]) if len(order) > 1 else 0.0 for task in chosen]
        tasks = list(zip(chosen.tolist(), rests, strict=True))
        moves = (change for task, rest in tasks for change in self._moves(task, last, ends, rest))
        best = self._best(moves, float(ends[last]))
        if best is None:
            others = np.flatnonzero(server_of != last)
            if len(others) > PARTNERS:
                others = others[np.argpartition(ends[server_of[others]], PARTNERS)[:PARTNERS]]
            swaps = (change for task, rest in tasks for change in self._exchanges(task, last, others, rest))
            best = self._best(swaps, float(ends[last]))
        if best is None:
            return False
        self._make(best)
        return True

    def _best(self, changes: Iterable[tuple[float, dict[int, int]]], before: float) -> dict[int, int] | None:
        """The change within the limits after which its servers end first, if that is before `before`."""
        found: dict[int, int] | None = None
        for end, targets in changes:
            if end < before - TOLERANCE and self._fits(targets):
                before, found = end, targets
        return found

    def _moves(self, task: int, last: int, ends: Floats, rest: float) -> Iterator[tuple[float, dict[int, int]]]:
        """Other targets for a restore of the last server, and when the later of the two servers ends then.

        `rest` = the largest of its other restores.
        """
        problem, server = self._problem, self._problem.server
        size = problem.size_on(task)
        after = np.maximum(
            problem.running[server] + problem.pace[server] * (self._sum[server] + size), problem.alone[server] * size
        )
        left = self._at(last, float(self._sum[last] - self._here[task]), rest)
        barred = (server == last) | ~problem.may(task, np.arange(len(server)))
        later = np.where(barred, np.inf, np.maximum(after, left))
        for worker in np.argsort(later, kind="stable")[:TRIED].tolist():
            if later[worker] < ends[last]:
                yield float(later[worker]), {task: worker}

    def _exchanges(self, task: int, last: int, others: Ints, rest: float) -> Iterator[tuple[float, dict[int, int]]]:
        """Restores of other servers to change places with, and when the later of the two servers ends then."""
        problem, present = self._problem, int(self.worker[task])
        workers = self.worker[others]
        to = problem.server[workers]
        there = problem.size_on(task)[workers]
        back = np.array([problem.one(other, present) for other in others.tolist()])
        theirs = np.maximum(
            problem.running[to] + problem.pace[to] * (self._sum[to] - self._here[others] + there),
            problem.alone[to] * there,
        )
        sums = self._sum[last] - self._here[task] + back
        ours = np.maximum(
            problem.running[last] + problem.pace[last] * sums, problem.alone[last] * np.maximum(rest, back)
        )
        end = np.where(problem.may(task, workers) & problem.may(others, present), np.maximum(theirs, ours), np.inf)
        for place in np.argsort(end, kind="stable").tolist():
            yield float(end[place]), {task: int(workers[place]), int(others[place]): present}

    def _fits(self, targets: Mapping[int, int]) -> bool:
        """Whether all workers stay within their limits."""
        if not self._limited:
            return True
        problem, own = self._problem, self._own
        used, shared = dict[int, Floats](), dict[int, Floats]()
        for task, worker in targets.items():
            for at, sign in ((int(self.worker[task]), -1.0), (worker, 1.0)):
                change = sign * problem.added(task, at)
                used[at] = used.get(at, self._used[:, at]) + change
                server = int(problem.server[at])
                shared[server] = shared.get(server, 0.0) + change[own:]
        for at, amount in used.items():
            amount[own:] = self._used[own:, at] + shared[int(problem.server[at])]
        return all(
            bool((self._least[:, at] <= amount).all() and (amount <= self._most[:, at]).all())
            for at, amount in used.items()
        )

    def _make(self, targets: Mapping[int, int]) -> None:
        problem = self._problem
        for task, worker in targets.items():
            present = int(self.worker[task])
            self._sum[problem.server[present]] -= self._here[task]
            self._here[task] = problem.one(task, worker)
            self._sum[problem.server[worker]] += self._here[task]
            if self._limited:
                self._use(present, -problem.added(task, present))
                self._use(worker, problem.added(task, worker))
            self.worker[task] = worker

    def _use(self, worker: int, change: Floats) -> None:
        self._used[: self._own, worker] += change[: self._own]
        if self._problem.of_servers:
            beside = self._problem.server == self._problem.server[worker]
            self._used[self._own :, beside] += change[self._own :, None]

    def _ends(self) -> Floats:
        """(S,) when each server ends; -inf for one without restores of this batch."""
        problem = self._problem
        on = problem.server[self.worker]
        longest = np.zeros(len(problem.pace))
        np.maximum.at(longest, on, self._here)
        ends = np.maximum(problem.running + problem.pace * self._sum, problem.alone * longest)
        return np.where(np.bincount(on, minlength=len(problem.pace)) > 0, ends, -np.inf)

    def _at(self, server: int, sum_of_sizes: float, longest: float) -> float:
        problem = self._problem
        level = float(problem.running[server]) + float(problem.pace[server]) * sum_of_sizes
        return max(level, float(problem.alone[server]) * longest)
