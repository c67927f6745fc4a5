"""Computes pauses of key groups from the times at which events arrived and were processed.

An event waits until it is processed, from its arrival or from the end of the previous event of its key group, whichever
is later.  The pause of a key group in a span is the longest wait of an event that waited inside the span.  Idle time
without input is therefore no pause, and a wait beyond the end of the span counts in full.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor
from statistics import median

from trimtab_protocol.messages.names import KeyGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """One event at one key group: when it arrived, and when it was processed (epoch seconds)."""

    arrived_at: float
    processed_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseSummary:
    """Median and longest pause in seconds; None without any."""

    median_s: float | None
    max_s: float | None
    count: int


class Waits:
    """The waits of one key group, ordered by their ends."""

    __slots__ = ("_ends", "_lengths", "_longest")

    def __init__(self, passages: Iterable[Passage]) -> None:
        self._ends: list[float] = []
        self._lengths: list[float] = []
        before = float("-inf")
        for passage in sorted(passages, key=lambda passage: passage.processed_at):
            self._ends.append(passage.processed_at)
            self._lengths.append(max(0.0, passage.processed_at - max(passage.arrived_at, before)))
            before = passage.processed_at
        self._longest = max(self._lengths, default=0.0)

    def pause(self, start: float, end: float) -> float | None:
        """The longest wait (s) of an event that waited at some time in [start, end]; None without one."""
        first = bisect_left(self._ends, start)
        last = bisect_left(self._ends, end + self._longest, first)
        rows = zip(self._ends[first : last + 1], self._lengths[first : last + 1], strict=True)
        return max((length for ended, length in rows if ended - length <= end), default=None)


def summarise(pauses: Iterable[float | None]) -> PauseSummary:
    """Median and longest of the pauses that could be measured."""
    known = [pause for pause in pauses if pause is not None]
    if not known:
        return PauseSummary(median_s=None, max_s=None, count=0)
    return PauseSummary(median_s=median(known), max_s=max(known), count=len(known))


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """A completed hand-over; its key groups had no owner for some time inside [start, end]."""

    key_groups: tuple[KeyGroup, ...]
    start: float
    end: float


def around_handovers(
    waits: Mapping[KeyGroup, Waits], handovers: Sequence[Moved], *, slack_s: float
) -> tuple[PauseSummary, PauseSummary]:
    """(pauses of moved key groups, pauses of all others) around each hand-over, with `slack_s` on both sides.

    Key groups that another hand-over moves in the same span count as neither.
    """
    moved: list[float | None] = []
    others: list[float | None] = []
    for handover in handovers:
        start, end = handover.start - slack_s, handover.end + slack_s
        touched = {
            key_group
            for other in handovers
            if other.start - slack_s <= end and start <= other.end + slack_s
            for key_group in other.key_groups
        }
        moved += [waits[key_group].pause(start, end) for key_group in handover.key_groups if key_group in waits]
        others += [wait.pause(start, end) for key_group, wait in waits.items() if key_group not in touched]
    return summarise(moved), summarise(others)


def calm_twins(
    handovers: Sequence[Moved],
    within: tuple[float, float],
    busy: Sequence[tuple[float, float]],
    *,
    period_s: float,
    slack_s: float,
) -> list[tuple[float, float]]:
    """Spans for comparison: those around the hand-overs, moved by whole periods into calm times inside `within`.

    The period is that of the windows, because the end of a window is work for everybody, in calm times too.
    """
    spans = []
    for row in handovers:
        start, end = row.start - slack_s, row.end + slack_s
        first, last = ceil((within[0] - start) / period_s), floor((within[1] - end) / period_s)
        twins = ((start + turn * period_s, end + turn * period_s) for turn in range(first, last + 1))
        spans += [(left, right) for left, right in twins if all(right < begun or done < left for begun, done in busy)]
    return spans


def in_calm(waits: Mapping[KeyGroup, Waits], spans: Sequence[tuple[float, float]]) -> PauseSummary:
    """Pauses of all key groups in spans in which nothing moved."""
    return summarise(wait.pause(start, end) for start, end in spans for wait in waits.values())
