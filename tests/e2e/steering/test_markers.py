"""Plans that would make an outage: markers at the end of changelogs, a take that fails, events that are held."""

import asyncio
from pathlib import Path

import pytest

from tests.e2e.steering.app_names import Feature
from tests.e2e.steering.markers import marked
from tests.e2e.steering.run_setup import Setup
from tests.e2e.steering.runs import run
from tests.e2e.steering.scenarios import Scenario

MARKED = Scenario(
    name="changelogs that end with a marker, events that are held",
    setup=Setup(workers=2, partitions=4, rate=40.0, preload=300, drain_limit_s=3.0, features=(Feature.BY_HAND,)),
    act=marked,
)


@pytest.mark.e2e
@pytest.mark.light
def test_neither_markers_nor_a_take_that_fails_nor_held_events_stop_anything_but_a_move(tmp_path: Path) -> None:
    assert asyncio.run(run(MARKED, tmp_path)).complaints == []
