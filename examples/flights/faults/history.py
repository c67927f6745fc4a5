"""What became of every flight, read back from Kafka."""

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from flights.readback import Record, read_topic
from flights.wire import DELAYS, SOURCE, TOTALS, decode_source


@dataclass(frozen=True, slots=True, kw_only=True)
class Flown:
    """When a flight was sent, and each time that `extract` and `sums` have done with it (epoch seconds).

    `partition` is its key group at `extract`, `home` that at `sums`.
    """

    sequence: int
    partition: int
    sent_at: float
    home: int | None = None
    extracted_at: tuple[float, ...] = ()
    counted_at: tuple[float, ...] = ()


def read_history(bootstrap: str) -> tuple[Flown, ...]:
    """All flights in the source topic.  Raises KafkaException, TimeoutError."""
    return history(read_topic(bootstrap, SOURCE), read_topic(bootstrap, DELAYS), read_topic(bootstrap, TOTALS))


def history(source: Iterable[Record], delays: Iterable[Record], totals: Iterable[Record]) -> tuple[Flown, ...]:
    """The same from the records of the three topics."""
    extracted: dict[int, list[float]] = defaultdict(list)
    counted: dict[int, list[float]] = defaultdict(list)
    homes: dict[int, int] = {}
    for row in delays:
        sequence = _number(row)
        extracted[sequence].append(row.at)
        homes[sequence] = row.partition
    for row in totals:
        counted[_number(row)].append(row.at)
    return tuple(
        Flown(
            sequence=sequence,
            partition=row.partition,
            sent_at=row.at,
            home=homes.get(sequence),
            extracted_at=tuple(sorted(extracted.get(sequence, ()))),
            counted_at=tuple(sorted(counted.get(sequence, ()))),
        )
        for row in source
        for sequence in (decode_source(row.value or b"")[0],)
    )


def _number(row: Record) -> int:
    """The flight's number: the first element of the outputs of both operators."""
    return int(json.loads(row.value or b"[-1]")[0])
