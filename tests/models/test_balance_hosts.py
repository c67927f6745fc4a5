"""Limits of hosts: no plan overfills one, the bound holds, and plans are near the optimum that enumeration finds."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.models.test_balance_properties import SHORT, allowed_allocations, load_distance, problems
from trimtab_models.balance import BalanceResult, HostLimits, Problem, solve, solve_greedily, solve_on_hosts
from trimtab_models.solving import Infeasible, Never, Stop

quick = settings(max_examples=60, deadline=None)


def search(problem: Problem, stop: Stop) -> BalanceResult | Infeasible:
    return solve(problem, stop=stop, seed=0, params=SHORT)


def greedy(problem: Problem, stop: Stop) -> BalanceResult | Infeasible:
    return solve_greedily(problem, stop=stop, seed=0)


def within(problem: Problem, limits: HostLimits, solver: Any = search) -> BalanceResult:
    result = solve_on_hosts(problem, limits, solver, stop=Never())
    assert isinstance(result, BalanceResult)
    return result


def overfilled(problem: Problem, limits: HostLimits, allocation: np.ndarray) -> list[int]:
    """The hosts that `allocation` fills above their limit, and above what they use now, summed key group by group."""
    wrong = []
    for resource, rooms in enumerate(limits.room):
        for host, room in enumerate(rooms):
            nodes = {node for node, its in enumerate(limits.host) if its == host}
            now = sum(limits.usage[resource, k] for k, node in enumerate(problem.home) if node in nodes)
            after = sum(limits.usage[resource, k] for k, node in enumerate(allocation) if node in nodes)
            if resource in limits.stays:
                gone = [k for k, node in enumerate(problem.home) if node in nodes and allocation[k] != node]
                after += sum(limits.usage[resource, k] for k in gone)
            if after > max(room, now) + 1e-6:
                wrong.append(host)
    return wrong


@st.composite
def situations(draw: st.DrawFn) -> tuple[Problem, HostLimits]:
    problem = draw(problems(unplaced=False))
    hosts = draw(st.integers(1, 3))
    nodes = len(problem.capacity)
    host = np.array(draw(st.lists(st.integers(0, hosts - 1), min_size=nodes, max_size=nodes)), np.int64)
    room = st.one_of(st.just(np.inf), st.floats(0.0, 120.0).map(lambda value: round(value, 1)))
    rooms = [draw(st.lists(room, min_size=hosts, max_size=hosts)) for _ in range(3)]
    state = draw(st.lists(st.integers(0, 30), min_size=len(problem.load), max_size=len(problem.load)))
    usage = np.array([problem.load, state, state], np.float64).reshape(3, len(problem.load))
    return problem, HostLimits(host=host, usage=usage, room=np.array(rooms, np.float64), home=problem.home, stays=(2,))


@quick
@given(situations())
def test_no_plan_overfills_a_host(situation: tuple[Problem, HostLimits]) -> None:
    problem, limits = situation
    for solver in (search, greedy):
        assert overfilled(problem, limits, within(problem, limits, solver).allocation) == []


@quick
@given(situations())
def test_the_bound_is_below_every_plan_within_the_limits(situation: tuple[Problem, HostLimits]) -> None:
    problem, limits = situation
    result = within(problem, limits)
    possible = [each for each in allowed_allocations(problem) if not overfilled(problem, limits, each)]
    best = min(load_distance(problem, each) for each in possible)
    assert result.lower_bound <= best + 1e-6
    assert limits.tolerating(problem.home).lower_bound(problem) <= best + 1e-6


@quick
@given(situations())
def test_a_plan_is_never_worse_than_staying(situation: tuple[Problem, HostLimits]) -> None:
    problem, limits = situation
    assume(not problem.removing[problem.home].any() if len(problem.home) else True)
    result = within(problem, limits)
    assert result.score.load_distance <= load_distance(problem, problem.home) + 1e-6


@quick
@given(problems(unplaced=False))
def test_hosts_with_room_change_nothing(problem: Problem) -> None:
    nodes = len(problem.capacity)
    limits = HostLimits(
        host=np.zeros(nodes, np.int64), usage=problem.load[None, :], room=np.array([[1.0 + 2.0 * problem.load.sum()]])
    )
    free = search(problem, Never())
    assert isinstance(free, BalanceResult)
    found = within(problem, limits)
    np.testing.assert_array_equal(found.allocation, free.allocation)
    assert found.lower_bound == free.lower_bound


def cluster(loads: list[list[float]], host: list[int], room: list[float], **changes: Any) -> tuple[Problem, HostLimits]:
    """Nodes of capacity 1 with key groups of these loads."""
    load = np.array([each for node in loads for each in node])
    home = np.array([node for node, each in enumerate(loads) for _ in each], np.int64)
    problem = Problem(
        load=load,
        cost_bytes=np.ones(len(load)),
        home=home,
        pinned=np.zeros(len(load), bool),
        in_flight=np.zeros(len(load), bool),
        capacity=np.ones(len(loads)),
        removing=np.zeros(len(loads), bool),
        usage=np.zeros((0, len(load))),
        limit=np.zeros((0, len(loads))),
    )
    limits = HostLimits(host=np.array(host), usage=load[None, :], room=np.array([room], np.float64))
    return replace(problem, **changes), limits


def test_a_host_that_is_over_its_limit_is_relieved_and_others_are_filled_up_to_theirs() -> None:
    problem, limits = cluster([[20] * 6, [20] * 3, [], []], [0, 0, 1, 2], [100.0, 20.0, np.inf])
    result = within(problem, limits)
    assert limits.used(result.allocation)[0, 1] == 20.0
    assert limits.used(result.allocation)[0, 0] < limits.used(problem.home)[0, 0]
    assert result.score.load_distance == result.lower_bound == 25.0


def test_load_moves_between_the_nodes_of_a_full_host() -> None:
    problem, limits = cluster([[15] * 6, [10]], [0, 0], [100.0])
    result = within(problem, limits)
    assert sorted(problem.node_loads(result.allocation).tolist()) == [45.0, 55.0]


def test_the_bound_says_that_a_host_is_too_small() -> None:
    problem, limits = cluster([[10] * 6, [10] * 6, []], [0, 1, 2], [np.inf, np.inf, 10.0])
    result = within(problem, limits)
    assert (result.score.load_distance, result.lower_bound) == (30.0, 30.0)


def test_a_cluster_whose_hosts_are_all_over_their_limits_has_a_plan() -> None:
    problem, limits = cluster([[50] * 6, [50] * 3], [0, 1], [100.0, 100.0])
    assert within(problem, limits).allocation.tolist() == problem.home.tolist()


def test_plans_are_near_the_optimum_of_tiny_problems() -> None:
    """Where the hosts bind, the shares of step 2 can cost something; this says how much, on 100 problems."""
    random = np.random.default_rng(0)
    gaps = []
    while len(gaps) < 100:
        loads = [random.integers(5, 40, random.integers(0, 4)).tolist() for _ in range(4)]
        problem, limits = cluster(loads, [0, 0, 1, 1], random.integers(30, 160, 2).tolist(), max_migrations=4)
        if limits.binding(problem) is None or not 0 < len(problem.load) <= 5:
            continue
        result = within(problem, limits)
        possible = [each for each in allowed_allocations(problem) if not overfilled(problem, limits, each)]
        gaps.append(result.score.load_distance - min(load_distance(problem, each) for each in possible))
    assert min(gaps) >= -1e-9
    assert np.mean(np.array(gaps) < 0.01) >= 0.9
    assert np.mean(gaps) <= 1.0


def on_disks(room: list[float], host: list[int]) -> tuple[Problem, HostLimits]:
    """Node 0 has six key groups of load 20, node 1 two of load 10; every state takes 5 on a disk."""
    problem, limits = cluster([[20] * 6, [10] * 2], host, [np.inf] * len(room))
    usage = np.array([problem.load, np.full(8, 5.0)])
    limits = HostLimits(
        host=np.array(host), usage=usage, room=np.array([[np.inf] * len(room), room]), home=problem.home, stays=(1,)
    )
    return problem, limits


def test_what_leaves_a_disk_frees_nothing() -> None:
    """Node 1 has room for one state besides its own two, so it cannot swap a light one for a second heavy one."""
    problem, limits = on_disks([np.inf, 15.0], [0, 1])
    result = within(problem, limits)
    arrived = (problem.home == 0) & (result.allocation == 1)
    assert arrived.sum() == 1
    freed = replace(limits, home=None, stays=())
    swapped = within(problem, freed)
    assert ((problem.home == 0) & (swapped.allocation == 1)).sum() > 1, "with memory it can"


def test_a_move_between_two_nodes_of_a_host_needs_room_on_its_disk() -> None:
    problem, limits = on_disks([45.0], [0, 0])
    result = within(problem, limits)
    assert (result.allocation != problem.home).sum() == 1
    full = within(*on_disks([40.0], [0, 0]))
    assert (full.allocation == problem.home).all(), "staying is always allowed"


def test_resources_that_stay_need_the_homes() -> None:
    _, limits = on_disks([10.0], [0, 0])
    with pytest.raises(ValueError, match="need the home"):
        replace(limits, home=None)
