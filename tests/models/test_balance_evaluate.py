"""Every rule of a plan by itself: what a search proposes is believed when none is broken."""

import numpy as np
import pytest

from trimtab_models.balance.evaluate import evaluate
from trimtab_models.balance.problem import problem_of
from trimtab_models.instances.snapshot import decode_snapshot

N0, N1, MARKED = range(3)


def problem(**changes):
    """k0 and k1 on n0, k2 pinned to it, k3 on a marked node, k4 lost; n1 has room for one more of them."""
    homes = ["n0", "n0", "n0", "n2", None]
    document = {
        "version": 1,
        "nodes": [
            {"id": "n0", "capacity": 1},
            {"id": "n1", "capacity": 1, "limits": {"memory_bytes": 10}},
            {"id": "n2", "capacity": 1, "removing": True},
        ],
        "key_groups": [
            {"id": f"k{at}", "operator": "o", "node": home, "load": 10, "state_bytes": 100, "pinned": at == 2,
             "usage": {"memory_bytes": 10}}
            for at, home in enumerate(homes)
        ],
    }  # fmt: skip
    return problem_of(decode_snapshot(document | changes))


@pytest.mark.parametrize(
    ("allocation", "budget", "allowed"),
    [
        ([N0, N0, N0, MARKED, N0], {}, True),
        ([N0, N1, N0, N0, N0], {}, True),
        ([N0, N1, N0, N0, N0], {"max_migrations": 2, "max_cost_bytes": 200}, True),
        ([N0, N1, N0, N0, N0], {"max_migrations": 1}, False),
        ([N0, N1, N0, N0, N0], {"max_cost_bytes": 199}, False),
        ([N0, N0, N0, MARKED, -1], {}, False),
        ([N0, N0, N1, MARKED, N0], {}, False),
        ([N0, MARKED, N0, MARKED, N0], {}, False),
        ([N0, N0, N0, MARKED, MARKED], {}, False),
        ([N1, N1, N0, MARKED, N0], {}, False),
    ],
    ids=[
        *("the lost one is placed", "moves", "just within the budgets", "too many", "too much", "left nowhere"),
        *("pinned", "onto a marked node", "lost onto a marked node", "above a limit"),
    ],
)
def test_a_plan_keeps_every_rule(allocation, budget, allowed):
    assert evaluate(problem(budget=budget), np.array(allocation)).allowed is allowed


def test_placing_what_was_lost_is_no_migration():
    score = evaluate(problem(), np.array([N0, N1, N0, MARKED, N0]))
    assert (score.migrations, score.cost_bytes) == (1, 100.0)
