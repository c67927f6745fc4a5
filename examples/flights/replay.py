"""Decides in which order and when the flights are sent; pure.

Every key group (partition of the source topic) sends its own flights in the order of the file, at an even pace: `rate`
times its share of all flights times its speed.  With speed 1 everywhere, `rate` flights are sent per second, all key
groups reach the end of the file together, and the skew between key groups is that of the data.  A key group at speed 4
sends its flights early, at four times the rate.  Its traffic grows, but every flight is still sent once.  At the end of
the file a key group falls silent.  The position of each key group describes exactly what was sent.

Sending the rows in the order of the file would be noisy, because flights come in bursts.  At 220 rows per second, the
share of a worker with a quarter of 64 key groups varies by 5.7 % between windows of 5 s, and by 3.5 % between windows
of 20 s.  At an even pace it varies by 0.5 and 0.1 %.  The bursts would hide the
difference between placements.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

SPREAD = 0.6180339887498949
"""Golden ratio.  Its multiples modulo 1 are evenly spread, so key groups of equal pace do not send at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """What was sent: of each key group, all flights with a smaller sequence number than its clock."""

    clocks: tuple[int, ...]

    def __contains__(self, place: tuple[int, int]) -> bool:
        """Whether flight (partition, sequence) was sent."""
        partition, sequence = place
        return sequence < self.clocks[partition]


class Replay:
    """The clocks of all key groups; `partitions_of_rows[sequence]` = key group of each flight in the file."""

    def __init__(self, partitions_of_rows: Sequence[int], *, key_groups: int, rate: float) -> None:
        if key_groups < 1 or not rate > 0:
            raise ValueError(f"expected key groups and a rate above zero, found {key_groups} and {rate}")
        self._rows: list[list[int]] = [[] for _ in range(key_groups)]
        for sequence, partition in enumerate(partitions_of_rows):
            self._rows[partition].append(sequence)
        self._length = len(partitions_of_rows)
        self._rate = rate
        self._speeds = [1.0] * key_groups
        self._due = [partition * SPREAD % 1.0 for partition in range(key_groups)]
        self._next = [0] * key_groups
        self._now: float | None = None

    def set_rate(self, rate: float) -> None:
        """Flights per second at speed 1, from the next call of `due` on."""
        if not rate > 0:
            raise ValueError(f"rate: found {rate}, expected above zero")
        self._rate = rate

    def set_speed(self, key_groups: Iterable[int], factor: float) -> None:
        """Set the speed of these key groups to `factor`, from the next call of `due` on."""
        if not factor > 0:
            raise ValueError(f"speed: found {factor}, expected above zero")
        for partition in key_groups:
            self._speeds[partition] = factor

    def due(self, now: float) -> list[int]:
        """Sequence numbers to send at `now` (seconds of any monotonic clock), in this order."""
        elapsed = 0.0 if self._now is None else max(0.0, now - self._now)
        self._now = now
        sequences: list[int] = []
        for partition, rows in enumerate(self._rows):
            pace = self._rate * self._speeds[partition] * len(rows) / max(1, self._length)
            self._due[partition] = min(len(rows), self._due[partition] + elapsed * pace)
            begin, self._next[partition] = self._next[partition], int(self._due[partition])
            sequences += rows[begin : self._next[partition]]
        return sorted(sequences)

    @property
    def finished(self) -> bool:
        """Whether every flight has been due."""
        return self.count == self._length

    @property
    def count(self) -> int:
        """Number of flights that `due` has returned so far."""
        return sum(self._next)

    @property
    def sent(self) -> Sent:
        """All flights that `due` has returned so far."""
        return Sent(
            clocks=tuple(
                rows[place] if place < len(rows) else self._length
                for rows, place in zip(self._rows, self._next, strict=True)
            )
        )
