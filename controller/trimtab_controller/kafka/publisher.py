"""The transactional producer: one publication is one transaction, and only one controller per cluster can publish.

The transactional id is fixed, so the broker fences the previous user of the id: a zombie leader can no longer publish.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from confluent_kafka import KafkaError, KafkaException, Producer

from trimtab_controller.kafka.connection import Connection, StoppedError, Stopping, pause
from trimtab_process.backoff import BROKER
from trimtab_process.kafka_errors import error_text
from trimtab_protocol.messages.decode import MAX_MESSAGE_BYTES
from trimtab_protocol.messages.names import THE_PARTITION
from trimtab_protocol.settings.kafka import ONE_AT_A_TIME
from trimtab_protocol.signing.envelope import Envelope
from trimtab_protocol.signing.keys import SigningKey

log = logging.getLogger(__name__)

LOOK_AGAIN_S = 60.0
"""How often it is looked whether the topic can be written to again."""


class _HasTopic(Protocol):
    @property
    def topic(self) -> str: ...


R = TypeVar("R", bound=_HasTopic)


class OptionalTopic:
    """Knows whether the topic can be written to; the log says when that changes, and how many records it has cost."""

    def __init__(self, topic: str, look: Callable[[], str | None], clock: Callable[[], float] = time.monotonic) -> None:
        """Looks for the topic.  `look` says why nothing can be written to it, None: nothing is in the way.

        Raises what `look` raises, which may be KafkaException.
        """
        self._topic = topic
        self._look = look
        self._clock = clock
        self._left_out = 0
        self._obstacle: str | None = None
        self._look_at = clock() + LOOK_AGAIN_S
        self._see(look())

    def writable(self, records: Sequence[R]) -> list[R]:
        """The records without those that cannot be written now."""
        if self._obstacle is not None and self._clock() >= self._look_at:
            self.is_in_the_way()
        if self._obstacle is None:
            return list(records)
        found = [record for record in records if record.topic != self._topic]
        self._left_out += len(records) - len(found)
        return found

    def is_in_the_way(self) -> bool:
        """Look again: whether a publication fails because of this topic; not if the broker does not say."""
        self._look_at = self._clock() + LOOK_AGAIN_S
        try:
            self._see(self._look())
        except KafkaException as error:
            log.debug("cannot look for topic %s: %s", self._topic, error_text(error))
            return False
        return self._obstacle is not None

    def _see(self, obstacle: str | None) -> None:
        if obstacle is not None and obstacle != self._obstacle:
            log.warning(
                "nothing is written to topic %s: %s; trying again every %g s", self._topic, obstacle, LOOK_AGAIN_S
            )
        if obstacle is None and self._obstacle is not None:
            log.info("topic %s can be written to again; %d records were left out", self._topic, self._left_out)
            self._left_out = 0
        self._obstacle = obstacle


GONE_LIMIT_S = 5.0
"""How long the broker may take to say whether it has a topic."""
ATTEMPT_LIMIT_S = 10.0
"""How long one attempt at a step of a transaction may take before the next one."""
FENCED_CODES = frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})
ENDED_CODES = frozenset({KafkaError.INVALID_TXN_STATE})
"""The broker knows of no transaction of this producer, as when a topic was deleted under it.  It looks for a newer user
of the transactional id before that, so nobody had taken over."""


class FencedError(Exception):
    """Another controller of the cluster has taken over; this one must stop."""


class PublicationError(Exception):
    """The producer has failed for good; records that are not yet published will not be."""


class ProducerEndedError(PublicationError):
    """The producer cannot go on, though nobody has taken over.  A new one can, from the topics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One message to publish.  `value` None = tombstone; `signed`: sign it with the controller's key, if it has one."""

    topic: str
    key: bytes
    value: bytes | None
    signed: bool = False


class Publisher:
    """Publishes records.  The constructor takes over the transactional id, and waits for the broker without limit."""

    def __init__(
        self,
        connection: Connection,
        transactional_id: str,
        stopping: Stopping,
        key: SigningKey | None = None,
        optional: OptionalTopic | None = None,
    ) -> None:
        """`optional` = a topic whose records are left out while they cannot be written."""
        self._stopping = stopping
        self._optional = optional
        self._key = key
        self._topics: frozenset[str] = frozenset()
        """Of the records of the open transaction."""
        self._unknown: frozenset[str] = frozenset()
        """Those that the broker did not know after the last attempt to commit."""
        client = connection.client(
            "trimtab-controller",
            transactional_id=transactional_id,
            message_max_bytes=2 * MAX_MESSAGE_BYTES,
            compression_type="gzip",  # aiokafka, which reads the placement, has no zstd by itself
            # Longer than a broker is away, or it would fence this producer.  A new leader aborts it at once anyway.
            transaction_timeout_ms=300_000,
            linger_ms=0,
            queue_buffering_max_messages=0,  # no limit: a large placement has thousands of records
        )
        self._producer = Producer({**client, **ONE_AT_A_TIME})
        self._patiently("take over", lambda: self._producer.init_transactions(ATTEMPT_LIMIT_S))

    def publish(self, records: Sequence[Record]) -> None:
        """Write all records or none, but for those of the optional topic while that cannot be written to.

        Raises FencedError, ProducerEndedError, PublicationError, StoppedError.  After ProducerEndedError it is unknown
        whether the records are published: only the topics say.
        """
        self._patiently("publish", lambda: self._transaction(self._writable(records)))

    def _writable(self, records: Sequence[Record]) -> Sequence[Record]:
        return records if self._optional is None else self._optional.writable(records)

    def _transaction(self, records: Sequence[Record]) -> None:
        self._producer.begin_transaction()
        self._topics, self._unknown = frozenset(record.topic for record in records), frozenset()
        for record in records:
            headers = headers_of(record, self._key)
            self._producer.produce(
                record.topic, partition=THE_PARTITION, key=record.key, value=record.value, headers=headers
            )
        # Repeat a commit whose answer was lost, since that is the only way to learn whether it happened.
        self._patiently("commit", self._commit, resumable=True)

    def _commit(self) -> None:
        try:
            self._producer.commit_transaction(ATTEMPT_LIMIT_S)
        except KafkaException:
            # Records for a topic that is gone stay in the queue.  Without them the next attempt fails, for good.
            if len(self._producer) and self._optional is not None and self._optional.is_in_the_way():
                self._producer.purge(in_queue=True, in_flight=False)
            elif len(self._producer):
                self._look_for_topics()
            raise

    def _look_for_topics(self) -> None:
        """Raise ProducerEndedError if a topic is gone: the transaction would wait for it without end.

        A broker that has just started may not know its topics yet, so one look is not enough.
        """
        before, self._unknown = self._unknown, frozenset(filter(self._is_unknown, self._topics))
        if gone := before & self._unknown:
            raise ProducerEndedError(f"topics were deleted: {', '.join(sorted(gone))}")

    def _is_unknown(self, topic: str) -> bool:
        try:
            error = self._producer.list_topics(topic, timeout=GONE_LIMIT_S).topics[topic].error
        except KafkaException:
            return False  # nobody says
        return error is not None and error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART

    def _patiently(self, what: str, act: Callable[[], None], *, resumable: bool = False) -> None:
        """Try until it succeeds: wait after transient errors, stop when fenced, abort the transaction on others."""
        failures = 0
        while not self._stopping() or (resumable and failures == 0):
            try:
                act()
            except KafkaException as error:
                self._judge(error, resumable=resumable)
                failures += 1
                delay_s = BROKER.after(failures)
                log.warning("cannot %s: %s; next try in %g s", what, error_text(error), delay_s)
                pause(delay_s, self._stopping)
            else:
                return
        raise StoppedError

    def _judge(self, error: KafkaException, *, resumable: bool) -> None:
        """Return if another attempt makes sense, else raise."""
        fault: KafkaError = error.args[0]
        if fault.code() in FENCED_CODES:
            raise FencedError(
                f"another controller has taken over, or the transaction expired: {fault.str()}"
            ) from error
        if fault.fatal() and fault.code() in ENDED_CODES:
            raise ProducerEndedError(f"the broker has ended the producer: {fault.str()}") from error
        if fault.fatal():
            raise PublicationError(f"the producer cannot continue: {fault.str()}") from error
        if resumable and not fault.retriable():
            raise error
        if fault.txn_requires_abort():
            if self._optional is not None and not resumable:
                self._optional.is_in_the_way()
            self._patiently("abort", lambda: self._producer.abort_transaction(ATTEMPT_LIMIT_S), resumable=True)
        elif not fault.retriable():
            raise PublicationError(f"not published: {fault.str()}") from error


def headers_of(record: Record, key: SigningKey | None) -> list[tuple[str, bytes]]:
    """The headers that a record is published with."""
    if key is None or not record.signed or record.value is None:
        return []
    return [key.sign(Envelope(topic=record.topic, key=record.key, value=record.value))]
