"""Tracks the workers of this host as their plug-ins report them, and builds their rows of the host's report.  Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from trimtab_agent.sampler.derive import ProcessUse
from trimtab_protocol.messages.local import Hello, Statistics
from trimtab_protocol.messages.names import KeyGroup, WorkerId
from trimtab_protocol.messages.reason_text import reason_text
from trimtab_protocol.messages.report import KeyGroupSample, Mark, PairSample, WorkerSample, WorkerState

MAX_STATISTICS = 16
"""Number of newest statistics of one worker kept for the next report; only a faulty plug-in sends more."""
COVERED = 0.9
"""Smallest share of an interval that statistics must cover to count as complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """What the workers contribute to a report."""

    workers: tuple[WorkerSample, ...]
    key_groups: tuple[KeyGroupSample, ...]
    pairs: tuple[PairSample, ...]


@dataclass(slots=True)
class _Worker:
    capacity: float
    hello: Hello | None = None
    last: Statistics | None = None
    fresh: list[Statistics] = field(default_factory=list)


class Roster:
    """All workers that are configured or connected.  A worker without a configured capacity has `default` cores."""

    def __init__(self, capacities: Mapping[WorkerId, float | None], default: float) -> None:
        self._default = default
        self._configured = frozenset(capacities)
        self._workers = {worker: _Worker(capacity or default) for worker, capacity in capacities.items()}

    def connect(self, hello: Hello) -> None:
        """Note a worker that has connected, and discard what it reported before."""
        capacity = self._workers[hello.worker].capacity if hello.worker in self._workers else self._default
        self._workers[hello.worker] = _Worker(capacity, hello)

    def disconnect(self, worker: WorkerId) -> None:
        """Note the end of a worker's connection.  A configured worker is away, any other is forgotten."""
        if worker in self._configured:
            self._workers[worker] = _Worker(self._workers[worker].capacity)
        else:
            del self._workers[worker]

    def report(self, worker: WorkerId, statistics: Statistics) -> None:
        """Keep a worker's statistics for the next report."""
        entry = self._workers[worker]
        entry.last = statistics
        entry.fresh = [*entry.fresh, statistics][-MAX_STATISTICS:]

    def take(self, use: Mapping[WorkerId, ProcessUse], interval_s: float) -> Rows:
        """Build the rows of one interval.  Their statistics are used up."""
        workers: list[WorkerSample] = []
        key_groups: list[KeyGroupSample] = []
        pairs: list[PairSample] = []
        for worker, entry in self._workers.items():
            merged = merge(entry.fresh, interval_s) if entry.fresh else None
            workers.append(_sample(worker, entry, merged, use.get(worker)))
            if merged:
                key_groups += merged.key_groups
                pairs += merged.pairs
            entry.fresh = []
        return Rows(workers=tuple(workers), key_groups=tuple(key_groups), pairs=tuple(pairs))


def _sample(worker: WorkerId, entry: _Worker, merged: Statistics | None, use: ProcessUse | None) -> WorkerSample:
    """A worker's row: away if it is not connected, stale if it sent no statistics since the last report."""
    if entry.hello is None:
        return WorkerSample(
            worker=worker, app=None, state=WorkerState.AWAY, capacity=entry.capacity, cpu_s=None, memory_bytes=None
        )
    marks = [] if merged else [Mark.STALE]
    if merged and not merged.complete:
        marks.append(Mark.PARTIAL)
    if use and use.clamped:
        marks.append(Mark.CLAMPED)
    cpu_s = use.cpu_s if use else None
    if cpu_s is None and merged:
        cpu_s = merged.cpu_s
    last = entry.last
    return WorkerSample(
        worker=worker,
        app=entry.hello.app,
        state=last.state if last else WorkerState.RECOVERING,
        capacity=entry.capacity,
        cpu_s=cpu_s,
        memory_bytes=use.memory_bytes if use else None,
        steering=entry.hello.steering,
        epoch=last.epoch if last else None,
        generation=last.generation if last else None,
        marks=tuple(marks),
        operators=entry.hello.operators or None,
        standbys=last.standbys if last else None,
        unknown=merged.unknown if merged else None,
        reason=reason_text(entry.hello.reason) if entry.hello.reason else None,
    )


def merge(statistics: list[Statistics], interval_s: float) -> Statistics:
    """Merge a worker's statistics into one for `interval_s` seconds: sums are added, levels are those of the last.

    A value that is unknown in one part is unknown in the result, with the newest reason.

    If the plug-in was late, the parts cover more seconds than the interval; sums are scaled down to keep the rates
    right.  If it has just started, they cover fewer; sums are kept and marked incomplete, as the rest is unknown.
    """
    last, seconds = statistics[-1], sum(part.interval_s for part in statistics)
    scale = min(1.0, interval_s / seconds)
    if len(statistics) == 1 and scale > 0.99:
        return last if seconds >= COVERED * interval_s else replace(last, complete=False)
    owned = {sample.key_group for sample in last.key_groups}
    samples = (sample for part in statistics for sample in part.key_groups if sample.key_group in owned)
    cpu = [part.cpu_s for part in statistics if part.cpu_s is not None]
    return replace(
        last,
        interval_s=interval_s,
        unknown=next((part.unknown for part in reversed(statistics) if part.unknown), None),
        cpu_s=sum(cpu) * scale if len(cpu) == len(statistics) else None,
        complete=all(part.complete for part in statistics) and seconds >= COVERED * interval_s,
        key_groups=tuple(_merge_key_groups(samples, scale)),
        pairs=tuple(_merge_pairs((pair for part in statistics for pair in part.pairs), scale)),
    )


def _merge_key_groups(samples: Iterable[KeyGroupSample], scale: float) -> Iterable[KeyGroupSample]:
    parts: dict[KeyGroup, list[KeyGroupSample]] = {}
    for sample in samples:
        parts.setdefault(sample.key_group, []).append(sample)
    for group in parts.values():
        yield replace(
            group[-1],
            cpu_s=_add([sample.cpu_s for sample in group], scale),
            tuples_in=_count([sample.tuples_in for sample in group], scale),
            tuples_out=_count([sample.tuples_out for sample in group], scale),
            bytes_in=_count([sample.bytes_in for sample in group], scale),
            bytes_out=_count([sample.bytes_out for sample in group], scale),
        )


def _merge_pairs(samples: Iterable[PairSample], scale: float) -> Iterable[PairSample]:
    sums: dict[tuple[KeyGroup, KeyGroup], tuple[int, int]] = {}
    for pair in samples:
        tuples, size = sums.get((pair.source, pair.target), (0, 0))
        sums[pair.source, pair.target] = (tuples + pair.tuples, size + pair.bytes)
    for (source, target), (tuples, size) in sums.items():
        yield PairSample(source=source, target=target, tuples=round(tuples * scale), bytes=round(size * scale))


def _add(values: Iterable[float | None], scale: float) -> float | None:
    """The scaled sum; None if any value is unknown."""
    known = list(values)
    return None if None in known else sum(value for value in known if value is not None) * scale


def _count(values: Iterable[int | None], scale: float) -> int | None:
    total = _add(values, scale)
    return None if total is None else round(total)
