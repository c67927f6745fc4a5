"""Reads a run back from Kafka into a folder.  Knows Kafka and the names of the topics, nothing of the product."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from flights.readback import read_topic
from tests.faults.recorded.history import Row, Strike, write_rows, write_strikes

JOB = ("flights", "flights-delays", "flights-totals", "flights-sums-changelog")
OWN = ("placement", "commands", "acks", "handover", "journal", "intents", "status", "snapshots")
OFFSETS = "__consumer_offsets"
"""Kafka's own: every commit and every generation of every group, as the broker wrote them down."""


def dump(bootstrap: str, cluster: str, folder: Path, strikes: Sequence[Strike] = ()) -> dict[str, int]:
    """Write all that is recorded of a run on this broker into the folder; rows by topic.

    Nothing was compacted away as long as the broker never rolled a segment (in its settings: 1 GiB, 7 days).
    Raises KafkaException, TimeoutError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    topics = (*JOB, *(f"trimtab.{cluster}.{part}" for part in OWN), OFFSETS)
    counts = {topic: write_rows(folder, topic, rows(bootstrap, topic)) for topic in topics}
    write_strikes(folder, strikes)
    return counts


def rows(bootstrap: str, topic: str) -> Iterator[Row]:
    """All committed rows of a topic from its beginning to its present end; of a topic that is not there, none."""
    for each in read_topic(bootstrap, topic):
        yield Row(each.partition, each.offset, each.at, each.key, each.value, dict(each.headers))
