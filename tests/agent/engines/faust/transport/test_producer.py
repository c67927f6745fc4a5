"""What a flush waits for: the producer without a broker."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import aiokafka
import faust
import pytest
from aiokafka.errors import (
    KafkaError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.structs import TopicPartition
from faust.exceptions import ProducerSendError
from faust.transport.drivers.aiokafka import Producer
from faust.types import TP

from tests.agent.engines.faust.steered import processing, transport_of
from trimtab_agent.engines.faust.safety.fence import Fence, WorkerFenced
from trimtab_agent.engines.faust.safety.store_guard import ImpossibleRecord
from trimtab_agent.engines.faust.safety.troubles import Trouble
from trimtab_agent.engines.faust.transport.producer import BUFFERED, TURN_S, FencedProducer, SteeredProducer


@contextmanager
def following(client: Any, monkeypatch: pytest.MonkeyPatch, asked: Callable[..., Awaitable[bool]]) -> Iterator[None]:
    """The client asks for topics in the background; `asked` is what the broker does then."""
    monkeypatch.setattr(client, "_metadata_update", asked)
    asking = asyncio.create_task(client._md_synchronizer())
    try:
        yield
    finally:
        asking.cancel()


class Pending:
    """A message in the buffer that takes its time to be published."""

    def __init__(self, story: list[str], name: str, delay_s: float) -> None:
        self.message = self.channel = self
        self._story, self._name, self._delay_s = story, name, delay_s

    async def publish_message(self, _: Any, *, wait: bool) -> None:
        self._story.append(f"{self._name} begun")
        await asyncio.sleep(self._delay_s)
        self._story.append(f"{self._name} published")


def made() -> SteeredProducer:
    producer: SteeredProducer = transport_of(faust.App("ks", web_enabled=False)).create_producer()
    return producer


async def started(**options: Any) -> tuple[SteeredProducer, FencedProducer]:
    """The producer of a worker whose buffer runs, and the client below it, which is not connected."""
    steered = made()
    await steered.buffer.start()
    fence = steered.transport.fence
    steered._producer = client = FencedProducer(fence, print, print, bootstrap_servers="127.0.0.1:1", **options)
    return steered, client


def knowing(topics: list[str]) -> Callable[..., Awaitable[bool]]:
    """A broker that knows these topics, whatever it is asked for."""

    async def asked(cluster: Any, _: set[str]) -> bool:
        cluster.update_metadata(metadata(*topics))
        return True

    return asked


async def test_a_flush_waits_for_all_before_it_also_slow_ones_and_for_nothing_after() -> None:
    story: list[str] = []

    producer = made()
    await producer.buffer.start()
    try:
        producer.buffer.put(Pending(story, "first", 0.25))  # stock Faust gives up after 0.1 s
        producer.buffer.put(Pending(story, "second", 0.0))
        flushing = asyncio.create_task(producer.flush())
        await asyncio.sleep(0)
        producer.buffer.put(Pending(story, "later", 10.0))
        await asyncio.wait_for(flushing, 60.0)
        story.append("flushed")
    finally:
        producer.buffer._stopped.set()
    assert [line for line in story if not line.startswith("later")] == [
        *("first begun", "first published", "second begun", "second published", "flushed"),
    ]


async def test_records_need_no_turn_of_the_event_loop_each_and_let_others_run(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(_: Any) -> None: ...

    monkeypatch.setattr(Producer, "on_start", nothing)
    monkeypatch.setattr(Producer, "on_stop", nothing)
    producer, turns = made(), list[int]()
    app, faust_asks = producer.app, producer.app.maybe_start_producer
    await producer.on_start()

    async def count_turns() -> None:
        while True:
            turns.append(1)
            await asyncio.sleep(0)

    counting, asked, until = asyncio.create_task(count_turns()), 0, time.monotonic() + 10 * TURN_S
    while time.monotonic() < until:
        assert await app.maybe_start_producer() is producer
        asked += 1
    counting.cancel()
    await producer.on_stop()

    assert 1 <= len(turns) <= 11 < asked
    assert type(app.maybe_start_producer) is type(faust_asks)


async def test_a_stopped_buffer_holds_up_no_flush() -> None:
    producer = made()
    await producer.buffer.start()
    producer.buffer._stopped.set()
    producer.buffer.put(Pending([], "never", 0.0))
    await asyncio.wait_for(producer.flush(), 60.0)


def test_a_buffer_that_was_never_started_holds_up_no_end() -> None:
    """The app ends before its producer has started, because something before it has failed."""
    asyncio.run(asyncio.wait_for(made().flush(), 10.0))


@pytest.mark.parametrize("times", [1, 3])
async def test_flushing_an_idle_buffer_ends(times: int) -> None:
    producer = made()
    await producer.buffer.start()
    try:
        for _ in range(times):
            await asyncio.wait_for(producer.flush(), 60.0)
    finally:
        producer.buffer._stopped.set()
    assert producer.buffer.size == 0


class Unsendable:
    """A message that the client refuses, for example because it is too large."""

    value = b"a large value"
    partition = key = None

    def __init__(self) -> None:
        self.message = self.channel = self

    def __str__(self) -> str:
        return "out"

    async def publish_message(self, _: Any, *, wait: bool) -> None:
        raise ProducerSendError("too large")


async def test_nothing_is_committed_once_a_message_cannot_be_sent(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("trimtab_agent.engines.faust.safety.fence.end_process_after", lambda _: None)

    producer = made()
    with pytest.raises(ProducerSendError):
        await producer.buffer._send_pending(Unsendable())
    assert producer.transport.fence.broken
    assert "a record of out with 13 bytes cannot be sent, this worker ends: too large" in caplog.text


OUT, OTHER = TopicPartition("out", 0), TopicPartition("out", 1)
TOO_LARGE, OUT_OF_ORDER, NOT_LEADER, DONE = 10, 45, 6, 0


def batch(first: int) -> bytes:
    """Two records as aiokafka sends them, the first one with this sequence number."""
    builder = BatchBuilder(10_000, 0, is_transactional=False, key_serializer=None, value_serializer=None)
    for _ in range(2):
        assert builder.append(timestamp=1, key=b"k", value=b"v")
    builder._set_producer_state(producer_id=7, producer_epoch=0, base_sequence=first)
    data: bytes = builder._build()
    return data


@pytest.mark.parametrize(
    ("answers", "following", "fatal"),
    [
        pytest.param([(TOO_LARGE, DONE)], (3, 11), 0, id="refused: its number is free"),
        pytest.param([(DONE, DONE)], (5, 11), 0, id="written"),
        pytest.param([(OUT_OF_ORDER, TOO_LARGE)], (5, 9), 1, id="nothing more would be taken"),
        pytest.param([(NOT_LEADER, DONE), (TOO_LARGE, DONE)], (5, 11), 1, id="may have been written before"),
        pytest.param([(NOT_LEADER, DONE), (DONE, DONE), (TOO_LARGE, DONE)], (3, 11), 0, id="written, then refused"),
    ],
)
async def test_a_refused_batch_does_not_make_the_broker_refuse_all_that_follow(
    monkeypatch: pytest.MonkeyPatch, answers: list[tuple[int, int]], following: tuple[int, int], fatal: int
) -> None:
    ends: list[Exception] = []

    left = list(answers)

    async def answer(self: object, node_id: int, request: object, **_: object) -> Any:
        rows = [(partition, code, -1, -1) for partition, code in enumerate(left.pop(0))]
        return SimpleNamespace(topics=[("out", rows)])

    monkeypatch.setattr(aiokafka.client.AIOKafkaClient, "send", answer)
    producer = FencedProducer(Fence(10.0), ends.append, print, bootstrap_servers="127.0.0.1:1", enable_idempotence=True)
    manager = producer._txn_manager
    manager._sequence_numbers.update({OUT: 5, OTHER: 11})  # counted when the batches were taken from the queue
    request = ProduceRequest(None, -1, 1000, [("out", [(0, batch(3)), (1, batch(9))])])
    for _ in range(len(answers)):
        await producer.client.send(1, request)
    await producer.stop()
    assert (manager.sequence_number(OUT), manager.sequence_number(OTHER)) == following
    assert len(ends) == fatal


TOLD_AT_START = ("out", "audit")
MADE_LATER = "app-table-changelog"


def metadata(*topics: str, leader: int = 1) -> SimpleNamespace:
    """What a broker answers: it leads partition 0 of each topic."""
    rows = [(0, topic, False, [(0, 0, leader, [1], [1])]) for topic in topics]
    return SimpleNamespace(API_VERSION=1, brokers=[(1, "127.0.0.1", 1, None)], controller_id=1, topics=rows)


async def test_a_new_topic_makes_the_producer_forget_no_leader_of_those_that_it_writes_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    producer = FencedProducer(Fence(10.0), lambda _: None, print, bootstrap_servers="127.0.0.1:1")
    client = producer.client
    client.cluster.update_metadata(metadata(*TOLD_AT_START))  # a client asks for all topics when it starts

    async def asked(cluster: Any, topics: set[str]) -> bool:
        cluster.update_metadata(metadata(*topics))
        return True

    with following(client, monkeypatch, asked):
        for topic in ("out", MADE_LATER):
            await asyncio.wait_for(client._wait_on_metadata(topic), 60.0)
    assert [client.cluster.leader_for_partition(TopicPartition(topic, 0)) for topic in ("out", MADE_LATER)] == [1, 1]


@pytest.mark.parametrize("kind", ["an output", "a changelog"])
async def test_what_waits_for_a_deleted_topic_is_given_up_unless_it_is_state(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flush waits for it, and so do all commits, rebalances and hand-overs."""
    monkeypatch.setattr(f"{FencedProducer.__module__}.GONE_S", 0.01)

    told: list[Any] = []
    made_again: list[str] = []
    lost, is_output = lambda *row: told.append(row), lambda _: kind == "an output"
    producer = FencedProducer(
        Fence(10.0), lambda _: None, lost, is_output, made_again.append, bootstrap_servers="127.0.0.1:1"
    )
    tp, accumulator = TopicPartition("out", 0), producer._message_accumulator
    producer.client.cluster.update_metadata(metadata("out"))
    sent = await accumulator.add_message(tp, b"k", b"v", 1200.0)
    await asyncio.sleep(0.05)
    for known in ("other", "out", "other"):  # a broker that has just started does not know the topic yet
        producer.client.cluster.update_metadata(metadata(known))
        accumulator.drain_by_nodes({1})
        assert not sent.done()
    await asyncio.sleep(0.05)
    for _ in range(2):  # it expires, and is dropped
        accumulator.drain_by_nodes({1})
    if sent.done():
        sent.exception()
    assert ([row[:2] for row in told], sent.done(), made_again) == (
        ([("out", 0)], True, []) if kind == "an output" else ([], False, ["out"])
    )


async def test_a_changelog_that_is_gone_is_made_again_while_its_records_wait_or_are_dropped_at_a_rebalance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(f"{FencedProducer.__module__}.GONE_S", 0.3)

    made_again: list[str] = []
    steered, producer = await started(on_changelog_gone=made_again.append)
    client = producer.client
    with following(client, monkeypatch, knowing(["other"])):
        waiting = asyncio.create_task(client._wait_on_metadata("log"))
        while not made_again:
            await asyncio.sleep(0.01)
        assert not waiting.done()
        assert producer.without_leader() == ["log"]
        producer.drop_what_waits()
        with pytest.raises(WorkerFenced, match="log is not there"):
            await asyncio.wait_for(waiting, 60.0)
        assert producer.without_leader() == []
    steered.buffer._stopped.set()
    assert made_again == ["log"]


async def test_while_all_partitions_have_leaders_nothing_is_looked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = FencedProducer(Fence(10.0), print, print, lambda _: True, bootstrap_servers="127.0.0.1:1")
    accumulator, looked = producer._message_accumulator, list[bool]()
    monkeypatch.setattr(producer, "_give_up", lambda: looked.append(True))
    await accumulator.add_message(TopicPartition("out", 0), b"k", b"v", 1200.0)
    found = []
    for known in ("out", "other"):
        producer.client.cluster.update_metadata(metadata(known))
        accumulator.drain_by_nodes({1})
        found.append(bool(looked))
    assert found == [False, True]


@pytest.mark.parametrize("key", [b"a", b"b", b'"a"', b"\xff"])
async def test_a_key_is_asked_where_it_is_sent(key: bytes) -> None:
    producer = made()
    sending = producer._producer = FencedProducer(Fence(10.0), print, print, bootstrap_servers="127.0.0.1:1")
    rows = [(0, "t", False, [(0, number, 1, [1], [1]) for number in range(8)])]
    sending.client.cluster.update_metadata(
        SimpleNamespace(API_VERSION=1, brokers=[(1, "127.0.0.1", 1, None)], controller_id=1, topics=rows)
    )
    by_aiokafka = aiokafka.AIOKafkaProducer._partition(sending, "t", None, None, None, key, None)
    assert producer.key_partition("t", key) == TP("t", by_aiokafka)
    assert sending._partition("t", None, None, None, key, None) == by_aiokafka


async def test_a_batch_goes_with_those_that_linger_already_and_wakes_nobody_before() -> None:
    producer = FencedProducer(Fence(10.0), print, print, bootstrap_servers="127.0.0.1:1", linger_ms=2_000)
    first, second, third = (TopicPartition(topic, 0) for topic in ("first", "second", "third"))
    producer.client.cluster.update_metadata(metadata("first", "second", "third"))
    accumulator, began = producer._message_accumulator, time.monotonic()
    woken = accumulator.waiter()

    await accumulator.add_message(first, b"k", b"v", 1200.0)
    assert woken.done()  # nobody has planned yet when to look
    assert accumulator.drain_by_nodes({}) == ({}, False)
    await asyncio.sleep(0.1)
    woken = accumulator.waiter()
    await accumulator.add_message(second, b"k", b"v", 1200.0)
    assert not woken.done()
    await asyncio.wait_for(woken, 60.0)
    await accumulator.add_message(third, b"k", b"v", 1200.0)  # the sender is about to look
    (node, batches), *others = accumulator.drain_by_nodes({})[0].items()

    assert time.monotonic() - began > 1.9
    assert (node, batches.keys(), others) == (1, {first, second, third}, [])


async def test_a_flush_sends_what_lingers() -> None:
    producer = FencedProducer(Fence(10.0), print, print, bootstrap_servers="127.0.0.1:1", linger_ms=600_000)
    producer.client.cluster.update_metadata(metadata("out"))
    accumulator = producer._message_accumulator
    await accumulator.add_message(TopicPartition("out", 0), b"k", b"v", 1200.0)
    assert accumulator.drain_by_nodes({}) == ({}, False)
    woken = accumulator.waiter()

    flushing = asyncio.create_task(producer.flush())
    await asyncio.wait_for(woken, 60.0)
    batches = accumulator.drain_by_nodes({})[0][1]
    assert not flushing.done()
    batches[TopicPartition("out", 0)].done_noack()
    await asyncio.wait_for(flushing, 60.0)


async def test_a_topic_that_the_app_may_not_write_is_no_topic_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    producer = FencedProducer(Fence(10.0), print, print, lambda _: True, bootstrap_servers="127.0.0.1:1")
    client = producer.client

    async def asked(cluster: Any, topics: set[str]) -> bool:
        await asyncio.sleep(0.3)  # a slow broker: longer than between two looks
        cluster.update_metadata(metadata("other"))
        cluster.unauthorized_topics.add("out")
        return True

    with following(client, monkeypatch, asked), pytest.raises(TopicAuthorizationFailedError):
        await asyncio.wait_for(client._wait_on_metadata("out"), 10.0)


@pytest.mark.parametrize(
    ("known", "refused", "said"),
    [
        (False, None, True),
        (False, TopicAuthorizationFailedError("log"), True),
        (False, TopicAlreadyExistsError(), False),
        (True, None, False),
    ],
)
async def test_a_changelog_is_made_as_at_the_start_of_a_worker_and_told_by_name(
    refused: KafkaError | None,
    *,
    known: bool,
    said: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A broker that has just started may not know it yet: nothing is lost then."""
    told: list[tuple[Trouble, str]] = []
    asked: list[dict[str, Any]] = []

    async def create(topic: str, partitions: int, replication: int, **how: Any) -> None:
        asked.append({"topic": topic, "partitions": partitions, "replication": replication} | how)
        if refused is not None:
            raise refused

    producer = made()
    app = producer.transport.app
    table = app.Table("sums", partitions=7)
    name = table.changelog_topic_name
    app.tables._changelogs[name] = table
    producer.transport.watcher = SimpleNamespace(tell=lambda *what: told.append(what))
    monkeypatch.setattr(producer, "create_topic", create)
    cluster = SimpleNamespace(topics=lambda: {"other"} | ({name} if known else set()))
    client = SimpleNamespace(cluster=cluster, force_metadata_update=lambda: asyncio.sleep(0))
    producer._producer = SimpleNamespace(client=client)  # type: ignore[assignment]
    app.add_future = asyncio.ensure_future
    producer.make_again(name)
    await asyncio.sleep(0.01)
    made_of = [(found["topic"], found["partitions"], found["compacting"]) for found in asked]
    assert made_of == [("ks-sums-changelog", 7, True)] * (not known)
    cannot = isinstance(refused, TopicAuthorizationFailedError)
    assert ("the changelog ks-sums-changelog cannot be made again" in caplog.text) is cannot
    assert [trouble for trouble, _ in told] == [Trouble.STATE_LOST] * said
    assert all("the changelog ks-sums-changelog was deleted" in text for _, text in told)


async def test_a_worker_that_rejoins_does_not_wait_for_the_leaders_of_what_it_drops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Stopped(FencedProducer):
        async def start(self) -> None: ...

        async def stop(self) -> None:
            await self._message_accumulator.flush()  # as it does while its sender runs

    producer = made()
    renewed = [Stopped(Fence(10.0), print, print, bootstrap_servers="127.0.0.1:1") for _ in range(2)]
    monkeypatch.setattr(producer, "_new_producer", renewed.pop)
    producer._producer = old = renewed.pop()
    old.condemned = True
    sent = await old._message_accumulator.add_message(TopicPartition("no leader", 0), b"k", b"v", 1200.0)
    await asyncio.wait_for(producer.renew_if_condemned(), 60.0)
    assert producer._producer is not old
    error: BaseException | None = sent.exception()
    assert isinstance(error, WorkerFenced)


@pytest.mark.parametrize("leader", [-1, 1])
def test_a_rebalance_drops_what_waits_for_a_partition_without_a_leader_and_commits_nothing_of_it(
    leader: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The group would put out all workers that wait; with a leader, the broker may lack copies in sync, and waits."""

    async def rebalance() -> list[object]:
        steered, producer = await started()
        producer.client.cluster.update_metadata(metadata("out", leader=leader))
        add = producer._message_accumulator.add_message
        sent = await add(TopicPartition("out", 0), b"k", b"v", 1200.0)
        try:
            async with asyncio.timeout(0.3):
                await steered.flush_or_drop(0.01)
        except TimeoutError:
            return ["waits", steered.transport.fence.dropped, producer.condemned]
        finally:
            steered.buffer._stopped.set()
        with pytest.raises(WorkerFenced):
            await add(TopicPartition("out", 0), b"k", b"v", 1200.0)
        return [type(sent.exception()), steered.transport.fence.dropped, producer.condemned]

    expected = [WorkerFenced, True, True] if leader == -1 else ["waits", False, False]
    assert asyncio.run(rebalance()) == expected
    assert ("the group rebalances while out/0 has no leader" in caplog.text) is (leader == -1)


async def test_what_comes_back_unsent_after_the_rest_was_dropped_is_dropped_as_well() -> None:
    """A request that was in flight may have been written; one that the broker sends back never is."""
    steered, producer = await started()
    producer.client.cluster.update_metadata(metadata("out", leader=-1))
    accumulator = producer._message_accumulator
    await accumulator.add_message(TopicPartition("out", 0), b"k", b"v", 1200.0)
    sent = await accumulator.add_message(TopicPartition("other", 0), b"k", b"v", 1200.0)
    in_flight = accumulator._pop_batch(TopicPartition("other", 0))
    dropping = asyncio.create_task(steered.flush_or_drop(0.01))
    await asyncio.sleep(0.1)
    before = dropping.done() or sent.done()
    accumulator.reenqueue(in_flight)
    await asyncio.wait_for(dropping, 60.0)
    steered.buffer._stopped.set()
    error: BaseException | None = sent.exception()
    before, error = (before, error)
    assert not before
    assert isinstance(error, WorkerFenced)


async def test_once_a_topic_is_gone_the_buffer_does_not_wait_for_it_until_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gone_s = f"{FencedProducer.__module__}.GONE_S"
    monkeypatch.setattr(f"{FencedProducer.__module__}.LOOK_AGAIN_S", 0.0)

    BUFFERED.set(True)
    producer = FencedProducer(Fence(10.0), print, print, lambda _: True, bootstrap_servers="127.0.0.1:1")
    client, there = producer.client, ["other"]
    with following(client, monkeypatch, knowing(there)):
        for limit_s in (0.5, 3600.0, 3600.0):  # only the first one waits
            monkeypatch.setattr(gone_s, limit_s)
            with pytest.raises(UnknownTopicOrPartitionError):
                await client._wait_on_metadata("gone")
        there.append("gone")
        while "gone" not in client.cluster._partitions:
            with suppress(UnknownTopicOrPartitionError):
                await client._wait_on_metadata("gone")
            await asyncio.sleep(0.01)
        assert await client._wait_on_metadata("gone") == {0}


@pytest.mark.parametrize(
    ("of_the_buffer", "answers", "becomes"), [(True, True, "given up"), (True, False, "waits"), (False, True, "waits")]
)
def test_a_topic_that_is_not_there_holds_up_the_event_that_sends_and_nothing_else(
    of_the_buffer: bool, answers: bool, becomes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stock Faust waits for 20 minutes; somebody may make the topic until then."""
    monkeypatch.setattr(f"{FencedProducer.__module__}.GONE_S", 1.0)

    async def send() -> str:
        BUFFERED.set(of_the_buffer)
        producer = FencedProducer(Fence(10.0), print, print, lambda _: True, bootstrap_servers="127.0.0.1:1")
        client, there = producer.client, ["other"]

        async def asked(cluster: Any, topics: set[str]) -> bool:
            if answers:
                cluster.update_metadata(metadata(*there))
            return answers

        with following(client, monkeypatch, asked):
            waiting = asyncio.create_task(client._wait_on_metadata("late"))
            await asyncio.wait([waiting], timeout=60.0 if becomes == "given up" else 2.5)
            if waiting.done():
                assert isinstance(waiting.exception(), UnknownTopicOrPartitionError)
                return "given up"
            there.append("late")
            if answers:
                assert await asyncio.wait_for(waiting, 60.0) == {0}
            waiting.cancel()
            return "waits"

    assert asyncio.run(send()) == becomes


def buffered(key: object, value: object, **how: Any) -> list[Any]:
    """What a producer buffers of a record that some event sends."""
    producer = made()
    cluster = SimpleNamespace(partitions_for_topic={"out": {0, 1}}.get)
    producer._producer = SimpleNamespace(client=SimpleNamespace(cluster=cluster))  # type: ignore[assignment]
    given = {"channel": "out", "partition": None, "timestamp": None, "headers": {"h": b"1"}} | how
    future: Any = SimpleNamespace(message=SimpleNamespace(key=key, value=value, **given))
    kept: list[Any] = []
    producer.buffer.put = kept.append  # type: ignore[method-assign]
    producer.send_soon(future)
    return kept


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        (b"k", b"x" * 999_000, None),
        (None, b"v", None),
        (b"k", None, None),
        (b"k", b"x" * 1_000_000, "bytes, expected at most 1000000 .producer_max_request_size"),
        (b"k", 7, "found a int, expected bytes"),
        ("k", b"v", "found a str, expected bytes"),
    ],
)
def test_what_the_client_would_refuse_is_an_error_of_the_event_and_not_the_end_of_the_buffer(
    key: object, value: object, complaint: str | None
) -> None:
    if complaint is None:
        assert len(buffered(key, value)) == 1
    else:
        with pytest.raises(ImpossibleRecord, match=complaint):
            buffered(key, value)


def test_the_event_whose_record_is_impossible_is_named() -> None:
    class Event:
        message = SimpleNamespace(tp=TP("in", 3), offset=187)

    told = "a record of out with key b'k', event in/3 offset 187: found a int"
    with processing(Event()), pytest.raises(ImpossibleRecord, match=told):
        buffered(b"k", 7)


@pytest.mark.parametrize(
    ("how", "complaint"),
    [
        ({"partition": 1, "timestamp": 1.7e9, "headers": [("h", None)]}, None),
        ({"channel": "not seen yet", "partition": 7}, None),
        ({"partition": 2}, "found partition 2, expected one of 2"),
        ({"partition": -1}, "found partition -1"),
        ({"headers": {"h": "text"}}, "Expected bytes, got str"),
        ({"headers": [(b"h", b"1")]}, "Expected str, got bytes"),
        ({"timestamp": float("nan")}, "cannot convert float NaN"),
        ({"timestamp": 1e18}, "too large"),
        ({"key": None, "value": None}, "neither a key nor a value"),
        ({"channel": faust.App("ks", web_enabled=False).topic("in", "out")}, "multiple topic names"),
    ],
)
def test_what_the_app_chooses_wrongly_for_an_output_is_an_error_of_the_event(
    how: dict[str, Any], complaint: str | None
) -> None:
    """Faust's buffer would end, and with it each worker that processes the event."""
    record = {"key": b"k", "value": b"v"} | how
    if complaint is None:
        assert len(buffered(**record)) == 1
    else:
        with pytest.raises(ValueError, match=complaint):
            buffered(**record)


@pytest.mark.parametrize(
    ("cause", "rows"),
    [(TopicAuthorizationFailedError("out"), [("out", None)]), (WorkerFenced("dropped, and done again"), [])],
)
async def test_what_the_client_refuses_as_the_broker_would_is_told_to_its_topic_and_ends_nobody(
    cause: KafkaError, rows: list[object]
) -> None:
    told: list[BaseException | None] = []
    lost: list[tuple[Any, ...]] = []

    class Latency(faust.Monitor):  # type: ignore[misc]
        """As Faust's monitors for Prometheus, Datadog and Statsd: how long a record took that was not sent."""

        def on_send_error(self, producer: Any, exc: BaseException, state: float) -> None:
            told.append(exc if self.secs_since(state) >= 0.0 else None)

    class Refused(Unsendable):
        async def publish_message(self, _: Any, *, wait: bool) -> None:
            raise ProducerSendError("while sending") from cause

        def _on_published(self, sent: Any, producer: Any, state: Any, **_: Any) -> None:
            producer.app.sensors.on_send_error(producer, sent.exception(), state)

    producer = made()
    producer.app.sensors.add(Latency())
    producer.transport.guard.outputs_lost = lambda *row: lost.append(row)
    await producer.buffer._send_pending(Refused())
    assert producer.transport.fence.broken is False
    assert told == [cause]
    assert [row[:2] for row in lost] == rows
