"""The potential plan (Algorithm 1 of Madsen et al. 2017, step b)."""

from dataclasses import replace

import numpy as np
import pytest

from trimtab_models.albic.potential import potential
from trimtab_models.balance.evaluate import evaluate
from trimtab_models.balance.hosts import HostLimits
from trimtab_models.solving import Deadline, Infeasible, Never


def talking(cluster, load, pairs=6, nodes=3, **changes):
    """`pairs` pairs, each apart; half of the load is talking."""
    homes = [k % nodes for k in range(pairs)] + [(k + 1) % nodes for k in range(pairs)]
    flows = [(k, pairs + k, 100.0) for k in range(pairs)]
    costs = {"serialise_cost": load / 200, "deserialise_cost": load / 200}
    return cluster(homes, load, flows, operator=[0] * pairs + [1] * pairs, nodes=nodes, **costs | changes)


def test_the_potential_plan_knows_no_budget(cluster):
    problem = talking(cluster, 4.0, max_migrations=0)
    plan = potential(problem, None, stop=Never(), seed=0)
    assert (problem.collocation(plan), problem.loads(plan).sum()) == (1, 24)
    assert evaluate(problem.predicted(plan), plan).load_distance == pytest.approx(0)


def test_it_looks_further_than_one_round(cluster):
    """A stop after the first round leaves pairs apart that further ones bring together."""
    random = np.random.default_rng(3)
    load = random.lognormal(1.0, 0.5, 48)
    homes = [k % 3 for k in range(24)] + random.permutation([k % 3 for k in range(24)]).tolist()
    flows = [(k, 24 + k, 100.0) for k in range(24)]
    operator = [0] * 24 + [1] * 24
    problem = cluster(homes, load, flows, operator=operator, serialise_cost=0.01, deserialise_cost=0.01)
    assert problem.collocation(potential(problem, None, stop=Never(), seed=0)) == 1
    looks = iter(range(10**9))
    short = potential(problem, None, stop=Deadline(lambda: float(next(looks)), 20.0), seed=0)
    assert problem.collocation(short) < 1


def test_a_node_that_goes_is_empty_and_pairs_stay_together(cluster):
    problem = talking(cluster, 4.0)
    together = problem.moved_to(potential(problem, None, stop=Never(), seed=0))
    removing = np.array([True, False, False])
    smaller = replace(together, balance=replace(together.balance, removing=removing))
    plan = potential(smaller, None, stop=Never(), seed=0)
    assert not np.any(plan == 0)
    assert smaller.collocation(plan) == 1


def test_hosts_keep_their_limits_through_all_rounds(cluster):
    """The node that goes has six states of 1, and the other hosts have room for four of them."""
    homes = [0] * 6 + [1] * 3 + [2] * 3
    problem = cluster(homes, 4.0, [], removing=np.array([True, False, False]), max_load_distance=100.0)
    limits = HostLimits(
        host=np.arange(3),
        usage=np.array([problem.balance.load, np.ones(12)]),
        room=np.array([[np.inf] * 3, [6.0, 5.0, 5.0]]),
        home=problem.balance.home,
    )
    plan = potential(problem, limits, stop=Never(), seed=0)
    assert np.bincount(plan).tolist() == [2, 5, 5]


def test_all_marked_is_infeasible(cluster):
    problem = cluster([0], 1, [], removing=np.array([True]))
    assert isinstance(potential(problem, None, stop=Never(), seed=0), Infeasible)
