"""Topics that an app writes or reads are deleted while it runs: only what is in them is lost, and all else goes on.

python -m pytest tests/e2e/steering/test_deleted_topics.py -n0 -s -m scenario
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.e2e.steering.app_names import Feature
from tests.e2e.steering.cluster import Cluster, worker
from tests.e2e.steering.run_setup import APP, SOURCE, Setup
from tests.e2e.steering.runs import Outcome, run
from tests.e2e.steering.scenarios import Scenario, begin, hand_overs
from tests.e2e.steering.test_refused import logs
from trimtab_protocol.messages.names import KeyGroup
from trimtab_sandbox.broker import Topic

pytestmark = [pytest.mark.e2e, pytest.mark.scenario, pytest.mark.timeout(600)]

NO_NEW_TOPICS = {"auto.create.topics.enable": "false"}
MOVES = 3
RATE = 60.0


def delete(cluster: Cluster, topic: str) -> None:
    """Delete a topic, as somebody does by mistake."""
    admin = AdminClient({"bootstrap.servers": cluster.broker.address})
    admin.delete_topics([topic])[topic].result(30.0)


def played(folder: Path, setup: Setup, act: Callable[[Cluster], Awaitable[None]]) -> Outcome:
    """The outcome of a scenario on a broker that makes no topics by itself."""
    return asyncio.run(run(Scenario(name="deleted", setup=setup, act=act, broker=NO_NEW_TOPICS), folder))


def test_a_deleted_output_holds_up_the_events_that_write_it_until_it_is_made_again(tmp_path: Path) -> None:
    """Half a minute is longer than anything waits that holds up commits."""
    deleted: list[int] = []

    async def act(cluster: Cluster) -> None:
        await begin(cluster)
        before = cluster.generations()
        deleted.append(len(cluster.load.sent))
        await asyncio.to_thread(delete, cluster, "totals")
        await asyncio.sleep(30.0)
        for partition in range(MOVES):
            key_group = KeyGroup(APP, SOURCE, partition)
            owner = cluster.row(key_group)[0]
            target = next(name for name in cluster.members if name != owner)
            assert await cluster.hand_over((key_group,), owner, target), key_group
        cluster.broker.create_topics([Topic(name="totals", partitions=cluster.setup.partitions)])
        await asyncio.sleep(10.0)
        await cluster.settled()
        assert cluster.generations() == before, "there was a rebalance"
        await cluster.load.stop()
        await cluster.worked_off()
        assert "this worker ends" not in logs(cluster)

    found = played(tmp_path, Setup(rate=RATE, preload=100, keys=40), act).verdict
    assert deleted[0] / 2 < found.lost["totals"] < deleted[0] + RATE, f"what was on its way, and {deleted} before that"
    assert {**found.lost, "totals": 0} == dict.fromkeys(found.lost, 0)
    assert not any({**found.duplicated, **found.stepped_back, **found.wrong_keys, **found.not_committed}.values())


def test_a_deleted_source_holds_up_neither_commits_nor_a_rebalance(tmp_path: Path) -> None:
    async def act(cluster: Cluster) -> None:
        cluster.load.feed("alerts")
        await begin(cluster)
        await asyncio.sleep(5.0)
        cluster.load.feed(None)
        await asyncio.sleep(1.0)
        await asyncio.to_thread(delete, cluster, "alerts")
        await asyncio.sleep(10.0)
        cluster.start(worker(3), cluster.setup.features)
        await cluster.joined(120.0)
        cluster.broker.create_topics([Topic(name="alerts", partitions=cluster.setup.partitions)])
        await cluster.settled(180.0)
        assert await hand_overs(cluster, MOVES, rest_s=1.0) == MOVES
        await cluster.load.stop()
        await cluster.worked_off()
        assert "this worker ends" not in logs(cluster)

    setup = Setup(rate=60.0, preload=100, keys=40, features=(Feature.STATELESS,), besides=("alerts",))
    found = played(tmp_path, setup, act).verdict
    assert not any(found.lost.values())
    assert not any({**found.stepped_back, **found.too_low}.values())
    assert {topic: count for topic, count in found.not_committed.items() if topic != "alerts" and count} == {}
