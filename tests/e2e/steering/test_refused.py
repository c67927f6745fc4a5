"""An app writes what it must not: nothing is lost or repeated, no worker ends, and all other key groups go on."""

import asyncio
import json
import re
import shlex
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.e2e.steering.app_names import CARELESS, Feature, note_fault
from tests.e2e.steering.cluster import Cluster, until
from tests.e2e.steering.run_setup import LATE, ODD, Setup
from tests.e2e.steering.runs import run
from tests.e2e.steering.scenarios import Scenario, begin, hand_overs
from tests.e2e.steering.verdict import read_topic, steps_back

TOO_SMALL, LARGE = 2000, 1_048_588
LIMIT_S = 120.0
"""How long a busy machine may take until something is done that takes seconds."""
MOVES = 4
AHEAD = 60
"""So many inputs later than the newest one comes the one at which an agent does what it must not."""


def limit_records(bootstrap: str, topic: str, size: int) -> None:
    """Set `max.message.bytes` of a topic."""
    entry = ConfigEntry("max.message.bytes", str(size), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(10.0)


def logs(cluster: Cluster) -> str:
    """What the workers have logged."""
    return "".join(each.read_text() for each in sorted((cluster.folder / "logs").glob("w*.log")))


def ways_out(cluster: Cluster) -> set[str]:
    """The commands that give records up."""
    return set(re.findall(r"to give this record up: (touch '.*')", logs(cluster)))


def reasons(cluster: Cluster) -> list[str]:
    """What the workers say in their status."""
    return [hello.reason for hello in cluster.agent.hellos.values() if hello.reason is not None]


async def careless(cluster: Cluster, what: str) -> int:
    """An agent does what it must not, soon; returns the partition of the input at which it does."""
    number = len(cluster.load.sent) + AHEAD
    (cluster.folder / "new").write_text(json.dumps({what: number}))
    (cluster.folder / "new").rename(cluster.folder / CARELESS)
    assert await until(lambda: len(cluster.load.sent) > number, LIMIT_S)
    return cluster.setup.source_partition(number)


async def keeps_none(cluster: Cluster) -> bool:
    """Whether the changelog has what an agent has written under the key None."""
    for _ in range(int(LIMIT_S)):
        rows = await asyncio.to_thread(read_topic, cluster, ODD)
        if any(key == b"null" for records in rows.values() for key, *_ in records):
            return True
        await asyncio.sleep(1.0)
    return False


async def goes_on_but_for(cluster: Cluster, partition: int) -> bool:
    """Whether all other key groups do their work, and this one waits."""

    def backlogs() -> dict[int, int]:
        samples = [each for _, told in cluster.agent.statistics.values() for each in told.key_groups]
        return {s.key_group.partition: s.backlog or 0 for s in samples if s.key_group.operator == "source"}

    def only_one_waits() -> bool:
        found = backlogs()
        return found.get(partition, 0) > 20 and all(n < 20 for p, n in found.items() if p != partition)

    return await until(only_one_waits, LIMIT_S)


async def late_writes_are_there(cluster: Cluster) -> None:
    """Every event has counted once, or the app was told that it wrote too late."""
    sent = Counter(key for key, _ in cluster.load.sent)
    end = time.monotonic() + LIMIT_S
    while True:
        refused = Counter("".join(each.read_text() for each in cluster.folder.glob("w*.late")).split())
        rows = await asyncio.to_thread(read_topic, cluster, LATE)
        assert steps_back(rows) == 0
        newest = {
            json.loads(key or b""): json.loads(value or b"") for records in rows.values() for key, value, _ in records
        }
        expected = {key: n - refused[key] for key, n in sent.items() if n > refused[key]}
        if newest == expected or time.monotonic() > end:  # the last ones come some seconds later
            break
        await asyncio.sleep(1.0)
    assert newest == expected
    assert refused, "no write was late"


async def is_handed_over(cluster: Cluster, partition: int) -> bool:
    """Whether a key group that stands could be handed over."""
    key_group = next(k for k in cluster.key_groups if (k.operator, k.partition) == ("source", partition))
    (owner,) = cluster.owners()[key_group]
    target = next(name for name in cluster.alive if name != owner)
    moved = await cluster.hand_over((key_group,), owner, target, took_limit_s=3.0)
    assert any("stands, because Kafka refuses a record" in (ack.detail or "") for ack in cluster.agent.acks)
    cluster.place([key_group], (owner, target))
    await cluster.publish()
    return moved


@pytest.mark.e2e
@pytest.mark.light
def test_what_an_app_must_not_write_costs_nobody_else_anything(tmp_path: Path) -> None:
    async def act(cluster: Cluster) -> None:
        await asyncio.to_thread(limit_records, cluster.broker.address, ODD, TOO_SMALL)
        await begin(cluster)
        before = cluster.generations()
        assert await hand_overs(cluster, MOVES, most=3, rest_s=1.0) >= MOVES // 2

        await careless(cluster, "none")
        assert await keeps_none(cluster)
        partition = await careless(cluster, "large")
        stands = f"it stands at numbers/{partition} offset "
        assert await until(lambda: any(stands in each for each in reasons(cluster)), LIMIT_S), reasons(cluster)
        assert await goes_on_but_for(cluster, partition)
        assert not await is_handed_over(cluster, partition)
        await asyncio.to_thread(limit_records, cluster.broker.address, ODD, LARGE)
        assert await until(lambda: f"numbers/{partition} goes on" in logs(cluster), 120.0)
        await cluster.settled()
        assert cluster.generations() == before, "there was a rebalance"

        await asyncio.to_thread(limit_records, cluster.broker.address, ODD, TOO_SMALL)
        assert await until(lambda: not any("stands" in each for each in reasons(cluster)), LIMIT_S), reasons(cluster)
        known = ways_out(cluster)
        await careless(cluster, "large")
        assert await until(lambda: len(ways_out(cluster)) == 2, LIMIT_S)
        (command,) = ways_out(cluster) - known
        subprocess.run(shlex.split(command), check=True)
        assert await until(lambda: "its record is given up" in logs(cluster), LIMIT_S)
        await cluster.settled()
        await cluster.load.stop()
        await cluster.worked_off()
        await late_writes_are_there(cluster)

    setup = Setup(workers=3, rate=40.0, preload=100, keys=40, took_limit_s=15.0, features=(Feature.CARELESS,))
    outcome = asyncio.run(run(Scenario(name="careless", setup=setup, act=act), tmp_path))

    assert outcome.complaints == []


@pytest.mark.e2e
@pytest.mark.scenario
def test_a_key_group_stands_again_wherever_it_is_restored(tmp_path: Path) -> None:
    """After a rebalance, after its owner was killed, and after that one is back and has restored its changelog."""

    async def act(cluster: Cluster) -> None:
        await begin(cluster)
        await asyncio.to_thread(limit_records, cluster.broker.address, ODD, TOO_SMALL)
        partition = await careless(cluster, "large")
        stands = f"it stands at numbers/{partition} offset "
        assert await until(lambda: any(stands in each for each in reasons(cluster)), LIMIT_S), reasons(cluster)
        note_fault(cluster.folder)  # the event, and the few after it that were done, are done again
        await cluster.publish()
        assert await cluster.rejoin()
        await cluster.settled()
        assert await until(lambda: logs(cluster).count(f"ERROR] {stands}") == 2, 60.0)

        note_fault(cluster.folder)
        key_group = next(k for k in cluster.key_groups if (k.operator, k.partition) == ("source", partition))
        (owner,) = cluster.owners()[key_group]
        cluster.alive.pop(owner).send(signal.SIGKILL)
        assert await until(lambda: logs(cluster).count(f"ERROR] {stands}") == 3, 120.0), "nobody took it over"
        note_fault(cluster.folder)
        cluster.start(owner)
        await cluster.settled(120.0)
        assert await until(lambda: logs(cluster).count(f"ERROR] {stands}") == 4, 60.0)
        assert await goes_on_but_for(cluster, partition)
        await asyncio.to_thread(limit_records, cluster.broker.address, ODD, LARGE)
        assert await until(lambda: f"numbers/{partition} goes on" in logs(cluster), 120.0)
        await cluster.load.stop()
        await cluster.worked_off()
        assert logs(cluster).count("this worker ends") == 0

    setup = Setup(workers=3, rate=60.0, preload=100, keys=40, session_s=6.0, features=(Feature.CARELESS,))
    outcome = asyncio.run(run(Scenario(name="stands again", setup=setup, act=act), tmp_path))

    assert outcome.complaints == []
