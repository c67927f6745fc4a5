"""Pods with new names at every deployment, a worker that somebody starts again, and an app that nobody runs any more.

All on one cluster, whose agents cannot start workers.
"""

import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from flights.readback import read_topic
from flights.watch import StatusWatch, read_snapshots
from tests.e2e.in_process import trimtab
from tests.e2e.paced_run import longest_pause
from tests.e2e.test_job_change import Orders, changelog, check_sums, ordered
from tests.paths import ROOT
from tests.shown import Show
from trimtab_controller.decider.policies.workers import SCALING_PATIENCE_S
from trimtab_protocol.messages.placement_log import PlacementLog
from trimtab_protocol.messages.placement_parts import decode_record
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.status import DecisionStatus, Status
from trimtab_sandbox.broker import Topic
from trimtab_sandbox.cluster import SandboxCluster
from trimtab_sandbox.configuration import SandboxSettings

pytestmark = [pytest.mark.scenario, pytest.mark.timeout(3600)]

PARTITIONS = 4
STEADY, LATE = (0, 1), 10
"""Hosts that stay: of the app `steady`, and of `late`, which begins while pods are replaced."""
PODS = ((2, 3), (4, 5), (6, 7), (8, 9))
"""The pods of the app `orders`, and those that each deployment puts in their place."""
LIMIT_S = 600.0
AGAIN_S = 1.0
"""After its end the drained worker is started again."""


class Play:
    """The cluster, what was `told` of it, and when the worker was started that somebody starts again (`again`)."""

    def __init__(self, cluster: SandboxCluster, watch: StatusWatch) -> None:
        self.cluster, self.watch, self.bootstrap = cluster, watch, cluster.broker.address
        self.told: list[Status] = []
        self.again: int | None = None
        self.starts: list[float] = []
        self._ended: float | None = None

    def trimtab(self, *words: str) -> None:
        code, _, errors = trimtab(*words, "--config", str(self.cluster.controller_toml))
        assert code == 0, errors

    def until(self, what: str, holds: Callable[[Status], object]) -> None:
        """Wait for a status that is like this; no process may fail meanwhile."""
        deadline = time.monotonic() + LIMIT_S
        while not self._see() or not holds(self.told[-1]):
            self.cluster.check()
            assert time.monotonic() < deadline, f"{what}: {self.told[-1:]}"
            time.sleep(0.1)
        print(f"{time.time():.0f} {what}", flush=True)

    def _see(self) -> bool:
        if self.again is not None and not self.cluster.child(f"w{self.again}").alive:
            self._ended = self._ended or time.monotonic()
            if time.monotonic() > self._ended + AGAIN_S:
                self._ended = None
                self.starts.append(time.time())
                self.cluster.start_worker(self.again)
        status = self.watch.poll()
        if status is not None and status not in self.told[-1:]:
            self.told.append(status)
        return bool(self.told)

    def windows(self, count: int) -> None:
        seen = len(self.told) - 1
        self.until(f"{count} windows", lambda _: len({each.window_end for each in self.told[seen:]}) > count)

    def run(self, *hosts: int) -> None:
        """Start hosts with their workers, and wait until these take commands."""
        for index in hosts:
            self.cluster.start_agent(index)
            self.cluster.start_worker(index)
        self.until(f"{hosts} run", lambda status: all(runs(status, index) for index in hosts))

    def end(self, *names: str) -> None:
        """SIGTERM to all of them."""
        for name in names:
            self.cluster.child(name).terminate()
        assert [self.cluster.child(name).wait(60.0) for name in names] == [0] * len(names)

    def move(self, app: str) -> None:
        """A plan is made for this app, and carried out."""
        self.until(f"{app} is ready", lambda status: app in ready(status))
        rows = read_snapshots(self.bootstrap, self.cluster.topics)[-1].key_groups
        row = next(row for row in rows if row.key_group.app == app)
        plans = set(self.watch.rounds)
        target = "w1" if row.worker == "w0" else "w0"
        self.trimtab("move", f"{app}/{row.key_group.operator}/{row.key_group.partition}", target)

        def moved(_: Status) -> bool:
            new = [self.watch.rounds[plan] for plan in self.watch.rounds.keys() - plans]
            return any(plan.app == app and plan.ended_at and not plan.failed for plan in new)

        self.until(f"a key group of {app} has moved", moved)

    def only(self, *hosts: int) -> None:
        """Nothing else is left in the lists of hosts and workers and in the placement, and no standby is missing."""
        names = {f"w{index}" for index in hosts}
        self.until("the hosts", lambda status: {row.host for row in status.hosts} == {f"h{index}" for index in hosts})
        self.until("the workers", lambda status: {row.worker for row in status.nodes} == names)
        self.until("the standbys", lambda s: [r.missing_standbys for r in s.apps if r.app == "orders"] == [0])
        self.until("the placement", lambda _: self.placed("orders") <= names)

    def placed(self, app: str) -> set[str]:
        """The owners and standbys of an app."""
        log = PlacementLog()
        for row in read_topic(self.bootstrap, self.cluster.topics.placement):
            if row.value is not None and (record := decode_record(row.key, row.value)).app == app:
                log.take(record)
                log.settle()
        assert log.newest is not None
        return {worker for rows in log.newest.owners.values() for row in rows for worker in row}

    def never_held(self) -> None:
        assert [status for status in self.told if "hosts_lost" in str((status.decisions, status.apps))] == []

    def decided(self, kind: str, worker: str) -> list[float]:
        """When a worker was stopped or started by a decision."""
        rows: set[DecisionStatus] = {row for status in self.told for row in status.decisions}
        return sorted(row.at for row in rows if row.kind == kind and worker in row.text.split())


def runs(status: Status, index: int) -> bool:
    return any(row.worker == f"w{index}" and row.state is WorkerState.RUNNING and row.steering for row in status.nodes)


def ready(status: Status) -> set[str]:
    return {row.app for row in status.apps if row.not_ready is None}


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Play]:
    settings = SandboxSettings(
        app="tests.e2e.job_change_app:app",
        app_folder=ROOT,
        workers=LATE + 1,
        pods=True,
        capacity_cores=0.5,
        environment={"PARTITIONS": str(PARTITIONS)},
        controller={"stream": {"window_s": 10.0, "watermark_s": 5.0}},  # many processes: windows come late
    )
    with SandboxCluster(settings, tmp_path / "sandbox") as cluster:
        cluster.start_broker()
        cluster.broker.create_topics([Topic(name="orders", partitions=PARTITIONS)])
        cluster.start_controller(act=True)
        cluster.environments |= {f"w{index}": {"APP_ID": "steady"} for index in STEADY}
        cluster.environments[f"w{LATE}"] = {"APP_ID": "late"}
        with StatusWatch(cluster.broker.address, cluster.topics) as watch:
            yield Play(cluster, watch)
    assert cluster.left_over().nothing


def test_names_that_are_gone_hold_up_nothing_and_who_starts_a_drained_worker_is_told_so(play: Play, show: Show) -> None:
    orders = Orders(play.bootstrap)
    play.run(*STEADY, *PODS[0])
    play.move("steady")
    new_names(play)
    play.again = PODS[2][0]
    play.trimtab("drain", f"w{play.again}")
    play.until("it is stopped", lambda _: play.starts)
    new_version(play)
    started_again(play, show)
    orders.end()
    for app in ("orders", "late", "steady-v2"):
        check_sums(play.bootstrap, orders, app)
    killed_pods(play)
    assert "Traceback" not in (play.cluster.logs / "controller.log").read_text()


def new_names(play: Play) -> None:
    """Two deployments.  Meanwhile hosts that stay get plans, and an app its first placement."""
    play.run(*PODS[1])
    play.end(*(f"{what}{index}" for index in PODS[0] for what in "wh"))
    play.move("steady")
    play.run(*PODS[2])
    for index in PODS[1]:  # as if the containers of a pod ended one after the other
        play.end(f"h{index}")
        play.windows(1)
        play.end(f"w{index}")
    play.run(LATE)
    play.until("a first placement", lambda status: "late" in ready(status))
    play.move("steady")
    play.end("h0")
    play.cluster.start_agent(0)
    play.windows(2)
    play.until("it is back under its name", lambda status: runs(status, 0))
    play.only(*STEADY, LATE, *PODS[2])
    play.never_held()


def new_version(play: Play) -> None:
    """`faust.App("steady", version=2)`; the placement of the old app still names both workers, and one is drained."""
    for index in STEADY:
        play.end(f"w{index}")
        play.cluster.environments[f"w{index}"] = {"APP_ID": "steady", "APP_VERSION": "2"}
        play.cluster.start_worker(index)
        play.until("it runs", partial(runs, index=index))
        play.until("the new app is placed", lambda status: "steady-v2" in ready(status))
    assert "w1" in play.placed("steady")
    play.trimtab("drain", "w1")
    play.until("it is stopped", lambda _: not play.cluster.child("w1").alive)
    play.windows(2)
    play.trimtab("undrain", "w1")
    refused = "its start failed: w1 on h1: not_configured (no command line for worker w1 in the configuration)"
    play.until(
        "why it is away", lambda status: (refused, False) in [(row.reason, row.draining) for row in status.nodes]
    )
    play.windows(4)
    assert len(play.decided("start", "w1")) == 1
    play.cluster.start_worker(1)
    play.until("it was started by hand", lambda status: runs(status, 1))
    play.move("steady-v2")
    assert len(play.decided("start", "w1")) == 1


def started_again(play: Play, show: Show) -> None:
    """Its stops get rarer, and operators are told."""
    worker = f"w{play.again}"
    play.until("it has been stopped four times", lambda _: len(play.decided("stop", worker)) > 3)
    stops = play.decided("stop", worker)[:4]
    said = "something has started it 3 times: undrain it or disable its unit"
    told = [status.at for status in play.told for row in status.concerns if worker in row.text and said in row.text]
    assert stops[2] < told[0], "after the third stop"
    waits = [after - before for before, after in pairwise(stops)]
    assert [wait >= least * SCALING_PATIENCE_S for wait, least in zip(waits, (1, 1, 2), strict=True)] == [True] * 3
    show("between stops of a drained worker", "60, 60, 120 s and more", ", ".join(f"{wait:.0f}" for wait in waits))
    for app, of in (("orders", "its app"), ("late", "another app")):
        pause = longest_pause(play.bootstrap, stops[0], math.inf, f"{app}-customers-changelog")
        show(f"longest silence of {of} meanwhile", "", f"{pause:.1f} s")
    play.again = None
    play.until("it runs", lambda status: runs(status, PODS[2][0]))
    play.trimtab("undrain", worker)
    play.windows(4)
    assert len(play.decided("start", worker)) <= 1


def killed_pods(play: Play) -> None:
    """A deployment whose old pods end without a word: nothing is held up, and nothing is lost."""
    orders = Orders(play.bootstrap)
    play.run(*PODS[3])
    for name in [f"{what}{index}" for index in PODS[2] for what in "wh"]:
        play.cluster.kill(name)
    play.move("steady-v2")
    play.only(*STEADY, LATE, *PODS[3])
    play.never_held()
    orders.end()
    play.windows(2)
    sent = ordered(play.bootstrap)["customers"]
    for app in ("orders", "late", "steady-v2"):
        found, _ = changelog(play.bootstrap, "customers", app)
        more = {key: found[key][0] - count for key, (count, _) in sent.items() if found[key][0] != count}
        assert all(count > 0 for count in more.values()), "nothing is lost"
        assert app == "orders" or not more, "only what a killed worker had not committed is repeated"
