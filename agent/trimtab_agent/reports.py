"""The host's reports: when they are due, how they are put together, and how they wait for the broker.  Pure."""

import math
from collections import deque
from dataclasses import dataclass, replace

from trimtab_agent.roster import Rows
from trimtab_models.messages.names import HostId
from trimtab_models.messages.report import MAX_REPORT_BYTES, HostSample, Mark, Report, encode_report

MAX_WAITING_BYTES = 8 * 1024 * 1024
MAX_IN_FLIGHT = 4
SETTLE_SHARE, SETTLE_LIMIT_S = 0.1, 0.25
"""After an interval its statistics get so long to arrive: a share of the interval, at most so many seconds."""


def until_interval_end(now: float, interval_s: float) -> float:
    """Seconds from `now` (epoch seconds) to the next multiple of the interval on the wall clock."""
    return (math.floor(now / interval_s) + 1) * interval_s - now


def interval_end(now: float, interval_s: float) -> float:
    """The multiple of the interval nearest to `now`: which one has just ended, though the timer was a little off."""
    return round(now / interval_s) * interval_s


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


class Outbox:
    """Reports on their way: a few in flight, the others waiting; when too many wait the oldest is dropped."""

    def __init__(self) -> None:
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._in_flight = 0

    def put(self, payload: bytes) -> int:
        """Add the newest report; returns how many old ones were dropped for it."""
        self._waiting.append(payload)
        self._waiting_bytes += len(payload)
        dropped = 0
        while self._waiting_bytes > MAX_WAITING_BYTES and len(self._waiting) > 1:
            self._waiting_bytes -= len(self._waiting.popleft())
            dropped += 1
        return dropped

    def take(self) -> bytes | None:
        """The next report to hand over, if another may be in flight."""
        if not self._waiting or self._in_flight >= MAX_IN_FLIGHT:
            return None
        payload = self._waiting.popleft()
        self._waiting_bytes -= len(payload)
        self._in_flight += 1
        return payload

    def settle(self) -> None:
        """A report in flight has arrived or is given up."""
        self._in_flight -= 1
