"""What becomes of a host's reports: handed to Kafka at once, which gives up the old ones; counted, and said."""

import time
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.agent.sampler.host_readings import reading
from trimtab_agent.metrics import AgentMetrics
from trimtab_agent.reporting.report import ReportHead
from trimtab_agent.reporting.reporter import Reporter
from trimtab_agent.reporting.roster import Roster
from trimtab_agent.sampler.derive import UsableResources, Use
from trimtab_agent.sampler.readings import CounterReader
from trimtab_protocol.messages.codec import decoded
from trimtab_protocol.messages.names import HostId
from trimtab_protocol.messages.report import Basis, HostSample, Report

LIMITS = UsableResources(basis=Basis.HOST, cores=2.0, host_cores=2.0)
USE = Use(host=HostSample(cpu_s=1.0, cores=2.0, basis=Basis.HOST), workers={})


class Away:
    """A broker that answers when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[bytes, Callable[[str | None], None]]] = []
        self.metrics = AgentMetrics()
        head = ReportHead(cluster="demo", host=HostId("h0"), interval_s=1.0)
        self.reporter = Reporter(
            head, Roster({}, 1.0), LIMITS, reader=cast(CounterReader, None), metrics=self.metrics, produce=self.produce
        )

    def produce(self, payload: bytes, done: Callable[[str | None], None]) -> None:
        self.waiting.append((payload, done))

    def report(self, *ends: float) -> None:
        for end in ends:
            self.reporter._report(end, USE)

    def answer(self, *faults: str | None) -> None:
        for fault in faults:
            self.waiting.pop(0)[1](fault)

    def count(self, name: str, **labels: Any) -> float | None:
        return self.metrics.registry.get_sample_value(f"trimtab_agent_{name}_total", labels)


def test_no_report_waits_where_nobody_sees_its_age() -> None:
    away = Away()
    away.report(*range(1, 9))

    assert [decoded(payload, Report).at_ms for payload, _ in away.waiting] == [second * 1000 for second in range(1, 9)]


def test_each_report_is_counted_by_its_reason_and_each_reason_said_when_it_begins(
    caplog: pytest.LogCaptureFixture,
) -> None:
    away = Away()
    away.report(*range(1, 8))
    away.answer(None, "msg_timed_out", "msg_timed_out", "queue_full", None, "queue_full", "queue_full")

    assert away.count("reports_sent") == 2
    assert away.count("reports_dropped", reason="msg_timed_out") == 2
    assert away.count("reports_dropped", reason="queue_full") == 3
    said = [(record.message, record.fields["reason"]) for record in caplog.records]  # type: ignore[attr-defined]
    assert said == [("report dropped", reason) for reason in ("msg_timed_out", "queue_full", "queue_full")]


def test_an_agent_that_is_told_to_end_says_so_in_a_last_report_of_its_own() -> None:
    away = Away()
    away.reporter._reader = cast(
        CounterReader, SimpleNamespace(read=lambda pids: reading(5.0), limits_now=lambda limits: limits)
    )
    away.report(1)
    before = time.time()
    away.reporter.end()
    [first, last] = [decoded(payload, Report) for payload, _ in away.waiting]
    assert (first.sample.ended, first.sequence) == (False, 0)
    assert (last.sample.ended, last.sequence, last.workers, last.key_groups) == (True, 1, (), ())
    assert (last.interval_s, last.at_ms >= round(before * 1000)) == (1.0, True), "an interval at most"


def test_a_capacity_that_changes_holds_from_the_next_report_on() -> None:
    away = Away()
    halved = replace(LIMITS, basis=Basis.CGROUP, cores=1.0)
    found = [LIMITS, LIMITS, halved, halved]
    counters = SimpleNamespace(
        read=lambda pids: replace(reading(5.0), monotonic_s=-float(len(found)), cpu_s=9.0 - 3 * len(found)),
        limits_now=lambda _: found.pop(0),
    )
    away.reporter._reader = cast(CounterReader, counters)

    hosts = [away.reporter._measure(1.0).host for _ in range(4)]

    assert [(host.cores, host.cpu_s) for host in hosts] == [(2.0, None), (2.0, 2.0), (1.0, None), (1.0, 1.0)]
