"""What a stage suffers: each fault is a context; it is made when the block begins and its cause is gone afterwards."""

import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass

import psutil
from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from flights.watch import read_snapshots
from tests.faults.played.moments import Target
from tests.faults.played.stage import UNSEEN, Stage
from tests.faults.recorded.facts import APP
from trimtab_sandbox.configuration import BROKER, CONTROLLER

DOWN_S = 2.0
"""How long what was killed stays away."""
STOPPED_S = 20.0
"""Longer than a worker's session and a controller's lease."""
AWAY_S = 60.0
SPARK, SOLVER = "trimtab_controller.stream", "multiprocessing.spawn"
"""Words in the command lines of the controller's children."""
HOUR_S = 3600.0
SILENT_WORKER = "skip worker_incomplete|command_refusals (generation|commit_refused)"
MISSING_WORKER = "skip worker_(not_running|missing)"
NO_LEASE = "the lease expired|acting as generation"
CUT_OFF = "broker away|the lease expired|report dropped"
TWO_BROKERS = "two brokers"
SECOND_BROKER = f"{BROKER}-2"
ADMIN_LIMIT_S = 30.0
JOURNALLED_LIMIT_S = 120.0
"""Until a command of an operator has reached an agent; a few seconds when all is well."""
SILENT_BROKER = r"broker \d at \S+ does not answer"
LEADERS_MOVED = "leaders moved"
TOO_FEW_COPIES = "NotEnoughReplicas|NOT_ENOUGH_REPLICAS|[Nn]ot enough in-sync"

Strike = Callable[[Stage, Target], AbstractContextManager[None]]
Victims = Callable[[Stage, Target], tuple[str, ...]]


def nobody(stage: Stage, target: Target) -> tuple[str, ...]:
    """No worker dies, is stopped or is cut off beyond its session."""
    return ()


def the_worker(stage: Stage, target: Target) -> tuple[str, ...]:
    """The one that it is about."""
    return (target.worker,)


def all_workers(stage: Stage, target: Target) -> tuple[str, ...]:
    """Every one."""
    return tuple(stage.workers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """`lasts_s` = until its cause is gone; `victims` = the workers that lose their membership by it,
    `lacking` = those that lack a broker and may stay members.

    `spares_job`: broker and workers are left alone, or the job is to go on all the same.
    `needs_round`: it shows only when something is to be moved, so the load is shifted meanwhile.
    `needs_past`: a round has been played before.  `needs_disk`: the host's files are on disks of their own.
    `stage` = of which kind (`runs`).
    `must_say` = what has to be said of it, patterns as `said` reads them: else nothing shows that it had any effect.
    """

    name: str
    strike: Strike
    lasts_s: float
    victims: Victims = nobody
    lacking: Victims = nobody
    spares_job: bool = False
    needs_round: bool = False
    needs_past: bool = False
    needs_disk: bool = False
    must_say: tuple[str, ...]
    stage: str = "plain"


FAULTS: dict[str, Fault] = {}


def fault(
    name: str, lasts_s: float, *must_say: str, **known: object
) -> Callable[[Callable[..., Iterator[None]]], None]:
    """Enter a generator function as a fault."""

    def add(strike: Callable[..., Iterator[None]]) -> None:
        made = contextmanager(strike)
        FAULTS[name] = Fault(name=name, strike=made, lasts_s=lasts_s, must_say=must_say, **known)  # type: ignore[arg-type]

    return add


# ---------------------------------------------------------------------- processes
@fault("worker killed", DOWN_S, "worker disconnected", victims=the_worker)
def _kill_worker(stage: Stage, target: Target) -> Iterator[None]:
    kill_worker(stage, target.worker)
    yield
    revive(stage, target)


@fault("worker stopped", STOPPED_S, SILENT_WORKER, victims=the_worker)
def _stop_worker(stage: Stage, target: Target) -> Iterator[None]:
    with stopped(stage.processes_of(target.worker)):
        yield


@fault("agent killed", DOWN_S, UNSEEN, spares_job=True)
def _kill_agent(stage: Stage, target: Target) -> Iterator[None]:
    stage.cluster.kill(target.host)
    yield
    stage.cluster.start_agent(target.index)


@fault("agent stopped", STOPPED_S, UNSEEN, spares_job=True)
def _stop_agent(stage: Stage, target: Target) -> Iterator[None]:
    with stopped([psutil.Process(stage.cluster.child(target.host).pid)]):
        yield


@fault("controller killed", DOWN_S, "acting as generation", spares_job=True)
def _kill_controller(stage: Stage, target: Target) -> Iterator[None]:
    stage.cluster.kill(CONTROLLER)  # its Spark and its solver end with it
    yield
    stage.cluster.start_controller(act=True)


@fault("controller stopped", STOPPED_S, NO_LEASE, spares_job=True)
def _stop_controller(stage: Stage, target: Target) -> Iterator[None]:
    with stopped([psutil.Process(stage.cluster.child(CONTROLLER).pid)]):
        yield


@fault("Spark killed", DOWN_S, "the stream ended with exit code", spares_job=True)
def _kill_spark(stage: Stage, target: Target) -> Iterator[None]:
    kill(stage.under_controller(SPARK))
    yield  # the controller starts it again


@fault("Spark stopped", STOPPED_S, "skip stale_snapshot", spares_job=True)
def _stop_spark(stage: Stage, target: Target) -> Iterator[None]:
    with stopped(stage.under_controller(SPARK)):
        yield


@fault("solver killed", DOWN_S, "the solver process died", spares_job=True, needs_round=True)
def _kill_solver(stage: Stage, target: Target) -> Iterator[None]:
    kill(stage.under_controller(SOLVER))
    yield  # the controller starts it again


@fault("solver never returns", STOPPED_S, "the solver exceeded its time limit", "fallback|skip solver_failed",
       spares_job=True, needs_round=True)  # fmt: skip
def _stop_solver(stage: Stage, target: Target) -> Iterator[None]:
    with stopped(stage.under_controller(SOLVER)):
        yield  # the controller kills it and asks Flux


@fault("broker killed", DOWN_S, CUT_OFF)
def _kill_broker(stage: Stage, target: Target) -> Iterator[None]:
    stage.cluster.kill(BROKER)
    yield
    stage.cluster.start_broker()


@fault("broker stopped", STOPPED_S, CUT_OFF, victims=all_workers)
def _stop_broker(stage: Stage, target: Target) -> Iterator[None]:
    with stopped([psutil.Process(stage.cluster.child(BROKER).pid)]):
        yield


@fault("worker never ready", 40.0, MISSING_WORKER, victims=the_worker)
def _start_in_vain(stage: Stage, target: Target) -> Iterator[None]:
    """Its next start finds a broker that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        kill_worker(stage, target.worker)
        stage.cluster.environments[target.worker] = {"FLIGHTS_BROKER": address, "BROKER_URL": f"kafka://{address}"}
        try:
            stage.cluster.start_worker(target.index)
            yield
        finally:
            del stage.cluster.environments[target.worker]
        kill_worker(stage, target.worker)
    revive(stage, target)


# ---------------------------------------------------------------------- network
@fault("broker away from one host", AWAY_S, CUT_OFF, UNSEEN, victims=the_worker)
def _cut_host(stage: Stage, target: Target) -> Iterator[None]:
    with cut(stage, target.host):
        yield


@fault("broker away from all", AWAY_S, CUT_OFF, victims=all_workers)
def _cut_all(stage: Stage, target: Target) -> Iterator[None]:
    with cut(stage, *stage.cables):
        yield


@fault("broker away from controller", AWAY_S, NO_LEASE, spares_job=True)
def _cut_controller(stage: Stage, target: Target) -> Iterator[None]:
    with cut(stage, CONTROLLER):
        yield


@fault("host cut off, taken for lost", 110.0, CUT_OFF, UNSEEN, victims=the_worker)
def _lose_host(stage: Stage, target: Target) -> Iterator[None]:
    """Alive, and for so long that the controller goes on without it."""
    with cut(stage, target.host):
        yield


@fault("40 % of the hosts lost", 70.0, "skip hosts_lost", victims=lambda stage, _: tuple(stage.workers[-2:]),
       stage="five hosts")  # fmt: skip
def _lose_hosts(stage: Stage, target: Target) -> Iterator[None]:
    """For longer than a round goes on whose targets are gone: while it is in flight nothing else is said."""
    lost = stage.workers[-2:]
    for worker in lost:
        kill_worker(stage, worker)
        stage.cluster.kill(Target(worker=worker).host)
    yield
    for worker in lost:
        stage.cluster.start_agent(Target(worker=worker).index)
        revive(stage, Target(worker=worker))


# ---------------------------------------------------------------------- one of two brokers
@fault("coordinator away from one worker", 40.0, SILENT_BROKER, victims=the_worker, stage=TWO_BROKERS)
def _cut_coordinator(stage: Stage, target: Target) -> Iterator[None]:
    """The worker and its agent reach the other broker, and all others reach both: the group goes on without it."""
    with cut(stage, target.host, broker=coordinator(stage.bootstrap, APP) - 1):
        yield


@fault("other broker away from one worker", 40.0, SILENT_BROKER, lacking=the_worker, stage=TWO_BROKERS)
def _cut_other_broker(stage: Stage, target: Target) -> Iterator[None]:
    """The worker reaches the broker that coordinates its group: it stays a member unless the group rebalances."""
    with cut(stage, target.host, broker=2 - coordinator(stage.bootstrap, APP)):
        yield


@fault("leaders moved", DOWN_S, LEADERS_MOVED, spares_job=True, stage=TWO_BROKERS)
def _move_leaders(stage: Stage, target: Target) -> Iterator[None]:
    """One broker is stopped in order and started; then the leaders that it had are elected again, while all run."""
    stage.cluster.stop(SECOND_BROKER)
    yield
    stage.cluster.start_broker()
    stage.cluster.broker.until_in_sync()
    stage.notes[LEADERS_MOVED] = len(elect_preferred_leaders(stage.bootstrap))


@fault("too few copies in sync", STOPPED_S, TOO_FEW_COPIES, stage=TWO_BROKERS)
def _lack_copies(stage: Stage, target: Target) -> Iterator[None]:
    """All topics demand two copies in sync, and one broker is away: nothing can be written, all can be read."""
    demand_copies(stage.bootstrap, 2)
    stage.cluster.stop(SECOND_BROKER)
    yield
    stage.cluster.start_broker()
    stage.cluster.broker.until_in_sync()
    demand_copies(stage.bootstrap, 1)


def coordinator(bootstrap: str, group: str) -> int:
    """The number of the broker that coordinates a group."""
    admin = AdminClient({"bootstrap.servers": bootstrap})  # its answers end with it
    return int(admin.describe_consumer_groups([group])[group].result(ADMIN_LIMIT_S).coordinator.id)


def elect_preferred_leaders(bootstrap: str) -> list[TopicPartition]:
    """Let the first broker of each partition lead it; returns the partitions that another one led."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    elected = admin.elect_leaders(ElectionType.PREFERRED).result(ADMIN_LIMIT_S)
    return [partition for partition, error in elected.items() if error is None]


def demand_copies(bootstrap: str, count: int) -> None:
    """Set `min.insync.replicas` of all topics, Kafka's own too."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    entry = ConfigEntry("min.insync.replicas", str(count), incremental_operation=AlterConfigOpType.SET)
    topics = admin.list_topics(timeout=ADMIN_LIMIT_S).topics
    resources = [ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=[entry]) for name in topics]
    for done in admin.incremental_alter_configs(resources).values():
        done.result(ADMIN_LIMIT_S)


# ---------------------------------------------------------------------- disks, clocks
@fault("disk full under an agent's journal", STOPPED_S, "the journal cannot be written",
       spares_job=True, needs_disk=True)  # fmt: skip
def _fill_journal(stage: Stage, target: Target) -> Iterator[None]:
    """All key groups are to move to its worker: what the agent writes of that is more than fits the last block."""
    last = read_snapshots(stage.bootstrap, stage.cluster.topics)[-1]
    others = [str(row.key_group) for row in last.key_groups if row.worker != target.worker]
    with stage.disks[target.host].full():
        stage.run.trimtab("move", *others, target.worker, "--reason", "to be journalled")
        stage.holds_within(
            JOURNALLED_LIMIT_S, lambda: any(note.startswith(f"{target.host} ended") for note in stage.notes)
        )
        yield


@fault("disk full under a worker's store", STOPPED_S, "No space left on device",
       victims=the_worker, needs_round=True, needs_disk=True)  # fmt: skip
def _fill_store(stage: Stage, target: Target) -> Iterator[None]:
    with stage.disks[target.worker].full():
        yield
    revive(stage, target)


@fault("agent's clock 1 h ahead", 40.0, "rejected reports future_dated", spares_job=True, needs_round=True)
def _clock_ahead(stage: Stage, target: Target) -> Iterator[None]:
    yield from _with_clock(stage, target, HOUR_S)


@fault("agent's clock 1 h behind", 40.0, "late reports", spares_job=True, needs_round=True)
def _clock_behind(stage: Stage, target: Target) -> Iterator[None]:
    yield from _with_clock(stage, target, -HOUR_S)


def _with_clock(stage: Stage, target: Target, shift_s: float) -> Iterator[None]:
    """The clock of a process cannot be changed from outside: the agent is started anew with another one."""
    for seconds in (shift_s, 0.0):
        stage.cluster.kill(target.host)
        stage.tamper(target.host, **({"FAULTS_CLOCK_S": f"{seconds:g}"} if seconds else {}))
        stage.cluster.start_agent(target.index)
        if seconds:
            yield


# ---------------------------------------------------------------------- how
def kill(processes: list[psutil.Process]) -> None:
    """kill -9, and their end."""
    if not processes:
        raise RuntimeError("there is no such process to be killed")
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, timeout=10)


def kill_worker(stage: Stage, worker: str) -> None:
    """Whoever started it."""
    stage.cluster.child(worker).ended_here = True
    with suppress(RuntimeError):  # it may have been drained and stopped just now
        kill(stage.processes_of(worker))


def revive(stage: Stage, target: Target) -> None:
    """Start a worker that is gone, unless its agent does or has done so."""
    if target.worker not in stage.kept and not stage.processes_of(target.worker):
        stage.cluster.start_worker(target.index)


@contextmanager
def stopped(processes: list[psutil.Process]) -> Iterator[None]:
    """SIGSTOP, and SIGCONT afterwards."""
    for process in processes:
        process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT)


@contextmanager
def cut(stage: Stage, *names: str, broker: int | None = None) -> Iterator[None]:
    """Nothing passes over these cables to the broker with this number, from 0, or to any."""
    cables = [cable for name in names for number, cable in enumerate(stage.cables[name]) if broker in (None, number)]
    for cable in cables:
        cable.cut()
    try:
        yield
    finally:
        for cable in cables:
            cable.mend()
