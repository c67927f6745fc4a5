"""The cluster of the day: what it is made of, how a chapter waits, and what judges it at the end."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import psutil

from flights.backlog import Backlog
from flights.demo.evidence import handovers_of
from flights.demo.loads import windows_inside
from flights.demo.picture import Drawn, draw
from flights.readback import read_topic
from flights.steered_run import RunError, SteeredRun, Viewer
from flights.watch import read_snapshots
from flights.wire import APP, DELAYS, SOURCE
from tests.brokers import WiredCluster
from tests.e2e.in_process import trimtab
from tests.faults.played.rounds import tapped
from tests.faults.played.stage import processes_of, write_down
from tests.faults.recorded.check import check
from tests.faults.recorded.facts import read_facts
from tests.faults.recorded.history import Strike, read_history
from tests.faults.recorded.verdict import Violation, untimed
from tests.faults.recorded.windowed import CHANGELOG, NOTED, wrong_windows
from tests.paths import EXAMPLES, ROOT, python_path
from trimtab_client import Access, Client
from trimtab_protocol.messages.codec import decoded
from trimtab_protocol.messages.commands import Ack, Command, CommandKind, Phase
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.status import AppStatus, RoundStatus, Status
from trimtab_sandbox.broker import Topic
from trimtab_sandbox.command import FLIGHTS_ENVIRONMENT
from trimtab_sandbox.configuration import BROKER, CONTROLLER, SandboxSettings, Table

KEY_GROUPS = 24
CAPACITIES = (0.2, 0.25, 0.35, 0.25, 0.25, 0.25)
POOL = 2
"""The last ones are started when the load has grown."""
RATE, WORK_US = 20.0, 3500
COMMIT_S, SESSION_S, WINDOW_S = 1.0, 20.0, 4.0
BAND_PP = 6.0
LIMIT_S = 600.0
"""For whatever a chapter waits for.  On a quiet machine most takes seconds; nobody promises how long it takes."""
OTHER = f"{CONTROLLER}-2"
SECOND_BROKER = f"{BROKER}-2"
STANDS_BY = "standby: waiting"
HOT, HEAT = 3, 8.0
"""So many key groups of a worker flow so many times as fast."""
BOUNDS = untimed(COMMIT_S, SESSION_S)

ASKING: Mapping[str, Table] = {
    "stream": {"window_s": WINDOW_S, "watermark_s": 2.0, "warm_standby": False},
    "balance": {
        "method": "milp",
        "load_distance": BAND_PP,
        "min_interval_s": 2.0,
        "min_windows": 2,
        "smoothing": 0.9,
        "max_migrations": 24,
        "lost_worker_s": 30.0,
    },
    "placement": {"first": "even"},
    "plans": {"mode": "approve", "approval_s": 3600.0},
    # Without the guard: on a busy machine workers fall behind, whatever moves.
    "execution": {"handovers_in_flight": 4, "key_groups_per_handover": 2, "guard": "off"},
    "scaling": {
        "mode": "act",
        "min_workers": len(CAPACITIES) - POOL,
        "min_utilisation": 0.45,
        "target_utilisation": 0.5,
        "max_utilisation": 0.55,
        "scale_up_delay_s": 5.0,
        "scale_down_delay_s": 5.0,
        "restart_s": 30.0,
        "max_changes_per_hour": 60,
    },
}
"""The controllers of the morning: each plan waits for an operator, and none is for collocation."""
ACTING: Mapping[str, Table] = {
    **ASKING,
    "balance": {**ASKING["balance"], "method": "albic", "remote_tuple_cpu_s": 0.003},
    "plans": {"mode": "act"},
}


class DaySettings(SandboxSettings):
    """The agents declare all workers for the app, also those that run from the beginning."""

    __slots__ = ()

    @property
    def declared(self) -> range:
        return range(self.workers)


def sandbox_settings() -> DaySettings:
    """The cluster in the morning."""
    return DaySettings(
        app="tests.e2e.day_app:app",
        app_folder=ROOT,
        cluster="day",
        workers=len(CAPACITIES),
        pool=POOL,
        app_id=APP,
        capacity_cores=CAPACITIES,
        host_cores=1.0,  # what else the machine does fills no host
        interval_s=2.0,  # workers that get little CPU answer late
        environment={
            **FLIGHTS_ENVIRONMENT,
            "PYTHONPATH": python_path(EXAMPLES),
            "FLIGHTS_PLUGIN": "0",  # `day_app` installs it
            "FLIGHTS_KEY_GROUPS": str(KEY_GROUPS),
            "FLIGHTS_WORK": str(WORK_US),
            "FLIGHTS_COMMIT_S": f"{COMMIT_S:g}",
            "FLIGHTS_SESSION_S": f"{SESSION_S:g}",
            "PRODUCER_LINGER": "0.1",  # small requests were two fifths of the day's CPU
        },
        controller=ASKING,
    )


class Day(SteeredRun):
    """The run of a day.  `leader` = the controller that leads; the other one stands by, if it runs.

    `resized` = when the number of workers was changed, and in which direction.
    """

    cluster: WiredCluster

    def __init__(self, folder: Path, view: Viewer) -> None:
        compacted = {"cleanup.policy": "compact"}
        more = [
            Topic(name=NOTED, partitions=KEY_GROUPS),
            Topic(name=CHANGELOG, partitions=KEY_GROUPS, settings=compacted),
        ]
        cluster = WiredCluster(sandbox_settings(), folder / "sandbox", brokers=2)
        super().__init__(cluster, key_groups=KEY_GROUPS, rate=RATE, view=view, more_topics=more)
        self.folder = folder
        self.leader = CONTROLLER
        self.strikes: list[Strike] = []
        self.chapters: list[tuple[str, float]] = []
        self.coldest, self.rejected = 0, ""
        self._said_before = 0
        self.resized: dict[float, str] = {}

    def _start(self, opening: ExitStack) -> None:
        super()._start(opening)
        inputs = dict.fromkeys((SOURCE, DELAYS, NOTED), KEY_GROUPS)
        self.backlog = Backlog(self.cluster.broker.address, APP, inputs)

    # ------------------------------------------------------------------ waiting
    def look(self) -> None:
        """Keep the changes of the size too: a status has the last decisions only."""
        super().look()
        decisions = self.watch.last.decisions if self.watch.last else ()
        self.resized |= {row.at: row.reason for row in decisions if row.kind == "resize"}

    @contextmanager
    def chapter(self, name: str) -> Iterator[None]:
        """A chapter of the day; when it fails, with what the controller said then."""
        self.phase(name)
        begun = time.monotonic()
        try:
            yield
        except BaseException as error:
            error.add_note(f"chapter of the day: {name}\n{self._said()}")
            raise
        self.chapters.append((name, time.monotonic() - begun))

    def _said(self) -> str:
        try:
            decisions = "\n".join(f"  {row.at:.0f} {row.kind} {row.reason}: {row.text}" for row in self.last.decisions)
            return f"{self.trimtab('status')}\n{decisions}"
        except Exception as error:
            return f"no status: {error!r}"

    def seen(self, what: str, holds: Callable[[Status], object]) -> Status:
        """The first status from now on that `holds`."""
        since = time.time()

        def found() -> bool:
            status = self.watch.last
            return status is not None and status.at > since and bool(holds(status))

        self.until(found, LIMIT_S, what)
        return self.last

    def at_rest(self, what: str, holds: Callable[[Status], object] = lambda _: True) -> Status:
        """A status of a whole window of all hosts from now on, in which all is placed, followed and done."""
        since = time.time()
        return self.seen(
            f"{what}, and all at rest",
            lambda status: (
                (status.window_end or 0.0) > since + WINDOW_S
                and status.coverage == 1.0
                and not status.plans_in_flight
                and all(app.missing_standbys == 0 and app.not_ready is None for app in status.apps)
                and status.apps
                and len(busy(status)) == len(running(status))
                and holds(status)
            ),
        )

    def ended(self, what: str, wanted: Callable[[RoundStatus], object]) -> RoundStatus:
        """The plan that is wanted, once it has ended."""
        self.until(lambda: any(row.ended_at and wanted(row) for row in self.watch.rounds.values()), LIMIT_S, what)
        return next(row for row in self.watch.rounds.values() if row.ended_at and wanted(row))

    def balanced(self, what: str, holds: Callable[[Status], object] = lambda _: True) -> Status:
        """At rest, and inside the band."""
        return self.at_rest(what, lambda status: (app_of(status).load_distance or 0.0) <= BAND_PP and holds(status))

    def owners(self) -> dict[str, str | None]:
        """Who owns which key group, as the console shows it."""
        return {f"{APP}/{row.operator}/{row.partition}": row.owner for row in self.console.placement(APP)}

    def processes_of(self, worker: str) -> list[psutil.Process]:
        """Those of a worker, whoever has started it."""
        return processes_of(self.cluster, worker)

    # ------------------------------------------------------------------ acting
    def heat(self, worker: str) -> None:
        """Let some key groups of this worker grow, and all others be as they were."""
        grown = self.key_groups_of(worker)[:HOT]
        self.cool()
        self.producer.set_speed(grown, HEAT)
        self.coldest = next(each for each in range(KEY_GROUPS) if each not in grown)

    def cool(self) -> None:
        """Let all key groups be as they were."""
        self.producer.set_speed(range(KEY_GROUPS), 1.0)

    @contextmanager
    def first_prepare(self) -> Iterator[list[str]]:
        """The plan whose first key groups are just being prepared, at the end of the block that makes it begin."""
        found: list[str] = []
        with tapped(self.cluster.broker.address, self.cluster.topics.commands) as commands:
            yield found
            command = commands.first(
                partial(decoded, kind=Command), lambda each: each.kind is CommandKind.PREPARE, LIMIT_S
            )
        if command is None or command.handover is None:
            raise RunError(f"not within {LIMIT_S:g} s: a plan has begun")
        found.append(command.handover.rpartition("-")[0])

    def trimtab(self, *arguments: str) -> str:
        """A command of `trimtab`, in this process.  Raises RunError when it fails."""
        code, said, errors = trimtab(*arguments, "--config", str(self.cluster.controller_toml))
        if code:
            raise RunError(f"trimtab {' '.join(arguments)}: exit code {code}: {errors.strip()}")
        return said

    @contextmanager
    def operated(self) -> Iterator[Client]:
        """The console, while an operator uses it."""
        access = self.cluster.start_console()
        with Client(Access(address=access.address.rstrip("/"), token=access.token), patience_s=LIMIT_S) as self.console:
            yield self.console

    @property
    def standby(self) -> str:
        """The name of the controller that does not lead."""
        return OTHER if self.leader == CONTROLLER else CONTROLLER

    def start_standby(self) -> None:
        """Start a controller of the afternoon: by the time it is needed, it stands by."""
        self.cluster.settings = replace(self.cluster.settings, controller=ACTING)
        log = self.cluster.logs / f"{self.standby}.log"
        self._said_before = len(log.read_text()) if log.exists() else 0
        self.cluster.start_controller(act=True, name=self.standby)

    def until_it_stands_by(self) -> None:
        """Wait for the controller that was started last."""
        log = self.cluster.logs / f"{self.standby}.log"
        self.until(lambda: STANDS_BY in log.read_text()[self._said_before :], LIMIT_S, f"{self.standby} stands by")

    def another_leads(self, generation: int) -> Status:
        """The status of a leader of a later generation."""
        self.leader = self.standby
        return self.seen("another controller leads", lambda status: status.epoch.generation > generation)

    def kill_worker(self, worker: str) -> None:
        """kill -9, whoever has started it."""
        if worker in self.cluster.pids:
            self.cluster.child(worker).ended_here = True
        processes = self.processes_of(worker)
        for process in processes:
            process.kill()
        psutil.wait_procs(processes, LIMIT_S)

    # ------------------------------------------------------------------ drawing and judging
    def draw(self, path: Path) -> None:
        """Write the picture of the day."""
        bootstrap, topics = self.cluster.broker.address, self.cluster.topics
        commands = [decoded(row.value, Command) for row in read_topic(bootstrap, topics.commands)]
        acks = [decoded(row.value, Ack) for row in read_topic(bootstrap, topics.acks)]
        phases = [(at, name) for at, name in self.phases if name in dict(self.chapters)]
        begun, over = phases[0][0], time.time()
        path.parent.mkdir(parents=True, exist_ok=True)
        run = Drawn(
            started_at=begun,
            snapshots=windows_inside(read_snapshots(bootstrap, topics), begun, over),
            handovers=[moved.end for moved in handovers_of(commands, acks)],
            phases=phases,
            changes=[(ack.at, "") for ack in acks if ack.phase in (Phase.STARTED, Phase.STOPPED)],
            draining_at=lambda _: (),
        )
        draw(run, path)

    def judge(self) -> list[Violation]:
        """Write down all that was recorded, and everything in it that is broken."""
        folder = self.folder / "history-0"
        write_down(self.cluster, folder, self.strikes, more=[CHANGELOG])
        history = read_history(self.cluster.settings.cluster, folder)
        verdict = check(history, BOUNDS)
        assert verdict.unseen(rounds=True) == []
        return [*verdict.violations, *wrong_windows(history, read_facts(history), history.strikes, BOUNDS)]


def running(status: Status) -> set[str]:
    """The workers that run."""
    return {row.worker for row in status.nodes if row.state is WorkerState.RUNNING}


def busy(status: Status) -> set[str]:
    """The workers that run and own key groups."""
    return {row.worker for row in status.nodes if row.state is WorkerState.RUNNING and row.key_groups}


def app_of(status: Status) -> AppStatus:
    """The app of the day."""
    (app,) = status.apps
    return app
