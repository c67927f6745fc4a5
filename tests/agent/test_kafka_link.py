"""The link to Kafka, mostly with a client that plays what it is told: no fault may end its thread, or make it deaf."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tests.kafka_record import Record
from trimtab_agent import kafka_link
from trimtab_agent.commands.events import Position
from trimtab_agent.kafka_link import KafkaLink, LinkSettings
from trimtab_process.backoff import Backoff
from trimtab_protocol.messages.decode import Fault
from trimtab_protocol.settings.kafka import ONE_AT_A_TIME, KafkaSettings
from trimtab_protocol.signing.envelope import Envelope

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
        self.reports: list[Callable[..., None]] = []
        loop = SimpleNamespace(is_closed=lambda: False, call_soon_threadsafe=lambda f, *arguments: f(*arguments))
        for name, value in (
            ("BACKOFF", Backoff((0.0,))), ("Consumer", self.new_consumer),
            ("Producer", self.new_producer),
            ("AdminClient", lambda _: SimpleNamespace(describe_topics=self.describe)),
        ):  # fmt: skip
            monkeypatch.setattr(kafka_link, name, value)
        settings = LinkSettings(kafka=KafkaSettings(bootstrap_servers="played:9092"), commands_topic=TOPIC)
        self.link = KafkaLink(settings, self.heard, cast(asyncio.AbstractEventLoop, loop), start=[])

    def new_producer(self, settings: dict[str, object]) -> Any:
        assert ONE_AT_A_TIME.items() <= settings.items(), "else the first record of a partition can be lost"
        return SimpleNamespace(poll=self.deliver, produce=self.store)

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

    def store(self, *_: object, on_delivery: Callable[..., None], **__: object) -> None:
        self.reports.append(on_delivery)

    def deliver(self, _: float) -> None:
        """One at a time."""
        if self.reports:
            self.reports.pop(0)(None, None)

    def describe(self, *_: object, request_timeout: float) -> dict[str, Future[Any]]:
        answer: Future[Any] = Future()
        answer.set_result(SimpleNamespace(topic_id=self.topic_id, partitions=[SimpleNamespace(id=0)]))
        return {TOPIC: answer}

    def play(self) -> list[str]:
        self.link._run()
        return self.heard.told

    def make_anew(self) -> None:
        self.topic_id += 1


def message(value: bytes, offset: int) -> Record:
    return Record(TOPIC, value, key=b"h0", offset=offset)


def trouble(code: int) -> Record:
    return Record(TOPIC, error=KafkaError(code))


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
    monkeypatch.setattr(kafka_link, "COMPARE_EVERY_S", -1)
    player = Player(monkeypatch)
    player.lives = [[message(b"1", 7), between, player.make_anew, between], [message(b"2", 0), None]]

    assert player.play() == ["there", "1 at 7", "2 at 0"]
    assert player.calls == ["from 7", "closed", "from 7", "closed"]


def test_a_report_that_arrives_does_not_make_up_for_commands_that_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused = KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "not allowed"))
    player = Player(monkeypatch, refused, refused, [message(b"1", 7), None])
    for _ in range(3):
        player.link.produce("reports", "h0", b"{}", lambda _: None)

    assert player.play() == ["away: not allowed", "there", "1 at 7"]


def test_a_refused_password_is_said_not_that_a_request_timed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests fail first; why, only the producer's connections tell, when they are asked."""
    timed_out = KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer"))
    player = Player(monkeypatch, timed_out, [message(b"1", 7), None])
    met = [
        KafkaError(KafkaError._TRANSPORT, "TLS handshake failed"),
        KafkaError(KafkaError._ALL_BROKERS_DOWN, "all down"),
    ]
    monkeypatch.setattr(player.link._producer, "poll", lambda _: player.link._note_error(met.pop(0)) if met else None)

    assert player.play() == ["away: no answer: TLS handshake failed", "there", "1 at 7"]


@pytest.mark.parametrize(
    ("met", "told"),
    [
        ([(KafkaError._AUTHENTICATION, "password refused")], ["away: password refused"]),
        ([(KafkaError._TRANSPORT, "TLS"), (KafkaError._ALL_BROKERS_DOWN, "all down")], ["away: TLS"]),
        ([(KafkaError._ALL_BROKERS_DOWN, "all down"), (KafkaError._RESOLVE, "no name")], ["away: all down"]),
        ([(KafkaError._TRANSPORT, "one connection of many has ended")], []),
        (
            [
                (KafkaError._ALL_BROKERS_DOWN, "all down"),
                (KafkaError._AUTHENTICATION, "password refused"),
                (KafkaError._ALL_BROKERS_DOWN, "all down"),
                (KafkaError._AUTHENTICATION, "password refused"),
            ],
            ["away: all down", "away: password refused"],
        ),
    ],
)
def test_what_the_connections_meet_is_told_if_no_broker_is_left(
    monkeypatch: pytest.MonkeyPatch, met: list[tuple[int, str]], told: list[str]
) -> None:
    player = Player(monkeypatch)
    player.link._note_state(there=True, detail="delivered")
    for code, text in met:
        player.link._note_error(KafkaError(code, text))

    assert player.heard.told == ["there", *told]


def test_who_may_read_no_more_says_so_and_goes_on_where_it_was_when_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_link, "COMPARE_EVERY_S", -1)
    player = Player(
        monkeypatch, [message(b"1", 7), trouble(KafkaError.TOPIC_AUTHORIZATION_FAILED), None], [message(b"2", 8), None]
    )

    assert player.play() == ["there", "1 at 7", "away: Broker: Topic authorization failed", "there", "2 at 8"]
    assert player.calls == ["from 7", "closed", "from 8", "closed"]


def test_what_waits_too_long_or_is_too_large_is_given_up_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_link, "DELIVERY_LIMIT_S", 0.1)
    monkeypatch.setattr(kafka_link, "REQUEST_LIMIT_S", 0.1)
    settings = LinkSettings(kafka=KafkaSettings(bootstrap_servers="127.0.0.1:1"), commands_topic=TOPIC)

    async def given_up() -> list[str | None]:
        reasons: asyncio.Queue[str | None] = asyncio.Queue()
        link = KafkaLink(settings, Heard(), asyncio.get_running_loop(), start=[])
        link.start()
        try:
            for report in (b"{}", bytes(9_000_000)):
                link.produce("reports", "h0", report, reasons.put_nowait)
            async with asyncio.timeout(60):
                return [await reasons.get(), await reasons.get()]
        finally:
            await asyncio.to_thread(link.stop, 2.0)

    assert asyncio.run(given_up()) == ["msg_size_too_large", "msg_timed_out"]


def test_a_fault_of_ours_is_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    def stumble() -> object:
        raise RuntimeError("ours")

    assert Player(monkeypatch, [message(b"1", 7), stumble]).play() == ["there", "1 at 7", "failed: ours"]


def test_headers_that_cannot_be_read_vouch_for_nothing() -> None:
    def unreadable() -> list[tuple[str, bytes]]:
        raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, Fault.MALFORMED)

    assert kafka_link._signatures(SimpleNamespace(headers=unreadable)) == ()
