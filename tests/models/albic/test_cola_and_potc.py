"""The published baselines: COLA (from scratch, whatever the budget) and the power of two choices."""

import numpy as np
import pytest

from benchmarks.albic.table import two_choices
from trimtab_models.albic.cola import solve_cola
from trimtab_models.solving import Infeasible, Never, PlanStatus


def cola(problem, seed=0):
    result = solve_cola(problem, stop=Never(), seed=seed)
    assert not isinstance(result, Infeasible)
    return result


def talking(cluster, pairs=20, nodes=4, **changes):
    homes = [k % nodes for k in range(pairs)] + [(k + 1) % nodes for k in range(pairs)]
    flows = [(k, pairs + k, 10.0 + k) for k in range(pairs)]
    return cluster(homes, 2.0, flows, operator=[0] * pairs + [1] * pairs, nodes=nodes, **changes)


def test_cola_brings_everything_together_at_once_and_moves_most(cluster):
    problem = talking(cluster, max_migrations=1)
    result = cola(problem)
    assert problem.collocation(result.allocation) == 1
    assert result.score.load_distance <= problem.balance.max_load_distance
    assert result.score.migrations > 20  # of 40, with a budget of 1


def test_cola_parts_pairs_where_balance_asks_for_it(cluster):
    problem = talking(cluster, pairs=2, max_load_distance=0.0)
    assert cola(problem).score.load_distance == 0


def test_cola_leaves_what_is_pinned_and_empties_marked_nodes(cluster):
    problem = talking(cluster, pinned=[True] + [False] * 39, removing=[False, True, False, False])
    result = cola(problem)
    assert result.allocation[0] == 0
    assert not (result.allocation == 1).any()


def test_cola_keeps_limits_or_makes_no_plan(cluster):
    roomy = talking(cluster, usage=[[1.0] * 40], limit=[[10.0, 10, 10, 10]])
    assert np.bincount(cola(roomy).allocation).tolist() == [10, 10, 10, 10]
    # the third key group takes a whole node, and the two that are heavier come first, one to each
    tight = cluster([0, 0, 1], [10.0, 9, 8], [], usage=[[1.0, 1, 2]], limit=[[2.0, 2]], max_load_distance=0.0)
    assert cola(tight).status is PlanStatus.UNCHANGED


def test_cola_has_nothing_to_do_without_key_groups(cluster):
    assert cola(cluster([], [], [], nodes=2)).status is PlanStatus.UNCHANGED


def test_two_choices_balance_many_key_groups_well(cluster):
    balance = cluster([0] * 200, 1, [], nodes=4).balance
    figure = two_choices(balance, merge_share=0.0, seed=0)
    assert figure.load_distance < 0.5
    assert figure.node_loads.sum() == pytest.approx(200)


def test_merging_is_load_that_two_choices_do_not_balance(cluster):
    balance = cluster([0] * 200, 1, [], nodes=4, cost_bytes=[100.0] + [1.0] * 199).balance
    figure = two_choices(balance, merge_share=0.2, seed=0)
    assert figure.merging == pytest.approx(40)
    assert figure.node_loads.sum() == pytest.approx(240)
    assert figure.load_distance > 5  # the heavy state is merged on one node
