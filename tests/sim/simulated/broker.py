"""A Kafka broker as a model: one partition per topic, atomic transactions, fencing of an older transactional id.

A transaction appears in the log when it is committed, as readers with `read_committed` see it; its end takes an offset
of its own, as Kafka's markers do.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.sim.simulated.timeline import Timeline

Headers = Sequence[tuple[str, bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A record in the log; `at` = when the broker stored it (epoch seconds).

    `producer`: which taking over of a transactional id, counted over all, its producer was; None: it had no id.
    """

    topic: str
    offset: int
    key: bytes
    value: bytes | None
    headers: Headers
    at: float
    producer: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsent:
    """A record on its way."""

    topic: str
    key: bytes
    value: bytes | None
    headers: Headers = ()


class Broker:
    """`watch` tells readers that there is something new; `on_stored` sees every publication as a whole."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._logs: dict[str, list[Stored]] = {}
        self._ends: dict[str, int] = {}
        self._watchers: dict[str, list[Callable[[], None]]] = {}
        self._producers: dict[str, int] = {}
        self._takeovers = 0
        self._trace = hashlib.sha256()
        self.on_stored: Callable[[tuple[Stored, ...]], None] = lambda _: None

    @property
    def trace(self) -> str:
        """A hash of everything that was ever stored, in order: two runs of one seed have the same."""
        return self._trace.hexdigest()

    def watch(self, topic: str, wake: Callable[[], None]) -> None:
        """Have `wake` called after each publication to a topic."""
        self._watchers.setdefault(topic, []).append(wake)

    def unwatch(self, wake: Callable[[], None]) -> None:
        """Call it no more."""
        for watchers in self._watchers.values():
            if wake in watchers:
                watchers.remove(wake)

    def store(self, record: Unsent) -> Stored:
        """One record of a producer without transactions."""
        return self._append([record])[0]

    def read(self, topic: str, offset: int) -> list[Stored]:
        """The records from an offset on."""
        log = self._logs.get(topic, [])
        return log[bisect_left(log, offset, key=lambda record: record.offset) :]

    def compact(self, topic: str, until: int) -> None:
        """Kafka's log cleaner: of each key, only the last record before this offset stays.

        Here what an intruder wrote does not drive out what a controller wrote, which real compaction would do.
        """
        log = self._logs.get(topic, [])
        last = {record.key: record.offset for record in log if record.offset < until and record.producer is not None}
        self._logs[topic] = [
            record for record in log if record.offset >= until or last.get(record.key, -1) == record.offset
        ]

    def end(self, topic: str) -> int:
        """The next offset of a topic."""
        return self._ends.get(topic, 0)

    def latest(self, topic: str, key: bytes) -> Stored | None:
        """The last record of a key."""
        return next((record for record in reversed(self._logs.get(topic, [])) if record.key == key), None)

    def take_over(self, transactional_id: str) -> int:
        """Be the producer of this id; whoever was it before is fenced."""
        self._takeovers += 1
        self._producers[transactional_id] = self._takeovers
        return self._takeovers

    def is_fenced(self, transactional_id: str, producer: int) -> bool:
        """Whether a later producer has taken the id over."""
        return self._producers[transactional_id] != producer

    def commit(self, records: Sequence[Unsent], producer: int) -> None:
        """All records of a transaction."""
        self._append(records, producer)
        for topic in {record.topic: None for record in records}:
            self._ends[topic] += 1

    def _append(self, records: Sequence[Unsent], producer: int | None = None) -> tuple[Stored, ...]:
        stored = []
        for record in records:
            offset = self._ends.get(record.topic, 0)
            self._ends[record.topic] = offset + 1
            new = Stored(
                topic=record.topic,
                offset=offset,
                key=record.key,
                value=record.value,
                headers=record.headers,
                at=self._timeline.now,
                producer=producer,
            )
            self._logs.setdefault(record.topic, []).append(new)
            self._trace.update(f"{self._timeline.now!r} {record.topic} {offset}".encode() + (record.value or b""))
            stored.append(new)
        self.on_stored(tuple(stored))
        for topic in {record.topic: None for record in records}:
            for wake in self._watchers.get(topic, ()):
                wake()
        return tuple(stored)
