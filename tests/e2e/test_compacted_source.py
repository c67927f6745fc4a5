"""A compacted source asks for no more CPU than the records that it still has, however many offsets they span."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Producer

from flights.readback import read_topic
from tests.controller.decider.decider_situations import a_load, a_node, a_window
from tests.e2e.test_honest_words import a_job
from trimtab_agent.engines.faust.transport.density import NEAR
from trimtab_controller.decider.window.demand import NO_DEMAND_HISTORY, follow_demand
from trimtab_protocol.messages.local import Statistics
from trimtab_protocol.messages.names import KeyGroup, WorkerId
from trimtab_protocol.messages.report import KeyGroupSample
from trimtab_sandbox.broker import Broker

pytestmark = [pytest.mark.light, pytest.mark.scenario]

OFFSETS = 100_000
"""Of each partition of a compacted source."""
COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.0",
    "min.compaction.lag.ms": "0",
    "segment.ms": "1000",
    "segment.bytes": "1048576",
}


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
    found: list[list[int]] = [[], []]
    for row in read_topic(broker.address, topic):
        found[row.partition].append(row.offset)
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
