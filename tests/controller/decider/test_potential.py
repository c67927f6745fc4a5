"""The potential plan: what collocation saves with free moves, and whether its parts can be balanced."""

from itertools import product

import numpy as np
import pytest

from tests.controller.decider.decider_situations import a_worker, owned, plannable
from trimtab_controller.decider.policies.smaller import PotentialPlan, can_be_spread, potential_of
from trimtab_controller.decider.window.view import EndCosts, PlannableView
from trimtab_protocol.messages.names import AppId, KeyGroup, OperatorId

APP, HEAD, TAIL = AppId("app"), OperatorId("head"), OperatorId("tail")
COST = EndCosts(sending=1e-3, receiving=2e-3)


def kg(operator: OperatorId, partition: int) -> KeyGroup:
    return KeyGroup(APP, operator, partition)


def view(owners: dict[KeyGroup, int], flows: dict[tuple[KeyGroup, KeyGroup], float], load: float) -> PlannableView:
    """Each key group asks for `load` percent of a core, what remote tuples cost included."""
    workers = [a_worker(f"w{each}") for each in sorted(set(owners.values()))]
    rows = [owned(each, f"w{owner}", load) for each, owner in owners.items()]
    return plannable(workers, rows, flows=flows, remote_costs={HEAD: COST, TAIL: COST})


def apart(pairs: int, load: float = 30.0, rate: float = 50.0) -> PlannableView:
    """Each key group of `head` sends to the one of `tail` with its number, which is on another worker."""
    owners = {kg(HEAD, each): each % 2 for each in range(pairs)} | {
        kg(TAIL, each): (each + 1) % 2 for each in range(pairs)
    }
    return view(owners, {(kg(HEAD, each), kg(TAIL, each)): rate for each in range(pairs)}, load)


def test_pairs_that_fit_come_together_and_save_both_ends() -> None:
    found = potential_of(apart(2), [0.7, 0.7])
    assert isinstance(found, PotentialPlan)
    assert found.saving == pytest.approx(2 * 50.0 * 3e-3)
    assert sorted(found.loads.tolist()) == pytest.approx([0.45, 0.45]), "two parts of 0.6 cores less 0.15"


def test_a_part_is_not_larger_than_a_worker_may_carry() -> None:
    assert potential_of(apart(2), [0.7, 0.4]) is None
    assert potential_of(apart(2), []) is None


def test_parts_that_cannot_be_spread_do_not_count() -> None:
    found = potential_of(apart(3), [0.7, 0.7])
    assert found is None, "three parts of 0.45 cores on two workers of 0.7"


def test_what_is_together_stays_and_saves_nothing_more() -> None:
    together = view({kg(HEAD, 0): 0, kg(TAIL, 0): 0, kg(HEAD, 1): 1}, {(kg(HEAD, 0), kg(TAIL, 0)): 50.0}, 10.0)
    assert potential_of(together, [0.7, 0.7]) is None


def test_a_plan_of_random_jobs_keeps_its_promise() -> None:
    """Twin: the saving is what the flows within parts cost now, recomputed from the loads."""
    chance = np.random.default_rng(7)
    for _ in range(30):
        heads, tails = int(chance.integers(2, 6)), int(chance.integers(2, 6))
        names = [kg(HEAD, each) for each in range(heads)] + [kg(TAIL, each) for each in range(tails)]
        owners = {name: int(chance.integers(0, 3)) for name in names}
        owners |= {names[each]: each for each in range(3)}
        flows = {
            (kg(HEAD, one), kg(TAIL, other)): float(chance.choice([1.0, 40.0]))
            for one, other in product(range(heads), range(tails))
        }
        its = view(owners, flows, 20.0)
        room = [0.8] * 3
        found = potential_of(its, room)
        if found is None:
            continue
        assert can_be_spread(found.loads, room)
        assert found.loads.max() <= 0.8 + 1e-9
        whole = 0.2 * len(names)
        assert float(found.loads.sum()) == pytest.approx(whole - found.saving)
