"""The host's reports: when they are due and how they are assembled.  Pure."""

import math
from dataclasses import dataclass, replace
from itertools import islice

from trimtab_agent.reporting.roster import Rows
from trimtab_protocol.messages.codec import decoded, encoded
from trimtab_protocol.messages.decode import BadMessage
from trimtab_protocol.messages.names import HostId, WorkerId
from trimtab_protocol.messages.reason_text import reason_text
from trimtab_protocol.messages.report import (
    MAX_APPS,
    MAX_KEY_GROUPS,
    MAX_REPORT_BYTES,
    MAX_WORKERS,
    HostSample,
    KeyGroupSample,
    Mark,
    Report,
    WorkerSample,
)

SETTLE_SHARE, SETTLE_LIMIT_S = 0.1, 0.25
"""How long to wait for statistics after the end of an interval: a share of the interval, and a limit in seconds."""
EARLY_SHARE = 0.05
"""How early a timer may fire, as a share of the interval: wall clocks are adjusted."""


def until_interval_end(now: float, interval_s: float) -> float:
    """Seconds from `now` (epoch seconds) to the next multiple of the interval on the wall clock."""
    return (math.floor(now / interval_s) + 1) * interval_s - now


def interval_end(now: float, interval_s: float) -> float:
    """The multiple of the interval at `now`, even if the timer fired a little early or, on a busy host, late."""
    return math.floor(now / interval_s + EARLY_SHARE) * interval_s


def settle_s(interval_s: float) -> float:
    """Seconds from the end of an interval until its report is assembled."""
    return min(SETTLE_SHARE * interval_s, SETTLE_LIMIT_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportHead:
    """The reporting host, and how often it reports."""

    cluster: str
    host: HostId
    interval_s: float


def assemble(head: ReportHead, *, end: float, sequence: int, sample: HostSample, rows: Rows) -> bytes:
    """The encoded report of the interval that ended at `end` (epoch seconds), without pairs if it is too large.

    It keeps the rules by which the stream takes a report, whatever the workers sent.
    """
    rows = _of_few_apps(rows)
    report = Report(
        cluster=head.cluster,
        host=head.host,
        at_ms=round(end * 1000),
        interval_s=head.interval_s,
        sequence=sequence,
        sample=sample,
        workers=rows.workers,
        key_groups=rows.key_groups,
        pairs=rows.pairs,
    )
    payload = encoded(report)
    if len(payload) > MAX_REPORT_BYTES:
        workers = [replace(row, marks=_partial(row)) for row in rows.workers]
        report = replace(report, workers=tuple(workers), pairs=())
        payload = encoded(report)
    return payload if _fault(report, payload) is None else encoded(_accepted(report))


def _of_few_apps(rows: Rows) -> Rows:
    """The rows of the first apps, which are those of the configured workers: with more the host would not be seen."""
    workers = [each for row in rows.workers for each in (row.app, row.declared) if each is not None]
    named = dict.fromkeys([*workers, *(sample.key_group.app for sample in rows.key_groups)])
    if len(named) <= MAX_APPS:
        return rows
    kept = {None, *islice(named, MAX_APPS)}
    return Rows(
        workers=tuple(row for row in rows.workers if {row.app, row.declared} <= kept),
        key_groups=tuple(sample for sample in rows.key_groups if sample.key_group.app in kept),
        pairs=tuple(pair for pair in rows.pairs if pair.source.app in kept),
    )


def _fault(report: Report, payload: bytes | None = None) -> BadMessage | None:
    """Why the stream would refuse this report; None if it takes it."""
    try:
        decoded(payload or encoded(report), Report)
    except BadMessage as fault:
        return fault
    return None


def _accepted(report: Report) -> Report:
    """The report without those workers whose numbers, or whose number, would make the stream refuse all of it.

    Each part of what a plug-in sends was checked when it came; here the sums are.  Of too many workers the first stay,
    which are the configured ones; of too many key groups those of the workers that have fewest.
    """
    of: dict[WorkerId, list[KeyGroupSample]] = {}
    for sample in report.key_groups:
        of.setdefault(sample.worker, []).append(sample)
    workers: list[WorkerSample] = []
    for row in report.workers[:MAX_WORKERS]:
        fault = _fault(replace(report, workers=(row,), key_groups=tuple(of.get(row.worker, ())), pairs=()))
        workers.append(row if fault is None else _left_out(row, str(fault)))
        if fault is not None:
            of.pop(row.worker, None)
    left, pairs = MAX_KEY_GROUPS, report.pairs
    while True:
        fewest, room, told = sorted(workers, key=lambda row: len(of.get(row.worker, ()))), left, {}
        for row in fewest:
            if (room := room - len(of.get(row.worker, ()))) < 0:
                told[row.worker] = _left_out(row, f"{len(of[row.worker])} key groups, more than the report can hold")
        kept = [sample for worker, own in of.items() if worker not in told for sample in own]
        rows = tuple(told.get(row.worker, row) for row in workers)
        known = {sample.key_group for sample in kept}
        pairs = tuple(pair for pair in pairs if pair.source in known)
        found = replace(report, workers=rows, key_groups=tuple(kept), pairs=pairs)
        if not kept or _fault(found) is None:
            return found
        if pairs:
            pairs, workers = (), [replace(row, marks=_partial(row)) for row in workers]
        else:
            left = len(kept) // 2


def _left_out(row: WorkerSample, fault: str) -> WorkerSample:
    """The worker without what it has measured: there it is, and nobody plans with it."""
    told = reason_text(f"what it sent was left out of the report: {fault}")
    return WorkerSample(
        worker=row.worker, app=row.app, state=row.state, capacity=row.capacity, cpu_s=None, marks=_partial(row),
        reason=told, declared=row.declared, steering=False,
    )  # fmt: skip


def _partial(row: WorkerSample) -> tuple[Mark, ...]:
    return tuple({*row.marks, Mark.PARTIAL})
