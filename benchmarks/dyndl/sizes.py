"""DynDL for tasks of different sizes, beyond the paper: restores of key groups of any size.

A local task of size w costs w, a remote one w * g_s(R_s), with R_s the remote *size* on its server (at least 1).  With
unit sizes this is the model of the paper.  Sizes are in units of the usual task.  In addition:

- A remote task is read from one of its replicas.  What leaves a server, divided by its `egress` (size per unit of
time),
  must also end by the makespan.  A task without replicas is read from the log and loads no server.
- The tasks on a server should fit into its `memory`.  If they cannot, there is still a schedule, because a cluster
after
  a failure must recover.  The search minimises the overshoot first, then the makespan.
- A limit on concurrent restores is a g_s that is infinite beyond it.

The search starts from the better of two schedules: that of DynDLOff, and a greedy one with the largest tasks first.  It
then moves single tasks of the core (or source) that ends last.
"""

from dataclasses import dataclass

import numpy as np

from trimtab_models.dyndl.offline import NOWHERE, solve_offline
from trimtab_models.dyndl.problem import NO_CORE, TOLERANCE, Bools, Floats, Ints, ScheduleProblem
from trimtab_models.dyndl.result import is_local
from trimtab_models.solving import Infeasible, Never, PlanStatus, StopRule

NOT_FOUND = f"{NO_CORE}: no schedule with a finite makespan was found"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SizedProblem:
    """`base` = where tasks can run; the other fields = sizes of the tasks, and limits of the servers."""

    base: ScheduleProblem
    size: Floats  # (T,) > 0
    egress: Floats  # (S,) size per unit of time that can leave a server, inf = no limit
    memory: Floats  # (S,) inf = no limit
    need: Floats  # (T,) memory

    def __post_init__(self) -> None:
        tasks, servers = self.base.tasks, self.base.servers
        if self.size.shape != (tasks,) or self.need.shape != (tasks,):
            raise ValueError("every task needs a size and a need of memory")
        if self.egress.shape != (servers,) or self.memory.shape != (servers,):
            raise ValueError("every server needs an egress and a memory")
        positive = np.isfinite(self.size).all() and (self.size > 0).all() and (self.egress >= 0).all()
        if not (positive and (self.need >= 0).all() and (self.memory >= 0).all()):
            raise ValueError("sizes must be finite and above 0, needs and limits not below 0")

    def holding(self, task: int) -> Bools:
        """(S,) whether each server holds the data of `task`."""
        holding = np.zeros(self.base.servers, np.bool_)
        holding[list(self.base.replicas[task])] = True
        return holding


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SizedScore:
    """The score of a schedule: less memory overshoot is better, then the earlier makespan."""

    memory_over: float
    makespan: float
    core_end: Floats  # (P,) initial load and tasks
    source_end: Floats  # (S,) when the last data read from it has left

    @property
    def order(self) -> tuple[float, float]:
        """Sort key; less is better."""
        return self.memory_over, self.makespan


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SizedResult:
    """`core` (T,) of each task; `source` (T,) = server that a remote task is read from, NOWHERE for all others."""

    core: Ints
    source: Ints
    score: SizedScore
    lower_bound: float

    @property
    def status(self) -> PlanStatus:
        """Optimal if the makespan equals the bound and the memory suffices."""
        proven = self.score.makespan <= self.lower_bound + TOLERANCE and not self.score.memory_over
        return PlanStatus.OPTIMAL if proven else PlanStatus.FEASIBLE


@dataclass(frozen=True, slots=True, kw_only=True)
class SizedParams:
    """Limit of the search: number of single moves."""

    moves: int = 1_000


def solve_sized(
    problem: SizedProblem, *, stop: StopRule, seed: int = 0, params: SizedParams = SizedParams()
) -> SizedResult | Infeasible:
    """The best schedule found, the same for every `seed`."""
    del seed
    if not problem.base.usable.any():
        return Infeasible(reason=NO_CORE)
    placeable = np.isin(np.arange(problem.base.tasks), problem.base.forced, invert=True)
    largest = np.lexsort((-problem.size, placeable)).tolist()  # forced tasks first
    alike = _start_alike(problem, largest, stop)
    greedy = _start_greedy(problem, largest, stop if alike else Never())
    complete = [start for start in (greedy, alike) if start]
    best = min(complete, key=lambda schedule: evaluate_sized(problem, schedule.core, schedule.source).order)
    _improve(best, params.moves, stop)
    score = evaluate_sized(problem, best.core, best.source)
    if score.makespan == np.inf:
        return Infeasible(reason=NOT_FOUND)
    return SizedResult(
        core=best.core, source=best.source, score=score, lower_bound=min(sized_bound(problem), score.makespan)
    )


def _start_alike(problem: SizedProblem, tasks: list[int], stop: StopRule) -> "_Schedule | None":
    """The schedule of DynDLOff, as if all sizes were equal; None if the tasks do not fit then."""
    alike = solve_offline(problem.base, stop=stop)
    if isinstance(alike, Infeasible):
        return None
    schedule = _Schedule(problem)
    for task in tasks:
        core = int(alike.core[task])
        schedule.put(task, core, schedule.best_source(task, core))
    return schedule


def _start_greedy(problem: SizedProblem, tasks: list[int], stop: StopRule) -> "_Schedule | None":
    """Each of `tasks` in its best place at that moment; None if stopped early."""
    schedule = _Schedule(problem)
    for task in tasks:
        if stop():
            return None
        schedule.put(task, *schedule.best_place(task))
    return schedule


def evaluate_sized(problem: SizedProblem, core: Ints, source: Ints) -> SizedScore:
    """The score of a complete schedule, from scratch."""
    base, size = problem.base, problem.size
    server = base.server_of[core]
    local = is_local(base, server)
    remote = np.bincount(server[~local], size[~local], base.servers)
    cost = size * np.where(local, 1.0, base.costs.at(remote)[server])
    core_end = base.core_load + np.bincount(core, cost, len(base.core_load))
    read = source != NOWHERE
    sent: Floats = np.bincount(source[read], size[read], base.servers).astype(np.float64)
    source_end = _over(sent, problem.egress)
    used = np.bincount(server, problem.need, base.servers)
    return SizedScore(
        memory_over=float(np.maximum(0.0, used - problem.memory).sum()),
        makespan=max(float(core_end[core].max(initial=0.0)), float(source_end.max(initial=0.0))),
        core_end=core_end,
        source_end=source_end,
    )


def _over(sent: Floats, egress: Floats) -> Floats:
    """sent / egress; 0 where nothing is sent."""
    return np.divide(sent, egress, out=np.where(sent > 0, np.inf, 0.0), where=(sent > 0) & (egress > 0))


def sized_bound(problem: SizedProblem) -> float:
    """Lower bound: all work at local cost, evenly spread; and every single task in its best place."""
    base = problem.base
    if not base.tasks:
        return 0.0
    loads = np.sort(base.core_load[np.isfinite(base.core_load)])
    count = np.arange(1, len(loads) + 1)
    level = float(((problem.size.sum() + np.cumsum(loads)) / count).min())  # the lowest level at which all work fits
    least = np.full(base.servers, np.inf)
    np.minimum.at(least, base.server_of, base.core_load)
    alone = []
    for task, size in enumerate(problem.size.tolist()):
        remote = base.costs.at(np.full(base.servers, size))
        alone.append(float((least + size * np.where(problem.holding(task), 1.0, remote)).min()))
    return max(level, *alone)


class _Schedule:
    """A partial schedule, with sums per core and server."""

    def __init__(self, problem: SizedProblem) -> None:
        base = problem.base
        self.problem = problem
        self.core: Ints = np.full(base.tasks, NOWHERE, np.int64)
        self.source: Ints = np.full(base.tasks, NOWHERE, np.int64)
        self._local_end = base.core_load.copy()  # (P,) initial loads and local tasks
        self._remote_on = np.zeros(len(base.core_load))  # (P,) remote sizes
        self._remote = np.zeros(base.servers)  # (S,) R_s
        self._sent = np.zeros(base.servers)
        self._used = np.zeros(base.servers)
        self._occupied = np.flatnonzero(np.diff(base.first) > 0)  # servers with cores
        self._starts = base.first[self._occupied]

    def put(self, task: int, core: int, source: int) -> None:
        """Place `task`."""
        self.core[task], self.source[task] = core, source
        self._count(task, 1.0)

    def take(self, task: int) -> tuple[int, int]:
        """Remove `task`; returns its core and source."""
        place = int(self.core[task]), int(self.source[task])
        self._count(task, -1.0)
        self.core[task] = self.source[task] = NOWHERE
        return place

    def _count(self, task: int, sign: float) -> None:
        core, source = int(self.core[task]), int(self.source[task])
        server, size = int(self.problem.base.server_of[core]), sign * float(self.problem.size[task])
        if server in self.problem.base.replicas[task]:
            self._local_end[core] += size
        else:
            self._remote_on[core] += size
            self._remote[server] += size
        if source != NOWHERE:
            self._sent[source] += size
        self._used[server] += sign * self.problem.need[task]

    def best_source(self, task: int, core: int) -> int:
        """The replica from which `task` on `core` is read earliest; NOWHERE if it is local or has no replica."""
        replicas = np.array(self.problem.base.replicas[task], np.int64)
        if not len(replicas) or self.problem.base.server_of[core] in replicas:
            return NOWHERE
        ends = _over(self._sent[replicas] + self.problem.size[task], self.problem.egress[replicas])
        return int(replicas[ends.argmin()])

    def best_place(self, task: int) -> tuple[int, int]:
        """Core and source for an unplaced task: least memory overshoot, then the earliest end."""
        problem, base = self.problem, self.problem.base
        size, held = float(problem.size[task]), problem.holding(task)
        cost = base.costs.at(np.where(held, self._remote, self._remote + size))
        here = cost[base.server_of]
        shared = self._remote_on > TOLERANCE
        end = self._local_end.copy()
        end[shared] += self._remote_on[shared] * here[shared]
        own = end + np.where(held[base.server_of], size, size * here)
        delayed = np.where(shared, end, 0.0)
        latest = np.full(base.servers, np.inf)
        latest[self._occupied] = np.maximum(
            np.minimum.reduceat(own, self._starts), np.maximum.reduceat(delayed, self._starts)
        )
        if base.replicas[task]:
            replicas = list(base.replicas[task])
            sent = _over(self._sent[replicas] + size, problem.egress[replicas]).min()
            latest = np.where(held, latest, np.maximum(latest, sent))
        over = np.maximum(0.0, self._used + problem.need[task] - problem.memory)
        over = np.where(base.usable, np.minimum(over, problem.need[task]), np.inf)
        server = int(np.lexsort((latest, over))[0])
        cores = base.cores_of(server)
        core = cores.start + int(own[cores.start : cores.stop].argmin())
        return core, self.best_source(task, core)


def _improve(schedule: _Schedule, moves: int, stop: StopRule) -> None:
    """Move single tasks of the core or source that ends last to a better place, while the score improves."""
    problem = schedule.problem
    score = evaluate_sized(problem, schedule.core, schedule.source)
    while moves > 0 and not stop():
        for task in _critical(schedule, score):
            before = schedule.take(task)
            schedule.put(task, *schedule.best_place(task))
            after = evaluate_sized(problem, schedule.core, schedule.source)
            if _is_less(after, score):
                score, moves = after, moves - 1
                break
            schedule.take(task)
            schedule.put(task, *before)
            if stop():
                return
        else:
            return


def _critical(schedule: _Schedule, score: SizedScore) -> list[int]:
    """The tasks that cause the makespan or the memory overshoot, largest first."""
    problem, base = schedule.problem, schedule.problem.base
    server = base.server_of[schedule.core]
    last = np.flatnonzero(score.core_end >= score.makespan - TOLERANCE)
    remote = ~is_local(base, server)
    crowded = np.bincount(server, problem.need, base.servers) > problem.memory
    critical = np.isin(schedule.core, last)
    critical |= remote & np.isin(server, server[critical & remote])
    critical |= (schedule.source != NOWHERE) & (score.source_end[schedule.source] >= score.makespan - TOLERANCE)
    critical |= crowded[server]
    tasks = np.flatnonzero(critical)
    return [int(task) for task in tasks[np.argsort(-problem.size[tasks], kind="stable")]]


def _is_less(after: SizedScore, before: SizedScore) -> bool:
    if abs(after.memory_over - before.memory_over) > TOLERANCE * max(1.0, before.memory_over):
        return after.memory_over < before.memory_over
    if after.makespan < before.makespan - TOLERANCE:
        return True
    tied = after.makespan <= before.makespan + TOLERANCE
    return tied and _last(after) < _last(before)


def _last(score: SizedScore) -> int:
    """Number of cores and sources that end last."""
    ends = np.concatenate((score.core_end, score.source_end))
    return int((np.isfinite(ends) & (ends >= score.makespan - TOLERANCE)).sum())
