"""Tracks the workers of this host as their plug-ins report them, and builds their rows of the host's report.  Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from trimtab_agent.sampler.derive import ProcessUse
from trimtab_protocol.messages.local import Hello, Statistics
from trimtab_protocol.messages.names import AppId, KeyGroup, WorkerId
from trimtab_protocol.messages.reason_text import reason_text
from trimtab_protocol.messages.report import Absence, KeyGroupSample, Mark, PairSample, WorkerSample, WorkerState

MAX_STATISTICS = 16
"""Number of newest statistics of one worker kept for the next report; only a faulty plug-in sends more."""
COVERED, LEAST_COVERED = 0.9, 0.5
"""Smallest share of an interval that statistics must cover to count as complete: the first ones of a connection, and
later ones, which are shorter where those before them were late.
"""
LATE_INTERVALS, LATE_S = 2, 5.0
"""So many intervals in a row, or so many seconds, may be without statistics.  A worker is late when a handler of its
app computes or waits for long, or when it gets too little CPU: just then it has to be balanced.  What it sends covers
the time before, too.
"""


Absences = Mapping[WorkerId, tuple[Absence, str | None]]
"""Why workers that can be started are away, and what an operator must know of it."""
PROTECTED = "it ended itself to protect its state, see trimtab runbook state_breach"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """What the workers contribute to a report."""

    workers: tuple[WorkerSample, ...]
    key_groups: tuple[KeyGroupSample, ...]
    pairs: tuple[PairSample, ...]


@dataclass(slots=True)
class _Worker:
    capacity: float
    declared: AppId | None = None
    hello: Hello | None = None
    other_app: AppId | None = None  # what it ran last, if that is not the declared app
    last: Statistics | None = None
    fresh: list[Statistics] = field(default_factory=list)
    silent: int = 0  # intervals in a row without statistics
    begun: bool = False  # it has said something since it connected
    protected: bool = False  # it has said that it ends itself, before a table becomes wrong

    @property
    def difference(self) -> str | None:
        """How its app differs from the declared one."""
        if self.other_app is None:
            return None
        return f"agent.toml declares app {self.declared}, its plug-in reports {self.other_app}"


class Roster:
    """All workers that are configured or connected.

    A worker without a configured capacity has `default` cores.  `declared`: the apps of the workers that the agent can
    start, as configured.
    """

    def __init__(
        self,
        capacities: Mapping[WorkerId, float | None],
        default: float,
        declared: Mapping[WorkerId, AppId] = MappingProxyType({}),
    ) -> None:
        self._default = default
        self._configured = frozenset(capacities)
        self._workers = {
            worker: _Worker(capacity or default, declared.get(worker)) for worker, capacity in capacities.items()
        }

    def connect(self, hello: Hello) -> str | None:
        """Note a worker that has connected, and discard what it reported before.

        Returns how its app differs from the declared one; None if it does not.
        """
        before = self._workers.get(hello.worker) or _Worker(self._default)
        worker = _Worker(before.capacity, before.declared, hello)
        if worker.declared not in (None, hello.app):
            worker.other_app = hello.app
        self._workers[hello.worker] = worker
        return worker.difference

    def disconnect(self, worker: WorkerId) -> None:
        """Note the end of a worker's connection.  A configured worker is away, any other is forgotten."""
        if worker in self._configured:
            before = self._workers[worker]
            self._workers[worker] = _Worker(
                before.capacity, before.declared, other_app=before.other_app, protected=before.protected
            )
        else:
            del self._workers[worker]

    def report(self, worker: WorkerId, statistics: Statistics) -> None:
        """Keep a worker's statistics for the next report."""
        entry = self._workers[worker]
        entry.last = statistics
        entry.protected |= bool(statistics.breaches)
        entry.fresh = [*entry.fresh, statistics][-MAX_STATISTICS:]

    def take(
        self,
        use: Mapping[WorkerId, ProcessUse],
        interval_s: float,
        absent: Absences = MappingProxyType({}),
        waiting: Mapping[WorkerId, float] = MappingProxyType({}),
    ) -> Rows:
        """Build the rows of one interval.  Their statistics are used up.

        `absent`: why workers that can be started are not connected.  `waiting`: see `WorkerSample`.
        """
        workers: list[WorkerSample] = []
        key_groups: list[KeyGroupSample] = []
        pairs: list[PairSample] = []
        for worker, entry in self._workers.items():
            entry.silent = 0 if entry.fresh else entry.silent + 1
            covered = LEAST_COVERED if entry.begun else COVERED
            merged = merge(entry.fresh, interval_s, covered) if entry.fresh else None
            entry.begun |= merged is not None
            stale = not entry.begun or entry.silent > max(LATE_INTERVALS, LATE_S / interval_s)
            workers.append(
                _sample(worker, entry, merged, stale, use.get(worker), waiting.get(worker))
                if entry.hello
                else _away(worker, entry, absent)
            )
            if merged:
                key_groups += merged.key_groups
                pairs += merged.pairs
            entry.fresh = []
        return Rows(workers=tuple(workers), key_groups=tuple(key_groups), pairs=tuple(pairs))


def _away(worker: WorkerId, entry: _Worker, absent: Absences) -> WorkerSample:
    """The row of a worker that is not connected.

    A worker that ran another app than the declared one is not offered for the declared app.
    """
    absence, ending = absent.get(worker, (None, None))
    return WorkerSample(
        worker=worker,
        app=None,
        state=WorkerState.AWAY,
        capacity=entry.capacity,
        cpu_s=None,
        memory_bytes=None,
        absence=absence,
        declared=entry.declared if absence and not entry.other_app else None,
        reason=_reason(PROTECTED if entry.protected else None, entry.difference, ending),
        steering=False,
        marks=(),
    )


def _reason(*parts: str | None) -> str | None:
    said = "; ".join(part for part in parts if part)
    return reason_text(said) if said else None


def _sample(
    worker: WorkerId,
    entry: _Worker,
    merged: Statistics | None,
    stale: bool,
    use: ProcessUse | None,
    waiting: float | None,
) -> WorkerSample:
    """A worker's row."""
    assert entry.hello is not None
    marks = [Mark.STALE] if stale else []
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
        cold=last.cold if last else None,
        unknown=merged.unknown if merged else None,
        reason=_reason(entry.hello.reason, entry.difference),
        declared=None if entry.other_app else entry.declared,
        fresh=bool(last and last.fresh),
        copies=last.copies if last else (),
        following_s=_at_most(merged.following_s, cpu_s) if merged else None,
        paused_s=merged.paused_s if merged else None,
        paused=merged.paused if merged else None,
        waiting=waiting,
    )


def _at_most(part_s: float | None, whole_s: float | None) -> float | None:
    """CPU seconds of a part of a process: clocks differ, and a faulty plug-in may report anything."""
    return None if part_s is None or whole_s is None else min(part_s, whole_s)


def merge(statistics: list[Statistics], interval_s: float, covered: float = COVERED) -> Statistics:
    """Merge a worker's statistics into one for `interval_s` seconds: sums are added, levels are those of the last.

    A value that is unknown in one part is unknown in the result, with the newest reason.

    If the plug-in was late, or is on time again, the parts cover more seconds than the interval, or fewer; sums are
    scaled to keep the rates right.  If they cover less than the share `covered`, as when it has just started, sums are
    kept and marked incomplete, as the rest is unknown.
    """
    last, seconds = statistics[-1], sum(part.interval_s for part in statistics)
    enough = seconds >= covered * interval_s
    scale = interval_s / seconds if enough else min(1.0, interval_s / seconds)
    if len(statistics) == 1 and abs(scale - 1.0) < 0.01:
        return last if enough else replace(last, complete=False)
    owned = {sample.key_group for sample in last.key_groups}
    samples = (sample for part in statistics for sample in part.key_groups if sample.key_group in owned)
    return replace(
        last,
        interval_s=interval_s,
        unknown=next((part.unknown for part in reversed(statistics) if part.unknown), None),
        cpu_s=_add((part.cpu_s for part in statistics), scale),
        following_s=_add((part.following_s for part in statistics), scale),
        paused_s=_add((part.paused_s for part in statistics), 1.0),
        paused=_count((part.paused for part in statistics), 1.0),
        complete=all(part.complete for part in statistics) and enough,
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
    parts: dict[tuple[KeyGroup, KeyGroup, str | None], list[PairSample]] = {}
    for pair in samples:
        parts.setdefault((pair.source, pair.target, pair.topic), []).append(pair)
    for pairs in parts.values():
        yield replace(
            pairs[0],
            tuples=round(sum(pair.tuples for pair in pairs) * scale),
            bytes=round(sum(pair.bytes for pair in pairs) * scale),
            direct=_count([pair.direct for pair in pairs], scale),
        )


def _add(values: Iterable[float | None], scale: float) -> float | None:
    """The scaled sum; None if any value is unknown."""
    known = list(values)
    return None if None in known else sum(value for value in known if value is not None) * scale


def _count(values: Iterable[int | None], scale: float) -> int | None:
    total = _add(values, scale)
    return None if total is None else round(total)
