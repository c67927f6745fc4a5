"""Sends one report per interval: reads the counters at its end, waits briefly for statistics, produces the report."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from trimtab_agent.metrics import AgentMetrics
from trimtab_agent.reporting.report import ReportHead, assemble, interval_end, settle_s, until_interval_end
from trimtab_agent.reporting.roster import Absences, Roster, Rows
from trimtab_agent.sampler.derive import HostReading, UsableResources, Use, derive
from trimtab_agent.sampler.readings import CounterReader
from trimtab_agent.sampler.waits import Waits
from trimtab_process.logs import fields
from trimtab_protocol.messages.names import WorkerId

log = logging.getLogger(__name__)

ProduceReport = Callable[[bytes, Callable[[str | None], None]], None]
"""Sends a report, then calls back with the error as one word, or None."""


class Reporter:
    """Samples and reports one host."""

    def __init__(
        self,
        head: ReportHead,
        roster: Roster,
        limits: UsableResources,
        *,
        reader: CounterReader,
        metrics: AgentMetrics,
        produce: ProduceReport,
        absences: Callable[[], Absences] = dict,
    ) -> None:
        self._head = head
        self._roster = roster
        self._limits = limits
        self._reader = reader
        self._metrics = metrics
        self._produce = produce
        self._absences = absences
        self._pids: dict[WorkerId, int | None] = {}
        self._previous: HostReading | None = None
        self._waits = Waits()
        self._waiting: Mapping[WorkerId, float] = {}
        self._sequence = 0
        self._reported_until = time.time()
        self._fault: str | None = None

    def follow(self, worker: WorkerId, pid: int | None) -> None:
        """Start reading the counters of a worker's process; `pid` None: it is not visible to the agent."""
        self._pids[worker] = pid

    def leave(self, worker: WorkerId) -> None:
        """Stop reading the counters of a worker's process."""
        self._pids.pop(worker, None)

    async def run(self) -> None:
        """Report at each multiple of the interval on the wall clock, until cancelled."""
        interval_s = self._head.interval_s
        self._previous = self._reader.read(self._pids)
        while True:
            await asyncio.sleep(until_interval_end(time.time(), interval_s))
            end, use = interval_end(time.time(), interval_s), self._measure(interval_s)
            await asyncio.sleep(settle_s(interval_s))
            self._report(end, use)

    def end(self) -> None:
        """Report once more, since the last report: that this agent was told to end, so nobody misses its host.

        Nothing is said of workers, whose last interval is not over.
        """
        now = time.time()
        interval_s = min(max(now - self._reported_until, 0.001), self._head.interval_s)
        sample = replace(self._measure(interval_s).host, ended=True)
        head = replace(self._head, interval_s=interval_s)
        self._send(
            assemble(
                head, end=now, sequence=self._sequence, sample=sample, rows=Rows(workers=(), key_groups=(), pairs=())
            )
        )

    def _measure(self, interval_s: float) -> Use:
        limits = self._reader.limits_now(self._limits)
        if limits != self._limits:  # what was read before may be of another group of processes
            log.info("capacity changed", **fields(cores=limits.cores, basis=limits.basis))
            self._limits, self._previous = limits, None
        reading = self._reader.read(self._pids)
        use = derive(self._previous, reading, self._limits, interval_s)
        self._previous, self._waiting = reading, self._waits.see(reading)
        return use

    def _report(self, end: float, use: Use) -> None:
        rows = self._roster.take(use.workers, self._head.interval_s, self._absences(), self._waiting)
        self._send(assemble(self._head, end=end, sequence=self._sequence, sample=use.host, rows=rows))
        self._reported_until = end

    def _send(self, payload: bytes) -> None:
        self._sequence += 1
        self._produce(payload, self._settle)

    def _settle(self, fault: str | None) -> None:
        """Count a report.  Of several reports dropped in a row for the same reason, log the first."""
        if fault is None:
            self._metrics.reports_sent.inc()
        else:
            self._metrics.reports_dropped.labels(fault).inc()
            if fault != self._fault:
                log.warning("report dropped", **fields(reason=fault))
        self._fault = fault
