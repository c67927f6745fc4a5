"""`trimtab rolling-restart` with real workers under load, and a leader that is killed: no job is lost or doubled."""

import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from flights.watch import StatusWatch
from tests.e2e.paced_run import PARTITIONS, Jobs, Run, backlog, counted, create_topics, longest_pause
from tests.paths import ROOT
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.status import Status
from trimtab_sandbox.cluster import Cluster
from trimtab_sandbox.configuration import SandboxSettings

pytestmark = [pytest.mark.scenario, pytest.mark.timeout(600)]
WORKERS = 3


@pytest.fixture
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    folder = tmp_path_factory.mktemp("restart")
    wait = folder / "wait"
    settings = SandboxSettings(
        app="tests.e2e.paced_app:app",
        app_folder=ROOT,
        cluster="restart",
        workers=WORKERS,
        app_id="paced",
        environment={"PARTITIONS": str(PARTITIONS), "BURN_S": "0.002", "WAIT": str(wait)},
        controller={"balance": {"min_interval_s": 5.0}},
    )
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster(settings, folder / "cluster"))
        cluster.start_broker()
        create_topics(cluster)
        cluster.write_controller_toml()
        cluster.start_controller(act=True)
        for index in range(WORKERS):
            cluster.start_agent(index)
            cluster.start_worker(index)
        watch = stack.enter_context(StatusWatch(cluster.broker.address, cluster.topics))
        jobs = Jobs(cluster.broker.address, 4.0)
        stack.callback(jobs.close)
        made = Run(cluster, jobs, watch, wait)
        made.until(all_own, "all workers own key groups", limit_s=150.0)
        yield made


def all_own(status: Status) -> bool:
    rows = [row for row in status.nodes if row.state is WorkerState.RUNNING and row.startable]
    return len(rows) == WORKERS and all(row.key_groups for row in rows)


def test_every_worker_is_a_new_process_and_no_job_is_lost_or_doubled(run: Run) -> None:
    began = time.time()
    print(run.trimtab("rolling-restart", "paced", "--reason", "new version"))
    run.until(lambda status: status.apps[0].restart and status.apps[0].restart.done == 1, "the first host", 120.0)
    run.cluster.kill("controller")
    run.cluster.start_controller(act=True)
    status = run.until(
        lambda status: any("restarted 3 of 3 workers" in row.text for row in status.decisions), "the end", 240.0
    )
    ended = time.time()
    assert status.apps[0].restart is None
    run.windows(3)
    run.jobs.close()
    run.until(lambda status: backlog(status) == 0, "no backlog")
    run.windows(2)
    broker = run.cluster.broker.address
    print(f"{ended - began:.0f} s, longest pause of a key group {longest_pause(broker, began, ended):.1f} s")
    found = counted(broker)
    wrong = {key: (count, found.get(key)) for key, count in run.jobs.sent.items() if found.get(key) != count}
    print(f"{sum(run.jobs.sent.values())} jobs; key: (sent, counted) {wrong}")
    assert wrong == {}
