"""`trimtab rolling-restart` to a version with one more topic and table: it comes to its end by itself."""

import time
from pathlib import Path

import psutil
import pytest

from tests.e2e.paced_run import PARTITIONS, Jobs, Run, backlog, counted, longest_pause, paced_run
from trimtab_protocol.messages.reason_text import WORKERS_DIFFER
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.status import RestartStatus, Status
from trimtab_sandbox.broker import Topic
from trimtab_sandbox.cluster import SandboxCluster

pytestmark = [pytest.mark.scenario, pytest.mark.timeout(900)]

OPERATORS_DIFFER = "its workers declare different operators"


def all_own(status: Status) -> bool:
    """Whether all workers run with key groups, and can be started by their agents."""
    rows = [row for row in status.nodes if row.state is WorkerState.RUNNING and row.startable]
    return len(rows) == 3 and all(row.key_groups for row in rows)


def started_by(cluster: SandboxCluster, agent: str) -> set[str]:
    """The workers among the processes that this agent has started."""
    found = set()
    for each in psutil.Process(cluster.pids[agent]).children(recursive=True):
        try:
            found.add(each.environ().get("TRIMTAB_WORKER", ""))
        except (psutil.Error, OSError):
            continue
    return found - {""}


def restart_of(status: Status) -> RestartStatus | None:
    return next((row.restart for row in status.apps if row.restart is not None), None)


def differ_by(status: Status, done: int) -> bool:
    found = restart_of(status)
    return found is not None and found.done >= done and found.differ is not None


@pytest.mark.parametrize("version", ["within", "apart"])
def test_a_version_with_one_more_topic_and_table_is_on_all_hosts_and_nothing_is_lost_or_doubled(
    tmp_path: Path, version: str
) -> None:
    """`within`: in the same operator, so that its number of key groups stays; `apart`: in one of its own."""
    grown = tmp_path / "grown"
    with paced_run(
        tmp_path,
        "grown",
        rate=4.0,
        app_id="paced",
        environment={"BURN_S": "0.002", "GROWN": str(grown), "STANDBYS": "1"},
        controller={"balance": {"min_interval_s": 5.0}},
    ) as run:
        run.until(all_own, "all workers own key groups", limit_s=270.0)
        run.cluster.broker.create_topics([Topic(name="refunds", partitions=PARTITIONS)])
        refunds = Jobs(run.cluster.broker.address, 2.0, topic="refunds")
        began = time.time()
        grown.write_text(version)
        said = run.trimtab("rolling-restart", "paced", "--reason", "refunds")
        assert "the hosts after the first are not drained" in said
        status = run.until(lambda status: differ_by(status, 1), "they differ after the first host", 180.0)
        found = restart_of(status)
        assert found is not None
        assert (found.differ or "").startswith((WORKERS_DIFFER, OPERATORS_DIFFER))
        first = time.time()
        shown = " ".join(run.trimtab("status").split())
        assert "without a drain, since nothing may move" in shown
        run.until(lambda status: any("restarted 3 of 3 workers" in row.text for row in status.decisions), "end", 300.0)
        ended = time.time()
        assert [started_by(run.cluster, f"h{index}") for index in range(3)] == [{"w0"}, {"w1"}, {"w2"}]
        after = run.until(
            lambda status: all(row.not_ready is None for row in status.apps), "it is steered again", 120.0
        )
        assert restart_of(after) is None
        assert not [row for row in after.decisions if "install one version" in row.text]
        stops = [line for line in run.trimtab("events", "--since", "1h").splitlines() if "without a drain" in line]
        assert len(stops) >= 2, stops
        refunds.close()
        run.jobs.close()
        run.until(lambda status: backlog(status) == 0, "no backlog")
        run.windows(2)
        exactly_counted(run, run.jobs, "paced-counts-changelog")
        exactly_counted(run, refunds, "paced-refunded-changelog")
        pause = longest_pause(run.cluster.broker.address, began, ended)
        print(
            f"{version}: first host after {first - began:.0f} s, all after {ended - began:.0f} s, pause {pause:.1f} s"
        )


def exactly_counted(run: Run, jobs: Jobs, changelog: str) -> None:
    """Every job was counted, and none twice."""
    found = counted(run.cluster.broker.address, changelog)
    wrong = {key: (count, found.get(key)) for key, count in jobs.sent.items() if found.get(key) != count}
    print(f"{sum(jobs.sent.values())} jobs; key: (sent, counted) {wrong}")
    assert wrong == {}
    assert jobs.sent
