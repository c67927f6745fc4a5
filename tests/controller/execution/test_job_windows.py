"""What a window shows of how far each app is behind."""

from dataclasses import replace

import pytest

from tests.controller.decider.decider_situations import APP, W0, W1, kg
from tests.controller.decider.deciders import window
from trimtab_controller.execution.lags import JobWindow, JobWindows, WaitingInputs
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.snapshot import Snapshot

OWNERS = {kg(0): W0, kg(1): W0, kg(2): W1}


def made(*backlogs: int | None, rate: float | None = 1.0) -> Snapshot:
    """A window in which each key group has this backlog and processes `rate` inputs per second."""
    snapshot = window(OWNERS).snapshot
    rows = zip(snapshot.key_groups, backlogs, strict=True)
    found = tuple(replace(row, backlog=each, tuples_in_s=rate) for row, each in rows)
    return replace(snapshot, key_groups=found)


def seen(*backlogs: int | None) -> JobWindow:
    return JobWindows().observe(made(*backlogs))[APP]


def test_backlogs_and_rates_are_summed_by_app_and_worker() -> None:
    assert seen(5, 7, 0) == JobWindow(
        whole=WaitingInputs(backlog=12.0, rate=3.0),
        workers={W0: WaitingInputs(backlog=10.0, rate=2.0), W1: WaitingInputs(backlog=0.0, rate=1.0)},
        measured=frozenset({W0, W1}),
    ), "each key group of a worker may be processing one input"


def test_a_worker_without_key_groups_that_reports_the_window_is_idle() -> None:
    snapshot = window({kg(0): W0, kg(1): W0}).snapshot
    job = JobWindows().observe(snapshot)[APP]
    assert (job.idle, set(job.workers)) == ({W1}, {W0})
    nodes = tuple(replace(each, covered_s=5.0) for each in snapshot.nodes)
    assert JobWindows().observe(replace(snapshot, nodes=nodes))[APP].idle == frozenset(), "it may own one by now"
    assert seen(5, 7, 0).idle == frozenset()


def test_what_is_unknown_of_one_key_group_is_unknown_of_its_worker_and_of_the_app() -> None:
    job = seen(5, None, 9)
    assert (job.whole.backlog, job.whole.rate) == (None, 3.0)
    assert {worker: row.backlog for worker, row in job.workers.items()} == {W0: None, W1: 8.0}


def test_a_worker_has_the_rate_that_its_key_groups_usually_have() -> None:
    windows = JobWindows()
    windows.observe(made(0, 0, 0, rate=None))
    assert windows.observe(made(0, 0, 0, rate=10.0))[APP].workers[W0].rate == 20.0
    job = windows.observe(made(50, 50, 50, rate=0.0))[APP]
    assert (job.whole.rate, job.workers[W0].rate) == (0.0, 16.0), "it stops, and what comes has not become less"
    assert windows.observe(made(0, 0, 0, rate=None))[APP].workers[W1].rate == 8.0
    moved = replace(made(0, 0, 9, rate=0.0), key_groups=[replace(each, worker=W1) for each in made(0, 0, 9).key_groups])
    assert windows.observe(moved)[APP].workers == {W1: WaitingInputs(backlog=8.0, rate=pytest.approx(3 * 6.6))}


def test_a_worker_that_reports_only_some_of_the_window_is_not_measured() -> None:
    snapshot = made(0, 0, 0)

    def measured(**changes: object) -> frozenset[str]:
        nodes = [replace(each, **changes) if each.worker == W0 else each for each in snapshot.nodes]
        return JobWindows().observe(replace(snapshot, nodes=tuple(nodes)))[APP].measured

    assert measured() == {W0, W1}
    assert measured(covered_s=5.0) == {W1}
    assert measured(state=WorkerState.REBALANCING) == {W1}
    assert measured(complete=False) == {W0, W1}, "its key groups cover the window"
    rows = [replace(each, covered_s=5.0) for each in snapshot.key_groups]
    snapshot = replace(snapshot, key_groups=rows)
    assert measured(complete=False) == {W1}
