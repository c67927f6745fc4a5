"""`trimtab rolling-restart` with real workers under load, and a leader that is killed: no job is lost or doubled."""

import time
from collections.abc import Iterator

import pytest

from tests.e2e.kept_run import exactly_counted, kept_run, started_by
from tests.e2e.paced_run import Run, longest_pause

pytestmark = [pytest.mark.scenario, pytest.mark.timeout(600)]


@pytest.fixture
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    with kept_run(tmp_path_factory.mktemp("restart"), "restart") as made:
        yield made


def test_every_worker_is_a_new_process_and_no_job_is_lost_or_doubled(run: Run) -> None:
    began = time.time()
    assert [started_by(run.cluster, f"h{index}") for index in range(3)] == [set()] * 3
    print(run.trimtab("rolling-restart", "paced", "--reason", "new version"))
    run.until(lambda status: any(row.restart and row.restart.done == 1 for row in status.apps), "the first host", 120.0)
    run.cluster.kill("controller")
    run.cluster.start_controller(act=True)
    status = run.until(
        lambda status: any("restarted 3 of 3 workers" in row.text for row in status.decisions), "the end", 240.0
    )
    ended = time.time()
    assert all(row.restart is None for row in status.apps)
    assert [started_by(run.cluster, f"h{index}") for index in range(3)] == [{"w0"}, {"w1"}, {"w2"}]
    run.windows(3)
    exactly_counted(run)
    [app] = run.until(lambda status: status.apps, "an app in the status").apps
    print(f"paused, key-group seconds: {app.disruption}")
    assert app.disruption is not None
    assert app.disruption.by_cause.get("starts_and_stops", 0.0) > 0.0, "six rebalances, of which reports tell"
    assert app.disruption.unmeasured == 0
    longest = longest_pause(run.cluster.broker.address, began, ended)
    print(f"{ended - began:.0f} s, longest pause of a key group {longest:.1f} s")
