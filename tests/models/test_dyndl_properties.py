"""Invariants of the DynDL schedulers on small random problems, against dumb twins that try everything."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from trimtab_models.dyndl.offline import RemoteRoom, lower_bound, plan_local, solve_list, solve_offline
from trimtab_models.dyndl.online import OnlineParams, WaitingRule, solve_online
from trimtab_models.dyndl.problem import RemoteTaskCosts, ScheduleProblem
from trimtab_models.dyndl.result import ScheduleResult
from trimtab_models.instances.scheduling import AffineCost, TableCost
from trimtab_models.solving import Infeasible, Never

quick = settings(max_examples=60)
TOLERANCE = 1e-6

loads = st.one_of(st.sampled_from([0.0, 0.0, 1.0, 2.0, math.inf]), st.integers(0, 24).map(lambda n: n / 4))
steps = st.lists(st.sampled_from([0.0, 0.0, 0.25, 0.5, 1.0, 3.0, math.inf]), min_size=1, max_size=4)
costs = st.one_of(
    st.builds(
        AffineCost,
        a=st.sampled_from([1.0, 1.5]),
        b=st.sampled_from([0.0, 0.25, 0.5, 2.0]),
        cap=st.sampled_from([None, 1, 2]),
    ),
    steps.map(lambda each: TableCost(values=tuple(1.0 + sum(each[: n + 1]) for n in range(len(each))))),
)


@st.composite
def problems(draw: st.DrawFn, *, servers: int = 3, cores: int = 2, tasks: int = 5) -> ScheduleProblem:
    """Up to so many servers with 0 up to so many cores each, and tasks with 0 to 3 replicas."""
    count = draw(st.integers(1, servers))
    rows = [draw(st.lists(loads, max_size=cores)) for _ in range(count)]
    replicas = st.sets(st.integers(0, count - 1), max_size=3).map(lambda each: tuple(sorted(each)))
    return ScheduleProblem(
        core_load=np.array([load for row in rows for load in row], float),
        server_of=np.repeat(np.arange(count), [len(row) for row in rows]),
        replicas=tuple(draw(st.lists(replicas, max_size=tasks))),
        costs=RemoteTaskCosts([draw(costs) for _ in range(count)]),
        wait=draw(st.sampled_from([0.0, 0.25, 3.0])),
    )


def makespan(problem: ScheduleProblem, cores: Any) -> float:
    """The model's formula, task by task."""
    remote = [0] * problem.servers
    for task, core in enumerate(cores):
        server = problem.server_of[core]
        remote[server] += server not in problem.replicas[task]
    load = list(problem.core_load)
    for task, core in enumerate(cores):
        server = problem.server_of[core]
        load[core] += 1.0 if server in problem.replicas[task] else problem.costs.one(server, remote[server])
    return max((load[core] for core in cores), default=0.0)


def optimum(problem: ScheduleProblem) -> float:
    """The least makespan of all assignments, each computed by the formula, all at once."""
    usable = np.flatnonzero(np.isfinite(problem.core_load))
    choices = np.indices((len(usable),) * problem.tasks)
    core = usable[choices.reshape(problem.tasks, len(usable) ** problem.tasks)]
    server = problem.server_of[core]
    local = np.array([np.isin(row, each) for row, each in zip(server, problem.replicas, strict=True)], bool)
    local = local.reshape(core.shape)
    cost = np.ones(core.shape)
    for each in range(problem.servers):
        remote = ((server == each) & ~local).sum(axis=0)
        by_count = np.array([0.0] + [problem.costs.one(each, n) for n in range(1, problem.tasks + 1)])
        cost = np.where((server == each) & ~local, by_count[remote], cost)
    worst = np.zeros(core.shape[1])
    for each in usable:  # type: ignore[assignment]
        load = problem.core_load[each] + cost.sum(axis=0, where=core == each)
        worst = np.maximum(worst, np.where((core == each).any(axis=0), load, 0.0))
    return float(worst.min(initial=math.inf))


def solved(result: ScheduleResult | Infeasible) -> ScheduleResult:
    assume(isinstance(result, ScheduleResult))
    assert isinstance(result, ScheduleResult)
    return result


@quick
@given(problems())
def test_bound_optimum_makespan_and_twice_the_optimum_are_in_this_order(problem):
    result = solved(solve_offline(problem, stop=Never()))
    best = optimum(problem)
    assert result.lower_bound <= best + TOLERANCE
    assert best <= result.score.makespan + TOLERANCE
    assert result.score.makespan <= 2 * best + TOLERANCE


@quick
@given(problems())
def test_infeasible_is_said_exactly_where_no_assignment_is_finite(problem):
    result = solve_offline(problem, stop=Never())
    usable = np.isfinite(problem.core_load).any()
    assert isinstance(result, Infeasible) == (not usable or optimum(problem) == math.inf)


SOLVERS = {
    "dyndl-off": solve_offline,
    "list": solve_list,
    **{
        f"{waiting.value}{' at random' * at_random}": (
            lambda problem, waiting=waiting, at_random=at_random, **arguments: solve_online(
                problem, params=OnlineParams(waiting=waiting, at_random=at_random), **arguments
            )
        )
        for waiting in WaitingRule
        for at_random in (False, True)
    },
}


@pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS)
@quick
@given(problems(servers=5, cores=3, tasks=12))
def test_a_schedule_is_finite_and_worth_what_it_says(solver, problem):
    result = solved(solver(problem, stop=Never(), seed=1))
    assert len(result.core) == problem.tasks
    assert np.isfinite(problem.core_load[result.core]).all()
    assert result.score.makespan == pytest.approx(makespan(problem, result.core))
    assert result.lower_bound <= result.score.makespan < math.inf
    again = solved(solver(problem, stop=Never(), seed=1))
    assert (again.core == result.core).all()


@quick
@given(problems(servers=4, tasks=6))
def test_as_many_local_tasks_as_possible_end_by_any_time(problem):
    """Which makes the multiset F_B unique; the twin tries every local assignment."""
    plan = plan_local(problem, Never())
    assert plan.balanced
    local = [task for task, holders in enumerate(problem.holders) if holders]
    finishes = sorted(plan.finish[local])
    assert all(problem.server_of[plan.core[task]] in problem.holders[task] for task in local)
    most: dict[float, int] = dict.fromkeys(finishes, 0)
    for servers in itertools.product(*(problem.holders[task] for task in local)):
        ends = [end for server in range(problem.servers) for end in slots(problem, server, servers.count(server))]
        for deadline in most:
            most[deadline] = max(most[deadline], sum(end <= deadline for end in ends))
    assert most == {deadline: sum(end <= deadline for end in finishes) for deadline in finishes}


def slots(problem: ScheduleProblem, server: int, count: int) -> list[float]:
    """The finish times of `count` local tasks, each on the then least loaded core."""
    row = sorted(problem.core_load[problem.server_of == server])
    ends = []
    for _ in range(count):
        row[0] += 1.0
        ends.append(row[0])
        row.sort()
    return ends


@quick
@given(problems(servers=8, cores=3, tasks=20))
def test_no_cost_reducing_path_is_left(problem):
    """The twin follows every alternating arc from every server and closes nothing."""
    plan = plan_local(problem, Never())
    tasks_on: dict[int, list[int]] = {}
    for task, core in enumerate(plan.core):
        if core >= 0:
            tasks_on.setdefault(int(problem.server_of[core]), []).append(task)
    load = problem.core_load + np.bincount(plan.core[plan.core >= 0], minlength=len(problem.core_load))
    for source, tasks in tasks_on.items():
        reached = {source}
        for _ in range(problem.servers):
            reached |= {b for a in reached for task in tasks_on.get(a, []) for b in problem.holders[task]}
        least = min(load[core] for server in reached for core in problem.cores_of(server))
        assert max(plan.finish[tasks]) - least <= 1 + TOLERANCE


@quick
@given(problems(servers=4, cores=4, tasks=8), st.integers(0, 40).map(lambda n: n / 4))
def test_the_vectorised_r_max_is_the_scalar_one(problem, deadline):
    def fits(server: int, count: int) -> bool:
        free = [load for load in problem.core_load[problem.server_of == server] if load < deadline]
        return sum(math.floor((deadline - load) / problem.costs.one(server, count)) for load in free) >= count

    twin = [
        max(count for count in range(problem.tasks + 1) if not count or fits(server, count))
        for server in range(problem.servers)
    ]
    assert RemoteRoom(problem, problem.core_load).most(deadline).tolist() == twin


@quick
@given(problems(servers=2, cores=4), st.integers(1, 12))
def test_the_earliest_finish_is_that_of_tasks_placed_one_by_one(problem, count):
    room = RemoteRoom(problem, problem.core_load)
    for server in range(problem.servers):
        assert room.finish(server, count) == pytest.approx(one_by_one(problem, server, count))


def one_by_one(problem: ScheduleProblem, server: int, count: int) -> float:
    row = sorted(problem.core_load[problem.server_of == server])
    cost, end = problem.costs.one(server, count), math.inf if not row else 0.0
    for _ in range(count if row else 0):
        row[0] += cost
        end = row[0]
        row.sort()
    return end


@quick
@given(problems(servers=4, cores=3, tasks=12), st.integers(0, 12), st.integers(-1, 24).map(lambda n: n / 4))
def test_the_fill_ends_as_early_as_any_distribution(problem, count, deadline):
    count = min(count, problem.tasks)
    room = RemoteRoom(problem, problem.core_load)
    ends = [[-math.inf] + [one_by_one(problem, s, n) for n in range(1, count + 1)] for s in range(problem.servers)]
    remote = room.most(deadline) if deadline >= 0 else np.zeros(problem.servers, np.int64)
    assume(remote.sum() <= count)
    last = room.extend(remote, count - int(remote.sum()), deadline if deadline >= 0 else -math.inf)
    best = [-math.inf] + [math.inf] * count  # by number of tasks handed out
    for row in ends:
        best = [min(max(best[n - here], row[here]) for here in range(n + 1)) for n in range(count + 1)]
    if last < math.inf:
        assert remote.sum() == count
        last = max([ends[server][count] for server, count in enumerate(remote)])
    assert last == pytest.approx(best[count])


@quick
@given(problems(servers=4, cores=3, tasks=10))
def test_list_takes_the_first_core_with_the_earliest_predicted_end(problem):
    result = solved(solve_list(problem, stop=Never()))
    assume(not len(problem.forced) or np.isinf(problem.costs.limit).all())  # no remote place has to be kept free
    local, remote_on, remote = problem.core_load.copy(), [0] * len(problem.core_load), [0] * problem.servers
    for task, chosen in enumerate(result.core):
        best, end = -1, math.inf
        for core, server in enumerate(problem.server_of.tolist()):
            count = remote[server] + (server not in problem.replicas[task])
            tasks_on = remote_on[core] + (server not in problem.replicas[task])
            cost = tasks_on * problem.costs.one(server, count) if tasks_on else 0.0
            predicted = local[core] + cost + (server in problem.replicas[task])
            if predicted < end - 1e-9:
                best, end = core, predicted
        assert chosen == best
        server = int(problem.server_of[best])
        if server in problem.replicas[task]:
            local[best] += 1
        else:
            remote_on[best] += 1
            remote[server] += 1


@quick
@given(problems(servers=6, cores=3, tasks=15))
def test_the_bound_holds_for_every_schedule(problem):
    bound = lower_bound(problem, plan_local(problem, Never()))
    for solver in SOLVERS.values():
        assert solved(solver(problem, stop=Never(), seed=2)).score.makespan >= bound - TOLERANCE


@pytest.mark.parametrize("waiting", WaitingRule)
@quick
@given(problem=problems(servers=4, cores=3, tasks=12))
def test_the_simulation_is_that_of_a_twin_that_looks_at_every_core_every_time(waiting, problem):
    assume(not len(problem.forced) or np.isinf(problem.costs.limit).all())  # no remote place has to be kept free
    result = solved(solve_online(problem, stop=Never(), params=OnlineParams(waiting=waiting)))
    twin = Twin(problem, waiting)
    assert result.event_makespan == pytest.approx(twin.run())
    assert result.core.tolist() == [twin.core[task] for task in range(problem.tasks)]


class Twin:
    """Settlement 6 word by word; no queue of events, nothing kept that can be computed."""

    def __init__(self, problem: ScheduleProblem, waiting: WaitingRule) -> None:
        self.problem, self.waiting = problem, waiting
        self.left, self.core = set(range(problem.tasks)), {}
        self.remote = [0] * problem.servers
        self.running: dict[int, tuple[float, float | None]] = {  # until when, or since when a remote task
            core: (load, None) for core, load in enumerate(problem.core_load.tolist()) if load < math.inf
        }
        self.idle: dict[int, float] = {}

    def run(self) -> float:
        now = 0.0
        while self.left or any(core in self.running for core in self.core.values()):
            now = min([self.end(core) for core in self.running] + [self.expiry(core) for core in self.idle])
            freed = [core for core in sorted(self.running) if self.end(core) <= now + 1e-9]
            for core in freed:
                del self.running[core]
                self.idle[core] = now
            for core in freed:
                local = [task for task in sorted(self.left) if self.server(core) in self.problem.replicas[task]]
                if local:
                    self.start(core, local[0], (now + 1.0, None))
            for core in sorted(self.idle):
                if self.expiry(core) <= now + 1e-9:
                    self.start(core, min(self.left), (now, now))
                    self.remote[self.server(core)] += 1
        return now if self.core else 0.0

    def server(self, core: int) -> int:
        return int(self.problem.server_of[core])

    def end(self, core: int) -> float:
        until, since = self.running[core]
        server = self.server(core)
        return until if since is None else since + self.problem.costs.one(server, self.remote[server])

    def expiry(self, core: int) -> float:
        server, costs = self.server(core), self.problem.costs
        remote = self.remote[server]
        if not self.left or costs.one(server, remote + 1) == math.inf:
            return math.inf
        wait = 0.0 if self.waiting is WaitingRule.NONE else self.problem.wait
        if self.waiting is WaitingRule.ADAPTIVE and remote:
            wait = max(wait, costs.one(server, remote))
        return self.idle[core] + wait

    def start(self, core: int, task: int, running: tuple[float, float | None]) -> None:
        self.left.remove(task)
        self.core[task] = core
        self.running[core] = running
        del self.idle[core]
