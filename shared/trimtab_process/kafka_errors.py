"""Errors of the Kafka client: which are transient, and how to describe them."""

from confluent_kafka import KafkaError, KafkaException

TRANSIENT = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._RESOLVE,
        KafkaError._WAIT_COORD,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
    }
)
"""Error codes after which another attempt may succeed.  librdkafka marks only transaction errors as retriable."""


def is_transient(error: KafkaError) -> bool:
    """Whether another attempt may succeed."""
    return bool(error.retriable()) or error.code() in TRANSIENT


def error_text(fault: KafkaException) -> str:
    """Text of an error for a log line, in the words of the broker or the client."""
    error = fault.args[0] if fault.args else None
    return str(error.str()) if isinstance(error, KafkaError) else str(fault)


def error_word(error: KafkaError) -> str:
    """The client's name of an error as one word, for a metric label: `msg_timed_out`."""
    name: str = error.name()
    return name.lstrip("_").lower()
