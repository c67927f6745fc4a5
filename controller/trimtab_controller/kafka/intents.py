"""Writes operators' intents to their topic."""

from collections.abc import Sequence

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from trimtab_controller.kafka.connection import Connection
from trimtab_process.kafka_errors import NO_TOPIC_YET, UNKNOWN_TOPIC, error_text
from trimtab_protocol.messages.codec import encoded
from trimtab_protocol.messages.intents import Intent, TakenBack, decode_intent, encode_taken_back, taken_back_in
from trimtab_protocol.messages.names import THE_PARTITION, Topics
from trimtab_protocol.settings.kafka import ONE_AT_A_TIME

DENIED = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED})


class NotWrittenError(Exception):
    """The brokers have not confirmed that the intents are stored; the message says why."""


def write_intents(
    connection: Connection, topics: Topics, records: Sequence[tuple[str, Intent | TakenBack | None]], *, limit_s: float
) -> int:
    """Write intents, or tombstones, in this order, and wait until the broker has stored them.

    Returns the offset of the last one.  Raises NotWrittenError, and BadMessage for an intent that the controller would
    refuse, which would not be seen here.
    """
    written = [_written(key, said) for key, said in records]
    stored: list[int] = []
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is None:
            stored.append(message.offset())
        else:
            failures.append(error)

    # After the limit nothing is sent any more: what was called not written must not be written later.
    limit_ms = int(limit_s * 1000)
    # Without the topic it fails before the limit: it is then known that nothing was written.
    known_ms = min(limit_ms // 2, 3000)
    client = connection.client(
        "trimtab-intents",
        enable_idempotence=True,
        message_timeout_ms=limit_ms,
        topic_metadata_propagation_max_ms=known_ms,
    )
    where = f"not confirmed by Kafka at {connection.kafka.bootstrap_servers}"
    try:
        producer = Producer({**client, **ONE_AT_A_TIME})
        for key, value, headers in written:
            producer.produce(
                topics.intents, partition=THE_PARTITION, key=key, value=value, headers=headers, on_delivery=delivered
            )
        left = producer.flush(limit_s + 1.0)
    except (KafkaException, SystemError) as error:
        # A certificate is missing, for example.  What is fatal to the client, as when it may write nothing at all, it
        # raises inside `flush`; the callback that it then calls for each record makes a SystemError of it.
        fault = error.__cause__ if isinstance(error, SystemError) else error
        if not isinstance(fault, KafkaException):
            raise
        raise NotWrittenError(f"{where}: {error_text(fault)}{_advice(fault.args[0])}") from error
    if not failures and not left:
        return max(stored)
    if failures and failures[0].code() != KafkaError._MSG_TIMED_OUT:
        raise NotWrittenError(f"{where}: {failures[0].str()}{_advice(failures[0])}")
    raise NotWrittenError(f"{where}: no answer within {limit_s:g} s, so it is not known whether it was written")


def _written(key: str, said: Intent | TakenBack | None) -> tuple[bytes, bytes | None, list[tuple[str, bytes]]]:
    """Key, value and headers of a record.  Raises BadMessage."""
    if said is None:
        return key.encode(), None, []
    if isinstance(said, TakenBack):
        header = encode_taken_back(said)
        taken_back_in([header])
        return key.encode(), None, [header]
    value = encoded(said)
    decode_intent(key.encode(), value)
    return key.encode(), value, []


def _advice(error: KafkaError) -> str:
    if error.code() in UNKNOWN_TOPIC:
        return f": {NO_TOPIC_YET}"
    return ": this client needs the rights of `trimtab acl --role operator`" if error.code() in DENIED else ""
