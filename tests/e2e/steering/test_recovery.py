"""The crash of a host with planned standbys, and one without any standbys, on a real broker."""

import asyncio
from pathlib import Path

import pytest

from tests.e2e.steering.copies import lose
from tests.e2e.steering.nearby import lose_host
from tests.e2e.steering.run_setup import Setup
from tests.e2e.steering.runs import run
from tests.e2e.steering.scenarios import Scenario

LOSS = Scenario(
    name="a worker killed without standbys, others have copies on their disks",
    setup=Setup(rate=60.0, preload=6000, session_s=8.0, heartbeat_s=0.5),
    act=lose,
)

HOST = Scenario(
    name="a host killed after moves within it",
    setup=Setup(rate=60.0, preload=3000, session_s=8.0, heartbeat_s=0.5),
    act=lose_host,
)


@pytest.mark.e2e
@pytest.mark.scenario
def test_without_standbys_those_with_a_copy_restore_only_what_it_lacks(tmp_path: Path) -> None:
    assert asyncio.run(run(LOSS, tmp_path)).complaints == []


@pytest.mark.e2e
@pytest.mark.scenario
def test_after_moves_within_a_host_another_one_takes_over_warm(tmp_path: Path) -> None:
    assert asyncio.run(run(HOST, tmp_path)).complaints == []
