"""Has a round begin, and sees it go by on the topics."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from confluent_kafka import Consumer, TopicPartition

from flights.steered_run import RunError
from flights.watch import read_snapshots
from tests.faults.played.shift import NoShift, Shift, choose_shift
from tests.faults.played.stage import Stage
from trimtab_protocol.messages.decode import BadMessage
from trimtab_protocol.messages.names import WorkerId

T = TypeVar("T")

ROUND_LIMIT_S = 240.0
"""From a shift of the load to the round it causes; three windows when all is well.

On a slow and busy machine Spark's first window has come after 250 s.  No promise says how long this takes.
"""
IN_VAIN = 6
"""Windows after which a shift will lead to no round: it was chosen by a window of loads that were not as they usually
are, as behind a kill.
"""
TRIES = 4
REQUEST_LIMIT_S = 10.0


class Tap:
    """Reads a topic of the cluster (its only partition) from now on, or the `whole`: what is committed of it."""

    def __init__(self, bootstrap: str, topic: str, *, whole: bool = False) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "tap",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 5,
                "log_level": 0,
            }
        )
        place = TopicPartition(topic, 0)
        end = self._consumer.get_watermark_offsets(place, timeout=REQUEST_LIMIT_S)[1]
        self._consumer.assign([TopicPartition(topic, 0, 0 if whole else end)])

    def first(self, decode: Callable[[bytes | None], T], wanted: Callable[[T], bool], limit_s: float) -> T | None:
        """The first record that is wanted; None when there is none in time.  What cannot be read is passed over."""
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            for message in self._consumer.consume(50, timeout=0.02):
                with suppress(BadMessage):
                    if message.error() is None and wanted(found := decode(message.value())):
                        return found
        return None

    def close(self) -> None:
        """End it."""
        self._consumer.close()


@contextmanager
def tapped(bootstrap: str, topic: str, *, whole: bool = False) -> Iterator[Tap]:
    """A tap for a while."""
    tap = Tap(bootstrap, topic, whole=whole)
    try:
        yield tap
    finally:
        tap.close()


class Load:
    """The load of the job on a stage, which can be shifted."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._speeds = dict.fromkeys(range(stage.settings.key_groups), 1.0)
        self._shifted: WorkerId | None = None

    def provoke(self, begun: Callable[[float], T | None]) -> T:
        """Shift the load until a round has begun: `begun(limit_s)` waits for it.  Raises RunError."""
        at_least = self._stage.settings.beyond_band
        for _ in range(TRIES):
            self.shift(at_least)
            since = time.time()
            while not self._is_in_vain(since):  # seldom asked: meanwhile a moment may pass by
                if (found := begun(self._stage.settings.window_s)) is not None:
                    return found
            at_least *= 1.5
        status = self._stage.run.watch.poll()
        said = status.decisions[-1].text if status and status.decisions else "nothing"
        raise RunError(f"{TRIES} shifts of the load led to no round; the controller last said: {said}")

    def _is_in_vain(self, since: float) -> bool:
        """Whether a shift at that time can lead to a round no more, by what the controller has seen since."""
        status = self._stage.run.watch.poll()
        seen_s = (status.window_end or 0.0) - since if status and not status.plans_in_flight else 0.0
        return seen_s > IN_VAIN * self._stage.settings.window_s or time.time() > since + ROUND_LIMIT_S

    def shift(self, at_least: float) -> None:
        """Let other key groups grow, so that the load distance is to be `at_least` so many points.  Raises RunError."""
        stage = self._stage
        lack = ["no window"]
        found: list[Shift] = []

        def found_one() -> bool:
            for window in read_snapshots(stage.bootstrap, stage.cluster.topics)[-1:]:
                try:
                    found.append(choose_shift(window, self._speeds, at_least=at_least, avoid=self._shifted))
                except NoShift as error:  # a window may be of the loads before the last shift
                    lack.append(str(error))
            return bool(found)

        if not stage.holds_within(ROUND_LIMIT_S, found_one):
            raise RunError(f"{lack[-1]}, within {ROUND_LIMIT_S:g} s")
        shift = found[-1]
        self._shifted = shift.worker
        self._speeds = {partition: shift.speed_of(partition) for partition in self._speeds}
        for partition, speed in self._speeds.items():
            stage.run.producer.set_speed([partition], speed)
