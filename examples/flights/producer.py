"""Sends the flights to Kafka at an adjustable rate: `python -m flights.producer --bootstrap HOST:PORT --seconds 60`."""

import argparse
import json
import signal
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self

from confluent_kafka import KafkaError, Message, Producer

from flights.dataset import Flight, partition_of, read_flights
from flights.replay import Replay, Sent
from flights.wire import SOURCE, encode_source

TICK_S = 0.02
FLUSH_LIMIT_S = 60.0
BUSY_FACTOR, BUSY = 4.0, 8
"""Of an endless load: how much busier than others a key group is for a while, and one in how many is: neighbours, which
Faust gives to one worker."""


class NotDelivered(Exception):
    """Kafka did not accept a flight, so it is unknown what was sent."""


class FlightProducer:
    """Replays the flights in a thread, while the context is open.

    The producer is idempotent and keeps the order, so every flight is in the topic once, even after broker failures.
    Each record names its partition, the same that Faust would choose.
    """

    def __init__(
        self, bootstrap: str, flights: Sequence[Flight], *, key_groups: int, rate: float, topic: str = SOURCE
    ) -> None:
        self._flights = flights
        self._partitions = [partition_of(flight.airplane, key_groups) for flight in flights]
        self._topic = topic
        self._replay = Replay(self._partitions, key_groups=key_groups, rate=rate)
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._fault: KafkaError | None = None
        self._thread = threading.Thread(target=self._run, name="flight-producer", daemon=True)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "compression.type": "none",
                "log_level": 0,  # delivery reports tell what matters
            }
        )

    @property
    def sent(self) -> Sent:
        """What was sent so far."""
        with self._lock:
            return self._replay.sent

    @property
    def count(self) -> int:
        """Number of flights sent so far."""
        with self._lock:
            return self._replay.count

    @property
    def finished(self) -> bool:
        """Whether the whole file has been sent."""
        with self._lock:
            return self._replay.finished

    def set_rate(self, rate: float) -> None:
        """Set the flights per second at speed 1."""
        with self._lock:
            self._replay.set_rate(rate)

    def set_speed(self, key_groups: Iterable[int], factor: float) -> None:
        """Send the flights of these key groups `factor` times as fast from now on (see `replay`)."""
        with self._lock:
            self._replay.set_speed(key_groups, factor)

    def stop(self) -> Sent:
        """Stop sending and wait until Kafka has everything; returns what was sent.  Raises NotDelivered."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()
        left = self._producer.flush(FLUSH_LIMIT_S)
        if left or self._fault:
            raise NotDelivered(f"{left} flights not acknowledged after {FLUSH_LIMIT_S:g} s; first fault: {self._fault}")
        return self._replay.sent

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set() and not self.finished and self._fault is None:
            with self._lock:
                due = self._replay.due(time.monotonic())
            for sequence in due:
                self._send(sequence)
            self._producer.poll(0)
            self._stopping.wait(TICK_S)

    def _send(self, sequence: int) -> None:
        flight = self._flights[sequence]
        value = encode_source(sequence, flight.row)
        while True:
            try:
                self._producer.produce(
                    self._topic, value, flight.airplane, self._partitions[sequence], on_delivery=self._delivered
                )
                return
            except BufferError:  # the broker is slow or away: wait
                self._producer.poll(0.1)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None and self._fault is None:
            self._fault = error


def main(arguments: Sequence[str] | None = None) -> int:
    """Send flights for some seconds, or until SIGTERM; the last line on standard output is JSON: what was sent."""
    parser = argparse.ArgumentParser(prog="python -m flights.producer", description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--rate", type=float, default=500.0, help="flights per second")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--key-groups", type=int, default=64)
    parser.add_argument(
        "--surge", help="FROM_SECOND:FACTOR:PARTITION,PARTITION,...: these key groups grow by the factor"
    )
    parser.add_argument(
        "--endless",
        type=float,
        metavar="SECONDS",
        help="until SIGTERM: all flights again and again; after each SECONDS other key groups are the busy ones",
    )
    parser.add_argument("--sent", type=Path, help="where to write what was sent, for flights.verify")
    given = parser.parse_args(arguments)
    surge = _parse_surge(given.surge) if given.surge else None
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    if given.endless:
        play_on(given.bootstrap, given.key_groups, given.rate, given.endless, stopped)
        return 0
    start = time.monotonic()
    with FlightProducer(
        given.bootstrap, list(read_flights()), key_groups=given.key_groups, rate=given.rate
    ) as producer:
        while (passed := time.monotonic() - start) < given.seconds and not (producer.finished or stopped.is_set()):
            if surge and passed >= surge[0]:
                producer.set_speed(surge[2], surge[1])
                surge = None
            time.sleep(TICK_S)
        sent = producer.stop()
    document = json.dumps({"clocks": sent.clocks})
    if given.sent:
        given.sent.write_text(document, encoding="utf-8")
    print(document)
    return 0


def play_on(bootstrap: str, key_groups: int, rate: float, shift_s: float, stopped: threading.Event) -> None:
    """Send all flights again and again; some key groups at a higher speed, for `shift_s` seconds these, then those."""
    flights, turn = list(read_flights()), 0
    while not stopped.is_set():
        with FlightProducer(bootstrap, flights, key_groups=key_groups, rate=rate) as producer:
            while not (producer.finished or stopped.is_set()):
                producer.set_speed(range(key_groups), 1.0)
                first = turn % BUSY * key_groups // BUSY
                producer.set_speed(range(first, first + key_groups // BUSY), BUSY_FACTOR)
                turn += 1
                stopped.wait(shift_s)
            producer.stop()


def _parse_surge(text: str) -> tuple[float, float, list[int]]:
    start, factor, partitions = text.split(":")
    return float(start), float(factor), [int(partition) for partition in partitions.split(",")]


if __name__ == "__main__":
    sys.exit(main())
