"""confluent_kafka as far as the controller uses it, over the model of the broker."""

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Protocol

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import ConfigResource

from tests.kafka_record import Record
from tests.sim.simulated.broker import Broker, Headers, Unsent
from trimtab_protocol.messages.names import Topics, topic_settings

OFFSET_BEGINNING = -2


class Killed(BaseException):
    """The process is killed here and now."""


class Process(Protocol):
    """Whose clients these are."""

    broker: Broker
    cluster: str

    @property
    def connected(self) -> bool:
        """Whether it reaches the broker."""

    def next_commit(self) -> "CommitFate":
        """What happens to its next commit."""

    def freeze(self) -> None:
        """SIGSTOP."""

    def block(self, seconds: float) -> None:
        """Wait; the others go on.  Raises Killed when it is killed meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitFate:
    """`stored`: whether the broker gets it; `answered`: whether the process hears of it; `killed`: dies instead.

    `frozen`: it is stopped (SIGSTOP) before the broker gets it.
    """

    stored: bool = True
    answered: bool = True
    killed: bool = False
    frozen: bool = False


running: list[Process] = []
"""Whose code runs now, innermost last: clients belong to it."""


class SimulatedConsumer:
    """Reads from where it was assigned to."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._process = running[-1]
        self._tells_end = bool(settings.get("enable.partition.eof"))
        self.positions: dict[str, int] = {}
        self._at_end: set[str] = set()

    def list_topics(self, topic: str | None = None, timeout: float = 0.0) -> Any:
        return list_topics(self._process)

    def assign(self, places: Sequence[TopicPartition]) -> None:
        self.positions = {place.topic: max(0, self._start(place)) for place in places}
        self._at_end.clear()

    def _start(self, place: TopicPartition) -> int:
        end = self._process.broker.end(place.topic)
        return end if place.offset == -1 else 0 if place.offset == OFFSET_BEGINNING else int(place.offset)

    def offsets_for_times(self, wanted: Sequence[TopicPartition], timeout: float = 0.0) -> list[TopicPartition]:
        check_connected(self._process)
        found = []
        for place in wanted:
            later = (record for record in self._process.broker.read(place.topic, 0) if record.at * 1000 >= place.offset)
            first = next(later, None)
            found.append(TopicPartition(place.topic, 0, first.offset if first else -1))
        return found

    def get_watermark_offsets(self, place: TopicPartition, timeout: float = 0.0) -> tuple[int, int]:
        check_connected(self._process)
        return 0, self._process.broker.end(place.topic)

    def consume(self, count: int, timeout: float = 0.0) -> list[Record]:
        if not self._process.connected:
            if self._tells_end:
                self._process.block(timeout)
            return []
        messages: list[Record] = []
        for topic, position in self.positions.items():
            for record in self._process.broker.read(topic, position)[: count - len(messages)]:
                messages.append(Record(topic, record.value, record.key, record.headers, offset=record.offset))
                self.positions[topic] = record.offset + 1
            end = self._process.broker.end(topic)
            if self._tells_end and topic not in self._at_end and len(messages) < count:
                self._at_end.add(topic)
                self.positions[topic] = end
                messages.append(Record(topic, offset=end, error=KafkaError(KafkaError._PARTITION_EOF)))
        return messages

    def close(self) -> None:
        self.positions = {}


class SimulatedProducer:
    """A transactional producer."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._process = running[-1]
        self._id = str(settings["transactional.id"])
        self._producer = 0
        self._records: list[Unsent] = []
        self._committed = False

    def init_transactions(self, timeout: float) -> None:
        check_connected(self._process)
        self._producer = self._process.broker.take_over(self._id)

    def begin_transaction(self) -> None:
        self._records, self._committed = [], False

    def produce(self, topic: str, *, partition: int, key: bytes, value: bytes | None, headers: Headers = ()) -> None:
        self._records.append(Unsent(topic=topic, key=key, value=value, headers=tuple(headers)))

    def commit_transaction(self, timeout: float) -> None:
        self._check_producer()
        if self._committed:
            return
        fate = self._process.next_commit()
        if fate.frozen:
            self._process.freeze()
            self._process.block(0.0)
            self._check_producer()
        if fate.stored:
            self._committed = True
            self._process.broker.commit(self._records, self._producer)
        if fate.killed:
            raise Killed
        if not fate.answered:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer", False, True))
        if not fate.stored:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "aborted", False, False, True))

    def __len__(self) -> int:
        return 0  # nothing waits in a queue: the records are sent with the commit

    def _check_producer(self) -> None:
        check_connected(self._process)
        if self._process.broker.is_fenced(self._id, self._producer):
            raise KafkaException(KafkaError(KafkaError._FENCED, "fenced", True))

    def abort_transaction(self, timeout: float) -> None:
        check_connected(self._process)
        self._records = []


class SimulatedAdmin:
    """All topics are there, and always the same."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._process = running[-1]

    def list_topics(self, timeout: float = 0.0) -> Any:
        return list_topics(self._process)

    def describe_topics(
        self, topics: TopicCollection, request_timeout: float, include_authorized_operations: bool = False
    ) -> dict[str, Future[Any]]:
        answers: dict[str, Future[Any]] = {name: Future() for name in topics.topic_names}
        for name, answer in answers.items():
            if self._process.connected:
                answer.set_result(
                    SimpleNamespace(
                        name=name, topic_id=name, partitions=[SimpleNamespace(id=0)], authorized_operations=None
                    )
                )
            else:
                answer.set_exception(KafkaException(KafkaError(KafkaError._TRANSPORT, "cut off", False, True)))
        return answers

    def describe_configs(
        self, resources: Collection[ConfigResource], request_timeout: float
    ) -> dict[ConfigResource, Future[Any]]:
        wanted = {each.name: each.configuration for each in topic_settings(Topics(self._process.cluster))}
        answers: dict[ConfigResource, Future[Any]] = {resource: Future() for resource in resources}
        for resource, answer in answers.items():
            found = {key: SimpleNamespace(value=value, source=None) for key, value in wanted[resource.name].items()}
            answer.set_result(found)
        return answers


def check_connected(process: Process) -> None:
    if not process.connected:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT, "cut off", False, True))


def list_topics(process: Process) -> Any:
    check_connected(process)
    wanted = topic_settings(Topics(process.cluster))
    return SimpleNamespace(
        topics={
            each.name: SimpleNamespace(error=None, partitions=dict.fromkeys(range(each.partitions))) for each in wanted
        }
    )


def pause(seconds: float, stopping: Callable[[], bool]) -> None:
    """`connection.pause` in fake time."""
    if not stopping():
        running[-1].block(seconds)
