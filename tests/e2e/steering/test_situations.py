"""Situations that a job may be in while key groups move: all is done once, or what a log has lost is missed, once.

python -m pytest tests/e2e/steering/test_situations.py -n0 -s -m scenario
"""

import asyncio
import json
import re
import shutil
import signal
import time
from collections import Counter
from collections.abc import Collection, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.errors import InconsistentGroupProtocolError
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
)

from tests.e2e.steering.answers import PARTITIONS, AnswersCluster
from tests.e2e.steering.app_names import BREACHES, Feature, note_fault
from tests.e2e.steering.cluster import Cluster, until, worker
from tests.e2e.steering.run_setup import APP, BEHIND, MANY, SOURCE, SUMS, Setup
from tests.e2e.steering.runs import run
from tests.e2e.steering.scenarios import Act, Scenario, begin, hand_overs
from tests.e2e.steering.test_deleted_topics import delete
from tests.e2e.steering.test_refused import logs, reasons
from tests.e2e.steering.verdict import Records, committed, read_topic
from trimtab_protocol.messages.commands import Refusal
from trimtab_protocol.messages.names import AppId, KeyGroup, WorkerId
from trimtab_sandbox.broker import Broker, Topic
from trimtab_sandbox.processes import Processes

EVERYBODY, ANYWHERE = "User:ANONYMOUS", "*"
AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
RECORDS = "oracle-records-changelog"
FEW: dict[str, Any] = {"workers": 2, "rate": 60.0, "preload": 200, "keys": 40}
SMALL: dict[str, Any] = {"workers": 2, "partitions": 4, "rate": 60.0, "preload": 400, "keys": 40}
BURST, RELEASE_S = 3000, 20.0
"""Inputs that come all at once, half a minute's work for an agent that is behind; a release may take so long."""
RESTORED, LEFT = 0.8, 0.7
"""Which part of the changelogs a backup had, and which one the broker's disk has kept."""
HIGH: dict[str, Any] = {"workers": 3, "partitions": 3, "rate": 60.0, "preload": 30, "keys": 30, "writes": 80}
"""Each key group of the source writes 20 * (80 + 2) changelog records per second."""


async def let_end(cluster: Cluster) -> None:
    """Send nothing more, and wait until all is done: what was done last may still be in work when it is committed."""
    await cluster.load.stop()
    await asyncio.sleep(2.0)
    await cluster.worked_off()
    await asyncio.sleep(2.0)


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
    await let_end(cluster)
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


# ---------------------------------------------------------------------- changelogs that have lost records, high rates
def read_changelogs(cluster: Cluster) -> dict[str, Records]:
    return {name: read_topic(cluster, name) for name in cluster.setup.changelogs}


def growth(rows: Records, first: Mapping[int, int]) -> Counter[int]:
    """By how much the records of a changelog from these places on exceed the value that their key had before."""
    found: Counter[int] = Counter()
    for partition, records in rows.items():
        state: dict[bytes | None, int] = {}
        for place, (key, value, _) in enumerate(records):
            found[int(value or 0) - state.get(key, 0)] += place >= first.get(partition, 0)
            state[key] = int(value or 0)
    return +found


def lengths(logs_of: Mapping[str, Records]) -> dict[str, dict[int, int]]:
    return {name: {partition: len(records) for partition, records in rows.items()} for name, rows in logs_of.items()}


def restore(cluster: Cluster) -> dict[str, dict[int, int]]:
    """Make the changelogs anew from a backup that has their first part; returns how many records each has."""
    before = read_changelogs(cluster)
    kept = {name: {p: rows[: int(len(rows) * RESTORED)] for p, rows in before[name].items()} for name in before}
    for name in kept:
        delete(cluster, name)
    admin = AdminClient({"bootstrap.servers": cluster.broker.address})
    while kept.keys() & admin.list_topics(timeout=20.0).topics.keys():
        time.sleep(0.2)
    compact = {"cleanup.policy": "compact"}
    count = cluster.setup.partitions
    cluster.broker.create_topics([Topic(name=name, partitions=count, settings=compact) for name in kept])
    producer = Producer({"bootstrap.servers": cluster.broker.address})
    for name, rows in kept.items():
        for partition, records in rows.items():
            for key, value, at in records:
                producer.produce(name, value, key, partition, timestamp=round(at * 1e3))
    assert producer.flush(60.0) == 0
    return lengths(kept)


def lose_the_ends(cluster: Cluster) -> None:
    """The broker loses power, and its disk the end of each changelog."""
    cluster.broker.kill()
    for name in cluster.setup.changelogs:
        for partition in range(cluster.setup.partitions):
            log = cluster.broker.data / f"{name}-{partition}" / f"{0:020}.log"
            content, starts = log.read_bytes(), [0]
            while starts[-1] + 12 < len(content) and (size := int.from_bytes(content[starts[-1] + 8 :][:4])):
                starts.append(starts[-1] + 12 + size)
            assert len(starts) > 10, f"{log} has only {len(starts)} batches"
            with log.open("r+b") as file:
                file.truncate(starts[int(len(starts) * LEFT)])
    cluster.broker.start()


def set_aside(cluster: Cluster) -> list[str]:
    """The databases that workers keep beside."""
    return sorted(str(each.relative_to(cluster.folder)) for each in cluster.folder.rglob("*.db.ahead"))


def told(cluster: Cluster) -> bool:
    """Whether a worker says that state is lost, and how much, in its log and in what it reports."""
    lost = [name for name, (_, said) in cluster.agent.statistics.items() if said.lost]
    return "had written up to" in logs(cluster) and bool(lost)


def restored(waiting: int) -> Act:
    """The app's changelogs are restored to their first part while it is stopped, and so many inputs wait for it."""

    async def act(cluster: Cluster) -> None:
        await cluster.settled(150.0)
        await cluster.worked_off()
        assert await hand_overs(cluster, 2) == 2
        names = list(cluster.alive)
        for name in names:
            assert await cluster.terminate(name) == 0
        admin = AdminClient({"bootstrap.servers": cluster.broker.address})
        done, regrouped = (committed(admin, APP, topic) for topic in ("numbers", "regrouped"))
        kept = await asyncio.to_thread(restore, cluster)
        await cluster.load.send_numbers(waiting)
        for name in names:
            cluster.start(name)
        await cluster.settled()
        await cluster.worked_off()
        assert await until(lambda: told(cluster), 10.0)
        aside = set_aside(cluster)
        cluster.load.start()
        assert await hand_overs(cluster, 4, most=2) == 4
        await cluster.settled()
        await let_end(cluster)
        assert [name for name, child in cluster.alive.items() if child.alive] == names
        assert "this worker ends" not in logs(cluster)
        rows = await asyncio.to_thread(read_changelogs, cluster)
        counts, sums, groups = (growth(rows[name], kept[name]) for name in cluster.setup.changelogs)
        sent, of = len(cluster.load.sent), cluster.setup.partitions
        later = [number for number in range(sent) if number // of >= done.get(number % of, 0)]
        print(f"set aside: {len(aside)}; after the restored log: {len(later)} inputs")
        assert counts == {1: len(later)}
        assert sums == Counter(later)
        assert groups == {1: sent - sum(regrouped.values())}
        assert len({Path(each).name for each in aside}) == 3 * cluster.setup.partitions

    return act


async def ends_lost(cluster: Cluster) -> None:
    """The ends of the changelogs are cut under a running app; whoever ends is started again, as systemd does."""
    (cluster.folder / BREACHES).touch()
    await begin(cluster)
    await asyncio.sleep(8.0)
    ends: Counter[WorkerId] = Counter()

    async def start_again() -> None:
        while True:
            await asyncio.sleep(0.5)
            for name, child in list(cluster.alive.items()):
                if not child.alive:
                    ends[name] += 1
                    note_fault(cluster.folder)
                    cluster.start(name)

    again = asyncio.create_task(start_again())
    try:
        await asyncio.to_thread(lose_the_ends, cluster)
        note_fault(cluster.folder)
        assert await until(lambda: told(cluster), 40.0), ends
        await cluster.settled()
        await cluster.worked_off()
        before = Counter(ends)
        here = lengths(await asyncio.to_thread(read_changelogs, cluster))
        assert await hand_overs(cluster, 4, most=2) == 4
        await let_end(cluster)
        rows = await asyncio.to_thread(read_changelogs, cluster)
    finally:
        again.cancel()
    counts, sums, groups = (growth(rows[name], here[name]) for name in cluster.setup.changelogs)
    print(f"ends {dict(ends)}, set aside {len(set_aside(cluster))}, later {counts.total()} {groups.total()}")
    assert max(ends.values(), default=0) <= 1, ends
    assert ends == before, "somebody ended after the restore"
    assert counts.keys() == groups.keys() == {1}
    assert max(sums.values()) == 1
    assert min(sums) > 0
    assert set_aside(cluster)


async def ten_times(cluster: Cluster) -> None:
    """Key groups with ten times the tested rate of changelog records move, and nothing of them is refused.

    A machine that is too slow for the rate is the harder case: all is late, and moves must be prepared all the same.
    """
    names = [*cluster.setup.changelogs, MANY]
    asked = {TopicPartition(n, p): OffsetSpec.latest() for n in names for p in range(cluster.setup.partitions)}
    admin = AdminClient({"bootstrap.servers": cluster.broker.address})

    def written() -> tuple[float, int, int]:
        """When, how many changelog records there are, and how many of them are of the source's key group 0."""
        found = {tp: answer.result().offset for tp, answer in admin.list_offsets(asked).items()}
        hot = sum(end for tp, end in found.items() if tp.partition == 0 and "groups" not in tp.topic)
        return time.monotonic(), sum(found.values()), hot

    await begin(cluster)
    marks, took, key_group = [written()], list[float](), KeyGroup(APP, SOURCE, 0)
    await asyncio.sleep(5.0)
    for number in range(4):
        source, *_ = cluster.row(key_group)
        target = sorted(set(cluster.members) - {source})[number % 2]
        marks.append(await asyncio.to_thread(written))
        begun = time.monotonic()
        assert await cluster.hand_over((key_group,), source, target), [ack.detail for ack in cluster.agent.acks]
        took.append(time.monotonic() - begun)
        await asyncio.sleep(1.5)
    marks.append(await asyncio.to_thread(written))
    for (at, every, hot), (then, more, hotter) in pairwise(marks):
        print(
            f"{then - at:.1f} s: {(more - every) / (then - at):.0f}/s, {(hotter - hot) / (then - at):.0f}/s of it hot"
        )
    print("moves took", *(f"{each:.1f} s" for each in took))
    await cluster.settled()
    await let_end(cluster)
    assert not [ack for ack in cluster.agent.acks if ack.refusal is Refusal.CATCH_UP_TIMEOUT]
    rows = await asyncio.to_thread(read_topic, cluster, MANY)
    newest = {json.loads(key or b""): int(value or 0) for each in rows.values() for key, value, _ in each}
    assert newest == {
        f"{key}.{place}": count
        for key, count in Counter(key for key, _ in cluster.load.sent).items()
        for place in range(cluster.setup.writes)
    }


async def behind(cluster: Cluster) -> None:
    """One agent is half a minute behind another one of its topic: key groups move without waiting for that."""
    await begin(cluster)
    await cluster.load.send_numbers(BURST)
    await asyncio.sleep(3.0)
    backlog = sum(each.backlog or 0 for _, told in cluster.agent.statistics.values() for each in told.key_groups)
    began = time.monotonic()
    done = [await cluster.hand_over(*cluster.pick(2), took_limit_s=RELEASE_S) for _ in range(3)]
    took_s = time.monotonic() - began
    print(f"{backlog} inputs waited, moves took {took_s:.0f} s")
    assert all(done), [ack.detail for ack in cluster.agent.acks]
    assert backlog > 0.5 * BURST, "nobody was behind"
    await cluster.settled()
    await let_end(cluster)
    rows = await asyncio.to_thread(read_topic, cluster, BEHIND)
    newest = {json.loads(key or b""): int(value or 0) for each in rows.values() for key, value, _ in each}
    assert newest == Counter(key for key, _ in cluster.load.sent)


LESS = ("too low", "wrong keys")
"""What must be wrong where a changelog has lost records."""
SITUATIONS = (
    Scenario(name="right to write", setup=Setup(**FEW), act=right_to_write, broker=AUTHORIZED),
    Scenario(
        name="noack and failures", setup=Setup(features=(Feature.BY_HAND, Feature.FAILS), **FEW), act=fails_by_hand
    ),
    Scenario(name="small buffers", setup=Setup(queue=1, recovery_buffer=1, **FEW), act=small_buffers),
    Scenario(name="new field", setup=Setup(features=(Feature.RECORDS,), **FEW), act=new_field),
    Scenario(name="console consumer", setup=Setup(**FEW), act=console_consumer),
    Scenario(name="restored changelogs, inputs wait", setup=Setup(**SMALL), act=restored(200), loses=LESS),
    Scenario(name="restored changelogs", setup=Setup(**SMALL), act=restored(0), loses=LESS),
    Scenario(name="ends of changelogs lost", setup=Setup(**SMALL), act=ends_lost, loses=LESS),
    Scenario(name="an agent is behind", setup=Setup(features=(Feature.BEHIND,), **FEW), act=behind),
    Scenario(name="ten times the rate", setup=Setup(**HIGH), act=ten_times),
)


@pytest.mark.e2e
@pytest.mark.light
@pytest.mark.scenario
@pytest.mark.parametrize("scenario", SITUATIONS, ids=lambda scenario: scenario.name)
def test_a_job_is_right_in_this_situation(scenario: Scenario, tmp_path: Path) -> None:
    outcome = asyncio.run(run(scenario, tmp_path))

    print(f"{scenario.name}: {outcome.seconds:.0f} s, pauses {outcome.pauses}")
    assert [each for each in outcome.complaints if not each.startswith(scenario.loses)] == []
    assert any(outcome.verdict.too_low.values()) == bool(scenario.loses)


# ---------------------------------------------------------------------- an app as users write it
class UsersCluster(AnswersCluster):
    """Workers of the app as users write it, and its orders: of many customers, and others by its page."""

    app_id, program = AppId("users"), "tests.e2e.steering.users_app"
    topics = ("orders", "billed", "batched", "closed", "ticks")

    def __init__(self, folder: Path, broker: Broker) -> None:
        super().__init__(folder, broker, standbys=1)
        self.orders: list[dict[str, Any]] = []

    async def feed_orders(self, per_s: float) -> None:
        while True:
            number = len(self.orders)
            customer, country = f"c{number % 12}", (None, "DE", "FR", "SE", "IT")[number % 5]
            order = {"number": number, "customer": customer, "cents": number % 100, "country": country}
            self.orders.append(order)
            await self._placements.send_and_wait("orders", json.dumps(order).encode(), key=customer.encode())
            await asyncio.sleep(1.0 / per_s)

    async def order_by_page(self, per_s: float) -> None:
        number = 1_000_001
        while True:
            customer, name = f"p{number % 3}", self.workers[number % 2]  # the third one is stopped
            assert await self.get(name, f"/order/{customer}/{number}/") == {"ok": True}
            self.orders.append({"number": number, "customer": customer, "cents": 100, "country": "DE"})
            number += 1 + (number % 5 == 4)  # else baskets would depend on which comes first
            await asyncio.sleep(1.0 / per_s)

    def noted_by_all(self, what: str) -> Counter[str]:
        return Counter("".join(each.read_text() for each in self.folder.glob(f"w*.{what}")).split())

    def newest(self, table: str) -> Counter[Any]:
        """The newest values of a table, or numbers of orders in its records, summed over partitions."""
        found: Counter[Any] = Counter()
        for records in read_topic(self, f"users-{table}-changelog").values():
            for key, value in {key: value for key, value, _ in records}.items():
                row = json.loads(value or b"0")
                found[json.loads(key or b"")] += row["orders"] if isinstance(row, dict) else row
        return found

    def wrong_sums(self) -> dict[str, Any]:
        """What differs from what the orders come to."""
        orders, wrong = self.orders, {}
        spent, countries, baskets = Counter[str](), Counter[Any](), Counter[str]()
        for order in orders:
            spent[order["customer"]] += order["cents"]
            countries[order["country"]] += order["cents"]
            baskets[order["customer"]] = baskets[order["customer"]] + 1 if order["number"] % 5 else 0
        visits = Counter(order["customer"] for order in orders)
        expected = {"spent": spent, "per_country": countries, "baskets": +baskets, "customers": visits}
        expected["visits"] = visits - self.noted_by_all("late")
        for table, rows in expected.items():
            if (found := self.newest(table)) != rows:
                wrong[table] = {key: (found[key], rows[key]) for key in found | rows if found[key] != rows[key]}
        numbers = Counter(str(order["number"]) for order in orders)
        lists = {name: self.noted_by_all(name) for name in ("archived", "printed")}
        for topic in ("billed", "batched"):
            rows_of = read_topic(self, topic).values()
            lists[topic] = Counter((value or b"").decode() for records in rows_of for _, value, _ in records)
        for name, listed in lists.items():
            if listed != numbers:
                wrong[name] = {"missing": (numbers - listed).total(), "twice": (listed - numbers).total()}
        counts = sum(int(value or 0) for rows in read_topic(self, "closed").values() for _, value, _ in rows)
        return wrong if counts == len(orders) else {**wrong, "windows": (counts, len(orders))}

    async def stale(self, partition: int) -> dict[str, set[str]]:
        """By worker, which of its metrics still name a partition of the orders."""
        name = f"orders/{partition}"
        found: dict[str, set[str]] = {}
        gauge = re.compile(rf'(\w+)\{{partition="{partition}",topic="orders"')
        for asked in self.workers:
            told = await self.get(asked, "/offsets/")
            async with aiohttp.ClientSession() as session, session.get(f"{self.url(asked)}/metrics") as page:
                exported = set(gauge.findall(await page.text()))
            found[asked] = exported | {what for what, known in told.items() if what != "signals" and name in known}
        return found


async def moved_as_users_see(cluster: UsersCluster, count: int) -> None:
    """Move key groups; no monitor names a partition that its worker has given away, and the one of the owner does."""
    for number in range(count):
        await cluster.move(number)
        await asyncio.sleep(3.0)
        owner = cluster.row(cluster.key_groups[number % PARTITIONS])[0]
        stale = await cluster.stale(number % PARTITIONS)
        assert stale.pop(owner) >= {"committed", "read", "end"}
        assert not any(stale.values()), stale


@pytest.mark.e2e
@pytest.mark.light
@pytest.mark.scenario
def test_an_app_as_users_write_it(tmp_path: Path) -> None:
    """Its producer lingers for longer than a hand-over may take, and so do its functions for changed partitions."""

    async def play(broker: Broker) -> None:
        async with UsersCluster(tmp_path / "run", broker) as cluster:
            feeding = [asyncio.create_task(cluster.feed_orders(40.0))]
            await cluster.settled(120.0)
            feeding.append(asyncio.create_task(cluster.order_by_page(4.0)))
            before = cluster.generations()
            async with cluster.asking("spent", 10.0):
                await moved_as_users_see(cluster, 4)
                (cluster.folder / "slow-signal").touch()
                await moved_as_users_see(cluster, 2)
                (cluster.folder / "slow-signal").unlink()
            assert cluster.generations() == before, "there was a rebalance"
            assert {reply.status for reply in cluster.replies["spent"]} <= {200, 503}
            assert await cluster.terminate(worker(2)) == 0
            await cluster.settled()
            cluster.start(worker(2))
            await cluster.settled()
            await moved_as_users_see(cluster, 3)
            for task in feeding:
                task.cancel()
            await asyncio.gather(*feeding, return_exceptions=True)
            assert [task for task in feeding if not task.cancelled()] == []
            await cluster.worked_off()
            wrong: dict[str, Any] = {"not": "looked"}
            for _ in range(60):
                if not (wrong := await asyncio.to_thread(cluster.wrong_sums)):
                    break
                await asyncio.sleep(1.0)
            pauses = [f"{move.pause_s:.2f}" for move in cluster.moves if move.pause_s is not None]
            print(f"{len(cluster.orders)} orders, {cluster.noted_by_all('late').total()} late, pauses {pauses}")
            assert wrong == {}
            assert "Traceback" not in logs(cluster)

    with Processes(tmp_path / "logs") as processes, Broker(tmp_path / "broker", processes) as broker:
        asyncio.run(play(broker))


EMBEDDED = """
import asyncio
from tests.e2e.steering.users_app import Order, app, orders, spent

async def main():
    await app.start()
    for number in range(50):
        await orders.send(key="c1", value=Order(number=number, customer="c1", cents=2))
    while spent["c1"] < 100:
        await asyncio.sleep(0.1)
    await app.stop()

asyncio.run(main())
"""


@pytest.mark.e2e
@pytest.mark.light
def test_an_app_runs_inside_of_another_program(tmp_path: Path) -> None:
    """As in a web server that starts it and stops it in an event loop of its own, in asyncio's debug mode."""

    class Embedding(UsersCluster):
        started_as = ("-X", "dev", "-c", EMBEDDED)

    async def play(broker: Broker) -> None:
        async with Embedding(tmp_path / "run", broker) as cluster:
            for child in list(cluster.alive.values())[1:]:
                child.send(signal.SIGKILL)
            (child, *_) = cluster.alive.values()
            assert await until(lambda: not child.alive, 90.0), "it does not end"
            assert child.exit_code == 0

    with Processes(tmp_path / "logs") as processes, Broker(tmp_path / "broker", processes) as broker:
        asyncio.run(play(broker))
