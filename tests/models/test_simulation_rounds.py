"""Simulated rounds: what is carried along, what the seed decides, and what holds for every policy, come what may."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.narrow import of_type
from trimtab_models.albic.problem import CollocationProblem
from trimtab_models.albic.scores import scored_pairs
from trimtab_models.balance.construct import place_unplaced
from trimtab_models.balance.evaluate import evaluate
from trimtab_models.balance.improve import Effort
from trimtab_models.balance.problem import UNPLACED, BalanceProblem
from trimtab_models.balance.solve import BalanceParams
from trimtab_models.instances.reading import parsed_instance
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
    QUICK,
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
from trimtab_models.solving import Infeasible, Never

SMALL = Size(nodes=4, key_groups=36)
FOUR_MOVES = MigrationBudget(max_migrations=4)
JOIN, MARK, LOSE = ChangeKind.JOIN, ChangeKind.MARK, ChangeKind.LOSE


def change(kind, number=2, count=1):
    return NodeChange(round=number, kind=kind, count=count)


def play(policy="flux", workload="drift", rounds=4, size=SMALL, seed=1, budget=FOUR_MOVES, params=QUICK, **options):
    moments = generated(workload, size, rounds=rounds, seed=seed, budget=budget)
    return of_type(Run, simulate(moments, policy_named(policy, params), seed=seed, **options))


def replayed(snapshots, policy, **options):
    return of_type(Run, simulate(recorded(snapshots, **options), policy_named(policy), seed=0)).rounds


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


def test_staying_moves_nothing_and_saves_nothing():
    rounds = play("stay", "real-job-2").rounds
    assert {(each.migrations, each.cost_bytes) for each in rounds} == {(0, 0.0)}
    assert [each.load_index for each in rounds] == pytest.approx([100.0] * 4)
    assert all(each.load_distance == each.load_distance_before for each in rounds)


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
    exact = of_type(Run, simulate(moments, watching, seed=3))
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
    balanced = [
        (each.load_distance_before, each.load_distance, each.migrations) for each in replayed(snapshots, "milp")
    ]
    assert balanced == [(20.0, 0.0, 2), (20.0, 20.0, 0)]
    assert [each.load_distance for each in replayed(snapshots, "stay")] == [20.0, 40.0]


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
    rounds = replayed(snapshots, "stay")
    assert [(each.nodes, each.placed) for each in rounds] == [(3, 0), (3, 0), (2, 1)]
    assert [each.load_distance for each in rounds] == [0.0, 10.0, 0.0]


def test_a_recorded_budget_holds_unless_another_is_given():
    hot = snapshot({f"k{at}": "a" for at in range(9)}, [5] * 9, budget=MigrationBudget(max_migrations=1))
    for budget, moves in ((None, 1), (MigrationBudget(max_migrations=3), 3)):
        assert replayed([hot], "milp", budget=budget)[0].migrations == moves


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


FAST = BalanceParams(tolerance=0.2, effort=Effort(steps=40, patience=20), polish=Effort(steps=0))


def random_cluster(seed):
    """Unequal nodes, limits, pins, marked nodes, lost key groups, flows, a budget: some or all of them."""
    random = np.random.default_rng(seed)
    nodes, key_groups, flows = int(random.integers(3, 8)), int(random.integers(8, 40)), int(random.integers(0, 60))
    home = random.integers(0, nodes, key_groups)
    home[random.random(key_groups) < 0.1 * random.integers(2)] = UNPLACED
    removing = random.random(nodes) < 0.3 * random.integers(2)
    removing[0] = False
    usage = random.uniform(1, 5, (1, key_groups))
    limit = np.full((1, nodes), np.inf if random.random() < 0.5 else usage.sum() / nodes * 1.2)
    balance = BalanceProblem(
        load=random.lognormal(1.5, 0.8, key_groups),
        cost_bytes=random.integers(1, 1000, key_groups).astype(np.float64),
        home=home,
        pinned=random.random(key_groups) < 0.1,
        capacity=random.choice([0.5, 1.0, 2.0], nodes),
        removing=removing,
        usage=usage,
        limit=limit,
        max_migrations=int(random.integers(0, 8)) if random.random() < 0.7 else None,
        max_cost_bytes=float(random.integers(0, 4000)) if random.random() < 0.4 else None,
    )
    return CollocationProblem(
        balance=balance,
        operator=random.integers(0, 3, key_groups),
        source=random.integers(0, key_groups, flows),
        target=random.integers(0, key_groups, flows),
        rate=random.lognormal(2, 1, flows),
        serialise_cost=0.002,
        deserialise_cost=0.002,
    )


@pytest.mark.parametrize("policy", POLICIES)
def test_every_plan_on_a_random_cluster_is_allowed_and_repeatable(policy):
    """No budget, pin or limit is broken that staying would not break, and nothing moves onto a marked node."""
    for seed in range(4 if policy == "albic" else 8):
        problem = random_cluster(seed)
        plan = policy_named(policy, FAST)(problem, Never(), seed)
        balance = problem.unlimited().balance if policy == "cola" else problem.balance
        assert evaluate(balance.tolerating(place_unplaced(balance)), plan).allowed, f"seed {seed}"
        assert (policy_named(policy, FAST)(problem, Never(), seed) == plan).all(), f"seed {seed}"


@pytest.mark.parametrize(("policy", "seed"), [("milp", 1), ("albic", 3)])
def test_a_cluster_converges_when_nodes_stop_coming_and_going(policy, seed):
    size, budget = Size(nodes=6, key_groups=60, change_percent=50), MigrationBudget(max_migrations=6)
    run = play(policy, "uneven", 110, size, seed, budget, FAST, changes=churn(90, 0.15, seed))
    assert max(each.migrations for each in run.rounds) <= 6
    assert len({each.nodes for each in run.rounds}) > 3
    last = run.rounds[-1]
    assert last.marked == 0
    assert last.load_distance < 2.5, "key groups weigh 5 on average"
    assert [each.migrations for each in run.rounds[-5:]] == [0] * 5
    assert {each.load_distance for each in run.rounds[-5:]} == {last.load_distance}


@pytest.mark.parametrize(
    ("policy", "workload", "rounds", "p50", "p95", "p99"),
    [("milp", "drift", 60, 2.0, 4.5, 8.0), ("albic", "real-job-2", 60, 4.5, 7.0, 9.0)],
)
def test_rounds_of_chaos_stay_inside_their_envelope(policy, workload, rounds, p50, p95, p99):
    """Drift, 5 % noise, and in a round out of ten a node joins, in another one is marked or lost."""
    size, seed = Size(nodes=6, key_groups=48), 11
    changes, perception = churn(rounds, 0.1, seed), Perception(noise=0.05, smoothing=0.5)
    budget = MigrationBudget(max_migrations=8)
    run = play(policy, workload, rounds, size, seed, budget, FAST, changes=changes, perception=perception)
    summary = summarise(run.rounds)
    assert summary.most_migrations <= 8
    assert summary.after.p50 <= p50
    assert summary.after.p95 <= p95
    assert summary.after.p99 <= p99


def even_cluster(nodes, per_node, load=5.0):
    """Every node the same, and one more that is empty."""
    count = nodes * per_node
    return BalanceProblem.plain(load=np.full(count, load), home=np.arange(count) % nodes, capacity=np.ones(nodes + 1))


def alone(balance):
    """`balance` without flows."""
    nothing = np.zeros(0, np.int64)
    return CollocationProblem(
        balance=balance,
        operator=np.zeros(len(balance.load), np.int64),
        source=nothing,
        target=nothing,
        rate=np.zeros(0),
    )


@pytest.mark.parametrize("policy", ["milp", "albic", "albic-paper", "flux"])
def test_a_node_that_joins_an_even_cluster_takes_its_share_and_nothing_else_moves(policy):
    problem = alone(even_cluster(4, 10))
    plan = policy_named(policy)(problem, Never(), 0)
    moved = plan != problem.balance.home
    assert (moved.sum(), set(plan[moved].tolist())) == (8, {4})  # type: ignore[index]


@pytest.mark.parametrize("seed", range(6))
def test_no_move_between_old_nodes_is_needless_when_a_node_joins(seed):
    """Send any one of them back, and the load distance or its other side is worse."""
    random = np.random.default_rng(seed)
    balance = even_cluster(6, 10)
    balance = replace(balance, load=random.uniform(3, 7, len(balance.load)), max_migrations=12)
    plan = policy_named("milp")(alone(balance), Never(), seed)
    reached = evaluate(balance, plan)
    between_old = np.flatnonzero((plan != balance.home) & (plan != 6))
    for key_group in between_old.tolist():
        undone = plan.copy()
        undone[key_group] = balance.home[key_group]
        score = evaluate(balance, undone)
        assert score.over > reached.over + 1e-9 or score.under > reached.under + 1e-9
    assert (plan == 6).sum() > len(between_old)


def test_what_version_1_has_recorded_is_read_as_it_was_then_and_planned_no_worse():
    """Two operators on three nodes, a fourth one in the last of three snapshots; two moves a round."""
    files = sorted((Path(__file__).parent / "recorded_v1").glob("*.json"))
    snapshots = [parsed_instance(file.read_bytes(), BalanceInstance) for file in files]
    stayed, planned = (replayed(snapshots, policy) for policy in ("stay", "albic"))
    assert [each.nodes for each in stayed] == [3, 3, 4]
    assert [each.load_distance for each in stayed] == pytest.approx([3.734, 3.335, 36.5085])
    assert [each.collocation for each in stayed] == [0, 0, 0]
    assert all(each.migrations <= 2 and each.load_distance <= 10 for each in planned)
    assert planned[-1].collocation >= 0.5
