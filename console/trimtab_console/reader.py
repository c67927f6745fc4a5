"""Reads the topics of the cluster as a reader: it joins no group, writes nothing, and survives broker and topics."""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from trimtab_console.watch import Watch
from trimtab_controller.kafka.connection import Connection, pause
from trimtab_controller.kafka.events import newest_events
from trimtab_controller.kafka.follower import Follower
from trimtab_controller.kafka.reader import ReadError, drain, reading, since, starts
from trimtab_controller.leadership.group import members
from trimtab_process.backoff import BROKER
from trimtab_process.kafka_errors import error_text, is_transient
from trimtab_protocol.messages.names import Topics
from trimtab_protocol.signing.envelope import headers_in

log = logging.getLogger(__name__)

LOOK_BACK_S = 300.0
"""How far back snapshots are read at the start; a stale window is better than none."""
CONTROLLERS_EVERY_S = 10.0
"""How often the broker is asked who is in the group of controllers."""
LOOK_AGAIN_S = 60.0
"""How often events are looked for while their topic is missing or may not be read."""
AT_ONCE = 500
"""Most messages to take in between two looks at whether the process should end."""


def newest_windows(messages: Sequence[Message], snapshots: str) -> Iterator[Message]:
    """The messages, but only the last two windows: reading one of a fleet takes seconds, and the last may be a part."""
    window = {
        number: dict(headers_in(m)).get("snapshot") for number, m in enumerate(messages) if m.topic() == snapshots
    }
    newest = list(dict.fromkeys(window.values()))[-2:]
    return (m for number, m in enumerate(messages) if number not in window or window[number] in newest)


def places_of_events(consumer: Consumer, topics: Topics) -> list[TopicPartition]:
    """Where to read events; empty where there is no such topic, or it may not be read."""
    try:
        return newest_events(consumer, topics.events)
    except ReadError as error:
        log.info("no events are shown: %s", error)
        return []


class Reader:
    """Feeds a watch from Kafka until `stopping`."""

    def __init__(self, connection: Connection, topics: Topics, watch: Watch, stopping: Callable[[], bool]) -> None:
        self._connection = connection
        self._topics = topics
        self._watch = watch
        self._stopping = stopping

    def start(self) -> list[threading.Thread]:
        """Start reading; the threads end soon after `stopping`."""
        threads = [
            threading.Thread(target=run, name=name, daemon=True)
            for name, run in (("reader", self.run), ("controllers", self.ask_for_controllers))
        ]
        for thread in threads:
            thread.start()
        return threads

    def run(self) -> None:
        """Read; after a fault, from the beginning again."""
        failures = 0
        while not self._stopping():
            try:
                self._read()
                failures = 0
            except (KafkaException, ReadError) as error:
                failures += 1
                text = error_text(error)
                log.warning("cannot read the topics of %s: %s", self._topics.cluster, text)
                self._rest(text, failures)
            except Exception as error:  # a fault of ours: say so rather than show old values as if they were new
                failures += 1
                log.exception("reading the topics of %s has failed", self._topics.cluster)
                self._rest(repr(error), failures)

    def _rest(self, fault: str, failures: int) -> None:
        self._watch.set_reading(read=self._watch.known.read, fault=fault)
        pause(BROKER.after(failures), self._stopping)

    def _read(self) -> None:
        """Read all topics to their ends and go on; returns when topics were made anew.  Raises KafkaException."""
        topics = self._topics
        compacted = (topics.status, topics.intents, topics.placement, topics.journal)
        with reading(self._connection, "console") as consumer:
            at = time.time() - LOOK_BACK_S
            events = places_of_events(consumer, topics)
            found = drain(consumer, [*starts(consumer, compacted), *since(consumer, topics.snapshots, at), *events])
        self._watch.restart()
        for message in newest_windows(found.messages, topics.snapshots):
            self._watch.take(message)
        read = (*compacted, topics.snapshots, topics.events)
        positions = [each for topic in read for each in found.positions(topic)]
        del found
        self._watch.set_reading(read=True, fault=None)
        follower = Follower(self._connection, "console", positions)
        try:
            look_at = time.monotonic() + LOOK_AGAIN_S
            while not self._stopping() and not follower.take_recreated():
                if not events and time.monotonic() >= look_at:
                    look_at = time.monotonic() + LOOK_AGAIN_S
                    with reading(self._connection, "console") as consumer:
                        if places_of_events(consumer, topics):
                            return
                for message in follower.consume(AT_ONCE, timeout_s=0.2):
                    if message.error() is None:
                        self._watch.take(message)
                    elif not is_transient(message.error()):
                        raise KafkaException(message.error())
        finally:
            follower.close()

    def ask_for_controllers(self) -> None:
        """Ask from time to time who is in the group of controllers."""
        admin: AdminClient | None = None
        while not self._stopping():
            try:
                admin = admin or AdminClient(self._connection.client("trimtab-console-admin"))
                self._watch.set_controllers(members(admin, self._topics.cluster))
            except (KafkaException, TimeoutError):
                admin = None  # librdkafka ends the process when the answer comes later (its issue 4605)
                self._watch.set_controllers(None)
            pause(CONTROLLERS_EVERY_S, self._stopping)
