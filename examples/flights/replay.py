"""In which order and when the flights are sent; pure.

Every key group (partition of the source topic) has a clock that counts rows of the data set.  It runs at `rate` rows
per second times the key group's speed, and a flight is due when the clock of its key group has passed its row.  At
speed 1 everywhere the flights come in the order of the file, `rate` of them per second.  A key group at speed 4 gets
its flights ahead of time at four times the rate, out of the same file: its traffic grows, every flight is still sent
once, in the file's order within the key group.  A key group that has reached the end of the file falls silent.
What was sent is exactly described by the clocks.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """How far each key group's clock has come: its flights with a smaller sequence number have been sent."""

    clocks: tuple[int, ...]

    def __contains__(self, place: tuple[int, int]) -> bool:
        """Whether flight (partition, sequence) was sent."""
        partition, sequence = place
        return sequence < self.clocks[partition]


class Replay:
    """The clocks.  `partitions_of_rows[sequence]` is the key group of each flight of the file."""

    def __init__(self, partitions_of_rows: Sequence[int], *, key_groups: int, rate: float) -> None:
        if key_groups < 1 or not rate > 0:
            raise ValueError(f"expected key groups and a rate above zero, found {key_groups} and {rate}")
        self._rows: list[list[int]] = [[] for _ in range(key_groups)]
        for sequence, partition in enumerate(partitions_of_rows):
            self._rows[partition].append(sequence)
        self._length = len(partitions_of_rows)
        self._rate = rate
        self._speeds = [1.0] * key_groups
        self._clocks = [0.0] * key_groups
        self._next = [0] * key_groups
        self._now: float | None = None

    def set_rate(self, rate: float) -> None:
        """Rows per second at speed 1, from the next call of `due` on."""
        if not rate > 0:
            raise ValueError(f"rate: found {rate}, expected above zero")
        self._rate = rate

    def set_speed(self, key_groups: Iterable[int], factor: float) -> None:
        """From the next call of `due` on these key groups' traffic is `factor` times that of speed 1."""
        if not factor > 0:
            raise ValueError(f"speed: found {factor}, expected above zero")
        for partition in key_groups:
            self._speeds[partition] = factor

    def due(self, now: float) -> list[int]:
        """Sequence numbers to send at `now` (seconds on any clock that does not go back), in this order."""
        elapsed = 0.0 if self._now is None else max(0.0, now - self._now)
        self._now = now
        sequences: list[int] = []
        for partition, rows in enumerate(self._rows):
            clock = min(self._length, self._clocks[partition] + elapsed * self._rate * self._speeds[partition])
            self._clocks[partition] = clock
            place = self._next[partition]
            while place < len(rows) and rows[place] < int(clock):
                sequences.append(rows[place])
                place += 1
            self._next[partition] = place
        return sorted(sequences)

    @property
    def finished(self) -> bool:
        """Whether every flight was due."""
        return all(clock >= self._length for clock in self._clocks)

    @property
    def count(self) -> int:
        """Number of flights that `due` has given out so far."""
        return sum(self._next)

    @property
    def sent(self) -> Sent:
        """All that `due` has given out so far."""
        return Sent(clocks=tuple(int(clock) for clock in self._clocks))
