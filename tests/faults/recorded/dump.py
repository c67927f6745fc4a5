"""Reads a run back from Kafka into a folder.  Knows Kafka and the names of the topics, nothing of the product."""

from collections.abc import Sequence
from pathlib import Path

from flights.readback import Record, read_topic
from tests.faults.recorded.history import OFFSETS, Row, Strike, write_rows, write_strikes

JOB = ("flights", "flights-delays", "flights-totals", "flights-sums-changelog")
OWN = ("placement", "commands", "acks", "handover", "journal", "intents", "status", "snapshots")


def dump(
    bootstrap: str, cluster: str, folder: Path, strikes: Sequence[Strike] = (), *, more: Sequence[str] = ()
) -> dict[str, int]:
    """Write all that is recorded of a run on this broker into the folder; rows by topic.  `more` = topics of the job.

    Nothing was compacted away as long as the broker never rolled a segment (in its settings: 1 GiB, 7 days).
    Raises KafkaException, TimeoutError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    topics = (*JOB, *more, *(f"trimtab.{cluster}.{part}" for part in OWN), OFFSETS)
    counts = {topic: write_rows(folder, topic, map(_row, read_topic(bootstrap, topic))) for topic in topics}
    write_strikes(folder, strikes)
    return counts


def _row(record: Record) -> Row:
    return Row(record.partition, record.offset, record.at, record.key, record.value, dict(record.headers))
