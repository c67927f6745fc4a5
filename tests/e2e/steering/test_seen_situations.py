"""Situations that were seen at real apps: logs that are shorter than what workers wrote, and a rate ten times as high.

python -m pytest tests/e2e/steering/test_seen_situations.py -n0 -s -m scenario
"""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.controller.decider.decider_situations import a_load, a_node, a_window
from tests.e2e.steering.app_names import BREACHES, note_fault
from tests.e2e.steering.cluster import Cluster, until
from tests.e2e.steering.run_setup import APP, MANY, SOURCE, Setup
from tests.e2e.steering.runs import run
from tests.e2e.steering.scenarios import Act, Scenario, begin, hand_overs
from tests.e2e.steering.test_deleted_topics import delete
from tests.e2e.steering.test_refused import logs
from tests.e2e.steering.verdict import Records, committed, read_topic
from tests.e2e.test_honest_words import a_job
from trimtab_agent.engines.faust.transport.density import NEAR
from trimtab_controller.decider.window.demand import NO_DEMAND_HISTORY, follow_demand
from trimtab_protocol.messages.commands import Refusal
from trimtab_protocol.messages.local import Statistics
from trimtab_protocol.messages.names import KeyGroup, WorkerId
from trimtab_protocol.messages.report import KeyGroupSample
from trimtab_sandbox.broker import Broker, Topic

SMALL = {"workers": 2, "partitions": 4, "rate": 60.0, "preload": 400, "keys": 40}
RESTORED, LEFT = 0.8, 0.7
"""Which part of the changelogs a backup had, and which one the broker's disk has kept."""
HIGH = {"workers": 3, "partitions": 3, "rate": 60.0, "preload": 30, "keys": 30, "writes": 80}
"""Each key group of the source writes 20 * (80 + 2) changelog records per second."""

OFFSETS = 100_000
"""Of each partition of a compacted source."""
COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.0",
    "min.compaction.lag.ms": "0",
    "segment.ms": "1000",
    "segment.bytes": "1048576",
}


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
        await cluster.load.stop()
        await asyncio.sleep(2.0)  # the last ones may still be in work
        await cluster.worked_off()
        await asyncio.sleep(2.0)
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
        await cluster.load.stop()
        await asyncio.sleep(2.0)
        await cluster.worked_off()
        await asyncio.sleep(2.0)
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
    await cluster.load.stop()
    await asyncio.sleep(2.0)
    await cluster.worked_off()
    await asyncio.sleep(2.0)
    assert not [ack for ack in cluster.agent.acks if ack.refusal is Refusal.CATCH_UP_TIMEOUT]
    rows = await asyncio.to_thread(read_topic, cluster, MANY)
    newest = {json.loads(key or b""): int(value or 0) for each in rows.values() for key, value, _ in each}
    assert newest == {
        f"{key}.{place}": count
        for key, count in Counter(key for key, _ in cluster.load.sent).items()
        for place in range(cluster.setup.writes)
    }


PLAYED = (
    Scenario(name="restored changelogs, inputs wait", setup=Setup(**SMALL), act=restored(200)),  # type: ignore[arg-type]
    Scenario(name="restored changelogs", setup=Setup(**SMALL), act=restored(0)),  # type: ignore[arg-type]
    Scenario(name="ends of changelogs lost", setup=Setup(**SMALL), act=ends_lost),  # type: ignore[arg-type]
    Scenario(name="ten times the rate", setup=Setup(**HIGH), act=ten_times),  # type: ignore[arg-type]
)
LOST = ("too low", "wrong keys")
"""What must be wrong where a changelog has lost records."""


@pytest.mark.e2e
@pytest.mark.light
@pytest.mark.scenario
@pytest.mark.parametrize("scenario", PLAYED, ids=lambda scenario: scenario.name)
def test_a_job_is_right_in_this_situation(scenario: Scenario, tmp_path: Path) -> None:
    outcome = asyncio.run(run(scenario, tmp_path))

    print(f"{scenario.name}: {outcome.seconds:.0f} s, pauses {outcome.pauses}")
    loses = scenario.act is not ten_times
    assert [each for each in outcome.complaints if not (loses and each.startswith(LOST))] == []
    assert any(outcome.verdict.too_low.values()) == loses


def fill(broker: Broker, topic: str) -> list[list[int]]:
    """Write all offsets, and wait until the log cleaner has left hardly more than the survivors; returns their offsets.

    In partition 0 they lie evenly, in partition 1 most of them at the head.
    """
    producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 50, "queue.buffering.max.messages": 500_000})
    survive: tuple[Callable[[int], bool], ...] = (lambda at: at % 50 == 0, lambda at: at < 1_500 or at % 1_000 == 0)
    for offset in range(OFFSETS):
        for partition, survives in enumerate(survive):
            producer.produce(topic, b"5", f'"{offset if survives(offset) else ""}"', partition)
        producer.poll(0)
    assert producer.flush(60.0) == 0
    wanted = sum(survives(offset) for offset in range(OFFSETS) for survives in survive)
    deadline = time.monotonic() + 60.0
    while (left := sum(map(len, found := offsets_of(broker, topic)))) > 1.2 * wanted:
        assert time.monotonic() < deadline, f"{left} records left"
        time.sleep(2.0)
        for partition in range(len(survive)):  # the newest segment is not compacted, so there is a newer one
            producer.produce(topic, b"5", '""', partition)
        producer.flush(30.0)
    return found


def offsets_of(broker: Broker, topic: str) -> list[list[int]]:
    """The offsets that a topic of two partitions still has."""
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "offsets", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(2)])
    found: list[list[int]] = [[], []]
    ended: set[int] = set()
    while len(ended) < len(found):
        for message in consumer.consume(5000, 1):
            if message.error():
                ended.add(message.partition())
            else:
                found[message.partition()].append(message.offset())
    consumer.close()
    return found


def asked_for(windows: Sequence[Sequence[Statistics]], waiting: Callable[[KeyGroupSample, int], int | None]) -> float:
    """The highest demand (cores) of a worker of half a core that is busy, by what is said to wait for it."""
    history, most, done = NO_DEMAND_HISTORY, 0.0, Counter[int]()
    for frames in windows:
        start_ms, end_ms = round(frames[0].at_ms - 1e3 * frames[0].interval_s), round(frames[-1].at_ms)
        read: Counter[KeyGroup] = Counter()
        for frame in frames:
            read.update({each.key_group: each.tuples_in or 0 for each in frame.key_groups})
        window_s = (end_ms - start_ms) / 1e3
        done.update({each.partition: count for each, count in read.items()})
        loads = [
            a_load(
                each.key_group,
                "w0",
                0.45 * read[each.key_group] / max(1, read.total()),
                tuples_in_s=read[each.key_group] / window_s,
                backlog=waiting(each, done[each.key_group.partition]),
            )
            for each in frames[-1].key_groups
        ]
        window = a_window(end_ms / 1e3, [a_node("w0", cpu=0.5)], loads, start_ms=start_ms, end_ms=end_ms)
        found, history = follow_demand(window, history, catch_up_s=30.0, smoothing=0.5)
        most = max(most, (found.workers[WorkerId("w0")].pct or 0.0) / 200.0)
    return most


@pytest.mark.e2e
@pytest.mark.light
@pytest.mark.scenario
def test_a_compacted_source_asks_for_no_more_than_the_records_that_it_has(
    private_broker: Callable[..., Broker], unique: str, tmp_path: Path
) -> None:
    broker = private_broker({"log.cleaner.backoff.ms": "100", "log.cleaner.min.cleanable.ratio": "0.001"})
    frames: dict[float, Statistics] = {}

    async def play() -> list[list[int]]:
        async with a_job(broker, unique, tmp_path, settings=COMPACTED) as job:
            here = await asyncio.to_thread(fill, broker, job.topic)
            job.start()

            def all_read(said: Statistics) -> bool:
                frames[said.at_ms] = said
                return all(each.backlog == 0 for each in said.key_groups)

            await job.comes_true(all_read)
            return here

    here = asyncio.run(play())
    print(f"{sum(map(len, here))} records on {sum(each[-1] + 1 for each in here)} offsets, {len(frames)} samples")
    done: Counter[KeyGroup] = Counter()
    known = 0
    for frame in frames.values():
        for each in frame.key_groups:
            done[each.key_group] += each.tuples_in or 0
            left = len(here[each.key_group.partition]) - done[each.key_group]
            if each.backlog is not None:
                known += each.backlog > 0
                assert each.backlog <= 1.3 * left + NEAR / 2, (each, left)
    assert known > 10
    samples = list(frames.values())
    windows = [samples[at : at + 5] for at in range(0, len(samples), 5)]
    told = asked_for(windows, lambda each, _: each.backlog)
    true = asked_for(windows, lambda each, done: max(0, len(here[each.key_group.partition]) - done))
    by_offsets = asked_for(windows, lambda each, done: OFFSETS - here[each.key_group.partition][min(done, 1_500)])
    print(f"asked for {told:.2f} cores; {true:.2f} by the records that wait, {by_offsets:.2f} by offsets")
    assert told < 1.2 * true
    assert by_offsets > 3 * true, "otherwise the test shows nothing"
