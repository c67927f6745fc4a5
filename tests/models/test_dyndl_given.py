"""Restores whose targets are given: the slots are kept, each task runs once, and the end is near the optimum."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab_models.dyndl.given import GivenProblem, GivenSchedule, solve_given, with_costs
from trimtab_models.instances.scheduling import TableCost

quick = settings(max_examples=80, deadline=None)
steps = st.lists(st.sampled_from([0.0, 0.25, 1.0, 3.0]), min_size=1, max_size=4)
costs = steps.map(lambda each: TableCost(values=tuple(1.0 + sum(each[: n + 1]) for n in range(len(each)))))


@st.composite
def problems(draw: st.DrawFn, *, servers: int = 3, tasks: int = 12) -> GivenProblem:
    count, size = draw(st.integers(1, servers)), draw(st.integers(0, tasks))
    times = st.floats(0, 5, width=32)
    return GivenProblem(
        server=np.array(draw(st.lists(st.integers(0, count - 1), min_size=size, max_size=size)), np.int64),
        size=np.array(draw(st.lists(st.sampled_from([1.0, 1.0, 2.5, 20.0]), min_size=size, max_size=size))),
        local=np.array(draw(st.lists(st.booleans(), min_size=size, max_size=size)), np.bool_),
        slots=np.array(draw(st.lists(st.integers(1, 4), min_size=count, max_size=count)), np.int64),
        costs=[draw(costs) for _ in range(count)],
        running=[draw(st.lists(times, max_size=3)) for _ in range(count)],
    )


def ends(problem: GivenProblem, found: GivenSchedule) -> list[float]:
    """When each task ends, by the model's formula."""
    rows = []
    for task, server in enumerate(problem.server.tolist()):
        remote = int((~problem.local[problem.server == server]).sum()) + len(problem.running[server])
        factor = 1.0 if problem.local[task] else problem.costs[server].at(min(int(found.slots[server]), remote))
        rows.append(float(found.start[task] + problem.size[task] * factor))
    return rows


@quick
@given(problems())
def test_never_more_than_the_slots_each_task_once_and_at_most_twice_the_bound(problem: GivenProblem) -> None:
    found = solve_given(problem)
    assert sorted(found.order.tolist()) == list(range(len(problem.server)))
    assert (found.slots <= problem.slots).all()
    finish = ends(problem, found)
    for task, server in enumerate(problem.server.tolist()):
        at = found.start[task]
        busy = sum(
            found.start[other] <= at < finish[other] - 1e-9
            for other, on in enumerate(problem.server.tolist())
            if on == server
        )
        assert busy <= found.slots[server]
    assert found.makespan == pytest.approx(max(finish, default=0.0))
    assert found.lower_bound <= found.makespan + 1e-9
    assert found.makespan <= 2.0 * found.lower_bound + 1e-9


@quick
@given(problems(servers=1, tasks=4))
def test_nothing_is_below_the_bound_and_nothing_beats_half_of_what_is_found(problem: GivenProblem) -> None:
    best = optimum(problem)
    found = solve_given(problem)
    assert found.lower_bound <= best + 1e-6
    assert best - 1e-6 <= found.makespan <= 2.0 * best + 1e-6


def optimum(problem: GivenProblem) -> float:
    """The least makespan over all numbers of slots and all assignments to them."""
    tasks = len(problem.server)
    if not tasks:
        return 0.0
    best = math.inf
    running = sorted(problem.running[0], reverse=True)
    remote = int((~problem.local).sum()) + len(running)
    for slots in range(1, min(int(problem.slots[0]), tasks + len(running)) + 1):
        begin = [0.0] * slots
        for left in running:
            begin[begin.index(min(begin))] += left
        factor = problem.costs[0].at(max(1, min(slots, remote)))
        takes = [float(s) * (1.0 if local else factor) for s, local in zip(problem.size, problem.local, strict=True)]
        for slot_of in itertools.product(range(slots), repeat=tasks):
            loads = list(begin)
            for slot, seconds in zip(slot_of, takes, strict=True):
                loads[slot] += seconds
            best = min(best, max(loads[slot] for slot in slot_of))
    return best


@quick
@given(problems(), costs)
def test_under_other_costs_the_slots_stay_and_the_bound_holds(problem: GivenProblem, cost: TableCost) -> None:
    found = solve_given(problem)
    told = with_costs(problem, found, [cost] * len(problem.slots))
    assert told.slots.tolist() == found.slots.tolist()
    assert told.lower_bound <= told.makespan + 1e-9


def one_server(*sizes: float, slots: int = 4, cost: TableCost, local: int = 0) -> GivenProblem:
    """The first `local` tasks are local."""
    return GivenProblem(
        server=np.zeros(len(sizes), np.int64),
        size=np.array(sizes),
        local=np.arange(len(sizes)) < local,
        slots=np.array([slots]),
        costs=[cost],
        running=[()],
    )


def test_restores_that_do_not_slow_each_other_down_use_all_slots() -> None:
    found = solve_given(one_server(1, 1, 1, 1, cost=TableCost(values=(2.0,))))
    assert (found.slots.tolist(), found.makespan) == ([4], 2.0)


def test_restores_that_share_one_link_go_one_after_another() -> None:
    found = solve_given(one_server(1, 1, 1, 1, cost=TableCost(values=(1.0, 2.0, 3.0, 4.0))))
    assert (found.slots.tolist(), found.makespan) == ([1], 4.0)


def test_a_middle_way_is_found_where_it_is_best() -> None:
    found = solve_given(one_server(1, 1, 1, 1, 1, 1, cost=TableCost(values=(1.0, 1.2, 1.9, 4.0))))
    assert found.slots.tolist() == [2], "6, 3.6, 3.8 and 8 units"


def test_local_restores_come_first_and_then_the_largest() -> None:
    found = solve_given(one_server(1, 1, 2, 9, 5, slots=1, cost=TableCost(values=(2.0,)), local=2))
    assert found.order.tolist() == [0, 1, 3, 4, 2]


def test_servers_do_not_wait_for_each_other() -> None:
    problem = GivenProblem(
        server=np.array([0, 1, 1]),
        size=np.array([1.0, 4.0, 4.0]),
        local=np.zeros(3, np.bool_),
        slots=np.array([1, 1]),
        costs=[TableCost(values=(1.0,))] * 2,
        running=[(3.0,), ()],
    )
    found = solve_given(problem)
    assert found.start.tolist() == [3.0, 0.0, 4.0]
    assert Counter(found.order.tolist()) == Counter(range(3))


def test_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match="one of 1"):
        GivenProblem(
            server=np.array([1]),
            size=np.array([1.0]),
            local=np.array([False]),
            slots=np.array([1]),
            costs=[TableCost(values=(1.0,))],
            running=[()],
        )
