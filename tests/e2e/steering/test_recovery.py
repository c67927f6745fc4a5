"""A crash with planned standbys, on a real broker."""

import asyncio
from pathlib import Path

import pytest

from tests.e2e.steering.run_setup import Setup
from tests.e2e.steering.runs import run
from tests.e2e.steering.scenarios import Scenario
from tests.e2e.steering.standbys import crash

CRASH = Scenario(
    name="a worker killed, standbys are warm",
    setup=Setup(rate=60.0, preload=3000, session_s=8.0, heartbeat_s=0.5),
    act=crash,
)


@pytest.mark.e2e
def test_the_standbys_take_over_warm_and_nothing_is_lost(tmp_path: Path) -> None:
    assert asyncio.run(run(CRASH, tmp_path)).complaints == []
