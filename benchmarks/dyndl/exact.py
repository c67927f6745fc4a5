"""The exact anytime tier for small instances: bisection over the possible makespans, each decided by CP-SAT.

Every makespan is L_init(p) + a + b * g_s(r) with integers a and b <= r.  The possible makespans between the bound and
that of DynDLOff, the first incumbent, therefore form a finite list.  By time D a server can run r remote tasks and a
limited number of local ones (a small dynamic program over its cores); this is an *option*.  CP-SAT chooses an option
for every server and assigns the tasks.  If it finds an assignment, the incumbent improves; if there is none, the bound
rises.

The model may count a task as remote on a server that holds its data.  Its real cost is then lower, never higher.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from ortools.sat.python import cp_model

from trimtab_models.dyndl.offline import DECIMALS, NOWHERE, RemoteRoom, solve_offline
from trimtab_models.dyndl.problem import TOLERANCE, Floats, Ints, ScheduleProblem
from trimtab_models.dyndl.result import ScheduleResult, evaluate
from trimtab_models.solving import Infeasible, StopRule

FIRST_SLICE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactParams:
    """`effort` = limit for all searches together, in CP-SAT's deterministic seconds."""

    effort: float = 60.0


def solve_exact(
    problem: ScheduleProblem, *, stop: StopRule, seed: int = 0, params: ExactParams = ExactParams()
) -> ScheduleResult | Infeasible:
    """The best schedule found, `OPTIMAL` if the effort suffices for a proof; always the same unless stopped."""
    incumbent = solve_offline(problem, stop=stop, seed=seed)
    if isinstance(incumbent, Infeasible) or stop():
        return incumbent
    makespans = possible_makespans(problem, incumbent.lower_bound, incumbent.score.makespan)
    search = _Search(problem, stop, seed, params.effort)
    low, high = 0, len(makespans)  # below makespans[low] none is possible; the incumbent is below makespans[high]
    while low < high:
        middle = (low + high) // 2
        core = search.schedule(float(makespans[middle]))
        if core is None:
            break
        if len(core):
            incumbent = replace(incumbent, core=core, score=evaluate(problem, core))
            high = int(np.searchsorted(makespans, incumbent.score.makespan - TOLERANCE))
        else:
            low = middle + 1
    bound = incumbent.score.makespan if low >= high else float(makespans[low])
    return replace(incumbent, lower_bound=min(bound, incumbent.score.makespan))


def possible_makespans(problem: ScheduleProblem, low: float, high: float) -> Floats:
    """All times in [low, high) at which a core can end, ascending."""
    found: set[float] = set()
    most = RemoteRoom(problem, problem.core_load).most(high).tolist()
    for server in np.flatnonzero(problem.usable).tolist():
        cores = problem.cores_of(server)
        loads = np.unique(problem.core_load[cores.start : cores.stop])
        for count in range(most[server] + 1):
            cost = problem.costs.one(server, count) if count else 0.0
            for here in range(min(count, 1), count + 1):
                ends = loads[loads < high] + here * cost
                ends = ends[ends < high - TOLERANCE]
                if not len(ends):
                    break
                for further in range(int(high - ends.min()) + 1):
                    shifted = ends + further
                    inside = (shifted >= low - TOLERANCE) & (shifted < high - TOLERANCE)
                    found.update(np.round(shifted[inside], DECIMALS).tolist())
    return np.array(sorted(found))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Option:
    """`remote` remote tasks and up to `local` local ones on a server, with the number of each per core."""

    remote: int
    local: int
    cores: tuple[tuple[int, int, int], ...]  # core, local, remote


def options(problem: ScheduleProblem, server: int, deadline: float, most: int) -> list[_Option]:
    """The options of `server` by `deadline` with 0 to `most` remote tasks, without dominated ones."""
    found: list[_Option] = []
    for remote in range(most, -1, -1):
        option = _most_local(problem, server, deadline, remote)
        if option and (not found or option.local > found[-1].local):
            found.append(option)
    return found


def _most_local(problem: ScheduleProblem, server: int, deadline: float, remote: int) -> _Option | None:
    """The option with exactly `remote` remote tasks and as many local ones as possible."""
    cost = problem.costs.one(server, remote) if remote else 1.0
    best: dict[int, tuple[int, tuple[tuple[int, int, int], ...]]] = {0: (0, ())}  # by remote tasks so far
    for core in problem.cores_of(server):
        room = deadline - float(problem.core_load[core]) + TOLERANCE
        if room < 1.0:
            continue
        following: dict[int, tuple[int, tuple[tuple[int, int, int], ...]]] = {}
        for before, (local, cores) in best.items():
            for here in range(min(remote - before, int(room / cost)) + 1):
                beside = min(problem.tasks, int(room - here * cost))
                if local + beside > following.get(before + here, (-1,))[0]:
                    following[before + here] = (local + beside, (*cores, (core, beside, here)))
        best = following
    if remote not in best:
        return None
    local, cores = best[remote]
    return _Option(remote=remote, local=local, cores=cores)


class _Search:
    """Decides whether deadlines can be met, within an effort."""

    def __init__(self, problem: ScheduleProblem, stop: StopRule, seed: int, effort: float) -> None:
        self._problem = problem
        self._stop = stop
        self._seed = seed
        self._effort = effort
        self._room = RemoteRoom(problem, problem.core_load)
        self._alike: dict[tuple[int, ...], list[int]] = {}  # tasks by their holders
        for task, holders in enumerate(problem.holders):
            self._alike.setdefault(holders, []).append(task)

    def schedule(self, deadline: float) -> Ints | None:
        """(T,) an assignment that ends by `deadline`; an empty array if there is none, None if undecided."""
        most = self._room.most(deadline + TOLERANCE).tolist()
        offers = [options(self._problem, server, deadline, most[server]) for server in range(self._problem.servers)]
        model = _Model(offers, self._alike)
        limit = FIRST_SLICE
        while not self._stop() and self._effort > 0:
            solver = cp_model.CpSolver()
            solver.parameters.num_workers = 1
            solver.parameters.random_seed = self._seed % 2**31
            solver.parameters.max_deterministic_time = min(limit, self._effort)
            outcome = solver.solve(model.model)
            self._effort -= max(solver.deterministic_time, 1e-3)
            if outcome in (cp_model.OPTIMAL, cp_model.FEASIBLE):
                return model.assignment(solver, self._problem.tasks)
            if outcome == cp_model.INFEASIBLE:
                return np.empty(0, np.int64)
            limit *= 2
        return None


class _Model:
    """The choice of an option per server, and of a server or a remote place per task."""

    def __init__(self, offers: list[list[_Option]], alike: dict[tuple[int, ...], list[int]]) -> None:
        self.model = model = cp_model.CpModel()
        self._offers, self._alike = offers, alike
        self._chosen = [[model.new_bool_var("") for _ in each] for each in offers]
        self._local = {
            (holders, server): model.new_int_var(0, len(tasks), "")
            for holders, tasks in alike.items()
            for server in holders
        }
        tasks_total = sum(len(tasks) for tasks in alike.values())
        places: list[cp_model.LinearExpr] = []
        for server, each in enumerate(offers):
            model.add_exactly_one(self._chosen[server])
            near = [count for (_, holder), count in self._local.items() if holder == server]
            chosen = list(zip(each, self._chosen[server], strict=True))
            model.add(sum(near) <= sum(option.local * choice for option, choice in chosen))
            places.extend(option.remote * choice for option, choice in chosen)
        for holders, tasks in alike.items():
            model.add(sum(self._local[holders, server] for server in holders) <= len(tasks))
        model.add(tasks_total - sum(self._local.values()) <= sum(places))

    def assignment(self, solver: cp_model.CpSolver, tasks: int) -> Ints:
        """(T,) the core of each task in the solution."""
        chosen = [
            next(option for option, choice in zip(each, choices, strict=True) if solver.value(choice))
            for each, choices in zip(self._offers, self._chosen, strict=True)
        ]
        near = [iter([core for core, local, _ in option.cores for _ in range(local)]) for option in chosen]
        far = (core for option in chosen for core, _, remote in option.cores for _ in range(remote))
        assigned = np.full(tasks, NOWHERE, np.int64)
        for task, server in self._servers(solver):
            assigned[task] = next(far) if server == NOWHERE else next(near[server])
        return assigned

    def _servers(self, solver: cp_model.CpSolver) -> Iterator[tuple[int, int]]:
        """Each task with the server on which it is local; NOWHERE for remote tasks."""
        for holders, tasks in self._alike.items():
            left = iter(tasks)
            for server in holders:
                for _ in range(solver.value(self._local[holders, server])):
                    yield next(left), server
            for task in left:
                yield task, NOWHERE
