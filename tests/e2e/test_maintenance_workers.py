"""`trimtab maintenance` with real workers under load: its host is emptied, may be silent, and is filled at the end."""

import json
import time
from collections.abc import Iterator

import pytest

from tests.e2e.kept_run import WORKERS, all_own, exactly_counted, kept_run, row_of, started_by
from tests.e2e.paced_run import Run, longest_pause
from trimtab_protocol.messages.report import Absence, WorkerState

pytestmark = [pytest.mark.scenario, pytest.mark.timeout(600)]


@pytest.fixture
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    with kept_run(tmp_path_factory.mktemp("maintenance"), "maintenance") as made:
        yield made


def moved_onto(run: Run, worker: str, since_s: float) -> list[str]:
    """The key groups that plans since then were to move to a worker."""
    lines = run.trimtab("events", "--kind", "plan", "--since", "1h", "--json").splitlines()
    events = [event for event in map(json.loads, lines) if event["at"] >= since_s]
    return [move["key_group"] for event in events for move in event.get("moves", ()) if move["target"] == worker]


def test_a_host_is_emptied_may_be_silent_and_is_filled_again_and_no_job_is_lost(run: Run) -> None:
    began = time.time()
    said = run.trimtab("maintenance", "h1", "--for", "1h", "--reason", "memory")
    assert "maintenance of h1 for 60 min: 1 worker will be drained" in said
    run.until(
        lambda status: (row := row_of(status, "w1")) is not None and row.absence is Absence.STOPPED, "w1 is off", 120.0
    )
    off = time.time()
    run.cluster.kill("h1")  # the host is switched off
    for status in run.windows(4):
        row = row_of(status, "w1")
        assert row is None or (row.key_groups, row.state) == (0, WorkerState.AWAY)
        assert sum(each.key_groups for each in status.nodes) > 0
        assert not [each for each in status.decisions if each.reason in ("hosts_lost", "low_coverage")]
    run.cluster.start_agent(1)
    run.windows(2)
    assert started_by(run.cluster, "h1") == set(), "its maintenance is not over"
    assert moved_onto(run, "w1", off) == []

    run.trimtab("maintenance", "h1", "--for", "5s", "--reason", "done sooner")
    run.until(all_own, f"all {WORKERS} workers own key groups again", 120.0)
    ended = time.time()
    assert started_by(run.cluster, "h1") == {"w1"}
    run.windows(2)
    exactly_counted(run)
    longest = longest_pause(run.cluster.broker.address, began, ended)
    print(f"{off - began:.0f} s until w1 was off, {ended - began:.0f} s in all, longest pause {longest:.1f} s")
