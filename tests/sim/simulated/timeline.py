"""Fake time: what is to happen is called in its order; nothing waits for a real clock."""

import heapq
import random
from collections.abc import Callable

START_S = 1_700_000_000.0
"""Epoch seconds at which a simulation begins; a multiple of every window."""

Act = Callable[[], None]


class Timeline:
    """One seed decides everything: `random` is the only source of chance, ties go by the order of scheduling."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = START_S
        self.steps = 0
        self._queue: list[tuple[float, int, Act]] = []
        self._scheduled = 0
        self.after_step: Act = lambda: None

    def at(self, when: float, act: Act) -> None:
        """Call `act` at `when` (epoch seconds), or now if that has passed."""
        self._scheduled += 1
        heapq.heappush(self._queue, (max(when, self.now), self._scheduled, act))

    def after(self, delay_s: float, act: Act) -> None:
        """Call `act` in so many seconds."""
        self.at(self.now + delay_s, act)

    def soon(self, low_s: float, high_s: float, act: Act) -> None:
        """Call `act` after a delay by chance."""
        self.after(self.random.uniform(low_s, high_s), act)

    def run_until(self, end: float) -> None:
        """Everything up to `end`.  May be called from inside an act: that is how a process blocks."""
        while self._queue and self._queue[0][0] <= end:
            when, _, act = heapq.heappop(self._queue)
            self.now = max(self.now, when)
            act()
            self.steps += 1
            self.after_step()
        self.now = max(self.now, end)
