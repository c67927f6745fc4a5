"""The potential plan and the scaling decision (Algorithm 1 of Madsen et al. 2017, steps b and c)."""

import numpy as np
import pytest

from trimtab_models.albic.scaling import (
    PotentialPlacement,
    ScalingDirection,
    ScalingPolicy,
    ScalingReason,
    decide_scaling,
    potential,
)
from trimtab_models.albic.solve import AlbicParams
from trimtab_models.balance.improve import Effort
from trimtab_models.balance.solve import BalanceParams
from trimtab_models.solving import Infeasible, Never

SHORT = AlbicParams(balance=BalanceParams(effort=Effort(steps=100, patience=50), polish=Effort(steps=20)))


def talking(cluster, load, pairs=6, nodes=3, **changes):
    """`pairs` pairs, each apart; half of the load is talking."""
    homes = [k % nodes for k in range(pairs)] + [(k + 1) % nodes for k in range(pairs)]
    flows = [(k, pairs + k, 100.0) for k in range(pairs)]
    costs = {"serialise_cost": load / 200, "deserialise_cost": load / 200}
    return cluster(homes, load, flows, operator=[0] * pairs + [1] * pairs, nodes=nodes, **costs | changes)


def decide(problem, **policy):
    return decide_scaling(problem, ScalingPolicy(**policy), stop=Never(), seed=0, params=SHORT)


def test_the_potential_plan_knows_no_budget_and_looks_further_than_one_round(cluster):
    plan = potential(talking(cluster, 4.0, max_migrations=0), stop=Never(), seed=0, params=SHORT)
    assert isinstance(plan, PotentialPlacement)
    assert (plan.collocation, plan.load) == (1, 24)
    assert plan.load_distance == pytest.approx(0)


def test_collocation_makes_scaling_out_unnecessary(cluster):
    # 12 key groups of 22.5 are 90 % of 3 nodes, above 80; together they are 45 %
    decision = decide(talking(cluster, 22.5, max_partition_load=30.0))
    assert (decision.direction, decision.reason, decision.utilisation) == (
        ScalingDirection.STAY,
        ScalingReason.RIGHT,
        45,
    )


def test_without_savings_the_same_load_scales_out_to_the_target(cluster):
    decision = decide(cluster([k % 3 for k in range(12)], 22.5, []))
    assert (decision.direction, decision.reason) == (ScalingDirection.OUT, ScalingReason.BUSY)
    assert (decision.capacity, decision.add, decision.nodes_to_add) == (4.5, 1.5, 2)


def test_a_forecast_of_more_counts_and_of_less_does_not(cluster):
    problem = cluster([k % 3 for k in range(12)], 15, [])  # 60 %
    assert decide(problem, forecast=1.5).direction is ScalingDirection.OUT
    assert decide(problem, forecast=0.5).direction is ScalingDirection.STAY


def test_idle_nodes_are_removed_the_cheapest_to_empty_first(cluster):
    homes, cost = [0, 0, 1, 1, 2, 2, 3, 3], [9.0, 9, 1, 1, 9, 9, 2, 2]
    decision = decide(cluster(homes, 10, [], cost_bytes=cost))  # 20 % of 4 nodes, 40 % of 2
    assert (decision.direction, decision.reason, decision.remove) == (ScalingDirection.IN, ScalingReason.IDLE, (1, 3))


def test_a_smaller_cluster_that_cannot_be_balanced_is_not_wanted(cluster):
    # 50 and 3 times 5: on 2 nodes one has 50 and the other 15
    decision = decide(cluster([0, 1, 2, 2], [50.0, 5, 5, 5], [], max_load_distance=10.0))
    assert (decision.direction, decision.reason, decision.remove) == (
        ScalingDirection.STAY,
        ScalingReason.UNBALANCED,
        (),
    )


def test_fewer_nodes_are_removed_where_not_all_that_are_spare_can_be(cluster):
    # 4 nodes, 20 on each in one piece: 3 nodes would be uneven (d 13), 2 are fine with maxLD 15 only
    homes = [0, 1, 2, 3]
    assert decide(cluster(homes, 20, [], max_load_distance=15.0)).remove == (0, 1)
    assert decide(cluster(homes, 20, [], max_load_distance=15.0), target=35.0).remove == (0,)


def test_a_node_with_something_pinned_stays(cluster):
    decision = decide(cluster([0, 1, 2], 10, [], pinned=[True, False, True]))
    assert decision.remove == (1,)


def test_a_cluster_is_never_removed_altogether(cluster):
    assert len(decide(cluster([0, 1, 2], 0.0, [])).remove) == 2


def test_all_marked_is_infeasible(cluster):
    problem = cluster([0], 1, [], removing=np.array([True]))
    assert isinstance(decide(problem), Infeasible)


@pytest.mark.parametrize("policy", [{"target": 0}, {"target": 90}, {"forecast": 0}])
def test_a_policy_that_makes_no_sense_is_refused(policy):
    with pytest.raises(ValueError, match="expected"):
        ScalingPolicy(**policy)
