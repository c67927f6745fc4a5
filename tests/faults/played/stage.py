"""The cluster that suffers: the flights job, steered, in a sandbox whose parts can be cut off, filled up and put wrong.

Every host and the controller reach the broker over a cable of their own (`proxy.Proxy`); what looks on does not.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

import psutil
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from flights.steered_run import TICK_S, RunError, SteeredRun, Viewer
from tests.brokers import Brokers, Detour, WiredCluster
from tests.e2e.proxy import Proxy
from tests.faults.played.disks import JOURNAL_MB, STORE_MB, Disk, mounted, obstacle
from tests.faults.played.gate import TAMPERED, Gate
from tests.faults.recorded.dump import dump
from tests.faults.recorded.history import Strike, write_files
from tests.faults.recorded.verdict import Bounds, untimed
from tests.paths import EXAMPLES, ROOT, python_path
from trimtab_sandbox.broker import free_ports
from trimtab_sandbox.cluster import ClusterError, SandboxCluster
from trimtab_sandbox.command import FLIGHTS_ENVIRONMENT
from trimtab_sandbox.configuration import CONTROLLER, SandboxSettings, host_name, worker_name
from trimtab_sandbox.marks import marked

RECOVERY_LIMIT_S = 240.0
REVIVE_EVERY_S = 2.0
UNSEEN = "a window without all hosts"
NEW_APP_PLACED = "lf"
"""How a new app is placed (`[placement] first`): by who sends to whom, as Faust has started it."""
KEPT_MS = 24 * 60 * 60 * 1000
CONFIGURE_LIMIT_S = 30.0
KEPT = "in place: "
"""What the log of a worker says at each rebalance through which it has kept what it had."""
CAUGHT_UP_S = 8.0
"""The job has caught up when so many seconds of calm traffic are uncommitted: one commit interval never is, and a shift
of the load doubles the traffic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSettings:
    """Rate in flights per second, spans in seconds, `work` as in `flights.settings`, `band` in percentage points."""

    cluster: str = "faults"
    workers: int = 3
    key_groups: int = 24
    rate: float = 40.0
    work: int = 900
    session_s: float = 10.0
    commit_s: float = 1.0
    window_s: float = 5.0
    band: float = 5.0
    lost_worker_s: float = 75.0
    host_keys: bool = False
    brokers: int = 1
    new_app: bool = False
    """The app has no state, and is left alone: it is placed when the controller is told to resume."""
    in_place: str = "off"
    """Whether workers rejoin in place, see `InPlace`."""
    phase_limit_s: float = 15.0
    """How long a hand-over may take to be prepared, and to be done."""
    timed: bool = True
    """Whether it is judged how long things take, too."""

    @property
    def bounds(self) -> Bounds:
        """By which its history is judged."""
        make = Bounds if self.timed else untimed
        return make(commit_s=self.commit_s, session_s=self.session_s)

    @property
    def beyond_band(self) -> float:
        """What a shift has to lead to: noise and the round before must not bring it back into the band."""
        return 2.0 * self.band


def sandbox_settings(settings: StageSettings) -> SandboxSettings:
    """The sandbox of a stage."""
    return SandboxSettings(
        app="tests.faults.recorded.attributed:app",
        app_folder=ROOT,
        cluster=settings.cluster,
        workers=settings.workers,
        capacity_cores=0.25,
        heap_mb=384 if settings.brokers == 1 else 300,
        environment={
            **FLIGHTS_ENVIRONMENT,
            "PYTHONPATH": python_path(EXAMPLES),
            "FLIGHTS_KEY_GROUPS": str(settings.key_groups),
            "FLIGHTS_WORK": str(settings.work),
            "FLIGHTS_COMMIT_S": f"{settings.commit_s:g}",
            "FLIGHTS_SESSION_S": f"{settings.session_s:g}",
            "FLIGHTS_IN_PLACE": settings.in_place,
            "TOPIC_REPLICATION_FACTOR": str(min(settings.brokers, 2)),
        },
        controller={
            "stream": {"window_s": settings.window_s, "watermark_s": 2.0},
            "balance": {
                "max_migrations": 8,  # an emptied worker takes a second round, for which the solver is asked again
                "load_distance": settings.band,
                "min_interval_s": 2.0,
                "smoothing": 1.0,
                "lost_worker_s": settings.lost_worker_s,
            },
            "execution": {
                "prepare_timeout_s": settings.phase_limit_s,
                "handover_timeout_s": settings.phase_limit_s,
            },
            **({"placement": {"first": NEW_APP_PLACED}} if settings.new_app else {}),
            **({"signing": {"host_signatures": "enforce"}} if settings.host_keys else {}),
        },
    )


class Stage:
    """A running cluster.  As a context: at its begin all run and are steered, at its end nothing is left.

    A new app is not steered yet at its begin.
    """

    def __init__(self, settings: StageSettings, folder: Path, view: Viewer) -> None:
        self.settings = settings
        self.folder = folder
        self.notes: Counter[str] = Counter()
        """What was seen and has no record in Kafka: processes that ended by themselves, lacks while waiting."""
        self.took: dict[str, float] = {}
        """Seconds that a moment waited for what it had set going, by what that was."""
        self.emptied: set[str] = set()
        """Trimtab's topics that have been deleted, by their parts of the name."""
        self.disks: dict[str, Disk] = {}
        """By name of the host (its agent's journal) or worker (its store); none where they cannot be made."""
        self.kept: set[str] = set()
        """Workers that the controller has started: their agents start them again when they crash."""
        self.histories: list[Path] = []
        self._revive_at = 0.0
        self._view = view
        self._open = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as opening:
            self._start(opening)
            self._open = opening.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def _start(self, opening: ExitStack) -> None:
        settings = self.settings
        names = [CONTROLLER, *map(host_name, range(settings.workers))]
        self.cables: dict[str, list[Proxy]] = {}
        """By name of the host, or the controller: one to each broker."""
        detours: dict[str, list[Detour]] = {}
        for name in names:
            behind = free_ports(settings.brokers)
            self.cables[name] = [Proxy(port) for port in behind]
            for cable in self.cables[name]:
                opening.callback(cable.close)
            pairs = zip(self.cables[name], behind, strict=True)
            detours[name] = [Detour(proxy=cable.port, behind=port) for cable, port in pairs]
        self.cluster = WiredCluster(
            sandbox_settings(settings),
            self.folder / "sandbox",
            brokers=settings.brokers,
            detours=detours,
            host_keys=settings.host_keys,
        )
        opening.enter_context(self.cluster)
        self._age_the_broker()
        if obstacle() is None:
            self._mount(opening)
        self.gate = Gate(self.folder / "gate")
        self.tamper(CONTROLLER, **self.gate.environment)
        run = SteeredRun(self.cluster, key_groups=settings.key_groups, rate=settings.rate, view=self._view)
        self.run = opening.enter_context(run)
        if not settings.new_app:
            self.run.trimtab("resume")
            self.until_steered("the start")
            if settings.in_place == "on":
                self._begin_in_place()

    def _begin_in_place(self) -> None:
        """The first rebalance is not in place: the workers have begun without a placement.  Raises RunError."""
        first = self.workers[0]
        self.cluster.stop(first)
        self.cluster.start_worker(0)
        self.until_steered("a restart")
        said = [path.read_text(errors="replace").count(KEPT) for path in self.cluster.logs.glob("w*.log")]
        if sum(map(bool, said)) < len(self.workers) - 1:
            raise RunError(f"workers do not rejoin in place; their logs say so {said} times")

    def _age_the_broker(self) -> None:
        """Clients are deaf by themselves to a topic that is made anew after a restart: it counts its leaders lower."""
        self.cluster.start_broker()
        forbid_compaction(self.cluster.broker)
        self.cluster.broker.stop()

    def _mount(self, opening: ExitStack) -> None:
        for index, worker in enumerate(self.workers):
            for name, size_mb in ((host_name(index), JOURNAL_MB), (worker, STORE_MB)):
                self.disks[name] = mounted(self.cluster.folder / name, size_mb, opening)

    def come_to_rest(self) -> None:
        """Work off what is left, and let nothing more be commanded: what is written down then is whole."""
        self.run.finish(RECOVERY_LIMIT_S)
        self.run.trimtab("pause", "--reason", "the history is written down")

        def at_rest() -> bool:
            status = self.run.watch.last
            return status is not None and status.paused is not None and not status.plans_in_flight

        if not self.holds_within(RECOVERY_LIMIT_S, at_rest):
            raise RunError(f"a plan is still in flight {RECOVERY_LIMIT_S:g} s after the pause")

    def record(self, strikes: Sequence[Strike] = ()) -> None:
        """Write down what is in Kafka now: at the end, and before a topic is taken away."""
        self.histories.append(self.folder / f"history-{len(self.histories)}")
        write_down(self.cluster, self.histories[-1], strikes)

    # ------------------------------------------------------------------ its parts
    @property
    def bootstrap(self) -> str:
        """The brokers, not over a cable."""
        return self.cluster.broker.address

    @property
    def workers(self) -> list[str]:
        """Names of all workers."""
        return [worker_name(index) for index in range(self.settings.workers)]

    def tamper(self, name: str, **environment: str) -> None:
        """Tamper with the process of that name (`tampered/`) from its next start on; without variables no more."""
        self.cluster.environments[name] = {"PYTHONPATH": python_path(TAMPERED), **environment} if environment else {}

    def processes_of(self, worker: str) -> list[psutil.Process]:
        """The processes of a worker, whether the sandbox or its agent has started it."""
        return processes_of(self.cluster, worker)

    def under_controller(self, word: str) -> list[psutil.Process]:
        """The controller's children in whose command line the word stands, with theirs."""
        children = psutil.Process(self.cluster.child(CONTROLLER).pid).children()
        heads = [child for child in children if word in " ".join(child.cmdline())]
        return [process for head in heads for process in (head, *head.children(recursive=True))]

    # ------------------------------------------------------------------ time goes by
    def wait(self, seconds: float) -> None:
        """Let so much time go by, and note what is said meanwhile."""
        self.holds_within(seconds, lambda: False)

    def holds_within(self, limit_s: float, condition: Callable[[], bool]) -> bool:
        """Whether the condition came true in time.  What ends by itself is started again, as service managers do."""
        deadline = time.monotonic() + limit_s
        while not condition():
            if time.monotonic() > deadline:
                return False
            self._revive()
            self.run.look()
            if (status := self.run.watch.last) and status.coverage is not None and status.coverage < 1.0:
                self.notes[UNSEEN] = 1
            time.sleep(TICK_S)
        return True

    def until_steered(self, after: str) -> None:
        """Wait for a whole window in which all is well again.  Raises RunError."""
        since = time.time()
        if not self.holds_within(RECOVERY_LIMIT_S, lambda: self._lack(since) is None):
            raise RunError(f"not steered {RECOVERY_LIMIT_S:g} s after {after}: {self._lack(since)}")

    def _lack(self, since: float) -> str | None:
        """What is missing until all report in a whole window, all run, no plan hangs and the job has caught up."""
        status = self.run.watch.last
        if status is None or status.at <= since:
            return "the controller says nothing"
        if (status.window_end or 0.0) <= since + self.settings.window_s or status.coverage != 1.0:
            return f"no whole window of all hosts (the last one ended at {status.window_end})"
        if not self.run.all_run():
            return f"not all workers run: {[(node.worker, str(node.state)) for node in status.nodes]}"
        if status.plans_in_flight:
            return f"plan {status.plans_in_flight[0].plan} is in flight"
        try:
            records = self.run.backlog.records()
        except KafkaException as error:
            return f"the backlog is unknown: {error}"
        return f"{records} records behind" if records > CAUGHT_UP_S * 2 * self.settings.rate else None

    def _revive(self) -> None:
        starts: dict[str, Callable[[], object]] = {CONTROLLER: lambda: self.cluster.start_controller(act=True)}
        for index, worker in enumerate(self.workers):
            starts[host_name(index)] = partial(self.cluster.start_agent, index)
            starts[worker] = partial(self.cluster.start_worker, index)
        for name, start in starts.items():
            child = self.cluster.child(name)
            if child.exit_code and not child.ended_here and time.monotonic() > self._revive_at:
                self.notes[f"{name} ended by itself, exit code {child.exit_code}"] += 1
                self._revive_at = time.monotonic() + REVIVE_EVERY_S
                with suppress(ClusterError, OSError):  # the next try comes soon
                    start()


def written_anew(part: str) -> str:
    """What is said when there are records in one of Trimtab's topics that has been deleted."""
    return f"rows of {part} written anew"


def write_down(cluster: SandboxCluster, folder: Path, strikes: Sequence[Strike], *, more: Sequence[str] = ()) -> None:
    """All that is recorded of a cluster now: in Kafka (`more` = topics of the job), and on its hosts' disks."""
    dump(cluster.broker.address, cluster.settings.cluster, folder, strikes, more=more)
    journals = {host: cluster.folder / host / "journal" for host in map(host_name, range(cluster.settings.workers))}
    texts = {host: path.read_text(errors="replace") for host, path in journals.items() if path.exists()}
    write_files(folder, cluster.keys.trust.read_text(), texts)


def forbid_compaction(brokers: Brokers) -> None:
    """Of all topics, for good: what is compacted away cannot be judged."""
    kept = ConfigEntry("log.cleaner.min.compaction.lag.ms", str(KEPT_MS), incremental_operation=AlterConfigOpType.SET)
    admin = AdminClient({"bootstrap.servers": brokers.address})
    for member in brokers.members:
        resource = ConfigResource(ConfigResource.Type.BROKER, str(member.node), incremental_configs=[kept])
        admin.incremental_alter_configs([resource])[resource].result(timeout=CONFIGURE_LIMIT_S)


def processes_of(cluster: SandboxCluster, worker: str) -> list[psutil.Process]:
    """The processes of a worker, whether the sandbox or its agent has started it."""
    return [found for found in marked(cluster.processes.mark) if _environment(found).get("TRIMTAB_WORKER") == worker]


def _environment(process: psutil.Process) -> dict[str, str]:
    try:
        return dict(process.environ())
    except (psutil.Error, OSError):
        return {}  # gone meanwhile, or a zombie
