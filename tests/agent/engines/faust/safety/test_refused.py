"""A changelog record that the broker refuses: its partition stands, nothing is lost or repeated, and it goes on."""

import asyncio
import contextvars
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import MessageSizeTooLargeError, TopicAuthorizationFailedError, for_code
from aiokafka.structs import TopicPartition
from faust.exceptions import ProducerSendError
from faust.types import TP

from tests.agent.engines.faust.safety.test_store_guard import OWN, SOURCE, SUMS, Event, Sent, within, writing
from trimtab_agent.engines.faust.safety import refused
from trimtab_agent.engines.faust.safety.damaged import MARK
from trimtab_agent.engines.faust.safety.refused import RefusedRecord, refusal
from trimtab_agent.engines.faust.safety.troubles import Trouble

INVALID = for_code(87)()


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refused, "SOON_S", 0.001)
    monkeypatch.setattr(refused, "LATER_S", 0.01)
    monkeypatch.setattr(refused, "LOOK_S", 0.001)


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (INVALID, "InvalidRecord: the broker calls it invalid"),
        (MessageSizeTooLargeError(), "MessageSizeTooLarge: it is larger than max.message.bytes"),
        (TopicAuthorizationFailedError("t"), "TopicAuthorizationFailed: the app may not write this topic"),
        (for_code(44)(), "PolicyViolation: a policy of the broker forbids it"),
        (for_code(7)(), None),
        (OSError(28, "No space left on device"), None),
        (ValueError("no code"), None),
    ],
)
def test_what_a_restart_cannot_cure_is_told_apart_and_named(error: Exception, why: str | None) -> None:
    assert refusal(error) == why
    wrapped = ProducerSendError("by the client")
    wrapped.__cause__ = error
    assert refusal(wrapped) == why


class Broker(Sent):
    """Refuses what `refuses` says, and takes all else."""

    def __init__(self, transport: Any, refuses: Callable[[Any], Exception | None]) -> None:
        super().__init__(transport)
        self.refuses = refuses

    def put(self, future: Any) -> None:
        """The answer comes later, when nobody works on the event any more."""
        super().put(future)
        asyncio.get_running_loop().call_soon(self.answer, future, context=contextvars.Context())

    async def flush(self) -> None:
        await asyncio.sleep(0.001)

    def answer(self, future: Any) -> None:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if (error := self.refuses(future.message)) is not None:
            answer.set_exception(error)
        else:
            answer.set_result(SimpleNamespace(topic_partition=SUMS, offset=len(self.records)))
        future.message.channel._on_published(answer, message=future, producer=self, state={})
        if future.done():
            future.exception()


class Rig:
    """A worker with real stores that has begun partition 0 of `events` at offset 10."""

    def __init__(self, folder: Path) -> None:
        self.app, self.consumer, _ = writing(folder, active=OWN)
        self.told: list[tuple[Trouble, str | None]] = []
        self.refusing = {b'"bad"'}
        self.broker = Broker(self.consumer.transport, lambda record: INVALID if record.key in self.refusing else None)
        self.app.transport = self.consumer.transport
        self.consumer.transport.watcher.tell = lambda *what: self.told.append(what)
        self.consumer.app.sensors.on_send_error = lambda *_: None
        self.consumer.app.sensors.on_send_completed = lambda *_: None
        self.thread = SimpleNamespace(fetching=True, rejoins=0)
        thread: Any = SimpleNamespace(run=self._run, stop_fetching=None, attach=None, request_rejoin="rejoin")
        self.consumer._thread = thread
        self.consumer.unblock([SOURCE])

    async def _run(self, step: object, *_: object) -> None:
        self.thread.rejoins += step == "rejoin"

    async def event(self, offset: int, key: str) -> None:
        """Process an event that writes this key."""
        self.consumer._note_delivery(SOURCE, offset)
        within(Event(SOURCE, offset), lambda: self.app.tables["sums"].update({key: offset}))
        self.consumer._acked_index[SOURCE].add(offset)
        await self.broker.flush()

    async def committed(self) -> int | None:
        """What a periodic commit would commit now."""
        offset = self.consumer._new_offset(SOURCE)
        offsets = {} if offset is None else {SOURCE: offset}
        for tp in self.consumer._held.keys() & offsets.keys():
            offsets[tp] = min(offsets[tp], self.consumer._held[tp])
        return offsets.get(SOURCE)

    @property
    def database(self) -> Path:
        path: Path = self.app.tables["sums"].data.partition_path(0)
        return path


async def until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(60.0):
        while not done():
            await asyncio.sleep(0.001)


async def test_the_partition_stands_at_the_event_and_goes_on_when_the_broker_takes_its_record(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    await rig.event(10, "good")
    await rig.event(11, "bad")
    await rig.event(12, "after")
    assert SOURCE in rig.consumer.blocked
    assert await rig.committed() == 11
    await until(lambda: bool(rig.told))
    assert rig.told[0][0] is Trouble.STANDS
    assert str(rig.told[0][1]).startswith("it stands at events/0 offset 11: Kafka refuses key b'\"bad\"' of ks-sums-")
    await until(lambda: len(rig.broker.records) > 6)  # it is tried again and again
    assert (SOURCE in rig.consumer.blocked, rig.consumer._held) == (True, {SOURCE: 11})
    assert all(str(text).startswith("it stands at") for _, text in rig.told)
    assert (rig.consumer.fence.broken, rig.app.crashed) == (False, False)
    assert (rig.database / MARK).exists()

    rig.refusing.clear()  # an operator has removed the cause
    await until(lambda: not rig.consumer.held)
    await until(lambda: SOURCE not in rig.consumer.blocked)
    assert await rig.committed() == 13
    assert not (rig.database / MARK).exists()
    values = {future.message.key: future.message.value for future in rig.broker.records}
    assert values == {b'"good"': b"10", b'"bad"': b"11", b'"after"': b"12"}  # each event was processed once
    await until(lambda: rig.told[-1] == (Trouble.STANDS, None))


async def test_records_that_were_refused_with_their_batch_only_are_taken_alone(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.refusing |= {b'"other"'}
    await rig.event(10, "other")
    rig.refusing -= {b'"other"'}
    await rig.event(11, "bad")
    assert rig.consumer._held == {SOURCE: 10}
    await until(lambda: bool(rig.told))
    assert "key b'\"bad\"'" in str(rig.told[-1][1])


async def test_an_older_record_never_follows_a_newer_one_of_its_key(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    await rig.event(10, "bad")
    rig.refusing.clear()
    await rig.event(11, "bad")  # was in work
    await until(lambda: SOURCE not in rig.consumer.blocked)
    assert [future.message.value for future in rig.broker.records] == [b"10", b"11"]
    assert not (rig.database / MARK).exists()


async def test_a_rebalance_leaves_a_table_that_is_restored_and_an_event_that_is_read_again(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    await rig.event(10, "good")
    await rig.event(11, "bad")
    await rig.consumer.on_partitions_revoked({SOURCE})
    assert (rig.consumer.held, rig.app.tables["sums"].data._dbs) == (set(), {})
    assert rig.app.tables["sums"].data.persisted_offset(SUMS) is None
    assert rig.app.tables["sums"].data._db_for_partition(0).get(b'"bad"') is None
    sent = len(rig.broker.records)
    await asyncio.sleep(0.1)
    assert len(rig.broker.records) == sent

    refused_records, consumer = rig.consumer.transport.guard.refused, rig.consumer
    consumer.start_at({SOURCE: 11})
    rig.app.tables["sums"].data._db_for_partition(0)
    consumer.unblock([SOURCE])
    refused_records.delivered(SOURCE, 12)  # of another partition, or after it
    assert SOURCE not in consumer.blocked
    refused_records.delivered(TopicPartition(*SOURCE), 11)  # type: ignore[arg-type]
    assert all(type(tp) is TP for tp in consumer.blocked)
    assert SOURCE in consumer.blocked, "events follow before it is known whether it stands again"
    rig.refusing.clear()
    await rig.event(11, "bad")
    await until(lambda: SOURCE not in consumer.blocked)
    assert await rig.committed() == 12


async def test_an_operator_gives_a_record_up_by_the_file_that_the_log_names(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig(tmp_path)
    await rig.event(10, "bad")
    await rig.event(11, "good")
    await until(lambda: bool(rig.told))
    (command,) = [line.split("touch ")[1] for line in caplog.messages if "touch" in line]
    Path(command.strip("'")).touch()
    await until(lambda: rig.thread.rejoins == 1)
    assert await rig.committed() == 12
    await rig.consumer.on_partitions_revoked({SOURCE})
    assert rig.app.tables["sums"].data.persisted_offset(SUMS) is None  # Faust restores it


async def test_a_hand_over_does_not_take_a_partition_that_stands(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    await rig.event(10, "bad")
    rig.consumer.unblock([SOURCE])  # as after a hand-over that has failed
    assert SOURCE in rig.consumer.blocked


async def test_a_record_of_a_topic_with_a_long_name_can_be_given_up(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    found = RefusedRecord(
        record=None, database=rig.database, tp=TP("x" * 249, 10_000), offset=2**63 - 1, why="it is too large"
    )
    assert not rig.consumer.transport.guard.refused._file(found).exists()
