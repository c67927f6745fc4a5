"""Real job 2 of the MILP/ALBIC paper on a real cluster: from no collocation to nearly all, by costs that are measured.

Where its tuples cannot skip the broker, it gains nothing, and is left alone by the same method.

    python -m pytest tests/e2e/test_jobs.py -n 0 -s -m scenario

It is longer than a test may be (some 3 minutes): costs are learned from windows.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from jobs.catalogue import JOBS
from jobs.outcome import Scale
from jobs.run import ENOUGH, JobRun

pytestmark = [pytest.mark.scenario, pytest.mark.timeout(900)]  # a busy machine publishes windows late

ROUNDS = 12
SHORT = replace(Scale(), measure_s=15.0, warm_s=15.0, burst=2_000)


def test_job_2_is_collocated_by_measured_costs_and_loses_nothing(tmp_path: Path) -> None:
    with JobRun(job=JOBS["job2"], method="albic", scale=SHORT, folder=tmp_path, say=print) as run:
        found = run.play()
    assert found.verdict.right, found.verdict
    assert found.verdict.results == found.sent, "one result per flight"
    assert found.before.collocation == 0.0
    assert found.obtainable is not None
    assert (found.after.collocation or 0.0) >= ENOUGH * found.obtainable
    assert found.after.local_sends == pytest.approx(found.after.collocation)
    assert len(found.rounds) <= ROUNDS
    assert sum(each.failed for each in found.rounds) == 0
    assert (found.after.load or 0.0) < (found.before.load or 0.0)


def test_job_2_without_local_topics_is_left_alone(tmp_path: Path) -> None:
    with JobRun(job=JOBS["job2"], method="albic", scale=replace(SHORT, local=False), folder=tmp_path, say=print) as run:
        found = run.play()
    assert found.verdict.right, found.verdict
    assert found.verdict.results == found.sent, "one result per flight"
    assert found.after.local_sends == 0.0
    assert [each.migrations for each in found.rounds] in ([], [1]), (
        "one pair may be tried, to learn that it saves nothing"
    )
