"""The reading end of the link, with a client that plays what it is told: no fault may end its thread."""

import asyncio
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from trimtab_agent import kafka_link
from trimtab_agent.commands.events import Position
from trimtab_agent.kafka_link import KafkaLink, LinkSettings
from trimtab_models.messages.decode import Fault
from trimtab_models.settings.kafka import KafkaSettings
from trimtab_models.signing.envelope import Envelope

TOPIC = "trimtab.t.commands"


class Heard:
    """What the link hands over."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def command_read(self, record: Envelope, position: Position) -> None:
        self.told.append(f"{record.value.decode()} at {position.offset - 1}")

    def broker_changed(self, *, there: bool, detail: str) -> None:
        self.told.append("there" if there else f"away: {detail.partition(';')[0]}")

    def reader_failed(self, fault: Exception) -> None:
        self.told.append(f"failed: {fault}")


class Player:
    """The Kafka client: one list per consumer of what polling it brings; the link ends with the last."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *lives: list[object] | KafkaException) -> None:
        self.lives = list(lives)
        self.topic_id = 1
        self.heard = Heard()
        self.calls: list[str] = []
        loop = SimpleNamespace(is_closed=lambda: False, call_soon_threadsafe=lambda f, *arguments: f(*arguments))
        for name, value in (
            ("BACKOFF_S", 0), ("Consumer", self.new_consumer), ("Producer", lambda _: SimpleNamespace(poll=bool)),
            ("AdminClient", lambda _: SimpleNamespace(describe_topics=self.describe)),
        ):  # fmt: skip
            monkeypatch.setattr(kafka_link, name, value)
        settings = LinkSettings(kafka=KafkaSettings(bootstrap_servers="played:9092"), commands_topic=TOPIC)
        self.link = KafkaLink(settings, self.heard, cast(asyncio.AbstractEventLoop, loop), start=[])

    def new_consumer(self, _: object) -> Any:
        life = self.lives.pop(0)
        if isinstance(life, KafkaException):
            raise life
        return SimpleNamespace(
            get_watermark_offsets=lambda *_, timeout: (0, 7),
            offsets_for_times=lambda *_, timeout: [TopicPartition(TOPIC, 0, -1)],
            assign=lambda places: self.calls.append(f"from {places[0].offset}"),
            poll=lambda _: self.poll(life),
            close=lambda: self.calls.append("closed"),
        )

    def poll(self, life: list[object]) -> object:
        if len(life) == 1 and not self.lives:
            self.link._stop.set()
        found = life.pop(0)
        return found() if callable(found) else found

    def describe(self, *_: object, request_timeout: float) -> dict[str, Future[Any]]:
        answer: Future[Any] = Future()
        answer.set_result(SimpleNamespace(topic_id=self.topic_id, partitions=[SimpleNamespace(id=0)]))
        return {TOPIC: answer}

    def play(self) -> list[str]:
        self.link._run()
        return self.heard.told

    def make_anew(self) -> None:
        self.topic_id += 1


def message(value: bytes, offset: int) -> object:
    return SimpleNamespace(
        error=lambda: None, value=lambda: value, key=lambda: b"h0", headers=list, partition=lambda: 0,
        offset=lambda: offset,
    )  # fmt: skip


def trouble(code: int) -> object:
    return SimpleNamespace(error=lambda: KafkaError(code))


def test_a_client_that_cannot_be_made_now_is_made_later(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = trouble(KafkaError._AUTO_OFFSET_RESET)
    player = Player(
        monkeypatch, [message(b"1", 7), gone], KafkaException(KafkaError(KafkaError._FAIL, "too many open files")),
        [message(b"2", 8), None],
    )  # fmt: skip

    assert player.play() == ["there", "1 at 7", "away: too many open files", "there", "2 at 8"]
    assert player.calls == ["from 7", "closed", "from 7", "closed"]


@pytest.mark.parametrize("between", [None, trouble(KafkaError.UNKNOWN_TOPIC_OR_PART)], ids=["silence", "errors"])
def test_a_topic_made_anew_is_read_with_a_new_client(monkeypatch: pytest.MonkeyPatch, between: object) -> None:
    monkeypatch.setattr(kafka_link, "WATCH_S", -1)
    player = Player(monkeypatch)
    player.lives = [[message(b"1", 7), between, player.make_anew, between], [message(b"2", 0), None]]

    assert player.play() == ["there", "1 at 7", "2 at 0"]
    assert player.calls == ["from 7", "closed", "from 7", "closed"]


def test_a_fault_of_ours_is_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    def stumble() -> object:
        raise RuntimeError("ours")

    assert Player(monkeypatch, [message(b"1", 7), stumble]).play() == ["there", "1 at 7", "failed: ours"]


def test_headers_that_cannot_be_read_vouch_for_nothing() -> None:
    def unreadable() -> list[tuple[str, bytes]]:
        raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, Fault.MALFORMED)

    assert kafka_link._signatures(SimpleNamespace(headers=unreadable)) == ()
