"""The newest events, as many as memory is spent on."""

from collections import deque

from confluent_kafka import Message

from trimtab_controller.kafka.events import Readable
from trimtab_protocol.console_documents import EventDocument
from trimtab_protocol.messages.codec import copied
from trimtab_protocol.messages.events import Event

MAX_EVENTS = 5_000
"""Events that are kept."""
MAX_BYTES = 32 * 1024 * 1024
"""Size of the messages of those that are kept: a large plan has many moves."""


class Events:
    """The newest events of one cluster."""

    def __init__(self, cluster: str) -> None:
        self._readable = Readable(cluster)
        self._rows: deque[tuple[int, Event]] = deque()
        self._bytes = 0

    def take(self, message: Message) -> bool:
        """Keep an event; whether it is a new one that can be read."""
        event = self._readable.take(message)
        if event is None:
            return False
        size = len(message.value())
        self._rows.append((size, event))
        self._bytes += size
        while len(self._rows) > MAX_EVENTS or self._bytes > MAX_BYTES:
            gone, _ = self._rows.popleft()
            self._bytes -= gone
        return True

    def kept(self) -> tuple[Event, ...]:
        """Those that are kept, in the order of their times."""
        return tuple(sorted((event for _, event in self._rows), key=lambda event: event.at))


def event_row(event: Event) -> EventDocument:
    """An event as a document of the API; the explanation of its plan has moves and loads."""
    return copied(EventDocument, event, moves=event.moves_total)
