"""The scenario of the demo: unbalanced, balanced, shifted, a load that triples and falls back; a local topic."""

import contextlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

from flights.demo.summary import STOP_MARGIN_S, Collocated, Scaled
from flights.demo.view import View
from flights.replay import Sent
from flights.steered_run import FINISH_LIMIT_S, TICK_S, SteeredRun
from flights.wire import APP, DELAYS
from trimtab_protocol.messages.names import WorkerId
from trimtab_protocol.messages.status import RoundStatus
from trimtab_sandbox.cluster import SandboxCluster
from trimtab_sandbox.command import EXAMPLES, FLIGHTS_ENVIRONMENT
from trimtab_sandbox.configuration import SandboxSettings, worker_name
from trimtab_sandbox.parser import FLIGHTS_APP

WINDOW_LIMIT_S = 120.0
PLAN_LIMIT_S = 1.5
"""A window's plan is in the status by then."""
BAND_PP = 0.8
"""Below the promised 1 pp, so that the controller continues until the promise is kept."""
NEXT_TO_NOTHING = 1e-9
"""Flights per second while workers restart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSettings:
    """Settings of the demo: `rate` in flights per second, times in seconds, `work` as in `flights.settings`.

    `capacities` of the workers that run from the beginning, in cores; `spare` = of the one in the pool.  `light_rate`,
    `light_work` = while a topic is local: what a flight costs besides its work shows where there are many, with little.
    """

    key_groups: int = 64
    capacities: tuple[float, ...] = (0.2, 0.25, 0.35, 0.25)
    spare: float = 0.35
    rate: float = 20.0
    work: int = 1500
    surge_factor: float = 3.0
    surge_key_groups: int = 8
    load_factor: float = 3.0
    ramp_s: float = 30.0
    window_s: float = 5.0
    calm_windows: int = 5
    judged_windows: int = 4
    high_windows: int = 1
    settle_limit_s: float = 75.0
    scale_limit_s: float = 120.0
    light_rate: float = 200.0
    light_work: int = 50
    light_windows: int = 6
    collocated_limit_s: float = 150.0
    collocate: bool = False
    """Whether a topic becomes local at the end."""
    keep: bool = False
    """Whether everything stays up, when all has been shown, until Ctrl-C."""

    @property
    def workers(self) -> int:
        """Workers that run from the beginning."""
        return len(self.capacities)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Results of a run that are not in Kafka; times in epoch seconds.  `scaled` = the load that triples."""

    sent: Sent
    phases: tuple[tuple[float, str], ...]
    calm: tuple[float, float]
    scaled: Scaled
    collocated: Collocated | None
    rounds: tuple[RoundStatus, ...]


def sandbox_settings(settings: DemoSettings) -> SandboxSettings:
    """The cluster of the demo."""
    return SandboxSettings(
        app=FLIGHTS_APP,
        app_folder=EXAMPLES,
        cluster="demo",
        workers=settings.workers + 1,
        pool=1,
        app_id=APP,
        capacity_cores=(*settings.capacities, settings.spare),
        environment={
            **FLIGHTS_ENVIRONMENT,
            "FLIGHTS_KEY_GROUPS": str(settings.key_groups),
            "FLIGHTS_WORK": str(settings.work),
        },
        controller={
            "stream": {"window_s": settings.window_s, "watermark_s": 2.0},
            "balance": {"max_migrations": 40, "load_distance": BAND_PP, "min_interval_s": 5.0, "smoothing": 0.9},
            "scaling": {
                "mode": "act",
                "min_workers": settings.workers,
                "min_utilisation": 0.4,
                "target_utilisation": 0.55,
                "max_utilisation": 0.55,
                "scale_up_delay_s": 5.0,
                "scale_down_delay_s": 10.0,
                "restart_s": 30.0,
            },
        },
    )


class Scenario:
    """One run on one cluster, from the start of the broker to the last commit of the job."""

    def __init__(self, cluster: SandboxCluster, settings: DemoSettings, view: View) -> None:
        self._settings = settings
        self._view = view
        self._run = SteeredRun(cluster, key_groups=settings.key_groups, rate=settings.rate, view=view)

    def play(self) -> Outcome:
        """Run the scenario.  Raises RunError, ClusterError, NotDelivered."""
        with self._run:
            return self._play()

    def _play(self) -> Outcome:
        run, settings = self._run, self._settings
        console = run.cluster.start_console().link
        self._view.say(f"console, while the demo runs: {console}")
        run.phase("flights flow, the controller is paused")
        run.until(self._whole_windows(1), WINDOW_LIMIT_S, "a window with load")
        calm_from = run.last.window_end or time.time()
        calm_until = calm_from + settings.calm_windows * settings.window_s
        run.until(lambda: (run.last.window_end or 0.0) >= calm_until, WINDOW_LIMIT_S, "windows with load")
        calm = (calm_from, calm_until)

        run.trimtab("scale", APP, str(settings.workers), "--reason", "show the balance of four workers first")
        run.phase("balance")
        run.trimtab("resume")
        self._settle(time.time())

        surge = run.key_groups_of(worker_name(0))[: settings.surge_key_groups]
        run.holds_within(settings.window_s, self._window_begins)  # so that the shift begins with a window
        run.phase(f"{len(surge)} key groups of {worker_name(0)} grow by a factor of {settings.surge_factor:g}")
        run.producer.set_speed(surge, settings.surge_factor)
        self._settle(time.time())

        scaled = self._triple()
        collocated = self._collocate() if settings.collocate else None
        if settings.keep:
            self._view.say(f"All has been shown.  Everything stays up until Ctrl-C; console: {console}")
            with contextlib.suppress(KeyboardInterrupt):
                run.until(lambda: False, math.inf, "Ctrl-C")

        return Outcome(
            sent=run.finish(),
            phases=tuple(run.phases),
            calm=calm,
            scaled=scaled,
            collocated=collocated,
            rounds=tuple(sorted(run.watch.rounds.values(), key=lambda row: row.started_at)),
        )

    def _triple(self) -> Scaled:
        """The load triples and falls back.  The controller starts the worker of the pool, and drains and stops it."""
        run, settings, spare = self._run, self._settings, worker_name(self._settings.workers)
        run.trimtab("scale", APP, "auto")
        run.phase(f"the load grows by a factor of {settings.load_factor:g} within {settings.ramp_s:g} s")
        rose_at = time.time()
        joined = run.holds_within(settings.scale_limit_s, lambda: self._rises(rose_at) and spare in run.running())
        joined_at = time.time() if joined else None
        if joined:
            # It has key groups, and the load has been high for some windows.
            run.holds_within(settings.settle_limit_s, lambda: self._has_work(spare))
            run.holds_within(settings.settle_limit_s, lambda: self._rises(rose_at))
            run.holds_within(settings.settle_limit_s, self._whole_windows(settings.high_windows))

        run.phase("the load falls back")
        fell_at = time.time()
        run.producer.set_rate(settings.rate)
        left_at = None
        if joined:
            run.holds_within(settings.scale_limit_s, lambda: self._drain_began() is not None)
            left_at = self._drain_began()
        if left_at is not None:
            run.until(lambda: spare not in run.running(), settings.scale_limit_s, f"{spare} stopped")
        self._settle(time.time() + STOP_MARGIN_S)
        return Scaled(
            worker=WorkerId(spare), factor=settings.load_factor, rose_at=rose_at, joined_at=joined_at,
            fell_at=fell_at, drain_began_at=left_at,
        )  # fmt: skip

    def _collocate(self) -> Collocated:
        """The workers restart with a local topic, and the controller brings together what exchanges tuples."""
        run, settings, spare = self._run, self._settings, worker_name(self._settings.workers)
        run.trimtab("scale", APP, str(settings.workers), "--reason", "show the rest with four workers")
        run.until(lambda: spare not in run.running(), settings.scale_limit_s, f"{spare} stopped")
        run.trimtab("pause", "--reason", "restart the workers with a local topic")
        run.until(lambda: not run.last.plans_in_flight, WINDOW_LIMIT_S, "no plan in flight")
        run.phase(f"the workers restart: {DELAYS} is local now")
        run.producer.set_rate(NEXT_TO_NOTHING)
        run.until(lambda: run.backlog.records() == 0, FINISH_LIMIT_S, "everything processed and committed")
        names = [worker_name(index) for index in range(settings.workers)]
        for name in names:
            run.cluster.environments[name] = {"FLIGHTS_LOCAL": "1", "FLIGHTS_WORK": str(settings.light_work)}
            run.cluster.child(name).terminate()
        for name in names:
            run.cluster.stop(name)
        for index in range(settings.workers):
            run.cluster.start_worker(index)
        whole = self._whole_windows(1)
        run.until(lambda: whole() and run.all_run(), WINDOW_LIMIT_S, "all workers running again")

        run.phase(f"{settings.light_rate:g} flights a second, with little work for each")
        run.producer.set_rate(settings.light_rate)
        run.until(self._whole_windows(2), WINDOW_LIMIT_S, "windows with load")  # the first ones warm up
        apart_from = time.time()
        run.until(self._whole_windows(settings.light_windows), WINDOW_LIMIT_S, "windows with load")
        run.phase("collocation")
        began_at = time.time()
        run.trimtab("resume")
        if run.holds_within(settings.collocated_limit_s, lambda: self._has_brought_together(began_at)):
            run.trimtab("pause", "--reason", "measure what collocation saves")
            run.holds_within(WINDOW_LIMIT_S, lambda: not run.last.plans_in_flight)
            run.holds_within(WINDOW_LIMIT_S, self._whole_windows(settings.light_windows))
        return Collocated(apart_from=apart_from, began_at=began_at)

    def _has_brought_together(self, since: float) -> bool:
        """Whether a plan for collocation has been carried out."""
        rounds = (row for row in self._run.watch.rounds.values() if row.started_at > since)
        return any(row.saved_planned_pp and row.ended_at is not None for row in rounds)

    def _rises(self, since: float) -> bool:
        """Let the rate follow its ramp; whether it has reached the top."""
        settings = self._settings
        share = min(1.0, (time.time() - since) / settings.ramp_s)
        self._run.producer.set_rate(settings.rate * (1.0 + (settings.load_factor - 1.0) * share))
        return share >= 1.0

    def _has_work(self, worker: str) -> bool:
        return any(node.worker == worker and node.key_groups for node in self._run.last.nodes)

    def _drain_began(self) -> float | None:
        """When the controller decided to make the app smaller; None: it has not."""
        rows = self._run.last.decisions
        return next((row.at for row in reversed(rows) if (row.kind, row.reason) == ("resize", "in")), None)

    def _whole_windows(self, count: int) -> Callable[[], bool]:
        since = time.time()
        return lambda: (self._run.last.window_end or 0.0) > since + count * self._settings.window_s

    def _window_begins(self) -> bool:
        return time.time() % self._settings.window_s < 2 * TICK_S

    def _settle(self, since: float) -> None:
        """Wait until a round of this phase has ended, followed by enough complete windows without moves.

        Waits for the limit at most: the summary uses the windows that there are.
        """
        run, settings = self._run, self._settings
        begun = run.phases[-1][0]

        def settled() -> bool:
            ends = [row.ended_at for row in run.watch.rounds.values() if row.started_at > begun]
            if not ends or None in ends or run.last.plans_in_flight:
                return False
            still_from = max(since, *(end for end in ends if end is not None))
            first = ceil(still_from / settings.window_s) * settings.window_s
            return (run.last.window_end or 0.0) >= first + settings.judged_windows * settings.window_s

        settled_at: float | None = None

        def settled_for_good() -> bool:
            # The window that ends the phase may still begin a round of it.
            nonlocal settled_at
            settled_at = (settled_at or time.monotonic()) if settled() else None
            return settled_at is not None and time.monotonic() - settled_at >= PLAN_LIMIT_S

        run.holds_within(settings.settle_limit_s, settled_for_good)
