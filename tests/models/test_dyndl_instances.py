"""The scheduling document: what is read comes back, what breaks the contract is refused by path, found and expected."""

import math

import numpy as np
import pytest

from benchmarks.dyndl.generate import Experiment, generate
from trimtab_models.dyndl.problem import RemoteTaskCosts
from trimtab_models.instances.scheduling import AffineCost, TableCost


@pytest.mark.parametrize(
    ("cost", "expected"),
    [
        (AffineCost(a=1, b=0.5), [1.5, 2.0, 2.5, 3.0]),
        (AffineCost(a=1, b=0.5, cap=2), [1.5, 2.0, 2.0, 2.0]),
        (AffineCost(a=1, b=0), [1, 1, 1, 1]),
        (TableCost(values=(1.5, 4.0)), [1.5, 4.0, 4.0, 4.0]),
        (TableCost(values=(2.0, math.inf)), [2.0, math.inf, math.inf, math.inf]),
    ],
)
def test_costs_are_the_same_one_by_one_and_all_at_once(cost, expected):
    assert [cost.at(n) for n in (1, 2, 3, 4)] == expected
    others = [AffineCost(a=3, b=3), cost, TableCost(values=(7.0, 8.0, 9.0))]
    costs = RemoteTaskCosts(others)
    assert [costs.at(np.full(3, n))[1] for n in (1, 2, 3, 4)] == expected
    assert costs.limit[1] == (1 if math.inf in expected else math.inf)


def test_settlement_9_the_generator_of_the_papers_experiments():
    instance = generate(Experiment(tasks=200, servers=10, core_num=4, alpha=5, beta=3, theta=2.0), seed=1)
    for number, server in enumerate(instance.servers):
        assert len(server.cores) == 4
        assert all(load == int(load) and 0 <= load < 5 * number + 3 for load in server.cores)
        assert [server.g.at(n) for n in (1, 4, 5)] == [3.0, 9.0, 9.0]
    assert {len(set(task.replicas)) for task in instance.tasks} == {3}
    assert {len(task.replicas) for task in generate(Experiment(servers=2), seed=1).tasks} == {2}
    assert instance == generate(Experiment(tasks=200, servers=10, core_num=4, alpha=5, beta=3, theta=2.0), seed=1)
