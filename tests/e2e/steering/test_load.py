"""How late the machine was near a fault, as the load has seen it."""

from typing import Any

from tests.e2e.steering.load import BEFORE_S, Load
from tests.e2e.steering.run_setup import Setup


def test_the_machine_is_late_by_the_longest_round_near_a_fault() -> None:
    broker: Any = None
    load = Load(Setup(), broker)
    assert load.late_s([100.0]) == 0.0
    load._rounds = [(60.0, 9.0), (100.0 - BEFORE_S, 0.2), (100.3, 0.5), (101.0, 0.4), (200.0, 3.0)]
    assert load.late_s([100.0]) == 0.5
    assert load.late_s([90.0]) == 0.0
    assert load.late_s([100.0, 201.0]) == 3.0
