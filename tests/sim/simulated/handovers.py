"""The topic of hand-over records, as a worker reads and writes it."""

from collections.abc import Iterator

from tests.sim.simulated.broker import Broker, Unsent
from trimtab_protocol.messages.codec import decoded, encoded
from trimtab_protocol.messages.handover import HandoverKind, HandoverRecord


class HandoverReader:
    """Reads from the present end of the topic on.  `taken` = hand-overs whose key groups somebody has taken."""

    def __init__(self, topic: str, broker: Broker) -> None:
        self._topic, self._broker = topic, broker
        self._next = broker.end(topic)
        self._seen: set[tuple[HandoverKind, str, int]] = set()
        self.taken: set[str] = set()

    def releases(self) -> Iterator[HandoverRecord]:
        """The new records of releases; a record that comes again is not new."""
        for stored in self._broker.read(self._topic, self._next):
            self._next = stored.offset + 1
            record = decoded(stored.value, HandoverRecord)
            this = record.kind, record.handover, record.generation
            if this in self._seen:
                continue
            self._seen.add(this)
            if record.kind is HandoverKind.TOOK:
                self.taken.add(record.handover)
            else:
                yield record

    def publish(self, record: HandoverRecord) -> None:
        """Write one."""
        self._broker.store(Unsent(topic=self._topic, key=record.app.encode(), value=encoded(record)))
