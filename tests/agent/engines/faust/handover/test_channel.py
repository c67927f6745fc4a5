"""What the plug-in reads on its own line to Kafka, record by record: kept, left alone, or refused and counted."""

import asyncio
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import InvalidTimestampError

from trimtab_agent.engines.faust.group.shared_state import PluginState
from trimtab_agent.engines.faust.handover import channel as channel_module
from trimtab_agent.engines.faust.handover.channel import Channel
from trimtab_agent.engines.faust.transport import client
from trimtab_agent.engines.faust.transport.unreadable import UnreadableRecord
from trimtab_protocol.messages.codec import encoded
from trimtab_protocol.messages.decode import Fault
from trimtab_protocol.messages.handover import HandoverKind, HandoverRecord
from trimtab_protocol.messages.names import AppId, Epoch, KeyGroup, OperatorId, WorkerId
from trimtab_protocol.messages.placement import Placement
from trimtab_protocol.signing.envelope import Envelope
from trimtab_protocol.signing.keys import SigningKey, TrustedKeys

KEY = SigningKey.generate()


@dataclass
class Record:
    """As aiokafka gives it."""

    topic: str
    offset: int
    value: bytes | None
    key: bytes = b"shop"
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp: int = 1000


class Line:
    """A channel whose records the test brings."""

    def __init__(self) -> None:
        trust: Any = TrustedKeys((KEY.public,))
        self.shared = PluginState(cluster="c", app=AppId("shop"), worker=WorkerId("w0"), trust=trust)
        self.told = 0
        self.handovers: list[HandoverRecord] = []
        self.channel = Channel(
            self.shared, {}, on_placement=self._count, on_handover=lambda record, _: self.handovers.append(record)
        )

    def _count(self) -> None:
        self.told += 1

    def placed(self, offset: int, number: int, *, signed: bool = True, key: bytes = b"shop") -> None:
        placement = Placement(cluster="c", app=AppId("shop"), epoch=Epoch(1, number), owners={})
        value, topic = encoded(placement), self.shared.topics.placement
        headers = (KEY.sign(Envelope(topic=topic, key=key, value=value)),) if signed else ()
        self.channel._dispatch(Record(topic, offset, value, key, headers))

    @property
    def epoch(self) -> int:
        return self.shared.placement.epoch.number if self.shared.placement else 0


def test_placements_of_this_app_are_kept_and_told() -> None:
    line = Line()
    line.placed(0, 1)
    line.placed(1, 2)
    line.placed(2, 9, key=b"other")
    line.channel._dispatch(Record(line.shared.topics.placement, 3, None))

    assert (line.epoch, line.told, line.shared.refused) == (2, 2, {})


def test_what_is_forged_or_old_is_counted_and_changes_nothing() -> None:
    line = Line()
    line.placed(0, 5)
    line.placed(1, 9, signed=False)
    line.placed(2, 4)  # once true, written again
    line.placed(3, 5)  # signed anew, as it is

    assert (line.epoch, line.told) == (5, 1)
    assert line.shared.refused == {Fault.UNSIGNED: 1, Fault.OLD_EPOCH: 1}


def test_reading_the_topic_again_is_no_fault() -> None:
    line = Line()
    for _ in range(2):
        line.placed(0, 1)
        line.placed(1, 2)

    assert (line.epoch, line.told, line.shared.refused) == (2, 2, {})


def test_a_newer_one_from_another_member_makes_the_topics_next_ones_no_fault() -> None:
    line = Line()
    line.placed(0, 1)
    line.shared.offer(Placement(cluster="c", app=AppId("shop"), epoch=Epoch(1, 9), owners={}))
    line.placed(1, 2)

    assert (line.epoch, line.told, line.shared.refused) == (9, 1, {})


RECORD = HandoverRecord(
    kind=HandoverKind.TOOK,
    cluster="d",
    app=AppId("shop"),
    handover="h",
    epoch=Epoch(1, 1),
    generation=1,
    source=WorkerId("w0"),
    target=WorkerId("w1"),
    key_groups=(KeyGroup(AppId("shop"), OperatorId("o"), 0),),
)


def test_hand_overs_of_another_cluster_are_counted() -> None:
    line = Line()
    for value in (encoded(RECORD), b"{]", encoded(RECORD).replace(b'"d"', b'"c"')):
        line.channel._dispatch(Record(line.shared.topics.handover, 0, value))

    assert [found.cluster for found in line.handovers] == ["c"]
    assert line.shared.refused == {Fault.CLUSTER: 1, Fault.MALFORMED: 1}


def test_a_flood_is_counted_and_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    line = Line()
    for offset in range(500):
        line.channel._dispatch(Record(line.shared.topics.handover, offset, b"{"))
    assert line.shared.refused == {Fault.MALFORMED: 500}
    assert 100 <= len(caplog.records) < 120


class Writer:
    """A producer that takes its time, and whose broker is away at the end."""

    made = 0

    def __init__(self, **_: object) -> None:
        Writer.made += 1

    async def start(self) -> None:
        await asyncio.sleep(0)

    async def send_and_wait(self, *_: object, **__: object) -> None: ...

    async def stop(self) -> None:
        await asyncio.Event().wait()


async def test_first_hand_overs_together_have_one_writer_and_the_end_does_not_wait_for_its_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(channel_module, "AIOKafkaProducer", Writer)
    monkeypatch.setattr(channel_module, "CLOSE_LIMIT_S", 0.01)
    monkeypatch.setattr(Writer, "made", 0)
    channel = Line().channel

    await asyncio.gather(channel.publish(RECORD), channel.publish(RECORD))
    await channel.close()
    assert Writer.made == 1


class Refused(Writer):
    """The broker refuses what the first writer sends, and with it everything that it sends later."""

    def __init__(self, **_: object) -> None:
        super().__init__()
        self.number = Writer.made

    async def send_and_wait(self, *_: object, **__: object) -> None:
        if self.number == 1:
            raise InvalidTimestampError()

    async def stop(self) -> None: ...


async def test_hand_overs_go_on_after_one_whose_record_was_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel_module, "AIOKafkaProducer", Refused)
    monkeypatch.setattr(Writer, "made", 0)
    channel = Line().channel

    with pytest.raises(InvalidTimestampError):
        await channel.publish(RECORD)
    await channel.publish(RECORD)
    await channel.publish(RECORD)
    assert Writer.made == 2


def test_what_cannot_be_read_for_long_is_tried_again_and_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(client, "RETRY_S", 0.0)
    tries = 0

    async def read() -> None:
        nonlocal tries
        tries += 1
        if tries == 5:
            raise asyncio.CancelledError
        raise OSError("no right to read")

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(client.for_ever(read, "not read for now"))
    assert [row.getMessage() for row in caplog.records] == ["not read for now: OSError('no right to read')"]


class Metadata:
    """A reader that knows of these topics."""

    def __init__(self, *topics: str) -> None:
        self._topics = set(topics)

    async def topics(self) -> set[str]:
        return self._topics


def test_missing_topics_are_named_once_and_their_coming_is_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    placement, handover = "trimtab.c.placement", "trimtab.c.handover"
    known: list[tuple[str, ...]] = [(), (), (placement,), (placement, handover), (placement, handover), (handover,)]
    channel = Line().channel

    lacks = [asyncio.run(channel._lacks_topics(Metadata(*topics))) for topics in known]

    assert lacks == [True, True, True, False, False, True]
    assert [(row.levelname, row.getMessage()) for row in caplog.records] == [
        ("WARNING", f"missing topics: {handover}, {placement}; this worker is not steered until they exist"),
        ("INFO", "all topics exist now; this worker can be steered"),
        ("WARNING", f"missing topics: {placement}; this worker is not steered until they exist"),
    ]


def test_nothing_is_logged_when_all_topics_exist(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    assert not asyncio.run(Line().channel._lacks_topics(Metadata("trimtab.c.placement", "trimtab.c.handover")))
    assert caplog.records == []


UNREADABLE = b"a batch that aiokafka cannot read"


class Reader:
    """A reader of a topic with these hand-over records; its broker goes away after so many."""

    log: list[bytes] = []  # noqa: RUF012
    left = 0

    def __init__(self, **_: object) -> None:
        self._at = 0
        self._fetcher = SimpleNamespace(_proc_fetch_request=None)

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def topics(self) -> set[str]:
        return {"trimtab.c.placement", "trimtab.c.handover"}

    def assign(self, _: object) -> None: ...

    async def seek_to_beginning(self, _: object) -> None: ...

    async def position(self, _: object) -> int:
        return 0

    async def end_offsets(self, tps: Any) -> dict[Any, int]:
        return {tp: len(self.log) if tp.topic == "trimtab.c.handover" else 0 for tp in tps}

    def seek(self, _: object, offset: int) -> None:
        self._at = offset

    async def getmany(self, **_: object) -> dict[str, list[Record]]:
        await asyncio.sleep(0)
        if self._at >= len(self.log) or not Reader.left:
            raise OSError("the broker is away")
        Reader.left -= 1
        if self.log[self._at] == UNREADABLE:
            raise UnreadableRecord(TopicPartition("trimtab.c.handover", 0), self._at, ValueError("a header is no text"))
        self._at += 1
        return {"": [Record("trimtab.c.handover", self._at - 1, self.log[self._at - 1])]}


def test_a_hand_over_is_not_missed_while_the_broker_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel_module, "AIOKafkaConsumer", Reader)
    mine = replace(RECORD, cluster="c")
    monkeypatch.setattr(Reader, "log", [encoded(replace(mine, handover="before it started"))])
    line = Line()

    async def read(left: int) -> None:
        Reader.left = left
        with pytest.raises(OSError, match="away"):
            await line.channel._read()

    asyncio.run(read(0))
    Reader.log += [encoded(replace(mine, handover=f"h{number}")) for number in range(3)]
    asyncio.run(read(1))
    asyncio.run(read(9))

    assert [found.handover for found in line.handovers] == ["h0", "h1", "h2"]


def test_what_nobody_can_read_holds_up_no_hand_over_that_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any worker may write such a record; it stays in the topic for a day."""
    monkeypatch.setattr(channel_module, "AIOKafkaConsumer", Reader)
    monkeypatch.setattr(Reader, "log", [])
    mine, line = replace(RECORD, cluster="c"), Line()

    async def read() -> None:
        Reader.left = 9
        await line.channel._read()

    for log, said in (([], OSError), ([encoded(mine), UNREADABLE, encoded(mine)], UnreadableRecord)):
        Reader.log += log
        with pytest.raises(said):
            asyncio.run(read())
    with pytest.raises(OSError, match="away"):
        asyncio.run(read())
    Reader.log.append(encoded(replace(mine, handover="later")))
    with pytest.raises(OSError, match="away"):
        asyncio.run(read())

    assert [found.handover for found in line.handovers] == [mine.handover, "later"]
    assert line.shared.refused == {Fault.MALFORMED: 1}
