"""The host's reports: when they are due and how they are put together.  Pure."""

import math
from dataclasses import dataclass, replace

from trimtab_agent.reporting.roster import Rows
from trimtab_protocol.messages.names import HostId
from trimtab_protocol.messages.report import MAX_REPORT_BYTES, HostSample, Mark, Report, encode_report

SETTLE_SHARE, SETTLE_LIMIT_S = 0.1, 0.25
"""After an interval its statistics get so long to arrive: a share of the interval, at most so many seconds."""
EARLY_SHARE = 0.05
"""A timer may ring too early, by a share of the interval at most: wall clocks are set."""


def until_interval_end(now: float, interval_s: float) -> float:
    """Seconds from `now` (epoch seconds) to the next multiple of the interval on the wall clock."""
    return (math.floor(now / interval_s) + 1) * interval_s - now


def interval_end(now: float, interval_s: float) -> float:
    """The last multiple of the interval at `now`, though the timer rang a little early or, on a busy host, late."""
    return math.floor(now / interval_s + EARLY_SHARE) * interval_s


def settle_s(interval_s: float) -> float:
    """How long after its interval's end a report is put together."""
    return min(SETTLE_SHARE * interval_s, SETTLE_LIMIT_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportHead:
    """Who reports, and how often."""

    cluster: str
    host: HostId
    interval_s: float


def assemble(head: ReportHead, *, end: float, sequence: int, sample: HostSample, rows: Rows) -> bytes:
    """The encoded report of the interval that ended at `end` (epoch seconds); if too large, without its pairs."""
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
    payload = encode_report(report)
    if len(payload) <= MAX_REPORT_BYTES:
        return payload
    workers = [replace(row, marks=tuple({*row.marks, Mark.PARTIAL})) for row in rows.workers]
    return encode_report(replace(report, workers=tuple(workers), pairs=()))
