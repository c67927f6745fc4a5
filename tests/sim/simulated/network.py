"""The network between hosts and the broker as a model: delays, losses, cuts."""

from collections.abc import Callable
from dataclasses import dataclass

from tests.sim.simulated.broker import Broker, Unsent
from tests.sim.simulated.timeline import Timeline

DELIVERY_LIMIT_S = 30.0
"""After so long a producer gives a record up, as the agent's is configured."""
Done = Callable[[str | None], None]


@dataclass(slots=True)
class Weather:
    """How bad it is: probabilities per record, and the longest one-way delay (seconds)."""

    lost: float = 0.0
    answer_lost: float = 0.0
    delay_s: float = 0.05


class Network:
    """Hosts (and the controller, by the name of its process) that are cut off reach nothing."""

    def __init__(self, timeline: Timeline, broker: Broker) -> None:
        self._timeline = timeline
        self._broker = broker
        self.weather = Weather()
        self.cut: set[str] = set()

    def reaches(self, place: str) -> bool:
        """Whether the broker can be reached from there."""
        return place not in self.cut

    def delay_s(self) -> float:
        """How long one message takes now."""
        return self._timeline.random.uniform(0.001, self.weather.delay_s)

    def send(self, place: str, record: Unsent, done: Done) -> None:
        """At least once: lost records are given up after a while, a lost answer looks like a lost record."""
        chance = self._timeline.random.random()
        if chance < self.weather.lost:
            self._timeline.after(DELIVERY_LIMIT_S, lambda: done("timed out"))
        else:
            heard = chance >= self.weather.lost + self.weather.answer_lost
            self._timeline.after(self.delay_s(), lambda: self._arrive(place, record, done, heard=heard))

    def _arrive(self, place: str, record: Unsent, done: Done, *, heard: bool) -> None:
        if not self.reaches(place):
            self._timeline.after(DELIVERY_LIMIT_S, lambda: done("timed out"))
            return
        self._broker.store(record)
        if heard:
            self._timeline.after(self.delay_s(), lambda: done(None))
        else:
            self._timeline.after(DELIVERY_LIMIT_S, lambda: done("no answer"))
