"""A crash with planned standbys, and one without any, on a real broker."""

import asyncio
from pathlib import Path

import pytest

from tests.e2e.steering.copies import lose
from tests.e2e.steering.run_setup import Setup
from tests.e2e.steering.runs import run
from tests.e2e.steering.scenarios import Scenario
from tests.e2e.steering.standbys import crash

CRASH = Scenario(
    name="a worker killed, standbys are warm",
    setup=Setup(rate=60.0, preload=3000, session_s=8.0, heartbeat_s=0.5),
    act=crash,
)
LOSS = Scenario(
    name="a worker killed without standbys, others have copies on their disks",
    setup=Setup(rate=60.0, preload=6000, session_s=8.0, heartbeat_s=0.5),
    act=lose,
)


@pytest.mark.e2e
@pytest.mark.scenario
def test_the_standbys_take_over_warm_and_nothing_is_lost(tmp_path: Path) -> None:
    assert asyncio.run(run(CRASH, tmp_path)).complaints == []


@pytest.mark.e2e
@pytest.mark.scenario
def test_without_standbys_those_with_a_copy_restore_only_what_it_lacks(tmp_path: Path) -> None:
    assert asyncio.run(run(LOSS, tmp_path)).complaints == []
