"""Simulated rounds: what is carried from moment to moment, what depends on the seed, what nodes that come and go do."""

from dataclasses import replace

import numpy as np
import pytest

from trimtab_models.albic.scores import scored_pairs
from trimtab_models.balance.evaluate import evaluate
from trimtab_models.instances.snapshot import (
    BalanceInstance,
    MigrationBudget,
    Node,
    SnapshotKeyGroup,
    SnapshotOptions,
    TupleFlow,
)
from trimtab_models.simulation.rounds import (
    POLICIES,
    ChangeKind,
    NodeChange,
    Perception,
    Run,
    churn,
    policy_named,
    simulate,
    summarise,
)
from trimtab_models.simulation.workloads import WORKLOADS, InvalidSize, Size, generated, recorded, uneven_cluster
from trimtab_models.solving import Infeasible

SMALL = Size(nodes=4, key_groups=36)
FOUR_MOVES = MigrationBudget(max_migrations=4)
JOIN, MARK, LOSE = ChangeKind.JOIN, ChangeKind.MARK, ChangeKind.LOSE


def change(kind, number=2, count=1):
    return NodeChange(round=number, kind=kind, count=count)


def play(policy="flux", workload="drift", rounds=4, size=SMALL, seed=1, budget=FOUR_MOVES, **options):
    run = simulate(
        generated(workload, size, rounds=rounds, seed=seed, budget=budget), policy_named(policy), seed=seed, **options
    )
    assert isinstance(run, Run)
    return run


def snapshot(homes, loads, nodes=("a", "b", "c"), **more):
    key_groups = tuple(
        SnapshotKeyGroup(id=id_, operator=id_[0], node=node, load=load, state_bytes=100)
        for (id_, node), load in zip(homes.items(), loads, strict=True)
    )
    return BalanceInstance(nodes=tuple(Node(id=id_, capacity=1) for id_ in nodes), key_groups=key_groups, **more)


@pytest.mark.parametrize("policy", POLICIES)
def test_the_same_seed_gives_the_same_rounds(policy):
    played = [play(policy, "real-job-3", rounds=2, perception=Perception(noise=0.1, smoothing=0.5)) for _ in range(2)]
    assert played[0].rounds == played[1].rounds


@pytest.mark.parametrize("policy", [name for name in POLICIES if name != "cola"])
def test_no_policy_but_cola_exceeds_the_budget(policy):
    assert summarise(play(policy, "real-job-2").rounds).most_migrations <= 4


def test_staying_moves_nothing_and_saves_nothing():
    rounds = play("stay", "real-job-2").rounds
    assert {(each.migrations, each.cost_bytes) for each in rounds} == {(0, 0.0)}
    assert [each.load_index for each in rounds] == pytest.approx([100.0] * 4)
    assert all(each.load_distance == each.load_distance_before for each in rounds)


def test_cola_collocates_at_once_whatever_the_budget():
    (first,) = play("cola", "real-job-2", rounds=1).rounds
    assert first.migrations > 4
    assert first.collocation == 1
    assert first.load_index == pytest.approx(50, abs=5)


@pytest.mark.parametrize("workload", WORKLOADS)
def test_every_workload_is_played_from_its_own_placement(workload):
    first, *_ = generated(workload, SMALL, rounds=2, seed=1, budget=FOUR_MOVES)
    rounds = play("stay", workload, rounds=2).rounds
    assert [(each.number, each.nodes) for each in rounds] == [(1, 4), (2, 4)]
    assert rounds[0].load_distance == pytest.approx(evaluate(first.problem.balance, first.home).load_distance)
    assert first.problem.balance.load.sum() == pytest.approx(4 * 50, rel=0.5)


@pytest.mark.parametrize(
    ("workload", "share"), [("real-job-1", 0.0), ("real-job-2", 1.0), ("real-job-3", 0.5), ("real-job-4", 0.6)]
)
def test_so_much_of_the_rate_can_be_collocated(workload, share):
    """That of pairs that ALBIC scores, which are those keyed alike: other flows are spread over too many."""
    size = Size(nodes=20, key_groups=900)
    (first,) = generated(workload, size, rounds=1, seed=1, budget=FOUR_MOVES)
    problem = replace(first.problem, score_factor=4.0)  # loads of key groups differ by less
    assert scored_pairs(problem).rate.sum() / problem.rate.sum() == pytest.approx(share, abs=0.03)


@pytest.mark.parametrize(
    ("workload", "size", "reason"),
    [
        ("real-job-3", {"nodes": 100, "key_groups": 9_000}, "9,003,000 flows"),
        ("real-job-4", {"nodes": 4, "key_groups": 8}, "too few for all operators"),
        ("drift", {"nodes": 4, "key_groups": 3}, "a key group for each node"),
    ],
)
def test_a_size_that_does_not_fit_is_refused(workload, size, reason):
    with pytest.raises(InvalidSize, match=reason):
        play(workload=workload, size=Size(**size))


# --- nodes that come and go -------------------------------------------------------------------------------------------


def test_a_node_that_joins_is_filled_as_far_as_the_budget_goes():
    rounds = play("milp", "uneven", rounds=6, changes=[change(JOIN)], budget=MigrationBudget(max_migrations=3)).rounds
    assert [each.nodes for each in rounds] == [4, 5, 5, 5, 5, 5]
    assert rounds[1].load_distance_before > 30 > 10 > rounds[-1].load_distance


def test_a_marked_node_leaves_when_it_is_empty():
    rounds = play("milp", "uneven", rounds=5, changes=[change(MARK)]).rounds
    assert [(each.nodes, each.marked) for each in rounds] == [(4, 0), (4, 1), (4, 1), (4, 0), (3, 0)]


def test_what_was_on_a_lost_node_is_placed_at_no_cost():
    rounds = play("stay", "uneven", rounds=3, changes=[change(LOSE)]).rounds
    assert [(each.nodes, each.placed, each.migrations) for each in rounds] == [(4, 0, 0), (3, 9, 0), (3, 0, 0)]


def test_the_last_node_stays_whatever_is_to_leave():
    rounds = play("flux", "uneven", changes=[change(LOSE, count=9), change(MARK, 3, 9)]).rounds
    assert [(each.nodes, each.marked) for each in rounds] == [(4, 0), (1, 0), (1, 0), (1, 0)]


@pytest.mark.parametrize("seed", range(3))
def test_two_policies_see_the_same_nodes_leave(seed):
    """Marked nodes leave when they are empty, which is up to the policy; who is marked or lost is not."""
    changes = churn(30, 0.4, seed)
    unhurried = MigrationBudget(max_migrations=0)
    one, other = (
        play(policy, "uneven", 30, Size(nodes=8, key_groups=16), seed, unhurried, changes=changes)
        for policy in ("stay", "flux")
    )
    assert [each.placed for each in one.rounds] == [each.placed for each in other.rounds]
    assert [each.nodes for each in one.rounds] == [each.nodes for each in other.rounds]


def test_churn_is_as_frequent_as_it_should_be():
    changes = churn(10_000, 0.2, seed=5)
    kinds = [each.kind for each in changes]
    assert kinds.count(JOIN) == pytest.approx(2_000, rel=0.1)
    assert kinds.count(MARK) == pytest.approx(1_000, rel=0.1)
    assert kinds.count(LOSE) == pytest.approx(1_000, rel=0.1)


# --- what the policy sees ---------------------------------------------------------------------------------------------


def test_a_policy_sees_noise_that_the_report_does_not():
    seen = []

    def watching(problem, stop, seed):
        seen.append(problem.balance.load)
        return problem.balance.home

    moments = list(generated("uneven", SMALL, rounds=40, seed=3, budget=MigrationBudget()))
    truth = moments[0].problem.balance.load
    exact = simulate(moments, watching, seed=3)
    assert isinstance(exact, Run)
    assert all((load == truth).all() for load in seen)
    seen.clear()
    noisy = simulate(moments, watching, seed=3, perception=Perception(noise=0.1))
    assert noisy == exact
    assert np.std(np.array(seen) / truth) == pytest.approx(0.1, rel=0.1)
    unsmoothed = np.std(np.array(seen[20:]) / truth)
    seen.clear()
    simulate(moments, watching, seed=3, perception=Perception(noise=0.1, smoothing=0.2))
    assert np.std(np.array(seen[20:]) / truth) == pytest.approx(unsmoothed / 3, rel=0.2)  # sqrt(w / (2 - w))


def test_planning_is_timed_by_the_clock_that_is_given():
    ticks = iter(range(100))
    assert play("stay", clock=lambda: float(next(ticks))).planning_s == (1.0, 1.0, 1.0, 1.0)


def test_a_plan_that_cannot_be_is_reported_with_its_round():
    first = snapshot({"k1": "a"}, [1])
    second = replace(first, nodes=tuple(replace(node, removing=True) for node in first.nodes))
    assert simulate(recorded([first, second]), policy_named("milp"), seed=0) == Infeasible(
        reason="round 2: all nodes are draining"
    )


# --- recorded snapshots -----------------------------------------------------------------------------------------------


def test_a_recording_is_replayed_from_its_first_placement_with_its_later_loads():
    homes = {"k1": "a", "k2": "a", "k3": "a"}
    moved_elsewhere = {"k1": "c", "k2": "c", "k3": "c"}  # by whoever was in charge: the replay has its own placement
    snapshots = [snapshot(homes, [10, 10, 10]), snapshot(moved_elsewhere, [10, 10, 40])]
    run = simulate(recorded(snapshots), policy_named("milp"), seed=0)
    assert isinstance(run, Run)
    assert [(each.load_distance_before, each.load_distance, each.migrations) for each in run.rounds] == [
        (20.0, 0.0, 2),
        (20.0, 20.0, 0),
    ]
    stayed = simulate(recorded(snapshots), policy_named("stay"), seed=0)
    assert isinstance(stayed, Run)
    assert [each.load_distance for each in stayed.rounds] == [20.0, 40.0]


def test_nothing_joins_a_recording_without_nodes():
    """A node that joins is like the first one: there is none."""
    nowhere = BalanceInstance(nodes=(), key_groups=())
    run = simulate(recorded([nowhere]), policy_named("stay"), seed=0, changes=[change(JOIN, 1), change(LOSE, 1)])
    assert run == Infeasible(reason="round 1: there is no node")


def test_key_groups_and_nodes_of_a_recording_come_and_go():
    snapshots = [
        snapshot({"k1": "a", "k2": "b", "k3": "c"}, [10, 10, 10]),
        snapshot({"k4": "a", "k2": "b", "k1": "a"}, [10, 10, 10], nodes=("d", "b", "a")),
        snapshot({"k1": "b", "k2": "b"}, [10, 10], nodes=("b", "d")),
    ]
    run = simulate(recorded(snapshots), policy_named("stay"), seed=0)
    assert isinstance(run, Run)
    assert [(each.nodes, each.placed) for each in run.rounds] == [(3, 0), (3, 0), (2, 1)]
    assert [each.load_distance for each in run.rounds] == [0.0, 10.0, 0.0]


def test_a_recorded_budget_holds_unless_another_is_given():
    hot = snapshot({f"k{at}": "a" for at in range(9)}, [5] * 9, budget=MigrationBudget(max_migrations=1))
    for budget, moves in ((None, 1), (MigrationBudget(max_migrations=3), 3)):
        run = simulate(recorded([hot], budget=budget), policy_named("milp"), seed=0)
        assert isinstance(run, Run)
        assert run.rounds[0].migrations == moves


def test_what_collocation_saves_in_a_recording_is_predicted_from_its_costs():
    flows = (TupleFlow(source="a1", target="b1", rate=10),)
    options = SnapshotOptions(serialise_cost=0.5, deserialise_cost=0.5)
    talking = snapshot({"a1": "a", "b1": "b"}, [20, 20], flows=flows, options=options, nodes=("a", "b"))
    run = simulate(recorded([talking, talking]), lambda problem, stop, seed: np.zeros(2, np.int64), seed=0)
    assert isinstance(run, Run)
    assert [(each.collocation, each.load_index) for each in run.rounds] == [(1.0, 75.0), (1.0, 75.0)]


# --- the clusters of section 5.1 --------------------------------------------------------------------------------------


def test_a_fifth_of_the_nodes_is_changed_by_the_percentage():
    even, uneven = (uneven_cluster(50, 1_000, change_percent, seed=2) for change_percent in (0, 50))
    ratio = uneven.node_loads(uneven.home) / even.node_loads(even.home)
    assert sorted(np.round(ratio, 6).tolist()) == pytest.approx([0.5] * 5 + [1.0] * 40 + [1.5] * 5)
    assert even.load.mean() == pytest.approx(2.5, rel=0.02)
    assert (np.bincount(even.home) == 20).all()
