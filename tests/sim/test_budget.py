"""The disruption budget of an app in simulated clusters, under the faults of all simulations."""

from collections.abc import Callable
from unittest.mock import patch

import pytest

from tests.sim.simulated.budgeted import BUDGETED, BUDGETED_EVERY, WINDOWED
from tests.sim.simulated.ledger import Violation
from tests.sim.simulated.simulation import simulating
from trimtab_controller.decider.values.plan_settings import PlanTimes
from trimtab_controller.execution import machine

SEEDS = [BUDGETED + BUDGETED_EVERY * number for number in range(5, 8)]


@pytest.mark.timeout(300)
def test_no_hand_over_is_released_beyond_the_budget_and_a_defect_in_that_is_found() -> None:
    with simulating() as run:
        outcomes = [run(seed) for seed in SEEDS]
        assert sum(outcome.released for outcome in outcomes) > len(SEEDS), "too quiet: next to nothing was judged"
        assert max(outcome.used_share for outcome in outcomes) > 0.5, "too generous: nothing is ever near the budget"
        with patch.object(machine, "with_pauses", lambda now, before, after: after.disruption):
            found = any("budget:" in (violation_of(run, seed) or "") for seed in SEEDS)
        assert found, "a controller that counts nothing is not found"


def violation_of(run: Callable[[int], object], seed: int) -> str | None:
    """What a seed breaks."""
    try:
        run(seed)
    except Violation as violation:
        return str(violation)
    return None


@pytest.mark.timeout(300)
def test_no_plan_for_balance_begins_outside_its_windows_and_a_defect_in_that_is_found() -> None:
    seeds = [WINDOWED + BUDGETED_EVERY * number for number in range(3)]
    with simulating() as run:
        assert sum(run(seed).in_windows for seed in seeds) > 0, "too quiet: nothing was judged"
        with patch.object(PlanTimes, "closed", lambda *_: None):
            found = any("windows:" in (violation_of(run, seed) or "") for seed in seeds)
        assert found, "a controller that knows no windows is not found"
