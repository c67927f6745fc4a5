"""DynDL's own targets: never later than the given ones, within the limits of workers, and above the bound."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.models.test_dyndl_given import one_server
from trimtab_models.dyndl.given import solve_given
from trimtab_models.dyndl.targets import (
    OnlineRestore,
    TargetsProblem,
    choose_online,
    choose_targets,
    makespan_of,
    pace_of,
    targets_bound,
)
from trimtab_models.instances.scheduling import AffineCost, TableCost
from trimtab_models.solving import Never

quick = settings(max_examples=60, deadline=None)
PRIOR = AffineCost(a=0.2, b=0.8)


def problem(
    size: list[float],
    given_: list[int],
    *,
    server: list[int],
    less: dict[int, dict[int, float]] | None = None,
    pace: list[float] | None = None,
    load: list[float] | None = None,
    most: float = np.inf,
    least: float = -np.inf,
) -> TargetsProblem:
    workers, servers = len(server), max(server) + 1
    shape = (1, workers)
    paces = np.array(pace or [1.0] * servers)
    return TargetsProblem(
        server=np.array(server),
        size=np.array(size),
        less=[(less or {}).get(task, {}) for task in range(len(size))],
        pace=paces,
        alone=paces,
        running=np.zeros(servers),
        demand=np.array([load or [1.0] * len(size)]),
        per_unit=np.ones(shape),
        used=np.zeros(shape),
        least=np.full(shape, least),
        most=np.full(shape, most),
        given=np.array(given_, np.int64),
    )


@st.composite
def problems(draw: st.DrawFn, *, tasks: int = 10, workers: int = 4) -> TargetsProblem:
    count, size = draw(st.integers(1, workers)), draw(st.integers(0, tasks))
    server = [draw(st.integers(0, max(0, each))) for each in range(count)]
    server = [sorted(set(server)).index(each) for each in server]
    servers = max(server) + 1
    sizes = [draw(st.sampled_from([1.0, 2.0, 5.0, 20.0])) for _ in range(size)]
    less = [
        draw(
            st.dictionaries(st.integers(0, count - 1), st.floats(0.05, 1.0).map(lambda share: 1.0 + share), max_size=2)
        )
        for _ in range(size)
    ]
    paces = np.array([draw(st.sampled_from([0.5, 1.0, 2.0])) for _ in range(servers)])
    top = draw(st.floats(1.0, 30.0))
    return TargetsProblem(
        server=np.array(server, np.int64),
        size=np.array(sizes),
        less=less,
        pace=paces,
        alone=paces * draw(st.sampled_from([1.0, 1.5])),
        running=np.array([draw(st.floats(0.0, 10.0)) for _ in range(servers)]),
        demand=np.array([[draw(st.floats(0.0, 10.0)) for _ in range(size)]]).reshape(1, size),
        per_unit=np.ones((1, count)),
        used=np.zeros((1, count)),
        least=np.full((1, count), draw(st.sampled_from([-np.inf, 0.5 * top]))),
        most=np.full((1, count), top),
        given=np.array([draw(st.integers(0, count - 1)) for _ in range(size)], np.int64),
    )


def test_workers_of_a_server_share_its_resources() -> None:
    """Four restores on one server; two workers of another one have room for two of them together, not for two each."""
    own = problem([1.0] * 4, [2] * 4, server=[0, 0, 1])
    alone = replace(own, used=np.array([[0.0, 0.0, 0.0]]), most=np.array([[2.0, 2.0, 9.0]]))
    assert choose_targets(alone, stop=Never()).worker.tolist().count(2) == 2
    for taken, left in ((0.0, 2), (1.0, 3), (2.0, 4)):
        shared = replace(alone, of_servers=1, used=np.array([[taken, taken, 0.0]]))
        found = choose_targets(shared, stop=Never())
        assert found.worker.tolist().count(2) == left
    both = replace(
        shared,
        demand=np.ones((2, 4)),
        per_unit=np.ones((2, 3)),
        used=np.zeros((2, 3)),
        least=np.full((2, 3), -np.inf),
        most=np.array([[1.0, 1.0, 9.0], [9.0, 9.0, 9.0]]),
    )
    assert sorted(choose_targets(both, stop=Never()).worker.tolist()) == [0, 1, 2, 2], "each worker has its own limit"


def used(asked: TargetsProblem, worker: np.ndarray) -> np.ndarray:
    return np.bincount(worker, asked.demand[0], len(asked.server))


@quick
@given(problems())
def test_never_later_than_the_given_targets_within_the_limits_and_above_the_bound(asked: TargetsProblem) -> None:
    found = choose_targets(asked, stop=Never())
    assert found.makespan == pytest.approx(makespan_of(asked, found.worker))
    assert found.makespan <= makespan_of(asked, asked.given) + 1e-9
    assert found.lower_bound <= found.makespan + 1e-9
    assert len(found.worker) == len(asked.size), "each restore once"
    before, after = used(asked, asked.given), used(asked, found.worker)
    assert (after <= np.maximum(before, asked.most[0]) + 1e-6).all()
    assert (after >= np.minimum(before, asked.least[0]) - 1e-6).all()


@quick
@given(problems(tasks=5, workers=3))
def test_no_targets_beat_the_bound(asked: TargetsProblem) -> None:
    workers, tasks = len(asked.server), len(asked.size)
    best = min(makespan_of(asked, np.array(each, np.int64)) for each in itertools.product(range(workers), repeat=tasks))
    assert targets_bound(asked) <= best + 1e-6


@quick
@given(problems(), st.integers(0, 400))
def test_fewer_operations_still_keep_what_was_given(asked: TargetsProblem, operations: int) -> None:
    found = choose_targets(asked, stop=Never(), operations=operations)
    assert found.makespan <= makespan_of(asked, asked.given) + 1e-9
    stopped = choose_targets(asked, stop=lambda: True)
    assert stopped.worker.tolist() == asked.given.tolist()


def test_restores_leave_the_host_that_has_most_of_them() -> None:
    asked = problem([10.0, 10.0, 1.0, 1.0], [0, 0, 1, 1], server=[0, 1])
    found = choose_targets(asked, stop=Never())
    assert makespan_of(asked, asked.given) == 20.0
    assert found.makespan == found.lower_bound == 11.0


def test_an_exchange_keeps_the_number_where_a_worker_may_take_no_more() -> None:
    asked = problem([10.0, 10.0, 1.0, 1.0], [0, 0, 1, 1], server=[0, 1], most=2.0, least=2.0)
    found = choose_targets(asked, stop=Never())
    assert sorted(found.worker.tolist()) == [0, 0, 1, 1]
    assert found.makespan == 11.0


def test_a_faster_host_restores_more_and_two_workers_of_a_host_share_it() -> None:
    asked = problem([4.0] * 6, [0, 0, 0, 1, 1, 1], server=[0, 1], pace=[2.0, 1.0])
    assert np.bincount(choose_targets(asked, stop=Never()).worker).tolist() == [2, 4]
    shared = problem([4.0] * 6, [0, 0, 1, 1, 2, 2], server=[0, 0, 1])
    assert choose_targets(shared, stop=Never()).makespan == 12.0, "three of the six on each host"


def test_what_a_worker_has_is_restored_there_unless_its_host_then_ends_last() -> None:
    one = problem([20.0, 5.0], [1, 1], server=[0, 1], less={0: {0: 1.5}})
    assert choose_targets(one, stop=Never()).worker.tolist() == [0, 1]
    crowded = problem([20.0] * 4, [1, 1, 1, 1], server=[0, 1], less={task: {0: 18.0} for task in range(4)})
    found = choose_targets(crowded, stop=Never())
    assert np.bincount(found.worker).tolist() == [2, 2]
    assert found.makespan == 40.0


def test_the_pace_is_that_of_the_best_number_at_a_time_and_the_schedule_ends_within_twice_of_it() -> None:
    assert pace_of(PRIOR, 1) == pytest.approx(1.0)
    assert pace_of(PRIOR, 4) == pytest.approx(0.85)
    assert pace_of(TableCost(values=(1.0, 3.0)), 2) == 1.0
    sizes = [20.0, 7.0, 5.0, 3.0, 1.0]
    batch = one_server(*sizes, cost=PRIOR)
    end = max(pace_of(PRIOR, 4) * sum(sizes), 20.0)
    assert end - 1e-9 <= solve_given(batch).makespan <= 2.0 * end


def single(**changes: object) -> OnlineRestore:
    asked = OnlineRestore(
        server=np.array([0, 1, 2]),
        size=10.0,
        less={},
        costs=[PRIOR] * 3,
        free_in=np.zeros(3),
        beside=np.zeros(3, np.int64),
        allowed=np.ones(3, np.bool_),
    )
    return replace(asked, **changes)  # type: ignore[arg-type]


def test_online_a_free_slot_with_a_copy_takes_a_restore_at_once() -> None:
    assert choose_online(single(less={2: 3.0})) == 2


def test_online_a_copy_is_waited_for_as_long_as_the_delay_of_the_others() -> None:
    waits = single(less={2: 3.0}, free_in=np.array([0.0, 0.0, 0.9]))
    assert choose_online(waits) == 2, "its slot is free before the delay W = 1 of the others is over"
    assert choose_online(replace(waits, free_in=np.array([0.0, 0.0, 1.1]))) == 0
    busy = replace(waits, free_in=np.array([0.0, 0.0, 1.5]), beside=np.array([2, 2, 2]))
    assert choose_online(busy) == 2, "g(2) = 1.8 is the delay of a host that restores two"


def test_online_without_copies_the_host_that_restores_least_takes_it_where_the_balance_allows() -> None:
    assert choose_online(single(beside=np.array([2, 1, 3]))) == 1
    assert choose_online(single(beside=np.array([2, 1, 3]), allowed=np.array([True, False, True]))) == 0
    assert choose_online(single(beside=np.array([2, 1, 3]), allowed=np.zeros(3, np.bool_))) == 1
    assert choose_online(single(preferred={0: 40.0, 1: 20.0, 2: 30.0})) == 1, "the least used of equal ones"


def test_a_problem_that_does_not_fit_together_says_what_it_needs() -> None:
    with pytest.raises(ValueError, match="a target must be one of 1 workers"):
        problem([1.0], [1], server=[0])
    with pytest.raises(ValueError, match="sizes must be finite and above 0"):
        problem([0.0], [0], server=[0])
