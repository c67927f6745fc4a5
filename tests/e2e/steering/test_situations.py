"""Situations that a job may be in while key groups move: all is done once, and no worker ends."""

import asyncio
import json
import shutil
from collections import Counter
from collections.abc import Collection
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.errors import InconsistentGroupProtocolError
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tests.e2e.steering.app_names import Feature
from tests.e2e.steering.cluster import Cluster, until
from tests.e2e.steering.run_setup import APP, SUMS, Setup
from tests.e2e.steering.runs import run
from tests.e2e.steering.scenarios import Scenario, begin, hand_overs
from tests.e2e.steering.test_refused import logs, reasons
from tests.e2e.steering.verdict import read_topic

EVERYBODY, ANYWHERE = "User:ANONYMOUS", "*"
AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
RECORDS = "oracle-records-changelog"
FEW = {"workers": 2, "rate": 60.0, "preload": 200, "keys": 40}


def forbid_writes(bootstrap: str, topic: str, *, forbid: bool) -> None:
    """Take the right to write a topic away from everybody, or give it back."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    place = (ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, EVERYBODY, ANYWHERE)
    if not forbid:
        wanted = AclBindingFilter(*place, AclOperation.ANY, AclPermissionType.ANY)
        for deleted in admin.delete_acls([wanted]).values():
            deleted.result(10.0)
        return
    rules = [(AclOperation.ALL, AclPermissionType.ALLOW), (AclOperation.WRITE, AclPermissionType.DENY)]
    for made in admin.create_acls([AclBinding(*place, *rule) for rule in rules]).values():
        made.result(10.0)


async def right_to_write(cluster: Cluster) -> None:
    """Taken away while the app runs, and given back: its key groups stand, say why, and go on."""
    await begin(cluster)
    before = cluster.generations()
    await asyncio.to_thread(forbid_writes, cluster.broker.address, SUMS, forbid=True)
    told = "(TopicAuthorizationFailed: the app may not write this topic)"
    assert await until(lambda: len([each for each in reasons(cluster) if told in each]) == 2, 30.0), reasons(cluster)
    await asyncio.to_thread(forbid_writes, cluster.broker.address, SUMS, forbid=False)
    assert await until(lambda: not any("stands" in each for each in reasons(cluster)), 60.0), reasons(cluster)
    await cluster.worked_off()
    assert await hand_overs(cluster, 2) == 2
    assert cluster.generations() == before, "there was a rebalance"


async def fails_by_hand(cluster: Cluster) -> None:
    """An agent that acknowledges by hand fails: its event is done, and neither commits nor rebalances wait for it."""
    await begin(cluster)
    assert await until(lambda: logs(cluster).count("ValueError: fails at") > 1, 60.0)
    assert await hand_overs(cluster, 2) == 2
    await cluster.publish()
    assert await cluster.rejoin(30.0)
    await cluster.settled()


async def disk_lost(cluster: Cluster, features: Collection[Feature] | None = None) -> None:
    """All workers stop, and start without their disks, with another version of the job if one is named."""
    names = list(cluster.alive)
    for name in names:
        assert await cluster.terminate(name) == 0
        shutil.rmtree(cluster.folder / name)
    for name in names:
        cluster.start(name, features)
    await cluster.settled()


async def small_buffers(cluster: Cluster) -> None:
    """Queues and recoveries that take one record at a time."""
    await begin(cluster)
    assert await hand_overs(cluster, 3, most=2) == 3
    await disk_lost(cluster)
    await cluster.publish()
    assert await hand_overs(cluster, 3, most=2) == 3


async def new_field(cluster: Cluster) -> None:
    """Tables are restored by a version that cannot read their values: with the old version they are all there."""
    await begin(cluster)
    old = cluster.setup.features
    await disk_lost(cluster, (*old, Feature.NEW_FIELD))
    noted = [cluster.folder / f"{name}.unreadable" for name in cluster.alive]
    assert await until(lambda: all(each.read_text().count("\n") > 20 for each in noted), 60.0)
    await cluster.publish()
    assert await hand_overs(cluster, 2) == 2
    for name in list(cluster.alive):
        assert await cluster.terminate(name) == 0
        cluster.start(name, old)
    await cluster.settled()
    await cluster.load.stop()
    await cluster.worked_off()
    await asyncio.sleep(2.0)
    rows = await asyncio.to_thread(read_topic, cluster, RECORDS)
    newest = {
        json.loads(key or b""): json.loads(value or b"")["times"] for each in rows.values() for key, value, _ in each
    }
    unreadable = Counter(word for each in noted for word in each.read_text().split())
    assert newest == Counter(key for key, _ in cluster.load.sent) - unreadable


async def console_consumer(cluster: Cluster) -> None:
    """A consumer that is no Faust uses the app's group: it is refused, or the workers wait until it has left."""
    options = {"bootstrap_servers": cluster.broker.address, "group_id": APP, "enable_auto_commit": False}
    await begin(cluster)
    before = cluster.generations()
    async with asyncio.timeout(20.0):
        other = AIOKafkaConsumer("numbers", **options)
        with pytest.raises(InconsistentGroupProtocolError):
            await other.start()
        await other.stop()
    assert await hand_overs(cluster, 2) == 2
    assert cluster.generations() == before, "there was a rebalance"
    names = list(cluster.alive)
    for name in names:
        assert await cluster.terminate(name) == 0
    async with AIOKafkaConsumer("numbers", **options):
        for name in names:
            cluster.start(name)
        waits = "does not take this worker, which tries again: InconsistentGroupProtocolError"
        assert await until(lambda: logs(cluster).count(waits) == 2, 40.0)
    await cluster.settled()
    await cluster.publish()
    assert await hand_overs(cluster, 2) == 2


SITUATIONS = (
    Scenario(name="right to write", setup=Setup(**FEW), act=right_to_write, broker=AUTHORIZED),  # type: ignore[arg-type]
    Scenario(
        name="noack and failures",
        setup=Setup(features=(Feature.BY_HAND, Feature.FAILS), **FEW),  # type: ignore[arg-type]
        act=fails_by_hand,
    ),
    Scenario(name="small buffers", setup=Setup(queue=1, recovery_buffer=1, **FEW), act=small_buffers),  # type: ignore[arg-type]
    Scenario(name="new field", setup=Setup(features=(Feature.RECORDS,), **FEW), act=new_field),  # type: ignore[arg-type]
    Scenario(name="console consumer", setup=Setup(**FEW), act=console_consumer),  # type: ignore[arg-type]
)


@pytest.mark.e2e
@pytest.mark.light
@pytest.mark.scenario
@pytest.mark.parametrize("scenario", SITUATIONS, ids=lambda scenario: scenario.name)
def test_a_job_is_right_in_this_situation(scenario: Scenario, tmp_path: Path) -> None:
    outcome = asyncio.run(run(scenario, tmp_path))

    print(f"{scenario.name}: {outcome.seconds:.0f} s, pauses {outcome.pauses}")
    assert outcome.complaints == []
