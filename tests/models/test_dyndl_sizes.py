"""DynDL beyond unit sizes: remote size slows down, sources have an egress, servers a memory."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.dyndl.generate import Experiment, generate
from benchmarks.dyndl.sizes import SizedParams, SizedProblem, SizedResult, evaluate_sized, sized_bound, solve_sized
from tests.models.test_dyndl_schedules import problem as by_rows
from tests.narrow import of_type
from trimtab_models.dyndl.offline import solve_offline
from trimtab_models.dyndl.problem import problem_of
from trimtab_models.dyndl.result import ScheduleResult
from trimtab_models.instances.scheduling import AffineCost, TableCost
from trimtab_models.solving import Deadline, Infeasible, Never, PlanStatus

quick = settings(max_examples=40)
NOWHERE = -1


def sized(
    cores: list[list[float]], replicas: list[tuple[int, ...]], sizes: list[float], **changes: Any
) -> SizedProblem:
    """Remote tasks cost twice their size; egress and memory have no limits, unless said otherwise."""
    costs = changes.pop("costs", [AffineCost(a=2, b=0)] * len(cores))
    fields: dict[str, Any] = {"egress": [math.inf] * len(cores), "memory": [math.inf] * len(cores), "need": sizes}
    return SizedProblem(
        base=by_rows(cores, replicas, costs),
        size=np.array(sizes, float),
        **{name: np.array(value, float) for name, value in (fields | changes).items()},
    )


def solved(problem: SizedProblem, **arguments: Any) -> SizedResult:
    return of_type(SizedResult, solve_sized(problem, stop=Never(), **arguments))


@st.composite
def problems(draw: st.DrawFn) -> SizedProblem:
    """Two servers, up to four tasks, with and without limits."""
    rows = [draw(st.lists(st.sampled_from([0.0, 0.5, 3.0]), min_size=1, max_size=2)) for _ in range(2)]
    tasks = draw(st.integers(0, 4))

    def each(*values: Any) -> list[Any]:
        return [draw(st.sampled_from(values)) for _ in range(tasks)]

    return sized(
        rows,
        each((), (0,), (1,), (0, 1)),
        each(0.5, 1.0, 2.0, 4.0),
        costs=[draw(st.sampled_from([AffineCost(a=1, b=0.5), TableCost(values=(1.5, 3.0))])) for _ in rows],
        egress=[draw(st.sampled_from([0.5, math.inf])) for _ in rows],
        memory=[draw(st.sampled_from([3.0, math.inf, math.inf])) for _ in rows],
    )


def schedules(problem: SizedProblem) -> Any:
    """Every assignment with every choice of sources."""
    base = problem.base
    for core in itertools.product(range(len(base.core_load)), repeat=base.tasks):
        sources = [
            [NOWHERE] if base.server_of[at] in replicas or not replicas else replicas
            for at, replicas in zip(core, base.replicas, strict=True)
        ]
        for source in itertools.product(*sources):
            yield np.array(core, np.int64), np.array(source, np.int64)


@quick
@given(problems())
def test_bound_optimum_and_result_are_in_this_order(problem):
    result = solved(problem)
    scores = [evaluate_sized(problem, core, source) for core, source in schedules(problem)]
    best = min(score.order for score in scores)
    assert sized_bound(problem) <= min(score.makespan for score in scores) + 1e-6
    assert result.score.order >= (best[0] - 1e-6, best[1] - 1e-6 if result.score.memory_over <= best[0] + 1e-6 else 0.0)
    assert result.lower_bound <= result.score.makespan


@quick
@given(problems())
def test_a_schedule_is_worth_what_it_says(problem):
    """The formula, task by task."""
    result, base = solved(problem), problem.base
    server = [int(base.server_of[core]) for core in result.core]
    far = [here not in replicas for here, replicas in zip(server, base.replicas, strict=True)]
    remote, sent, used, end = [0.0, 0.0], [0.0, 0.0], [0.0, 0.0], base.core_load.tolist()
    for task, here in enumerate(server):
        used[here] += problem.need[task]
        remote[here] += far[task] * problem.size[task]
        assert (result.source[task] in base.replicas[task]) == (far[task] and bool(base.replicas[task]))
        if result.source[task] != NOWHERE:
            sent[result.source[task]] += problem.size[task]
    for task, here in enumerate(server):
        cost = base.costs.one(here, max(1.0, remote[here])) if far[task] else 1.0
        end[result.core[task]] += cost * problem.size[task]
    ends = [end[core] for core in result.core] + [sent[s] / problem.egress[s] for s in range(2)]
    assert result.score.makespan == pytest.approx(max(ends))
    assert result.score.memory_over == pytest.approx(sum(max(0.0, used[s] - problem.memory[s]) for s in range(2)))


def test_unit_sizes_without_limits_are_scheduled_no_worse_than_by_dyndl_off():
    base = problem_of(generate(Experiment(tasks=40, servers=6, core_num=3, beta=20), seed=4))
    ones, endless = np.ones(base.tasks), np.full(base.servers, np.inf)
    result = solved(SizedProblem(base=base, size=ones, egress=endless, memory=endless, need=ones))
    unit = of_type(ScheduleResult, solve_offline(base, stop=Never()))
    assert unit.lower_bound <= result.score.makespan <= unit.score.makespan


def test_the_large_task_stays_near_its_data_and_the_small_one_goes():
    result = solved(sized([[0.0], [0.0]], [(0,), (0,)], [4.0, 1.0]))
    assert (result.core.tolist(), result.source.tolist()) == ([0, 1], [NOWHERE, 0])
    assert result.score.makespan == 4.0
    assert result.status is PlanStatus.OPTIMAL


def test_remote_size_and_not_remote_count_slows_down():
    rising = [AffineCost(a=1, b=1)] * 2
    together = solved(sized([[0.0, 0.0], [99.0]], [(), ()], [3.0, 1.0], costs=rising))
    assert together.score.makespan == 3.0 * (1 + 4)


def test_what_leaves_a_server_has_to_leave_by_the_makespan_too():
    """Two readings of size 2 from a server that lets out 1/4 per unit of time take 16: better to wait for its core."""
    cores, replicas, sizes = [[5.0], [0.0], [0.0]], [(0,), (0,)], [2.0, 2.0]
    assert solved(sized(cores, replicas, sizes)).score.makespan == 4.0
    slow = solved(sized(cores, replicas, sizes, egress=[0.25, math.inf, math.inf]))
    assert (slow.score.makespan, slow.core.tolist().count(0)) == (8.0, 1)
    shared = solved(sized(cores, [(0, 2), (0, 2)], sizes, egress=[0.25, math.inf, 1.0]))
    assert set(shared.source.tolist()) <= {NOWHERE, 2}


def test_a_server_without_egress_is_no_source():
    result = solved(sized([[9.0], [0.0]], [(0,)], [1.0], egress=[0.0, math.inf]))
    assert (result.core.tolist(), result.score.makespan) == ([0], 10.0)


def test_memory_is_kept_before_the_makespan_and_overshot_as_little_as_possible():
    kept = solved(sized([[0.0, 0.0], [0.0]], [(0,), (0,)], [2.0, 2.0], memory=[2.0, 2.0]))
    assert (sorted(kept.core.tolist())[1], kept.score.memory_over, kept.score.makespan) == (2, 0.0, 4.0)
    sick = solved(sized([[0.0], [0.0]], [(0,), (1,)], [2.0, 3.0], memory=[2.0, 2.0]))
    assert (sick.score.memory_over, sick.status) == (1.0, PlanStatus.FEASIBLE)


def test_a_cap_on_concurrent_restores_is_a_cost_beyond_every_number():
    capped = [TableCost(values=(1.5, math.inf))] * 2
    result = solved(sized([[0.0, 0.0], [0.0]], [(), ()], [1.0, 1.0], costs=capped))
    assert sorted(int(at) for at in (np.array([0, 0, 1])[result.core])) == [0, 1]
    assert isinstance(solve_sized(sized([[0.0]], [(), ()], [1.0, 1.0], costs=capped[:1]), stop=Never()), Infeasible)


def test_a_cap_is_on_the_remote_size_and_not_on_the_number_of_tasks():
    capped = [TableCost(values=(1.5, math.inf))]
    assert solved(sized([[0.0]], [(), ()], [0.5, 0.5], costs=capped)).score.makespan == 1.5


def test_no_usable_core_is_infeasible():
    assert solve_sized(sized([[math.inf]], [(0,)], [1.0]), stop=Never()) == Infeasible(reason="no usable core")


def test_no_tasks_take_no_time():
    assert solved(sized([[1.0]], [], [])).score.makespan == 0.0


def test_cut_short_and_without_moves_there_is_a_schedule_and_the_same_twice():
    base = problem_of(generate(Experiment(tasks=80, servers=8, core_num=3, beta=30), seed=1))
    sizes, endless = np.random.default_rng(1).lognormal(0, 1, base.tasks), np.full(base.servers, np.inf)
    problem = SizedProblem(base=base, size=sizes, egress=endless, memory=endless, need=sizes)
    first, full = solved(problem, params=SizedParams(moves=0)), solved(problem)
    of_type(SizedResult, solve_sized(problem, stop=Deadline(lambda: 1.0, at_s=0.0)))
    assert full.lower_bound <= full.score.makespan <= first.score.makespan
    assert (solved(problem).core == full.core).all()


@pytest.mark.parametrize(
    "broken", [{"sizes": [0.0]}, {"sizes": [math.inf]}, {"egress": [-1.0]}, {"memory": [1.0, 1.0]}]
)
def test_what_cannot_be_is_refused(broken):
    arguments = {"cores": [[0.0]], "replicas": [(0,)], "sizes": [1.0], "need": [1.0]} | broken
    with pytest.raises(ValueError):
        sized(**arguments)
