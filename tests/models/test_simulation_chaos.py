"""Across all families: what holds for every policy on random clusters, over many rounds, while nodes come and go.

Seeds are printed, so that a failure can be played again.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from trimtab_models.albic.problem import CollocationProblem
from trimtab_models.balance.construct import place_unplaced
from trimtab_models.balance.evaluate import evaluate
from trimtab_models.balance.improve import Effort
from trimtab_models.balance.problem import UNPLACED, BalanceProblem
from trimtab_models.balance.solve import BalanceParams
from trimtab_models.instances.snapshot import (
    BalanceInstance,
    MigrationBudget,
    Node,
    SnapshotKeyGroup,
    SnapshotOptions,
    TupleFlow,
    decode_snapshot,
    encode_snapshot,
    parse_snapshot,
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
from trimtab_models.simulation.workloads import Size, generated, recorded
from trimtab_models.solving import Never

FAST = BalanceParams(tolerance=0.2, effort=Effort(steps=40, patience=20), polish=Effort(steps=0))


def played(policy, size, rounds, seed, *, budget, workload="drift", **options):
    print(f"policy {policy}, seed {seed}")
    moments = generated(workload, size, rounds=rounds, seed=seed, budget=budget)
    run = simulate(moments, policy_named(policy, FAST), seed=seed, **options)
    assert isinstance(run, Run)
    return run


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
    run = played(policy, size, 110, seed, budget=budget, workload="uneven", changes=churn(90, 0.15, seed))
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
    run = played(
        policy, size, rounds, seed, budget=MigrationBudget(max_migrations=8), workload=workload,
        changes=churn(rounds, 0.1, seed), perception=Perception(noise=0.05, smoothing=0.5),
    )  # fmt: skip
    summary = summarise(run.rounds)
    print(summary)
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


def instance_of(moment):
    """`moment` as a live cluster would have been recorded."""
    problem = moment.problem
    balance = problem.balance
    flows = zip(problem.source.tolist(), problem.target.tolist(), problem.rate.tolist(), strict=True)
    return BalanceInstance(
        nodes=tuple(Node(id=id_, capacity=1.0) for id_ in moment.nodes),
        key_groups=tuple(
            SnapshotKeyGroup(
                id=id_, operator=f"o{operator}", node=moment.nodes[home], load=load, state_bytes=state_bytes
            )
            for id_, operator, home, load, state_bytes in zip(
                moment.key_groups, problem.operator.tolist(), balance.home.tolist(), balance.load.tolist(),
                balance.cost_bytes.tolist(), strict=True,
            )
        ),
        flows=tuple(
            TupleFlow(source=moment.key_groups[source], target=moment.key_groups[target], rate=rate)
            for source, target, rate in flows
        ),
        budget=MigrationBudget(max_migrations=balance.max_migrations),
        options=SnapshotOptions(serialise_cost=problem.serialise_cost, deserialise_cost=problem.deserialise_cost),
    )  # fmt: skip


def test_a_recorded_workload_is_replayed_as_it_was_generated():
    size, changes = Size(nodes=5, key_groups=40), (NodeChange(round=3, kind=ChangeKind.LOSE, count=1),)
    moments = list(generated("real-job-2", size, rounds=6, seed=4, budget=MigrationBudget(max_migrations=5)))
    snapshots = [decode_snapshot(encode_snapshot(instance_of(moment))) for moment in moments]
    direct, replayed = (
        simulate(each, policy_named("flux"), seed=4, changes=changes) for each in (moments, recorded(snapshots))
    )
    assert isinstance(direct, Run)
    assert isinstance(replayed, Run)
    for name in ("nodes", "placed", "load_distance_before", "load_distance", "collocation", "load_index", "migrations"):
        assert [getattr(each, name) for each in replayed.rounds] == pytest.approx(
            [getattr(each, name) for each in direct.rounds]
        )


@pytest.fixture
def version_1():
    """Two operators on three nodes, a fourth one in the last of three snapshots; two moves a round."""
    files = sorted((Path(__file__).parent / "recorded_v1").glob("*.json"))
    return [parse_snapshot(file.read_bytes()) for file in files]


def test_what_version_1_has_recorded_is_read_as_it_was_then(version_1):
    run = simulate(recorded(version_1), policy_named("stay"), seed=0)
    assert isinstance(run, Run)
    assert [each.nodes for each in run.rounds] == [3, 3, 4]
    assert [each.load_distance for each in run.rounds] == pytest.approx([3.734, 3.335, 36.5085])
    assert [each.collocation for each in run.rounds] == [0, 0, 0]


def test_what_version_1_has_recorded_is_planned_no_worse_than_then(version_1):
    run = simulate(recorded(version_1), policy_named("albic"), seed=0)
    assert isinstance(run, Run)
    assert all(each.migrations <= 2 and each.load_distance <= 10 for each in run.rounds)
    assert run.rounds[-1].collocation >= 0.5
