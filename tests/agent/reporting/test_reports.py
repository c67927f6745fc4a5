"""When reports are due, and what they hold when there is too much."""

import pytest

from trimtab_agent.reporting import report as reports
from trimtab_agent.reporting.report import ReportHead, assemble, interval_end, settle_s, until_interval_end
from trimtab_agent.reporting.roster import Rows
from trimtab_protocol.messages.names import AppId, HostId, KeyGroup, OperatorId, WorkerId
from trimtab_protocol.messages.report import (
    Basis,
    HostSample,
    KeyGroupSample,
    Mark,
    PairSample,
    WorkerSample,
    WorkerState,
    decode_report,
)

HEAD = ReportHead(cluster="demo", host=HostId("h0"), interval_s=10.0)
HOST = HostSample(cpu_s=1.0, cores=2.0, basis=Basis.HOST)
W0 = WorkerId("w0")
KEY_GROUP = KeyGroup(AppId("flights"), OperatorId("sums"), 0)
ROWS = Rows(
    workers=(WorkerSample(worker=W0, app=None, state=WorkerState.RUNNING, capacity=1.0, cpu_s=0.1),),
    key_groups=(KeyGroupSample(key_group=KEY_GROUP, worker=W0, cpu_s=0.1, tuples_in=1),),
    pairs=(PairSample(source=KEY_GROUP, target=KEY_GROUP, tuples=1, bytes=2),),
)


@pytest.mark.parametrize(
    ("now", "interval_s", "wait"), [(1003.0, 10.0, 7.0), (1000.0, 10.0, 10.0), (1009.75, 0.5, 0.25), (0.9, 1.0, 0.1)]
)
def test_reports_are_due_at_multiples_of_the_interval(now: float, interval_s: float, wait: float) -> None:
    assert until_interval_end(now, interval_s) == pytest.approx(wait)


@pytest.mark.parametrize("now", [1009.99, 1010.0, 1010.4, 1018.0])
def test_a_timer_a_little_early_or_much_too_late_names_the_interval_that_ended(now: float) -> None:
    assert interval_end(now, 10.0) == 1010.0


def test_statistics_get_a_moment_to_arrive() -> None:
    assert [settle_s(interval_s) for interval_s in (0.5, 1.0, 10.0)] == [0.05, 0.1, 0.25]


def test_a_report_holds_everything() -> None:
    report = decode_report(assemble(HEAD, end=1010.0, sequence=7, sample=HOST, rows=ROWS))

    assert (report.cluster, report.host, report.at_ms, report.interval_s, report.sequence) == (
        "demo", "h0", 1_010_000, 10.0, 7,
    )  # fmt: skip
    assert (report.sample, report.workers, report.key_groups, report.pairs) == (
        HOST, ROWS.workers, ROWS.key_groups, ROWS.pairs,
    )  # fmt: skip


def test_too_large_a_report_goes_without_pairs_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "MAX_REPORT_BYTES", 100)

    report = decode_report(assemble(HEAD, end=1010.0, sequence=7, sample=HOST, rows=ROWS))

    assert (report.pairs, report.key_groups, report.workers[0].marks) == ((), ROWS.key_groups, (Mark.PARTIAL,))
