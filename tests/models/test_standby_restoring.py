"""New standbys that are warm sooner: within all limits, nearly the same loads after a loss, never later."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.models.allowed_standbys import is_allowed
from trimtab_models.solving import Never
from trimtab_models.standbys.problem import (
    HOST,
    UNPLACED,
    Ints,
    StandbyBudget,
    StandbyProblem,
    is_new,
    losses,
)
from trimtab_models.standbys.restoring import SLACK, RestoreTimes, restored_sooner
from trimtab_models.standbys.solve import solve

UNLIMITED = StandbyBudget()
quick = settings(max_examples=60, deadline=None)


def instance(
    owner: list[int],
    load: list[float],
    *,
    workers: int,
    wanted: int = 1,
    present: list[list[int]] | None = None,
    hosts: list[int] | None = None,
    budget: StandbyBudget = UNLIMITED,
    limit: list[float] | None = None,
    zones: list[int] | None = None,
    spread: bool = False,
    near_home: list[bool] | None = None,
) -> StandbyProblem:
    """Key groups that cost a fifth of their load to follow; `limit` = key groups that each worker may follow."""
    count = len(owner)
    return StandbyProblem(
        owner=np.array(owner, np.int64),
        load=np.array(load, np.float64),
        follow=0.2 * np.array(load, np.float64),
        state_bytes=np.ones(count),
        capacity=np.ones(workers),
        removing=np.zeros(workers, np.bool_),
        levels=np.array([range(workers), hosts or range(workers), *([zones] if zones else [])], np.int64),
        present=np.array(present or [[UNPLACED]] * count, np.int64).reshape(count, 1),
        frozen=np.zeros(count, np.bool_),
        wanted=wanted,
        spread=spread,
        near_home=np.array(near_home, np.bool_) if near_home else None,
        lost_by=HOST,
        usage=np.ones((1, count)) if limit else np.zeros((0, count)),
        limit=np.array([limit]) if limit else np.zeros((0, workers)),
        budget=budget,
    )


def times(problem: StandbyProblem, size: list[float], **changes: object) -> RestoreTimes:
    """Each host is a server, and takes one unit of time per unit of size."""
    server = problem.levels[1]
    ones = np.ones(int(server.max()) + 1)
    made = RestoreTimes(
        server=server, size=np.array(size, np.float64), less={}, pace=ones, alone=ones, running=0.0 * ones
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def makespan(problem: StandbyProblem, assignment: Ints, asked: RestoreTimes) -> float:
    """From scratch: when the last server has restored its new standbys."""
    sums, longest = np.zeros(len(asked.pace)), np.zeros(len(asked.pace))
    for key_group, rank in zip(*np.nonzero(is_new(problem, assignment)), strict=True):
        worker = int(assignment[key_group, rank])
        size = asked.less.get(int(key_group), {}).get(worker, float(asked.size[key_group]))
        at = asked.server[worker]
        sums[at] += size
        longest[at] = max(longest[at], size)
    ends = np.maximum(asked.running + asked.pace * sums, asked.alone * longest)
    return float(ends[sums > 0].max(initial=0.0))


@st.composite
def instances(draw: st.DrawFn, *, most: int = 8) -> tuple[StandbyProblem, RestoreTimes]:
    workers, count = draw(st.integers(2, 4)), draw(st.integers(0, most))
    owner = [draw(st.integers(0, workers - 1)) for _ in range(count)]
    hosts = [draw(st.integers(0, place)) for place in range(workers)]
    hosts = [sorted(set(hosts)).index(each) for each in hosts]
    wanted = draw(st.integers(1, 2))
    present = [[draw(st.integers(UNPLACED, workers - 1))] for _ in range(count)]
    of_hosts = [draw(st.integers(0, 1)) for _ in hosts]
    problem = instance(
        owner,
        [draw(st.sampled_from([1.0, 3.0, 10.0])) for _ in range(count)],
        workers=workers,
        wanted=wanted,
        present=present,
        hosts=hosts,
        budget=draw(st.sampled_from([UNLIMITED, StandbyBudget(worker_changes=2, worker_bytes=2.0, changes=6)])),
        limit=draw(st.sampled_from([None, [4.0] * workers])),
        zones=draw(st.sampled_from([None, [of_hosts[host] for host in hosts]])),
        spread=draw(st.booleans()),
        near_home=draw(st.sampled_from([None, [draw(st.booleans()) for _ in range(count)]])),
    )
    servers = max(hosts) + 1
    less = {
        key_group: draw(st.dictionaries(st.integers(0, workers - 1), st.floats(0.5, 1.0), max_size=1))
        for key_group in range(count)
    }
    pace = np.array([draw(st.sampled_from([0.5, 1.0, 2.0])) for _ in range(servers)])
    asked = times(
        problem,
        [draw(st.sampled_from([1.0, 2.0, 5.0, 20.0])) for _ in range(count)],
        less=less,
        pace=pace,
        alone=1.5 * pace,
        running=np.array([draw(st.sampled_from([0.0, 4.0])) for _ in range(servers)]),
    )
    return problem, asked


@quick
@given(instances())
def test_never_later_and_within_all_limits(made: tuple[StandbyProblem, RestoreTimes]) -> None:
    problem, asked = made
    before = solve(problem).assignment
    found = restored_sooner(problem, before, asked, stop=Never())
    after = found.assignment
    assert makespan(problem, after, asked) <= makespan(problem, before, asked) + 1e-9
    assert found.lower_bound <= found.makespan + 1e-9 <= found.before + 2e-9
    assert is_allowed(problem, after) or not is_allowed(problem, before)
    assert (losses(problem, after).highest <= losses(problem, before).highest + SLACK + 1e-6).all()
    old, new = is_new(problem, before), is_new(problem, after)
    assert (old == new).all(), "what is new stays new"
    assert (after[~new] == before[~new]).all(), "nothing else changes"
    several = new.sum(axis=1) > 1
    assert (after[several] == before[several]).all()
    assert (restored_sooner(problem, before, asked, stop=lambda: True).assignment == before).all()


@settings(max_examples=40, deadline=None)
@given(instances(most=5))
def test_no_choice_within_the_limits_beats_the_bound(made: tuple[StandbyProblem, RestoreTimes]) -> None:
    problem, asked = made
    before = solve(problem).assignment
    new = is_new(problem, before)
    key_group, rank = np.nonzero(new & (new.sum(axis=1) == 1)[:, None])
    found = restored_sooner(problem, before, asked, stop=Never())
    highest, best = losses(problem, before).highest + SLACK + 1e-9, np.inf
    for workers in itertools.product(range(len(problem.capacity)), repeat=len(key_group)):
        trial = before.copy()
        trial[key_group, rank] = workers
        same = (is_new(problem, trial) == new).all()
        if same and is_allowed(problem, trial) and (losses(problem, trial).highest <= highest).all():
            best = min(best, makespan(problem, trial, asked))
    assert found.lower_bound <= best + 1e-6
    if is_allowed(problem, before) and not (new.sum(axis=1) > 1).any():
        assert found.makespan == pytest.approx(makespan(problem, found.assignment, asked))
        assert found.makespan >= best - 1e-6


def test_large_states_do_not_meet_on_one_host() -> None:
    problem = instance([0, 0, 0, 0], [1.0] * 4, workers=3)
    before = np.array([[1], [1], [2], [2]])
    found = restored_sooner(problem, before, times(problem, [20.0, 20.0, 1.0, 1.0]), stop=Never())
    assert found.before == 40.0
    assert found.makespan == found.lower_bound == 21.0
    assert np.bincount(found.assignment[:, 0]).tolist() == [0, 2, 2]


def test_loads_after_a_loss_count_more_than_time() -> None:
    problem = instance([0, 0], [40.0, 40.0], workers=3)
    before = np.array([[1], [2]])
    slow = times(problem, [5.0, 5.0], pace=np.array([1.0, 1.0, 10.0]), alone=np.array([1.0, 1.0, 10.0]))
    assert restored_sooner(problem, before, slow, stop=Never()).assignment.tolist() == [[1], [2]]
    free = restored_sooner(problem, before, slow, stop=Never(), slack=100.0)
    assert free.assignment.tolist() == [[1], [1]]
    assert free.makespan == 10.0


def test_a_copy_on_a_disk_is_where_a_standby_goes() -> None:
    problem = instance([0], [1.0], workers=3)
    asked = times(problem, [20.0], less={0: {2: 1.5, 0: 1.0}})
    found = restored_sooner(problem, np.array([[1]]), asked, stop=Never())
    assert found.assignment.tolist() == [[2]], "not beside the owner, where the copy is larger"
    assert found.makespan == 1.5
