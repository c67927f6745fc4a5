"""When reports are due, and what they hold when there is too much."""

from dataclasses import replace
from typing import Any

import pytest

from trimtab_agent.reporting import report as reports
from trimtab_agent.reporting.report import ReportHead, assemble, interval_end, settle_s, until_interval_end
from trimtab_agent.reporting.roster import Rows
from trimtab_protocol.messages.codec import decoded
from trimtab_protocol.messages.names import AppId, HostId, KeyGroup, OperatorId, WorkerId
from trimtab_protocol.messages.report import (
    MAX_APPS,
    Basis,
    HostSample,
    KeyGroupSample,
    Mark,
    PairSample,
    Report,
    WorkerSample,
    WorkerState,
)

HEAD = ReportHead(cluster="demo", host=HostId("h0"), interval_s=10.0)
HOST = HostSample(cpu_s=1.0, cores=2.0, basis=Basis.HOST)
W0 = WorkerId("w0")
KEY_GROUP = KeyGroup(AppId("flights"), OperatorId("o"), 0)


def of(worker: WorkerId, count: int = 1, *, app: str | None = None, **numbers: Any) -> Rows:
    """What a worker has sent of an app, which is named as the worker unless it is given."""
    name = AppId(app or worker)
    own = (
        KeyGroupSample(key_group=KeyGroup(name, OperatorId("o"), each), worker=worker, cpu_s=0.1, tuples_in=1)
        for each in range(count)
    )
    row = WorkerSample(
        worker=worker,
        app=name,
        state=WorkerState.RUNNING,
        capacity=1.0,
        cpu_s=0.1,
        steering=False,
        marks=(),
        **numbers,
    )
    return Rows(workers=(row,), key_groups=tuple(own), pairs=())


ROWS = replace(of(W0, app="flights"), pairs=(PairSample(source=KEY_GROUP, target=KEY_GROUP, tuples=1, bytes=2),))


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


def test_too_large_a_report_goes_without_pairs_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "MAX_REPORT_BYTES", 100)

    report = decoded(assemble(HEAD, end=1010.0, sequence=7, sample=HOST, rows=ROWS), Report)

    assert (report.pairs, report.key_groups, report.workers[0].marks) == ((), ROWS.key_groups, (Mark.PARTIAL,))


EVIL = WorkerId("evil")


@pytest.mark.parametrize(
    "evil",
    [
        [of(EVIL, paused=2**64)],
        [of(EVIL, paused_s=2e18)],
        [of(WorkerId(f"evil-{number}"), 50_000) for number in range(4)],
        [of(WorkerId(f"n{number}"), 0, app="flights") for number in range(1_000)],
        [of(WorkerId(f"n{number}"), 2) for number in range(MAX_APPS + 1)],
    ],
    ids=["a sum of counts", "a sum of seconds", "too many key groups", "too many names", "too many apps"],
)
def test_what_one_worker_sends_never_costs_the_samples_of_the_others(evil: list[Rows]) -> None:
    every = [ROWS, *evil]
    rows = Rows(
        workers=tuple(row for each in every for row in each.workers),
        key_groups=tuple(sample for each in every for sample in each.key_groups),
        pairs=ROWS.pairs,
    )
    report = decoded(assemble(HEAD, end=1010.0, sequence=7, sample=HOST, rows=rows), Report)
    assert (report.workers[0], report.pairs) == (ROWS.workers[0], ROWS.pairs)
    assert [sample for sample in report.key_groups if sample.worker == W0] == list(ROWS.key_groups)
    told = {row.worker: row.reason for row in report.workers if row.reason}
    assert all(reason.startswith("what it sent was left out of the report: ") for reason in told.values())
    assert told or len(report.workers) in (1_000, MAX_APPS), "all that fit"
    apps = {row.app for row in report.workers} | {sample.key_group.app for sample in report.key_groups}
    assert len(apps - {None}) <= MAX_APPS
