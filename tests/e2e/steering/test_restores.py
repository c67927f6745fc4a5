"""A worker with unequal states is drained, on a real broker: as the plan lists them, and scheduled."""

import asyncio
from pathlib import Path

import pytest

from tests.e2e.steering.restores import describe, drain
from tests.shown import Show

pytestmark = [pytest.mark.e2e, pytest.mark.scenario]


def test_scheduled_restores_are_warm_before_listed_ones_and_near_what_was_planned(tmp_path: Path, show: Show) -> None:
    listed, scheduled = (asyncio.run(drain(method, tmp_path / method)) for method in ("listed-2", "scheduled"))
    print(f"\n{describe(listed)}\n{describe(scheduled)}")
    assert scheduled.recovery is not None
    show("drained worker, restores as listed", f"links alone {listed.link_bound_s:.1f} s", f"{listed.warm_s:.1f} s")
    bound = f", bound {scheduled.recovery.bound_s:.1f} s"
    show("the same, scheduled", f"{scheduled.recovery.planned_s:.1f} s{bound}", f"{scheduled.warm_s:.1f} s")
    assert listed.link_bound_s == scheduled.link_bound_s <= scheduled.warm_s < listed.warm_s
    assert scheduled.warm_s <= 3.0 * scheduled.recovery.planned_s
