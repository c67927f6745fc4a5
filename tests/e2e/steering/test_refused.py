"""The broker refuses a changelog record: no worker counts the event as done, and none goes on without the state."""

import asyncio
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.e2e.steering.app_names import note_fault
from tests.e2e.steering.cluster import Cluster, until
from tests.e2e.steering.run_setup import Setup
from tests.e2e.steering.runs import run
from tests.e2e.steering.scenarios import Scenario, begin

CHANGELOG = "oracle-counts-changelog"
TOO_SMALL, LARGE = 60, 1_048_588


def limit_records(bootstrap: str, topic: str, size: int) -> None:
    """Set `max.message.bytes` of a topic."""
    entry = ConfigEntry("max.message.bytes", str(size), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(10.0)


@pytest.mark.e2e
def test_state_that_the_broker_refuses_does_not_count_as_done(tmp_path: Path) -> None:
    ended: list[int | None] = []

    async def run_on(cluster: Cluster) -> None:
        await begin(cluster)
        await asyncio.to_thread(limit_records, cluster.broker.address, CHANGELOG, TOO_SMALL)
        workers = list(cluster.alive.values())
        assert await until(lambda: not any(child.alive for child in workers), 60.0), "it works on"
        ended.extend(child.exit_code for child in workers)
        note_fault(cluster.folder)  # they ended without a commit, as if killed
        await asyncio.to_thread(limit_records, cluster.broker.address, CHANGELOG, LARGE)
        for name in list(cluster.alive):
            cluster.start(name)
        await cluster.settled()
        await cluster.worked_off()

    setup = Setup(workers=2, rate=60.0, preload=100)
    outcome = asyncio.run(run(Scenario(name="refused", setup=setup, act=run_on), tmp_path))

    assert all(ended)
    assert not any(outcome.verdict.lost.values())
    assert not any(outcome.verdict.too_low.values())
    assert not any(outcome.verdict.stepped_back.values())
    logs = [(tmp_path / "run" / "logs" / f"{name}.log").read_text() for name in ("w0", "w1")]
    assert all("record of changelog oracle-counts-changelog/" in log for log in logs)
    assert all("was not written, this worker ends: [Error 10] MessageSizeTooLargeError" in log for log in logs)
