"""Sends a prefix of a job's records at a constant rate, in a thread."""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from confluent_kafka import KafkaError, Message, Producer

TICK_S = 0.02
FLUSH_LIMIT_S = 60.0


class NotDelivered(Exception):
    """Kafka did not accept a record, or there are no more to send, so the run says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """One record of a job's source topic."""

    topic: str
    key: str
    value: str
    partition: int


class Feed:
    """Sends `inputs` in their order; what is sent is always a prefix of them.

    The producer is idempotent and keeps the order per partition.
    """

    def __init__(self, bootstrap: str, inputs: Sequence[Input]) -> None:
        self._inputs = inputs
        self._lock = threading.Lock()
        self._count, self._rate, self._owed, self._at = 0, 0.0, 0.0, time.monotonic()
        self._fault: KafkaError | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 20,
                "queue.buffering.max.messages": 1_000_000,
                "log_level": 0,
            }
        )

    @property
    def count(self) -> int:
        """Records sent so far."""
        with self._lock:
            return self._count

    def set_rate(self, rate: float) -> None:
        """Send so many records per second from now on; 0 = none."""
        with self._lock:
            self._accrue()
            self._rate = rate

    def burst(self, count: int) -> None:
        """Send `count` more records at once, besides those of the rate."""
        with self._lock:
            self._owed += count

    def stop(self) -> int:
        """Send no more; returns how many Kafka has.  Raises NotDelivered."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()
        left = self._producer.flush(FLUSH_LIMIT_S)
        if left or self._fault:
            raise NotDelivered(f"{left} records not acknowledged after {FLUSH_LIMIT_S:g} s; first fault: {self._fault}")
        if self._count == len(self._inputs):
            raise NotDelivered(f"all {self._count} records of the data set were sent before the run ended")
        return self._count

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _accrue(self) -> None:
        now = time.monotonic()
        self._owed += self._rate * (now - self._at)
        self._at = now

    def _run(self) -> None:
        while not self._stopping.is_set() and self._fault is None:
            with self._lock:
                self._accrue()
                due = self._inputs[self._count : self._count + int(self._owed)]
                self._owed -= len(due)
                self._count += len(due)
            for each in due:
                self._producer.produce(each.topic, each.value, each.key, each.partition, on_delivery=self._delivered)
            self._producer.poll(0)
            self._stopping.wait(TICK_S)

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None and self._fault is None:
            self._fault = error
