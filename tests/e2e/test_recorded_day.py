"""A day that a real controller has steered, replayed under three settings: `trimtab replay` over what it recorded.

The load is that of real flights by their time of day (`flights_of_a_day`, of ten days), from 4:00 to midnight, a minute
in three quarters of a second: nothing flies at first, most at 8 and at 15 o'clock.  Four workers of unequal capacity
process them.  Agents measure them, the stream makes windows of 10 s, and the controller acts: all that is real.  Only
the clock of the flights runs faster, so a window is 13 minutes of their day.
"""

import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from flights.backlog import Backlog
from flights.readback import read_totals
from flights.steered_run import topics_of_the_job
from flights.verify import count_events
from flights.watch import StatusWatch
from flights.wire import APP, DELAYS, SOURCE
from tests.e2e.flights_of_a_day import DayPlayer, flights_of_a_day
from tests.e2e.in_process import trimtab
from tests.shown import Show
from trimtab_controller.cli.replay import AS_DONE
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.status import Status
from trimtab_sandbox.cluster import SandboxCluster
from trimtab_sandbox.command import EXAMPLES, FLIGHTS_ENVIRONMENT
from trimtab_sandbox.configuration import SandboxSettings
from trimtab_sandbox.parser import FLIGHTS_APP

pytestmark = [pytest.mark.scenario, pytest.mark.timeout(2400)]

DAYS, BEGIN, END = 10, 4 * 60, 24 * 60
MINUTE_S = float(os.environ.get("DAY_MINUTE_S", "0.75"))
"""Seconds in which a minute of the day is played."""
KEY_GROUPS = 64
CAPACITIES = (0.2, 0.25, 0.35, 0.25)
WORK_US = 15_000
"""CPU of a flight at each of the job's two operators."""
BAND_PP = 6.0
NARROW, WIDE = "balance.load_distance=3,balance.max_migrations=40", "balance.load_distance=15"
SHOWN = ("load_distance_mean", "load_distance_p95", "highest_p95", "plans", "moved", "paused_s", "restored_bytes")


def settings(name: str) -> SandboxSettings:
    return SandboxSettings(
        app=FLIGHTS_APP,
        app_folder=EXAMPLES,
        cluster=name,
        workers=len(CAPACITIES),
        capacity_cores=CAPACITIES,
        host_cores=1.0,
        environment={
            **FLIGHTS_ENVIRONMENT,
            "FLIGHTS_KEY_GROUPS": str(KEY_GROUPS),
            "FLIGHTS_WORK": str(WORK_US),
        },
        controller={
            "stream": {"window_s": 10.0, "watermark_s": 2.0},
            "balance": {"load_distance": BAND_PP, "min_interval_s": 20.0},
        },
    )


class Day:
    """A cluster over a day, and what it has recorded."""

    def __init__(self, cluster: SandboxCluster, stack: ExitStack) -> None:
        self.cluster = cluster
        cluster.start_broker()
        cluster.write_controller_toml()
        cluster.broker.create_topics(topics_of_the_job(KEY_GROUPS))
        cluster.start_controller(act=True)
        for index in range(len(CAPACITIES)):
            cluster.start_agent(index)
            cluster.start_worker(index)
        bootstrap = cluster.broker.address
        self.watch = stack.enter_context(StatusWatch(bootstrap, cluster.topics))
        self.flights = flights_of_a_day(DAYS, BEGIN, END)
        self.player = DayPlayer(bootstrap, self.flights, key_groups=KEY_GROUPS, begin=BEGIN, minute_s=MINUTE_S)
        stack.callback(self.player.close)
        self.backlog = Backlog(bootstrap, APP, {SOURCE: KEY_GROUPS, DELAYS: KEY_GROUPS})

    def statuses(self, limit_s: float, what: str) -> Iterator[Status]:
        """What the controller says, until the caller has seen enough."""
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            self.cluster.check()
            if (status := self.watch.poll()) is not None:
                yield status
            time.sleep(0.5)
        pytest.fail(f"not within {limit_s:g} s: {what}")

    def trimtab(self, *arguments: str) -> str:
        code, told, wrong = trimtab(*arguments, "--config", str(self.cluster.controller_toml))
        assert code == 0, wrong
        return told

    def pass_by(self) -> float:
        """Let it pass; seconds from its begin until the last window after it."""
        next(each for each in self.statuses(300.0, "all workers run") if self.all_run(each))
        began = time.time()
        self.player.start()
        length_s = (END - BEGIN) * MINUTE_S
        next(each for each in self.statuses(length_s + 120.0, "the end of the day") if self.player.is_over)
        self.player.close()
        assert self.player.confirmed == len(self.flights)
        next(each for each in self.statuses(120.0, "no backlog") if self.backlog.records() == 0)
        ended = time.time()
        still = (each for each in self.statuses(180.0, "the end of all plans") if not each.plans_in_flight)
        next(each for each in still if (each.window_end or 0.0) > ended + 20.0)
        return time.time() - began

    def all_run(self, status: Status) -> bool:
        rows = [row for row in status.nodes if row.state is WorkerState.RUNNING and row.steering and row.key_groups]
        return len(rows) == len(CAPACITIES)


def test_a_day_that_was_steered_is_replayed_under_three_settings(tmp_path: Path, unique: str, show: Show) -> None:
    with ExitStack() as stack:
        cluster = stack.enter_context(SandboxCluster(settings(unique), tmp_path / "cluster"))
        day = Day(cluster, stack)
        took_s = day.pass_by()
        last = ("--last", f"{took_s:.0f}s")
        sets = ("--set", NARROW, "--set", WIDE)
        print(f"\n{len(day.flights)} flights in {took_s / 60.0:.1f} min\n{day.trimtab('replay', *last, *sets)}")
        told = json.loads(day.trimtab("replay", *last, *sets, "--json"))
        counted = count_events([flight for _, flight in day.flights], read_totals(cluster.broker.address))
    columns: dict[str, dict[str, Any]] = {name: rows[APP] for name, rows in told["columns"].items()}
    done, configured, narrow, wide = columns.values()
    for what in SHOWN:
        shown = {name: "-" if row[what] is None else f"{row[what]:.4g}" for name, row in columns.items()}
        show(what, f"as done {shown[AS_DONE]}", ", ".join(f"{name}: {figure}" for name, figure in shown.items()))

    assert (counted.sent, counted.lost, counted.duplicated) == (len(day.flights), 0, 0)
    assert done["windows"] == configured["windows"] >= took_s / 10.0 - 3
    assert done["plans"] >= 3, "the day gives the controller something to do"
    # Under the settings of the day the replay does what the controller did.
    assert abs(configured["plans"] - done["plans"]) <= 1
    assert abs(configured["moved"] - done["moved"]) <= 0.2 * done["moved"]
    assert abs(configured["load_distance_mean"] - done["load_distance_mean"]) <= 0.3
    # Under others it does more, or less.
    assert narrow["moved"] > configured["moved"] > wide["moved"]
    assert narrow["load_distance_mean"] < wide["load_distance_mean"]
