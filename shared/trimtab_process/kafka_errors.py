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

UNKNOWN_TOPIC = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION})
NO_TOPIC_YET = "there is no such topic yet; the controller creates its topics at its first start"


class ConnectionFaults:
    """What has kept a client's connections from working, last; its `note` is the client's `error_cb`.

    A client whose password or certificate is refused tries again for ever, so a request of it only times out.
    """

    def __init__(self) -> None:
        self.last: str | None = None
        """None = nothing."""

    def note(self, error: KafkaError) -> None:
        """An error of the client; that all brokers are down follows from one before it."""
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            self.last = str(error.str())

    def explain(self, fault: KafkaException) -> str:
        """Text of an error for a log line, with what has kept the connections from working."""
        text = error_text(fault)
        return text if self.last is None or self.last in text else f"{text}: {self.last}"


def is_transient(error: KafkaError) -> bool:
    """Whether another attempt may succeed."""
    return bool(error.retriable()) or error.code() in TRANSIENT


def error_text(fault: Exception) -> str:
    """Text of an error for a log line; of one of the Kafka client in the words of the broker or the client."""
    error = fault.args[0] if fault.args else None
    return str(error.str()) if isinstance(error, KafkaError) else str(fault)


def error_word(error: KafkaError) -> str:
    """The client's name of an error as one word, for a metric label: `msg_timed_out`."""
    name: str = error.name()
    return name.lstrip("_").lower()
