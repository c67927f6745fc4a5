"""A large problem dealt into groups and joined again: nothing lost, nothing above the budget, means alike."""

import numpy as np
import pytest

from node_groups import deal, join
from trimtab_models.balance.evaluate import evaluate
from trimtab_models.balance.improve import Effort
from trimtab_models.balance.problem import BalanceProblem
from trimtab_models.balance.result import BalanceResult
from trimtab_models.balance.solve import BalanceParams, solve
from trimtab_models.solving import Never

SHORT = BalanceParams(effort=Effort(steps=200), polish=Effort(steps=0))


def cluster(seed: int = 0, nodes: int = 30, per_node: int = 10) -> BalanceProblem:
    """A third of the nodes twice as loaded, some marked, some key groups unplaced, both budgets and a resource."""
    random = np.random.default_rng(seed)
    count = nodes * per_node
    home = np.repeat(np.arange(nodes), per_node)
    load = random.uniform(1, 3, count) * np.where(home % 3, 1, 2)
    home[random.random(count) < 0.03] = -1
    return BalanceProblem(
        load=load,
        cost_bytes=random.integers(1, 50, count).astype(float),
        home=home,
        pinned=random.random(count) < 0.05,
        capacity=random.choice([1.0, 2.0], nodes),
        removing=np.arange(nodes) % 10 == 7,
        usage=np.ones((1, count)),
        limit=np.full((1, nodes), 14.0),
        max_migrations=47,
        max_cost_bytes=900.0,
    )


def test_every_node_and_key_group_is_in_one_group():
    problem = cluster()
    groups = deal(problem, 4)
    assert sorted(np.concatenate([group.nodes for group in groups])) == list(range(30))
    assert sorted(np.concatenate([group.key_groups for group in groups])) == list(range(300))
    for group in groups:
        local = group.problem.home
        placed = local >= 0
        assert (group.nodes[local[placed]] == problem.home[group.key_groups[placed]]).all()
        assert (problem.home[group.key_groups[~placed]] == -1).all()


def test_budgets_are_shared_out_whole_and_means_are_alike():
    problem = cluster()
    parts = [group.problem for group in deal(problem, 4)]
    assert sum(part.max_migrations for part in parts) == 47
    assert sum(part.max_cost_bytes for part in parts) == pytest.approx(900.0)
    assert max(abs(part.mean - problem.mean) for part in parts) < 0.15 * problem.mean


def test_the_plans_of_the_groups_are_a_plan_of_the_whole():
    problem = cluster()
    groups = deal(problem, 4)
    plans = [solve(group.problem, stop=Never(), seed=0, params=SHORT) for group in groups]
    joined = join(problem, groups, [plan.allocation for plan in plans if isinstance(plan, BalanceResult)])
    score = evaluate(problem, joined)
    assert score.allowed
    assert score.migrations == sum(plan.score.migrations for plan in plans)
    assert score.load_distance < 0.8 * evaluate(problem, problem.home).load_distance


def test_there_are_no_more_groups_than_nodes_to_keep():
    problem = cluster(nodes=3)
    assert len(deal(problem, 10)) == 3
    assert len(deal(cluster(), 0)) == 1
