"""The message of a direct event, and how its end counts for the event that caused it.

A direct message holds one reference to the message of its cause from the send until its last reader has finished.  So
the cause's offset is committed only after everything that it caused on this worker.

Faust's compiled stream iterator inlines `Message.ack()` and the consumer's bookkeeping, and never calls
`on_final_ack()`.  It sets `acked`, which is therefore a property here, and then looks the topic up among those with
acknowledgements.  A finished message has a topic name that prints and compares the same but is not found there, so no
offset is recorded for its own partition.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from faust.types import TP, Message

if TYPE_CHECKING:
    from trimtab_agent.engines.faust.local.gate import LocalGate


class FinishedTopic(str):
    """A topic's name that no dictionary or set of names contains."""

    __slots__ = ()

    def __hash__(self) -> int:
        return ~str.__hash__(self)

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other)


class DirectMessage(Message):  # type: ignore[misc]
    """A message that was never in the log.  `offset` is -1, as in Faust's in-memory channels."""

    if TYPE_CHECKING:
        __slots__ = ("_acked", "_encode", "_finished", "_raw", "cause", "era", "gate", "generation_id", "headers",
                     "key", "partition", "refcount", "timestamp", "topic", "tp")  # fmt: skip
    else:  # the others are slots of Faust's class; sensors may add more, as to messages from the broker
        __slots__ = ("__dict__", "_acked", "_encode", "_finished", "_raw", "cause", "era", "gate")
    use_tracking = False
    # Read but never written by Faust and its streams.
    offset = -1
    timestamp_type = 0
    checksum = None
    tracked = True  # never among the consumer's unfinished messages: its cause is
    time_in = time_out = time_total = None

    def __init__(
        self,
        gate: "LocalGate",
        *,
        key: bytes | None,
        headers: Any,
        timestamp: float,
        generation_id: int,
        encode: Callable[[], bytes | None],
        cause: Message,
        era: int,
        finished: Callable[["DirectMessage"], None],
    ) -> None:
        tp: TP = gate.tp
        self.gate = gate
        self.tp = tp
        self.topic = tp.topic
        self.partition = tp.partition
        self.key = key
        self.headers = headers
        self.timestamp = timestamp
        self.generation_id = generation_id
        self.cause = cause
        self.era = era
        self.refcount = 0
        self._encode = encode
        self._finished = finished
        self._raw: bytes | None = None
        self._acked = False

    @property
    def acked(self) -> bool:
        """Whether all readers have finished it."""
        return self._acked

    @acked.setter
    def acked(self, value: bool) -> None:
        if value and not self._acked:
            self._acked = True
            self.topic = FinishedTopic(self.topic)
            self._finished(self)

    def on_final_ack(self, consumer: Any) -> bool:
        """Called by pure-Python code such as `Event.ack()`."""
        self.acked = True
        return False  # its partition has no offset to record

    @property
    def value(self) -> bytes | None:
        """The serialised value, made when somebody asks for it."""
        if self._raw is None:
            self._raw = self._encode()
        return self._raw

    @property
    def span(self) -> Any:
        """The trace of its cause, which Faust's sensor for traces has begun."""
        return getattr(self.cause, "span", None)

    @property
    def serialized_key_size(self) -> int:
        """Bytes of the key."""
        return len(self.key or b"")

    @property
    def serialized_value_size(self) -> int:
        """Bytes of the value."""
        return len(self.value or b"")


def root(message: Message) -> Message:
    """The message from the broker that a direct message goes back to; any other message itself."""
    while isinstance(message, DirectMessage):
        message = message.cause
    return message


def never_done(message: Message) -> None:
    """Let the end of a message from the broker record no offset: it is read again."""
    origin = root(message)
    if type(origin.topic) is not FinishedTopic:
        origin.topic = FinishedTopic(origin.topic)
