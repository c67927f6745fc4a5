"""An agent that gathers batches for long: its key groups move at once, and each event is done once."""

import asyncio
from pathlib import Path

import pytest

from tests.e2e.steering.app_names import Feature
from tests.e2e.steering.cluster import Cluster
from tests.e2e.steering.run_setup import APP, Setup
from tests.e2e.steering.runs import run
from tests.e2e.steering.scenarios import Scenario, begin
from trimtab_protocol.messages.names import KeyGroup, OperatorId

PAUSE_S = 2.0
MOVES = 3


async def moved_and_restarted(cluster: Cluster) -> None:
    """Hand-overs and the restart of a worker, each in the middle of batches."""
    cluster.load.feed("alerts")
    await begin(cluster)
    await asyncio.sleep(3.0)
    for partition in range(MOVES):
        key_group = KeyGroup(APP, OperatorId("alerts"), partition)
        owner = cluster.row(key_group)[0]
        target = next(name for name in sorted(cluster.alive) if name != owner)
        assert await cluster.hand_over((key_group,), owner, target), key_group
        assert (cluster.moves[-1].pause_s or 0.0) < PAUSE_S
        await asyncio.sleep(1.0)
    restarted = sorted(cluster.alive)[0]
    assert await cluster.terminate(restarted) == 0
    await cluster.settled()
    cluster.start(restarted)
    await cluster.settled()
    await asyncio.sleep(3.0)
    for log in (cluster.folder / "logs").glob("w*.log"):
        assert "begun events were not finished" not in log.read_text()


BATCHES = Scenario(
    name="batches",
    setup=Setup(rate=60.0, preload=100, features=(Feature.STATELESS, Feature.BATCHES), besides=("alerts",)),
    act=moved_and_restarted,
)


@pytest.mark.e2e
@pytest.mark.scenario
def test_batches_keep_no_key_group_and_no_worker_and_have_no_event_twice(tmp_path: Path) -> None:
    assert asyncio.run(run(BATCHES, tmp_path)).complaints == []
