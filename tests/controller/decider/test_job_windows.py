"""What a window shows of how far each app is behind."""

from dataclasses import replace

from tests.controller.decider.decider_situations import APP, W0, W1, kg
from tests.controller.decider.deciders import window
from trimtab_controller.decider.job_windows import jobs_seen
from trimtab_controller.execution.events import JobsSeen
from trimtab_controller.execution.lags import JobWindow, Waiting

OWNERS = {kg(0): W0, kg(1): W0, kg(2): W1}


def seen(*backlogs: int | None) -> JobsSeen:
    snapshot = window(OWNERS).snapshot
    rows = tuple(replace(row, backlog=each) for row, each in zip(snapshot.key_groups, backlogs, strict=True))
    return jobs_seen(replace(snapshot, key_groups=rows))


def test_backlogs_and_rates_are_summed_by_app_and_worker() -> None:
    assert seen(5, 7, 9) == JobsSeen(
        start_s=1000.0,
        end_s=1010.0,
        jobs={
            APP: JobWindow(
                whole=Waiting(backlog=21.0, rate=3.0),
                workers={W0: Waiting(backlog=12.0, rate=2.0), W1: Waiting(backlog=9.0, rate=1.0)},
            )
        },
    )


def test_what_is_unknown_of_one_key_group_is_unknown_of_its_worker_and_of_the_app() -> None:
    job = seen(5, None, 9).jobs[APP]
    assert (job.whole.backlog, job.whole.rate) == (None, 3.0)
    assert {worker: row.backlog for worker, row in job.workers.items()} == {W0: None, W1: 9.0}
