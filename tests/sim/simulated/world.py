"""A whole cluster in one process: hosts, agents, workers, the stream and a controller, on fake time."""

import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from tests.narrow import of_type
from tests.sim.simulated import kafka_client
from tests.sim.simulated.agent import AgentProcess, agent_configuration
from tests.sim.simulated.broker import Broker, Stored, Unsent
from tests.sim.simulated.budgeted import BudgetCheck
from tests.sim.simulated.controller import ControllerProcess
from tests.sim.simulated.copies import CopyCheck
from tests.sim.simulated.election import Election
from tests.sim.simulated.group import Group
from tests.sim.simulated.host import Host
from tests.sim.simulated.host_keys import key_file, keys_record, trust_file
from tests.sim.simulated.intruder import Intruder
from tests.sim.simulated.invariants import Bounds, Checker
from tests.sim.simulated.ledger import Ledger
from tests.sim.simulated.machine import CAPACITY_CORES, Machine
from tests.sim.simulated.network import Network
from tests.sim.simulated.operator import Operator
from tests.sim.simulated.ruled import RuleCheck
from tests.sim.simulated.stream import StreamModel
from tests.sim.simulated.timeline import Timeline
from tests.sim.simulated.traits import (
    APP,
    BALANCE,
    CLUSTER,
    LEASE_S,
    LIMITS,
    OPERATOR,
    WINDOW_S,
    configuration,
    traits_of,
)
from tests.sim.simulated.worker import WorkerProcess
from tests.sim.simulated.zoned import ZoneCheck, zone_of_host
from trimtab_controller.decider.memory.observe import LOST_HOSTS_SHARE
from trimtab_controller.loop.recovery import RecoveredState
from trimtab_controller.security.keys import KeyFiles
from trimtab_process.credential_files import load_or_make_key
from trimtab_protocol.messages.codec import encoded
from trimtab_protocol.messages.host_keys import HostKeys
from trimtab_protocol.messages.intents import PAUSE_KEY, Drain, Intent, Pause, Stop
from trimtab_protocol.messages.local import Welcome
from trimtab_protocol.messages.names import HostId, KeyGroup, Topics, WorkerId
from trimtab_protocol.signing.hosts import HostChecking
from trimtab_protocol.signing.keys import SigningKey

SILENT_S, FORGOTTEN_S = 40.0, 500.0
"""A host that is silent for so long is known to be lost by whoever saw it before, and not yet forgotten."""


class World:
    """Build one, then `timeline.run_until`.  `worker_type` lets a test plant a defect in the model itself."""

    def __init__(
        self,
        seed: int,
        folder: Path,
        worker_type: type[WorkerProcess] = WorkerProcess,
        *,
        many_key_groups: int | None = None,
        enforces: bool = False,
    ) -> None:
        """`many_key_groups`: so many, which are as busy together as the few that there are otherwise.

        `enforces`: hosts have keys, and what they have not signed is dropped.
        """
        self.timeline = Timeline(seed)
        self.random: random.Random = self.timeline.random
        self.broker = Broker(self.timeline)
        self.network = Network(self.timeline, self.broker)
        self.ledger = Ledger(self.timeline, self.timeline.now)
        self.topics = Topics(CLUSTER)
        self.hosts: dict[HostId, Host] = {}
        self.controllers: list[ControllerProcess] = []
        self.faults_active = 0
        self.rotating = False
        self._folder = folder
        self._worker_type = worker_type
        self._pids = 1000
        self._next_look = 0.0
        self._leader: ControllerProcess | None = None
        self._leads_since = self.timeline.now
        self.election = Election(self.timeline, LEASE_S)
        self.keys = KeyFiles(key=folder / "controller.pem", trust=folder / "trusted.keys")
        self.keys.create()
        self.intruder = Intruder(self.random, self.broker, self.topics)
        few = self.random.choice((8, 8, 12, 12, 16))
        key_groups = many_key_groups or few
        self.traits = traits_of(seed, key_groups)
        self.standbys = self.traits.standbys
        self._enforces = enforces
        checking = HostChecking.ENFORCE if enforces else HostChecking.OFF
        settings = configuration(self.keys, self.traits, balance=BALANCE, limits=LIMITS)
        self._configuration = replace(settings, host_signatures=checking)
        self.operator = self._operator(seed) if self.traits.asking else None
        self.group = Group(self.timeline, APP, {OPERATOR: key_groups})
        self._open_accounts(key_groups, few / key_groups)
        self.checker = self._checker()
        self.broker.on_stored = self._on_stored
        self.timeline.after_step = self._after_step
        self.stream = StreamModel(CLUSTER, self._configuration.stream, self.timeline, self.broker)
        for _ in range(self.random.randint(3, 5)):
            self.add_host()
        for _ in range(self.random.choice((1, 2, 2, 3))):
            self.start_controller()

    def _operator(self, seed: int) -> Operator:
        """Who approves plans."""
        return Operator(
            seed,
            self.timeline,
            self.broker,
            self.topics,
            self.say,
            workers=lambda: [each.id for each in self.workers()],
            key_groups=lambda: sorted(self.ledger.accounts),
        )

    def _open_accounts(self, key_groups: int, share: float) -> None:
        """One per key group, each with this share of the load that a key group has where there are few."""
        for partition in range(key_groups):
            key_group = KeyGroup(APP, OPERATOR, partition)
            rate, load = self.random.uniform(5, 50), self.random.uniform(0.01, 0.04)
            self.ledger.open(key_group, rate=rate * share, load=load * share)

    def _checker(self) -> Checker:
        traits = self.traits
        return Checker(
            cluster=CLUSTER,
            bounds=Bounds(
                max_migrations=BALANCE.max_migrations,
                handovers_in_flight=LIMITS.handovers_in_flight,
                key_groups_per_handover=LIMITS.key_groups_per_handover,
                load_distance=BALANCE.load_distance,
            ),
            timeline=self.timeline,
            ledger=self.ledger,
            over_capacity=lambda: {worker.id for worker in self.workers() if worker.used_cores > CAPACITY_CORES},
            operator=self.operator,
            rules=RuleCheck(rules=traits.rules, zoned=traits.zoned),
            copies=CopyCheck(running=lambda: {worker.id for worker in self.workers()}, zoned=traits.zoned),
            zones=ZoneCheck(wanted=(traits.standbys or 0) if traits.zoned else 0),
            budget=BudgetCheck(limit_s=traits.limit_s),
            windowed=bool(traits.times.windows),
        )

    # --- what is watched

    def _on_stored(self, records: tuple[Stored, ...]) -> None:
        if any(record.topic == self.topics.journal for record in records):
            process = of_type(ControllerProcess, kafka_client.running[-1])
            read_to = process.position(self.topics.intents)
            pauses = [r for r in self.broker.read(self.topics.intents, 0) if r.key == PAUSE_KEY.encode()]
            read = [record for record in pauses if record.offset < read_to]
            self.checker.pauses_read = bool(read) and read[-1].value is not None
            if self.traits.zoned:
                names = [worker for host in self.hosts.values() for worker in host.names]
                intents = self.broker.read(self.topics.intents, 0)
                self.checker.zones.see_intents(self.timeline.now, intents, read_to, names)
        self.checker.see(records)

    def _after_step(self) -> None:
        if self.faults_active:
            self.checker.disturbed_at = self.timeline.now
        if self.timeline.now >= self._next_look:
            self._next_look = self.timeline.now + 1.0
            self._watch_hosts()
            self.checker.look()
            if self.random.random() < 0.02:
                end = self.broker.end(self.topics.placement)
                self.broker.compact(self.topics.placement, self.random.randint(0, end))

    def _watch_hosts(self) -> None:
        """A controller knows the hosts it has heard of, and of earlier ones the workers that the placement names."""
        now = self.timeline.now
        known = lost = new = 0
        owned_there: set[WorkerId] = set()
        placed = self.checker.placed_workers()
        placed_before = 0
        for host in self.hosts.values():
            if host.agent is not None and host.agent.alive and self.network.reaches(host.machine.host):
                host.silent_since = None
            elif host.silent_since is None:
                host.silent_since = now
            silent_s = 0.0 if host.silent_since is None else now - host.silent_since
            is_lost = SILENT_S < silent_s < FORGOTTEN_S
            if host.silent_since is not None and host.silent_since < self._leads_since:
                placed_before += is_lost * len(placed.intersection(host.names))
            else:
                known += silent_s < FORGOTTEN_S
                lost += is_lost
                owned_there |= placed.intersection(host.names) if is_lost else set()
            new += silent_s == 0.0 and host.joined_at is not None and now - host.joined_at < FORGOTTEN_S
        # A new host may have come for a lost one, and an app that owned nothing there is not held.
        share = max(0, lost - new) / max(1, known) if owned_there else 0.0
        share = max(share, placed_before / max(1, len(placed)))
        self.checker.lost_hosts_share = share
        if share < LOST_HOSTS_SHARE:
            self.checker.hold_since = None
        elif self.checker.hold_since is None:
            self.checker.hold_since = now

    # --- hosts

    def add_host(self) -> HostId:
        """A new host with one or two workers joins."""
        name = HostId(f"h{len(self.hosts)}")
        zone = zone_of_host(len(self.hosts)) if self.traits.zoned else None
        machine = Machine(host=name, folder=self._folder / name, zone=zone)
        machine.admitted = lambda entry: self.checker.see_admitted(name, entry, clock_was_wrong=machine.clock_was_wrong)
        machine.folder.mkdir()
        self.send_trust(machine)
        machine.clock_ahead_s = self.random.uniform(-0.5, 0.5)
        machine.start_worker = lambda worker: self.start_worker(name, worker)
        names = [WorkerId(f"w{len(self.hosts)}{letter}") for letter in "ab"[: self.random.choice((1, 1, 1, 2))]]
        began = self.broker.end(self.topics.reports) > 0
        self.hosts[name] = Host(machine=machine, names=names, joined_at=self.timeline.now if began else None)
        if self._enforces:
            self._say_keys(name, load_or_make_key(key_file(machine)))
        self.start_host(name)
        return name

    def start_host(self, name: HostId) -> None:
        """Agent and workers start."""
        self.start_agent(name)
        for worker in self.hosts[name].names:
            self.start_worker(name, worker)

    def kill_host(self, name: HostId) -> None:
        """Power off."""
        host = self.hosts[name]
        for worker in host.workers.values():
            worker.kill()
        if host.agent is not None:
            host.agent.kill()

    def start_agent(self, name: HostId) -> None:
        """Unless it runs."""
        host = self.hosts[name]
        if host.left or (host.agent is not None and host.agent.alive):
            return
        key = key_file(host.machine) if self._enforces else None
        settings = agent_configuration(CLUSTER, host.machine, WINDOW_S, host.names, trust_file(host.machine), key)
        host.agent = AgentProcess(host.machine, settings, self.timeline, self.broker, self.network)

    def start_worker(self, name: HostId, worker: WorkerId) -> WorkerProcess:
        """Unless it runs."""
        host = self.hosts[name]
        present = host.workers.get(worker)
        if present is not None and present.alive:
            return present
        self._pids += 1
        started = self._worker_type(
            worker,
            name,
            self._pids,
            timeline=self.timeline,
            broker=self.broker,
            network=self.network,
            group=self.group,
            ledger=self.ledger,
            agent=lambda: host.agent,
            welcome=Welcome(cluster=CLUSTER, host=name, interval_s=WINDOW_S),
            trust=trust_file(host.machine),
            followed=self.checker.see_followed,
        )
        started.board.faust_standbys = self.standbys  # type: ignore[assignment]
        host.workers[worker] = host.machine.workers[worker] = started
        return started

    def cut(self, names: list[HostId]) -> None:
        """The broker cannot be reached from these hosts."""
        for name in names:
            self.network.cut.add(name)
            for worker in self.hosts[name].workers.values():
                worker.cut_off()

    def mend(self, names: list[HostId]) -> None:
        """It can again."""
        for name in names:
            self.network.cut.discard(name)
            for worker in self.hosts[name].workers.values():
                worker.back()

    def present(self) -> list[HostId]:
        """Hosts that have not left and whose agent runs."""
        return [
            name for name, host in self.hosts.items() if not host.left and host.agent is not None and host.agent.alive
        ]

    def workers(self) -> list[WorkerProcess]:
        """All running worker processes."""
        return [worker for host in self.hosts.values() for worker in host.workers.values() if worker.alive]

    # --- the centre

    @property
    def controller(self) -> ControllerProcess:
        """The one that leads, or did so last, or will."""
        return self._leader or self.controllers[-1]

    def start_controller(self) -> None:
        """One more; it stands for the lead."""
        process = ControllerProcess(
            f"controller-{len(self.controllers)}",
            self._configuration,
            timeline=self.timeline,
            broker=self.broker,
            network=self.network,
            election=self.election,
            took_office=lambda found: self._took_office(process, found),
        )
        process.searches = self.random.random() < 0.1
        self.controllers.append(process)

    def living_controllers(self) -> list[ControllerProcess]:
        """All that were started and have not ended."""
        return [process for process in self.controllers if process.alive]

    def _took_office(self, process: ControllerProcess, found: RecoveredState) -> None:
        self._leader, self._leads_since = process, self.timeline.now
        self.checker.see_believed(found.execution.placements.values())

    # --- keys

    def send_trust(self, machine: Machine) -> None:
        """The operator copies the trust file to a host."""
        trust_file(machine).write_bytes(self.keys.trust.read_bytes())

    def _say_keys(self, host: HostId, *keys: SigningKey) -> None:
        raw = tuple(key.public.raw for key in keys)
        found = HostKeys(cluster=CLUSTER, host=host, keys=raw, at=self.timeline.now, by="operator")
        self.broker.store(keys_record(self.topics.keys, found, self.keys.key))

    def revoke(self, host: HostId) -> None:
        """`trimtab keys revoke`."""
        self._say_keys(host)
        self.stream.revoked.add(host)

    def say(self, intent: Intent) -> None:
        """The operator states an intent."""
        self.broker.store(Unsent(topic=self.topics.intents, key=intent.key.encode(), value=encoded(intent)))

    def drain(self, worker: WorkerId) -> None:
        """`trimtab drain`."""
        self.say(Drain(worker=worker, by="operator", at=self.timeline.now, reason="simulated"))

    def pause(self) -> None:
        """`trimtab pause`."""
        self.say(Pause(by="operator", at=self.timeline.now, reason="simulated"))

    def stop(self) -> None:
        """`trimtab stop`."""
        self.say(Stop(app=None, by="operator", at=self.timeline.now, reason="simulated"))

    def unanswered_stops(self) -> int:
        """How many stops, and words about plans, no controller has answered."""
        intents = {record.key: record.value for record in self.broker.read(self.topics.intents, 0)}
        said_once = (b"stop", b"approve", b"reject", b"move")
        return sum(value is not None and (key or b"").startswith(said_once) for key, value in intents.items())

    def take_back(self, key: str) -> None:
        """`--undo` of either."""
        self.broker.store(Unsent(topic=self.topics.intents, key=key.encode(), value=None))

    def undrain(self, worker: WorkerId) -> None:
        """`trimtab drain --undo`."""
        self.take_back(Drain.key_of(worker))

    # --- the truth

    def load_distance(self) -> float:
        """Largest deviation of a worker from the mean, by the true loads (pp); all workers have one core."""
        loads = dict.fromkeys((worker.id for worker in self.workers()), 0.0)
        for account in self.ledger.accounts.values():
            if account.worker in loads:
                loads[account.worker] += 100.0 * account.load
        mean = sum(loads.values()) / len(loads)
        return max(abs(load - mean) for load in loads.values())


@contextmanager
def world_folder() -> Iterator[Path]:
    """Where the journals are: in memory, if the machine has such a place."""
    memory = Path("/dev/shm")
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="trimtab-sim-", dir=memory if memory.is_dir() else None))
        stack.callback(shutil.rmtree, folder)
        yield folder


Heal = Callable[[], None]
