"""Real workers: a load that triples and falls back takes two workers of the pool along, and no job is lost or doubled.

Two workers run, two more are declared by their agents.  The load rises over two minutes, since no worker can be there
before a jump.  It falls at once.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import groupby

import pytest

from flights.steered_run import READY_LIMIT_S
from flights.watch import StatusWatch
from tests.e2e.paced_run import PARTITIONS, Jobs, Run, backlog, counted, create_topics, figures, longest_pause
from tests.e2e.throttle import Throttle
from tests.paths import ROOT
from tests.shown import Show
from trimtab_protocol.messages.report import Absence, WorkerState
from trimtab_protocol.messages.status import NodeStatus, Status
from trimtab_sandbox.cluster import SandboxCluster
from trimtab_sandbox.configuration import SandboxSettings

pytestmark = [pytest.mark.scenario, pytest.mark.timeout(480)]

CAPACITY = 0.2
BURN_S = 0.01
LEVEL, FACTOR = 1.0, 3.0
"""Jobs per second of a key group at first, and how many times as many come later."""
RAMP_S = 120.0


@pytest.fixture
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    folder = tmp_path_factory.mktemp("scaling")
    wait = folder / "wait"
    settings = SandboxSettings(
        app="tests.e2e.paced_app:app",
        app_folder=ROOT,
        cluster="scaling",
        workers=4,
        pool=2,
        app_id="paced",
        capacity_cores=CAPACITY,
        host_cores=1.0,
        interval_s=2.5,
        environment={"PARTITIONS": str(PARTITIONS), "BURN_S": str(BURN_S), "WAIT": str(wait)},
        controller={
            "balance": {"min_interval_s": 5.0, "catch_up_s": 120.0},
            "scaling": {
                "mode": "act",
                "min_utilisation": 0.5,
                "max_utilisation": 0.75,
                "scale_up_delay_s": 5.0,
                "scale_down_delay_s": 20.0,
                "scale_down_max_factor": 0.5,
                "min_workers": 2,
            },
        },
    )
    with ExitStack() as stack:
        cluster = stack.enter_context(SandboxCluster(settings, folder / "cluster"))
        cluster.start_broker()
        create_topics(cluster)
        cluster.write_controller_toml()
        cluster.start_controller(act=True)
        for index in range(4):
            cluster.start_agent(index)
        for index in settings.started:
            cluster.start_worker(index)
        watch = stack.enter_context(StatusWatch(cluster.broker.address, cluster.topics))
        jobs = Jobs(cluster.broker.address, LEVEL)
        stack.callback(jobs.close)
        made = Run(cluster, jobs, watch, wait)
        made.until(
            lambda status: len(running(status)) == 2 and status.pool,
            "two workers running, and a pool",
            limit_s=READY_LIMIT_S,
        )
        stack.enter_context(Throttle([cluster.pids[f"w{index}"] for index in settings.started], CAPACITY))
        yield made


def running(status: Status) -> list[NodeStatus]:
    return [row for row in status.nodes if row.state is WorkerState.RUNNING]


def utilisation(status: Status) -> float:
    [size] = [app.size for app in status.apps]
    assert size is not None
    assert size.demand_cores is not None
    assert size.capacity_cores is not None
    return size.demand_cores / size.capacity_cores


def test_workers_of_the_pool_come_before_saturation_and_leave_after_it(run: Run, show: Show) -> None:
    begun = time.monotonic()
    seen: list[tuple[float, Status]] = []

    def follow(status: Status) -> None:
        if not seen or seen[-1][1].window_end != status.window_end:
            seen.append((time.monotonic() - begun, status))

    def all_run(status: Status) -> bool:
        follow(status)
        elapsed = time.monotonic() - begun
        level = LEVEL * (1.0 + (FACTOR - 1.0) * min(1.0, elapsed / RAMP_S))
        run.jobs.rates |= dict.fromkeys(range(PARTITIONS), level)
        return len(running(status)) == 4 and all(row.key_groups for row in running(status)) and elapsed > RAMP_S

    run.until(all_run, "four workers with key groups", limit_s=180.0)
    first = next(status for _, status in seen if any(row.kind == "resize" for row in status.decisions))
    run.windows(3)
    high = run.until(lambda status: any(app.size and app.size.demand_cores for app in status.apps), "a known demand")
    print(*((round(at), app.size and app.size.text) for at, status in seen for app in status.apps), sep="\n")
    print("at the first start:", figures(first), "at the height:", figures(high), sep="\n")
    most = max(row.used_pct or 0.0 for row in running(first))
    show("busiest worker when the first one is started", "below 100 %", f"{most:.0f} %")
    show("demand at three times the load, four workers", "below 95 %", f"{utilisation(high):.0%}")
    assert all((row.used_pct or 0.0) < 100.0 for row in running(first)), "before saturation"
    assert utilisation(high) < 0.95
    assert len(run.last.pool) == 0

    run.jobs.rates |= dict.fromkeys(range(PARTITIONS), LEVEL)
    fell = time.monotonic()
    run.until(lambda status: len(running(status)) == 2 and len(status.pool) == 2, "two workers again", limit_s=150.0)
    print(f"{time.monotonic() - fell:.0f} s from the fall of the load to two workers")
    show("from the fall of the load to two workers", "at most 150 s", f"{time.monotonic() - fell:.0f} s")
    calm = run.windows(2)[-1]
    assert {row.worker for row in running(calm)} == {"w0", "w1"}
    assert [row.absence for row in calm.nodes if row.worker in ("w2", "w3")] == [Absence.STOPPED] * 2
    turns = [key for key, _ in groupby(row.reason for row in run.last.decisions if row.kind == "resize")]
    show("changes of the size", "out, in", ", ".join(turns))
    assert turns == ["out", "in"], "no flapping"

    run.jobs.close()
    run.until(lambda status: backlog(status) == 0, "no backlog")
    run.windows(2)
    broker = run.cluster.broker.address
    started = next(row.at for row in first.decisions if row.kind == "resize")
    before, joined = longest_pause(broker, started - 20.0, started), longest_pause(broker, started, started + 30.0)
    print(
        f"longest pause of a key group: {before:.1f} s in the 20 s before a worker starts, {joined:.1f} s in 30 s after"
    )
    found = counted(broker)
    wrong = {key: (count, found.get(key)) for key, count in run.jobs.sent.items() if found.get(key) != count}
    print(f"{sum(run.jobs.sent.values())} jobs; key: (sent, counted) {wrong}")
    show("jobs lost or doubled", "0", f"{len(wrong)} keys wrong of {sum(run.jobs.sent.values())} jobs")
    assert wrong == {}
