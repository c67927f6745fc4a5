"""Asks Kafka which hosts report, before Spark starts: for few hosts it starts with other settings than for many."""

import logging

from confluent_kafka import KafkaException

from trimtab_controller.kafka.connection import Connection
from trimtab_controller.kafka.reader import NoTopicError, ReadError, passing, reading, since
from trimtab_process.kafka_errors import error_text

ANSWER_LIMIT_S = 2.0
"""How long the broker may take for each answer.  Spark starts only afterwards."""
MOST_REPORTS = 10_000
"""Reports that are read.  So many in a window are a flood where they come from few hosts."""

log = logging.getLogger(__name__)


def reporting_hosts(connection: Connection, topic: str, from_s: float, *, most: int) -> frozenset[str] | None:
    """The names on the reports that Kafka got from `from_s` (epoch seconds) on: all, or the first `most`.

    None = not known, because Kafka does not answer in time, or there are more than MOST_REPORTS.  Without the topic
    nobody has reported.  Nothing but the names is looked at, so a host may have reported in the name of another.
    """
    try:
        return frozenset(_names(connection, topic, from_s, most))
    except NoTopicError:
        return frozenset()
    except (KafkaException, ReadError) as error:
        log.info("how many hosts report is not known: %s", error_text(error))
        return None


def _names(connection: Connection, topic: str, from_s: float, most: int) -> set[str]:
    found: set[str] = set()
    with reading(connection, "reporting-hosts") as consumer:
        places = since(consumer, topic, from_s, limit_s=ANSWER_LIMIT_S)
        for number, message in enumerate(passing(consumer, places, silence_s=ANSWER_LIMIT_S)):
            found.add((message.key() or b"").decode(errors="replace"))
            if len(found) >= most:
                break
            if number >= MOST_REPORTS:
                raise ReadError(f"there are more than {MOST_REPORTS} reports")
    return found
