"""Three workers of the paced job, each on a host of its own, whose agent can start it; a real controller acts."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.e2e.paced_run import Run, backlog, counted, paced_run
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.status import NodeStatus, Status
from trimtab_sandbox.cluster import SandboxCluster

WORKERS = 3


@contextmanager
def kept_run(folder: Path, name: str, **environment: str) -> Iterator[Run]:
    """The job under load, with key groups on every worker; `environment` = more variables of the job."""
    with paced_run(
        folder,
        name,
        rate=4.0,
        app_id="paced",
        environment={"BURN_S": "0.002", **environment},
        controller={"balance": {"min_interval_s": 5.0}},
    ) as run:
        run.until(all_own, "all workers own key groups", limit_s=270.0)
        yield run


def all_own(status: Status) -> bool:
    """Whether all workers run with key groups, and can be started by their agents."""
    rows = [row for row in status.nodes if row.state is WorkerState.RUNNING and row.startable]
    return len(rows) == WORKERS and all(row.key_groups for row in rows)


def row_of(status: Status, worker: str) -> NodeStatus | None:
    """A worker in the last window; None if nobody reports it."""
    return next((row for row in status.nodes if row.worker == worker), None)


def started_by(cluster: SandboxCluster, agent: str) -> set[str]:
    """The workers among the processes that this agent has started."""
    found = set()
    for each in psutil.Process(cluster.pids[agent]).children(recursive=True):
        try:
            found.add(each.environ().get("TRIMTAB_WORKER", ""))
        except (psutil.Error, OSError):
            continue
    return found - {""}


def exactly_counted(run: Run) -> None:
    """End the load: every job was counted, and none twice."""
    run.jobs.close()
    run.until(lambda status: backlog(status) == 0, "no backlog")
    run.windows(2)
    found = counted(run.cluster.broker.address)
    wrong = {key: (count, found.get(key)) for key, count in run.jobs.sent.items() if found.get(key) != count}
    print(f"{sum(run.jobs.sent.values())} jobs; key: (sent, counted) {wrong}")
    assert wrong == {}
