"""ALBIC as a whole: named situations, what a move must save, and invariants on small random clusters."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.models.albic.situations import situations
from tests.models.clusters import broken_rules, load_distance
from tests.narrow import of_type
from trimtab_models.albic.problem import PAY_BACK_S, RESTORED_BYTES_S, problem_of, repaid_charge
from trimtab_models.albic.solve import AlbicParams, Strategy, solve
from trimtab_models.balance.drain import Obstacle
from trimtab_models.balance.improve import Effort
from trimtab_models.balance.result import BalanceResult
from trimtab_models.balance.solve import BalanceParams
from trimtab_models.balance.solve import solve as solve_balance
from trimtab_models.instances.snapshot import (
    BalanceInstance,
    MigrationBudget,
    Node,
    SnapshotKeyGroup,
    SnapshotOptions,
    TupleFlow,
)
from trimtab_models.simulation.rounds import policy_named, simulate
from trimtab_models.simulation.workloads import recorded
from trimtab_models.solving import Infeasible, Never, PlanStatus

SHORT = BalanceParams(effort=Effort(steps=100, patience=50), polish=Effort(steps=20))
MANY = AlbicParams(balance=SHORT)
ONE = AlbicParams(strategy=Strategy.ONE_PAIR, balance=SHORT)
both = pytest.mark.parametrize("params", [MANY, ONE], ids=["many pairs", "one pair"])
quick = settings(max_examples=40)


def plan_of(problem, params=MANY, seed=0):
    result = solve(problem, stop=Never(), seed=seed, params=params)
    assert not isinstance(result, Infeasible)
    return result


def moved(result, problem):
    return np.flatnonzero(result.balance.allocation != problem.balance.home).tolist()


def talking(cluster, count=4, **changes):
    """`count` pairs, each apart: key group k on node k % 2, its partner on the other; half of the load is talking."""
    homes = [k % 2 for k in range(count)] + [1 - k % 2 for k in range(count)]
    flows = [(k, count + k, 100.0) for k in range(count)]
    costs = {"serialise_cost": 0.02, "deserialise_cost": 0.02}
    operator = [0] * count + [1] * count
    return cluster(homes, 4.0, flows, operator=operator, **costs | changes)


def predicted_load(problem, result):
    return problem.loads(result.balance.allocation).sum()


@both
def test_a_pair_is_brought_together(cluster, params):
    problem = talking(cluster, max_migrations=2)
    result = plan_of(problem, params)
    assert result.collocation > 0
    assert result.balance.score.migrations <= 2
    assert (predicted_load(problem, result) < 32, result.within) == (True, True)
    assert params is MANY or result.collocation == 0.25, "one of four"


def test_many_pairs_in_one_round_and_half_of_the_load_is_gone(cluster):
    problem = talking(cluster)
    result = plan_of(problem)
    assert (result.collocation, predicted_load(problem, result), result.balance.score.migrations) == (1, 16, 4)
    assert result.predicted_load_distance == pytest.approx(0)


def test_nothing_moves_once_together_and_inside_the_band(cluster):
    problem = talking(cluster)
    again = plan_of(problem.moved_to(plan_of(problem).balance.allocation))
    assert (again.balance.status, again.balance.score.migrations) == (PlanStatus.UNCHANGED, 0)


def test_a_pair_that_does_not_pay_for_its_move_is_left_apart(cluster):
    cheap = {"serialise_cost": 1e-5, "deserialise_cost": 1e-5}
    assert plan_of(talking(cluster, **cheap)).balance.score.migrations == 0
    eager = replace(MANY, price=0.0)
    assert plan_of(talking(cluster, **cheap), eager).collocation == 1


def test_without_costs_collocation_has_a_nominal_worth(cluster):
    result = plan_of(talking(cluster, serialise_cost=0, deserialise_cost=0))
    assert result.collocation == 1
    assert result.predicted_load_distance == result.balance.score.load_distance


def test_a_pair_beyond_the_band_but_within_max_load_distance_comes_together(cluster):
    # 2 nodes, 4 key groups; the only pair lifts one node 8 pp above the mean
    problem = cluster([0, 1, 0, 1], 8, [(0, 1, 9.0)], operator=[0, 1, 1, 0], pinned=[False, True, True, True])
    assert plan_of(problem).collocation == 1
    narrow = cluster(
        [0, 1, 0, 1], 8, [(0, 1, 9.0)], operator=[0, 1, 1, 0], pinned=[False, True, True, True], max_load_distance=7.9
    )
    assert plan_of(narrow).balance.status is PlanStatus.UNCHANGED


@both
def test_parts_get_smaller_until_the_cluster_is_balanced(cluster, params):
    # one set of 4 talking key groups of 6 on node 0, nothing on node 1: 24 of 24; parts of at most 15 can be balanced
    flows = [(0, 2, 9.0), (1, 3, 9.0), (0, 3, 5.0), (1, 2, 5.0)]
    problem = cluster([0] * 4, 6, flows, operator=[0, 0, 1, 1], nodes=2, score_factor=0.5, max_load_distance=3.0)
    result = plan_of(problem, params)
    assert (result.within, result.partition_load < 25) == (True, True)
    assert result.predicted_load_distance == 0
    assert result.collocation == pytest.approx(18 / 28)  # the weak links are cut


@both
def test_a_single_node_is_within_a_load_distance_of_0_however_its_loads_add_up(cluster, params):
    loads = [6.6, 10.0, 8.1, 10.6, 10.9, 4.7, 4.1, 13.2]
    result = plan_of(cluster([0] * 8, loads, [], nodes=1, capacity=[0.5], max_load_distance=0.0), params)
    assert 0 < result.predicted_load_distance < 1e-12, "the mean is summed in another order"
    assert result.within


@both
def test_max_partition_load_0_is_the_pure_balance_problem(cluster, params):
    problem = talking(cluster, max_partition_load=0.0, load=[9.0, 1, 1, 1, 1, 1, 1, 1])
    result = plan_of(problem, params)
    pure = of_type(BalanceResult, solve_balance(problem.balance, stop=Never(), seed=0, params=SHORT))
    assert (result.balance.allocation == pure.allocation).all()
    assert result.partition_load == 0


@both
def test_without_scored_pairs_it_is_the_pure_balance_problem(cluster, params):
    problem = cluster([0, 0, 0, 1], 5, [])
    assert plan_of(problem, params).balance.score.load_distance == 0


def test_a_given_band_holds_for_pure_balance_too(cluster):
    problem = cluster([0, 0, 0, 1], 5, [])  # 5 pp from the mean
    assert moved(plan_of(problem, replace(MANY, band=5.0)), problem) == []
    assert plan_of(problem, replace(MANY, band=4.9)).balance.score.load_distance == 0


@both
def test_what_cannot_be_balanced_is_flagged_and_as_near_as_it_gets(cluster, params):
    problem = talking(cluster, load=[60.0, 4, 4, 4, 4, 4, 4, 4], pinned=[True] + [False] * 7, max_migrations=1)
    result = plan_of(problem, params)
    assert not result.within
    assert result.predicted_load_distance < 32


@both
def test_marked_nodes_are_emptied_together_with_their_pairs(cluster, params):
    problem = talking(cluster, nodes=3, removing=[True, False, False])
    state = problem
    for _ in range(6):
        state = state.moved_to(plan_of(state, params).balance.allocation)
    assert not state.balance.removing[state.balance.home].any()


def test_a_part_too_heavy_for_any_node_leaves_a_marked_node_in_smaller_parts(cluster):
    flows = [(0, 1, 9.0), (2, 3, 1.0)]
    problem = cluster(
        [0, 0, 1, 1, 2, 2], [12.0, 12, 20, 0, 20, 0], flows, operator=[0, 1, 0, 1, 2, 2],
        removing=[True, False, False], max_load_distance=10.0, score_factor=0.5,
    )  # fmt: skip
    result = plan_of(problem)
    assert not problem.balance.removing[result.balance.allocation].any()
    assert result.within


def test_what_is_pinned_on_a_marked_node_is_named(cluster):
    problem = talking(cluster, nodes=3, removing=[True, False, False], pinned=[True] + [False] * 7)
    alerts = plan_of(problem).balance.alerts
    assert [(alert.key_group, alert.obstacle) for alert in alerts] == [(0, Obstacle.PINNED)]


def test_lost_key_groups_go_to_their_partners_for_nothing(cluster):
    problem = talking(cluster, home=[-1, 1, 0, 1, 1, 0, 1, 0], max_migrations=0)
    result = plan_of(problem)
    assert result.balance.allocation.tolist() == [1, 1, 0, 1, 1, 0, 1, 0]
    assert result.balance.score.migrations == 0


def test_tiny_steps_are_no_endless_loop(cluster):
    together = [0, 0, 0, 0] * 2
    problem = talking(cluster, home=together, nodes=2, load=6.0 * np.ones(8), pinned=[True] * 8, partition_step=1e-6)
    assert plan_of(problem).balance.status is PlanStatus.UNCHANGED


def test_loads_that_contradict_the_flows_are_predicted_all_the_same(cluster):
    problem = talking(cluster, load=[0.0] * 8)  # less than what its tuples must cost
    result = plan_of(problem)
    assert np.isfinite(result.predicted_load_distance)


def predicted_loads(problem, allocation):
    """Flow by flow."""
    loads, home = problem.balance.load.copy(), problem.balance.home
    for i, j, rate in zip(problem.source, problem.target, problem.rate, strict=True):
        if i == j:
            continue
        was, now = (float(at[i] != at[j] or at[i] < 0) for at in (home, allocation))
        loads[i] += (now - was) * problem.serialise_cost * rate
        loads[j] += (now - was) * problem.deserialise_cost * rate
    return loads


@given(situations(), st.sampled_from([MANY, ONE]))
@quick
def test_every_plan_keeps_every_rule_and_tells_the_truth(cluster, arguments, params):
    homes, loads, flows, rules = arguments
    problem = cluster(homes, loads, flows, **rules)
    result = plan_of(problem, params, seed=5)
    allocation = result.balance.allocation
    assert broken_rules(problem.balance, allocation) == []
    after = predicted_loads(problem, allocation)
    assert result.predicted_load_distance == pytest.approx(load_distance(problem.balance, allocation, after), abs=1e-8)
    given_distance = load_distance(problem.balance, allocation)
    assert result.balance.score.load_distance == pytest.approx(given_distance, abs=1e-8)
    assert result.balance.lower_bound <= given_distance + 1e-8
    assert result.within == (result.predicted_load_distance <= problem.balance.max_load_distance + 1e-7)
    assert (plan_of(problem, params, seed=5).balance.allocation == allocation).all()


@given(situations())
@quick
def test_collocation_is_given_up_for_load_distance_only(cluster, arguments):
    homes, loads, flows, rules = arguments
    nodes = rules["nodes"]
    rules = rules | {"removing": [False] * nodes}
    problem = cluster([max(0, home) for home in homes], loads, flows, **rules)
    result = plan_of(problem)
    home = problem.balance.home
    before = load_distance(problem.balance, home)
    if result.partition_load > 0 and result.predicted_load_distance >= before - 1e-9:
        assert result.collocation >= problem.collocation(home) - 1e-12
        if result.balance.status is not PlanStatus.UNCHANGED:
            assert result.collocation > problem.collocation(home)


# The command


def document(**changes):
    nodes = [{"id": "n0", "capacity": 1}, {"id": "n1", "capacity": 1}]
    key_groups = [
        {"id": f"{operator}{k}", "operator": operator, "node": f"n{(k + at) % 2}", "load": 4, "state_bytes": 100}
        for at, operator in enumerate("ab")
        for k in range(4)
    ]
    flows = [{"from": f"a{k}", "to": f"b{k}", "rate": 100} for k in range(4)]
    options = {"serialise_cost": 0.02, "deserialise_cost": 0.02}
    return {"version": 1, "nodes": nodes, "key_groups": key_groups, "flows": flows, "options": options} | changes


@pytest.fixture
def command(solve):
    return solve


def test_the_command_prints_the_plan_with_what_is_predicted(command):
    code, out, err = command(document(budget={"max_migrations": 4}), method="albic")
    plan = json.loads(out)
    assert (code, err, plan["method"], plan["migrations"]) == (0, "", "albic", 4)
    assert (plan["collocation_before"], plan["collocation"], plan["mean_load"]) == (0, 1, 16)
    assert plan["predicted_load_distance"] == pytest.approx(0)


def test_the_command_warns_when_no_attempt_was_within_max_load_distance(command):
    pinned = [entry | {"pinned": True, "node": "n0"} for entry in document()["key_groups"]]
    code, out, err = command(document(key_groups=pinned), method="albic")
    assert (code, json.loads(out)["status"]) == (0, "unchanged")
    assert err == "warning: no attempt came within max_load_distance 10: the predicted load distance is 16\n"


def key_group(name, node, load):
    return {"id": name, "operator": name[0], "node": node, "load": load, "state_bytes": 1}


@pytest.mark.parametrize(
    ("method", "distance", "key_groups", "rate"),
    [
        ("albic", 0, [key_group(name, "n0", 4.0) for name in ("a0", "b0", "a1", "b1")], 5e-324),
        ("albic", 10, [key_group("a0", "n1", 1.7e308), key_group("b0", "n0", 4.0), key_group("b1", "n1", 0.0)], 4.0),
        ("cola", 0, [key_group("a0", "n0", 0.0), key_group("b0", "n0", 5e-324), key_group("b1", "n1", 1.0)], 0.3),
    ],
)
def test_there_is_a_plan_however_small_or_large_numbers_are(command, method, distance, key_groups, rate):
    options = {"score_factor": 0.0, "max_load_distance": distance}
    flows = [{"from": "a0", "to": "b0", "rate": rate}]
    given = document(key_groups=key_groups, flows=flows, options=options)
    code, out, _ = command(given, method=method)
    assert code == 0
    assert json.loads(out)["load_distance"] >= 0.0


def six_flows(state_bytes: float, cost: float = 0.01) -> BalanceInstance:
    """Six key groups on each of two nodes; each of the first talks to one on the other node, a tuple per second."""
    sides = [(f"{name}{place}", name) for name in ("in", "out") for place in range(6)]
    nodes = {**{f"in{place}": f"n{place % 2}" for place in range(6)}}
    nodes |= {f"out{place}": f"n{(place + 1) % 2}" for place in range(6)}
    return BalanceInstance(
        nodes=(Node(id="n0", capacity=1.0), Node(id="n1", capacity=1.0)),
        key_groups=tuple(
            SnapshotKeyGroup(id=name, operator=operator, node=nodes[name], load=2.0, state_bytes=state_bytes)
            for name, operator in sides
        ),
        flows=tuple(TupleFlow(source=f"in{place}", target=f"out{place}", rate=1.0) for place in range(6)),
        budget=MigrationBudget(max_migrations=6),
        options=SnapshotOptions(serialise_cost=cost, deserialise_cost=cost),
    )


@pytest.mark.parametrize(("state_bytes", "cost", "moves"), [(1e9, 0.01, 0), (1e9, 0.5, 0), (1e6, 0.5, 6)])
def test_six_flows_of_a_tuple_a_second_between_gigabytes_move_nothing(state_bytes, cost, moves):
    """A gigabyte takes 100 s of a core, which half a percent at each end of a tuple a second repays in 10,000 s."""
    run = simulate(recorded([six_flows(state_bytes, cost)] * 5), policy_named("albic"), seed=1)
    assert sum(each.migrations for each in run.rounds) == moves


def test_a_charge_is_a_core_for_the_restore_over_the_time_to_pay_back():
    assert repaid_charge(np.array([RESTORED_BYTES_S * PAY_BACK_S])).tolist() == [100.0]
    assert repaid_charge(np.array([8.8e7]), bytes_s=1e6, unit_s=2.0).tolist() == [5.0]


def test_only_flows_that_cost_something_are_brought_together():
    dear = np.array([1.0, 0.0, 1.0, 0.0, 0.0, 0.0])
    problem = replace(problem_of(six_flows(1.0)), send_cost=dear, receive_cost=dear / 2)
    result = solve(problem, stop=Never(), seed=1)
    local = ~problem.remote(result.balance.allocation)
    assert local.tolist() == [True, False, True, False, False, False]
    assert problem.loads(result.balance.allocation).sum() == pytest.approx(24.0 - 2 * 1.5)


def test_costs_per_flow_are_those_on_average_where_all_are_alike():
    problem = problem_of(six_flows(1.0, 0.5))
    alike = replace(problem, send_cost=np.full(6, 0.5), receive_cost=np.full(6, 0.5))
    ours, theirs = (solve(each, stop=Never(), seed=3).balance.allocation.tolist() for each in (alike, problem))
    assert ours == theirs
    with pytest.raises(ValueError, match="one entry per flow"):
        replace(problem, send_cost=np.ones(5))
