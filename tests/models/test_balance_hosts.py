"""Limits of hosts: no plan overfills one, the bound holds, plans are near the optimum; and those in instance files."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.models.clusters import SHORT, allowed_allocations, load_distance, problems
from tests.narrow import of_type
from trimtab_models.albic.methods import METHODS as COLLOCATION
from trimtab_models.balance.hosts import HostLimits, limits_in, solve_on_hosts
from trimtab_models.balance.methods import METHODS as BALANCE
from trimtab_models.balance.problem import BalanceProblem, problem_of
from trimtab_models.balance.result import BalanceResult
from trimtab_models.balance.solve import solve, solve_flux
from trimtab_models.instances.reading import BadInstance, instance_in
from trimtab_models.instances.snapshot import BalanceInstance
from trimtab_models.solving import Infeasible, Never, PlanDocument, StopRule
from trimtab_models.spared import Spared

quick = settings(max_examples=60, deadline=None)


def search(problem: BalanceProblem, stop: StopRule) -> BalanceResult | Infeasible:
    return solve(problem, stop=stop, seed=0, params=SHORT)


def by_flux(problem: BalanceProblem, stop: StopRule) -> BalanceResult | Infeasible:
    return solve_flux(problem, stop=stop, seed=0)


def within(problem: BalanceProblem, limits: HostLimits, solver: Any = search) -> BalanceResult:
    return of_type(BalanceResult, solve_on_hosts(problem, limits, solver, stop=Never()))


def overfilled(problem: BalanceProblem, limits: HostLimits, allocation: np.ndarray) -> list[int]:
    """The hosts that `allocation` fills above their limit, and above what they use now, summed key group by group."""
    wrong = []
    for resource, rooms in enumerate(limits.room):
        for host, room in enumerate(rooms):
            nodes = {node for node, its in enumerate(limits.host) if its == host}
            now = sum(limits.usage[resource, k] for k, node in enumerate(problem.home) if node in nodes)
            after = sum(used_by(limits, resource, k, node) for k, node in enumerate(allocation) if node in nodes)
            if resource in limits.stays:
                gone = [k for k, node in enumerate(problem.home) if node in nodes and allocation[k] != node]
                after += sum(limits.usage[resource, k] for k in gone)
            if after > max(room, now) + 1e-6:
                wrong.append(host)
    return wrong


def optimum_within(problem: BalanceProblem, limits: HostLimits) -> float:
    possible = (each for each in allowed_allocations(problem) if not overfilled(problem, limits, each))
    return min(load_distance(problem, each) for each in possible)


def used_by(limits: HostLimits, resource: int, key_group: int, node: int) -> float:
    used, spared = limits.usage[resource, key_group], limits.spared
    for pair in range(0 if spared is None else len(spared.node)):
        if (spared.key_group[pair], spared.node[pair]) == (key_group, node):  # type: ignore[union-attr]
            used -= spared.amount[resource, pair]  # type: ignore[union-attr]
    return float(used)


@st.composite
def situations(draw: st.DrawFn) -> tuple[BalanceProblem, HostLimits]:
    problem = draw(problems(unplaced=False))
    hosts = draw(st.integers(1, 3))
    nodes = len(problem.capacity)
    host = np.array(draw(st.lists(st.integers(0, hosts - 1), min_size=nodes, max_size=nodes)), np.int64)
    room = st.one_of(st.just(np.inf), st.floats(0.0, 120.0).map(lambda value: round(value, 1)))
    rooms = [draw(st.lists(room, min_size=hosts, max_size=hosts)) for _ in range(3)]
    state = draw(st.lists(st.integers(0, 30), min_size=len(problem.load), max_size=len(problem.load)))
    usage = np.array([problem.load, state, state], np.float64).reshape(3, len(problem.load))
    shares = draw(st.dictionaries(st.tuples(*[st.integers(0, 9)] * 2), st.sampled_from([0.0, 0.5, 1.0]), max_size=8))
    pairs = [(k, n, share) for (k, n), share in shares.items() if k < len(state) and n < nodes and n != problem.home[k]]
    there, at, share = (np.array(each) for each in zip(*pairs, strict=True)) if pairs else (np.zeros(0, int),) * 3
    memory = np.where(share == 0.0, usage[1, there], 0.0)  # only a standby has the state in memory
    return problem, HostLimits(
        host=host,
        usage=usage,
        room=np.array(rooms, np.float64),
        home=problem.home,
        stays=draw(st.sampled_from([(), (2,), (1, 2)])),
        spared=Spared.of(
            there, at, np.array([np.zeros(len(at)), memory, (1.0 - share) * usage[2, there]]), (len(state), nodes)
        ),
    )


@quick
@given(situations())
def test_no_plan_overfills_a_host_or_is_below_the_bound_or_worse_than_staying(
    situation: tuple[BalanceProblem, HostLimits],
) -> None:
    problem, limits = situation
    result, flux = within(problem, limits), within(problem, limits, by_flux)
    for plan in (result, flux):
        assert overfilled(problem, limits, plan.allocation) == []
    best = optimum_within(problem, limits)
    assert result.lower_bound <= best + 1e-6
    assert limits.tolerating(problem.home).lower_bound(problem) <= best + 1e-6
    if not problem.removing[problem.home].any():
        assert result.score.load_distance <= load_distance(problem, problem.home) + 1e-6


@quick
@given(problems(unplaced=False))
def test_hosts_with_room_change_nothing(problem: BalanceProblem) -> None:
    nodes = len(problem.capacity)
    limits = HostLimits(
        host=np.zeros(nodes, np.int64), usage=problem.load[None, :], room=np.array([[1.0 + 2.0 * problem.load.sum()]])
    )
    free = of_type(BalanceResult, search(problem, Never()))
    found = within(problem, limits)
    np.testing.assert_array_equal(found.allocation, free.allocation)
    assert found.lower_bound == free.lower_bound


def cluster(
    loads: list[list[float]], host: list[int], room: list[float], **changes: Any
) -> tuple[BalanceProblem, HostLimits]:
    """Nodes of capacity 1 with key groups of these loads."""
    load = np.array([each for node in loads for each in node])
    home = np.array([node for node, each in enumerate(loads) for _ in each], np.int64)
    problem = BalanceProblem.plain(load=load, home=home, capacity=np.ones(len(loads)))
    limits = HostLimits(host=np.array(host), usage=load[None, :], room=np.array([room], np.float64))
    return replace(problem, **changes), limits


def test_a_host_that_is_over_its_limit_is_relieved_and_others_are_filled_up_to_theirs() -> None:
    problem, limits = cluster([[20] * 6, [20] * 3, [], []], [0, 0, 1, 2], [100.0, 20.0, np.inf])
    result = within(problem, limits)
    assert limits.used(result.allocation)[0, 1] == 20.0
    assert limits.used(result.allocation)[0, 0] < limits.used(problem.home)[0, 0]
    assert result.score.load_distance == result.lower_bound == 25.0


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
        gaps.append(result.score.load_distance - optimum_within(problem, limits))
    assert min(gaps) >= -1e-9
    assert np.mean(np.array(gaps) < 0.01) >= 0.9
    assert np.mean(gaps) <= 1.0


def on_disks(room: list[float], host: list[int]) -> tuple[BalanceProblem, HostLimits]:
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


def with_copies(
    situation: tuple[BalanceProblem, HostLimits], pairs: dict[tuple[int, int], float]
) -> tuple[BalanceProblem, HostLimits]:
    """The situation of `on_disks`, in which nodes have a share of key groups' states on their disks already."""
    problem, limits = situation
    key_group, node = (np.array(each) for each in zip(*pairs, strict=True))
    amount = np.array([np.zeros(len(node)), 5.0 * np.array(list(pairs.values()))])
    return problem, replace(limits, spared=Spared.of(key_group, node, amount, (8, len(problem.capacity))))


@pytest.mark.parametrize("solver", [search, by_flux])
def test_what_a_host_has_a_copy_of_needs_no_room_on_its_full_disk(solver: Any) -> None:
    problem, limits = with_copies(on_disks([np.inf, 10.0], [0, 1]), {(0, 1): 1.0, (4, 1): 1.0})
    result = within(problem, limits, solver)
    assert np.flatnonzero(result.allocation != problem.home).tolist() == [0, 4]
    assert result.allocation[[0, 4]].tolist() == [1, 1]


def test_pairs_beyond_a_table_are_found_as_in_one() -> None:
    random = np.random.default_rng(0)
    key_group, node = random.integers(0, 3_000, 500), random.integers(0, 1_000, 500)
    large = Spared.of(key_group, node, random.uniform(1.0, 2.0, (1, 500)), (3_000, 1_000))
    assert large is not None
    assert large._table is None
    chosen, nodes = np.unique(key_group)[:40], np.unique(node)[:30]
    small = large.part(chosen, nodes)
    assert small is not None
    assert small._table is not None
    np.testing.assert_array_equal(small.on(np.arange(40)[:, None], np.arange(30)), large.on(chosen[:, None], nodes))
    np.testing.assert_array_equal(large.on(large.key_group, large.node), large.amount)


def test_plans_with_copies_are_optimal_where_each_host_has_one_worker() -> None:
    """Beside brute force, on problems whose disks are nearly full: arrivals are all that counts on a disk."""
    random = np.random.default_rng(1)
    gaps, freed = [], 0
    while len(gaps) < 40:
        loads = [random.integers(5, 40, random.integers(0, 4)).tolist() for _ in range(3)]
        problem, limits = cluster(loads, [0, 1, 2], [np.inf] * 3, max_migrations=4)
        if not 2 <= len(problem.load) <= 6:
            continue
        state = random.integers(1, 9, len(problem.load))
        size = len(problem.load), 3
        at = (problem.home + random.integers(1, 3, size[0])) % 3
        amount = np.array([np.zeros(size[0]), np.where(random.random(size[0]) < 0.6, state, 0.0)])
        room = np.bincount(problem.home, state, 3) + random.integers(0, 6, 3)
        limits = HostLimits(
            host=np.arange(3),
            usage=np.array([problem.load, state]),
            room=np.array([[np.inf] * 3, room]),
            home=problem.home,
            stays=(1,),
            spared=Spared.of(np.arange(size[0]), at, amount, size),
        )
        result = within(problem, limits)
        assert overfilled(problem, limits, result.allocation) == []
        freed += bool(overfilled(problem, replace(limits, spared=None), result.allocation))
        gaps.append(result.score.load_distance - optimum_within(problem, limits))
    assert max(gaps) <= 0.01
    assert min(gaps) >= -1e-9
    assert freed >= 10, "plans use the copies"


def test_copies_on_full_disks_even_out_what_hardly_anything_else_may() -> None:
    """12 of 60 workers have twice as much load; each key group may go to one other worker alone."""
    random = np.random.default_rng(0)
    loads = random.uniform(4.0, 6.0, (60, 10)) * np.where(np.arange(60) < 12, 2.0, 1.0)[:, None]
    problem, limits = cluster(loads.tolist(), list(range(60)), [np.inf] * 60, max_migrations=150)
    at = (problem.home + random.integers(1, 60, 600)) % 60
    amount = np.array([np.zeros(600), np.ones(600)])
    limits = replace(
        limits,
        usage=np.array([problem.load, np.ones(600)]),
        room=np.array([[np.inf] * 60, [10.0] * 60]),
        home=problem.home,
        stays=(1,),
        spared=Spared.of(np.arange(600), at, amount, (600, 60)),
    )
    for solver, most in ((search, 0.25), (by_flux, 0.25)):
        result = within(problem, limits, solver)
        moved = result.allocation != problem.home
        assert (result.allocation[moved] == at[moved]).all()
        assert result.score.load_distance <= most * load_distance(problem, problem.home)


METHODS = {**BALANCE, "albic": COLLOCATION["albic"]}


def document(host_limits: dict[str, float], usage: dict[str, float] | None = None) -> dict[str, Any]:
    """Six key groups of load 20 on n0; n1 and n2 are empty, and on the same host."""
    nodes = [{"id": "n0", "capacity": 1.0}] + [
        {"id": name, "capacity": 1.0, "limits": {f"host:h1:{key}": value for key, value in host_limits.items()}}
        for name in ("n1", "n2")
    ]
    key_groups = [
        {"id": f"k{number}", "operator": "o", "node": "n0", "load": 20, "state_bytes": 5, "usage": dict(usage or {})}
        for number in range(6)
    ]
    return {"version": 1, "nodes": nodes, "key_groups": key_groups, "options": {"max_load_distance": 5.0}}


def moved(document: dict[str, Any], method: str = "milp") -> dict[str, str]:
    plan = of_type(PlanDocument, METHODS[method].solve(instance_in(document, BalanceInstance), Never(), 0))
    return {each["key_group"]: each["to"] for each in plan.document["moves"]}


@pytest.mark.parametrize("method", ["milp", "flux", "albic"])
def test_what_the_nodes_of_a_host_carry_together_is_limited(method: str) -> None:
    assert len(moved(document({}), method)) == 4
    assert 0 < len(moved(document({"load": 59.0}), method)) <= 2
    assert 0 < len(moved(document({"memory": 15.0}, {"memory": 5.0}), method)) <= 3


@pytest.mark.parametrize("method", ["milp", "flux", "albic"])
def test_a_key_group_uses_less_on_the_node_that_has_its_state(method: str) -> None:
    full = document({"kept_disk": 4.0}, {"kept_disk": 5.0})
    assert moved(full, method) == {}
    full["key_groups"][0]["usage"]["node:n2:kept_disk"] = 0.0
    assert moved(full, method) == {"k0": "n2"}


def test_what_is_kept_stays_in_use_where_it_was() -> None:
    """n0 has its own host with room for its six states; k5 is on n1 and lighter than what n0 could give for it."""
    for name, exchanged in (("disk", True), ("kept_disk", False)):
        given = document({name: 5.0}, {name: 5.0})
        given["key_groups"][5] |= {"node": "n1", "load": 1}
        assert ("k5" in moved(given)) is exchanged


def test_limits_of_hosts_are_none_of_their_nodes() -> None:
    instance = instance_in(document({"load": 50.0}), BalanceInstance)
    assert problem_of(instance).limit.size == 0
    assert limits_in(instance_in(document({}), BalanceInstance)) is None


def test_a_resource_of_such_a_name_that_key_groups_use_is_one_like_any_other() -> None:
    given = document({"disk": 5.0}, {"host:h1:disk": 5.0})
    assert limits_in(instance_in(given, BalanceInstance)) is None
    assert problem_of(instance_in(given, BalanceInstance)).limit.shape == (1, 3)
    assert len(moved(given)) == 2, "one on each node"


@pytest.mark.parametrize(
    ("name", "found", "expected"),
    [
        ("host:h2:load", 'a limit of host "h2"', 'limits of one host, "h1"'),
        ("host:h1:load", "9.0", "50.0, as for the other nodes of the host"),
    ],
)
def test_hosts_that_contradict_each_other_are_refused(name: str, found: str, expected: str) -> None:
    given = document({"load": 50.0})
    given["nodes"][2]["limits"] = {"host:h1:memory": 1.0, name: 9.0}
    with pytest.raises(BadInstance) as refusal:
        instance_in(given, BalanceInstance)
    path = f'$.nodes[2].limits["{name}"]'
    assert (refusal.value.path, refusal.value.found, refusal.value.expected) == (path, found, expected)
