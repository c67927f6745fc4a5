"""The host's reports: when they are due and how they are assembled.  Pure."""

import math
from dataclasses import dataclass, replace

from trimtab_agent.reporting.roster import Rows
from trimtab_protocol.messages.names import HostId
from trimtab_protocol.messages.report import MAX_REPORT_BYTES, HostSample, Mark, Report, encode_report

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
    """The encoded report of the interval that ended at `end` (epoch seconds), without pairs if it is too large."""
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
