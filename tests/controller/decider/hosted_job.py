"""A simulated job on hosts that workers share: windows out, plans in.  Demand is CPU, nothing saturates."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tests.controller.decider.decider_situations import a_handover, a_load, a_node, a_round, a_window
from trimtab_controller.decider.events import Decided, ExecutionChanged, SnapshotArrived, Solve, SolverAnswered
from trimtab_controller.decider.machine import Decider
from trimtab_controller.decider.policies.instance import question_of
from trimtab_controller.decider.values.decision import Adopted, Decision, Planned, StandbysPlaced
from trimtab_controller.decider.values.settings import Requirements, Settings
from trimtab_controller.execution.state import Execution, HandoverPhase, placement_of
from trimtab_controller.solver.balance import answer
from trimtab_protocol.messages.copies import Copy
from trimtab_protocol.messages.names import AppId, Epoch, HostId, KeyGroup, OperatorId, WorkerId
from trimtab_protocol.messages.owner_rows import Owners
from trimtab_protocol.messages.report import Absence, Basis, WorkerState
from trimtab_protocol.messages.rules import Rule
from trimtab_protocol.messages.snapshot import HostWindow, Snapshot

WINDOW_S = 10.0
RECORDS = 1_000
TICK_S = 1e-4
APP = AppId("app")


def kg(partition: int, operator: str = "sums", app: AppId = APP) -> KeyGroup:
    return KeyGroup(app, OperatorId(operator), partition)


@dataclass
class Machine:
    """`slowness`: CPU that work takes here, relative to the others; `others` = cores that other processes use.

    `link` = bytes per second that it can carry each way, of which `other_traffic` is not the workers'.  What is free on
    the disk becomes less when key groups arrive, and no more when they leave.
    """

    cores: float
    slowness: float = 1.0
    others: float = 0.0
    type: str | None = None
    speed: float | None = None
    memory_bytes: int | None = None
    memory_limit_bytes: int | None = None
    disk_total_bytes: int | None = None
    disk_free_bytes: int | None = None
    link: float | None = None
    other_traffic: float = 0.0
    zone: str | None = None


class Ticks:
    """A clock for the solver that goes on with each look at it: a busy machine gives the same plans as an idle one."""

    def __init__(self) -> None:
        self._now = 0.0

    def __call__(self) -> float:
        self._now += TICK_S
        return self._now


@dataclass
class HostedJob:
    """`rates` = inputs per second; an input takes `cost` CPU seconds on a host of slowness 1."""

    machines: dict[HostId, Machine]
    workers: dict[WorkerId, HostId]
    owners: dict[KeyGroup, WorkerId]
    rates: dict[KeyGroup, float]
    cost: float = 0.001
    fixed: float = 0.02
    capacity: float = 1.0
    state_bytes: int = 1000
    sizes: dict[KeyGroup, int] = field(default_factory=dict)
    """State of key groups that have another size."""
    standbys: int | None = None
    followers: dict[KeyGroup, tuple[WorkerId, ...]] = field(default_factory=dict)
    copies: dict[tuple[KeyGroup, WorkerId], float] = field(default_factory=dict)
    """The share of a key group's state that a worker has on its disk from earlier."""
    standby_windows: int = 0
    """After how many windows what a new standby restores is on its disk."""
    solve_s: float = 0.1
    """By a clock that measures work: see `Ticks`."""
    input_bytes: float | None = None
    """Size of an input; nothing is sent."""
    pool: dict[WorkerId, HostId] = field(default_factory=dict)
    rules: tuple[Rule, ...] = ()
    number: int = 100
    writes: list[tuple[int, HostId, int]] = field(default_factory=list)
    """What will be written: from which window on, where, how many bytes."""

    def size_of(self, key_group: KeyGroup) -> int:
        """Bytes of state."""
        return self.sizes.get(key_group, self.state_bytes)

    def write(self, key_group: KeyGroup, worker: WorkerId, windows: int) -> None:
        """What a worker lacks of the state gets to its disk within so many windows."""
        lacking = 1.0 - self.copies.pop((key_group, worker), 0.0)
        self.writes.append((self.number + windows, self.workers[worker], round(lacking * self.size_of(key_group))))

    def settle(self, until: int) -> None:
        """Write what is due."""
        for _, host, size in (each for each in self.writes if each[0] <= until):
            machine = self.machines[host]
            if machine.disk_free_bytes is not None:
                machine.disk_free_bytes -= size
        self.writes = [each for each in self.writes if each[0] > until]

    def cpu_of(self, key_group: KeyGroup) -> float:
        """Cores."""
        return self.cost * self.rates[key_group] * self.machines[self.workers[self.owners[key_group]]].slowness

    def used_by(self, worker: WorkerId) -> float:
        """Cores, with the fixed use."""
        return self.fixed + sum(self.cpu_of(each) for each, owner in self.owners.items() if owner == worker)

    def used_on(self, host: HostId) -> float:
        """Cores used by the workers of a host."""
        return sum(self.used_by(worker) for worker, its in self.workers.items() if its == host)

    def received_by(self, key_group: KeyGroup) -> float | None:
        """Bytes per second."""
        return None if self.input_bytes is None else self.input_bytes * self.rates[key_group]

    def received_on(self, host: HostId) -> float:
        """Bytes per second that a host receives."""
        here = [each for each, owner in self.owners.items() if self.workers[owner] == host]
        return self.machines[host].other_traffic + sum(self.received_by(each) or 0.0 for each in here)

    def window(self) -> Snapshot:
        self.number += 1
        self.settle(self.number)
        app = {owner: each.app for each, owner in self.owners.items()}
        nodes = [
            a_node(
                worker, host=host, app=app.get(worker, APP), capacity=self.capacity, cpu=self.used_by(worker),
                standbys=self.standbys,
                copies=tuple(
                    Copy(each.operator, each.partition, round(RECORDS * share))
                    for (each, name), share in self.copies.items()
                    if name == worker
                ),
            )
            for worker, host in self.workers.items()
        ] + [
            a_node(
                worker, host=host, app=None, state=WorkerState.AWAY, capacity=self.capacity, cpu=None, steering=False,
                absence=Absence.STOPPED, declared=APP,
            )
            for worker, host in self.pool.items()
        ]  # fmt: skip
        return a_window(
            WINDOW_S * self.number,
            nodes,
            [
                a_load(
                    each, owner, self.cpu_of(each), tuples_in_s=self.rates[each], state_bytes=self.size_of(each),
                    backlog=0, bytes_in_s=self.received_by(each), bytes_out_s=None if self.input_bytes is None else 0.0,
                    lag_records=RECORDS,
                )
                for each, owner in self.owners.items()
            ],
            hosts_seen=len(self.machines),
            hosts_expected=len(self.machines),
            hosts=tuple(
                HostWindow(
                    host=host, covered_s=WINDOW_S, cpu=each.others + self.used_on(host), cores=each.cores,
                    basis=Basis.HOST, type=each.type, speed=each.speed, memory_bytes=each.memory_bytes,
                    memory_limit_bytes=each.memory_limit_bytes, link_bytes_s=each.link,
                    disk_total_bytes=each.disk_total_bytes, disk_free_bytes=each.disk_free_bytes,
                    received_bytes_s=self.received_on(host), sent_bytes_s=each.other_traffic, zone=each.zone,
                )
                for host, each in self.machines.items()
            ),
        )  # fmt: skip

    def decider(self, **changes: object) -> Decider:
        settings = {"min_windows": 1, "min_interval_s": 0.0, "max_migrations": 50, **changes}
        made = Decider(
            Settings(**settings),  # type: ignore[arg-type]
            Requirements(),
            Execution(generation=1),
            acting=True,
            rules=self.rules,
        )
        self.place(made)
        return made

    def place(self, decider: Decider) -> None:
        """Tell the decider that the key groups are where they are."""
        apps = {each.app for each in self.owners}
        placements = {
            app: placement_of(
                "c", app, Epoch(1, 1), {each: owner for each, owner in self.owners.items() if each.app == app}, None
            )
            for app in apps
        }
        for each, names in self.followers.items():
            rows = {each: (self.owners[each], *(name for name in names if name != self.owners[each]))}
            placements[each.app] = placements[each.app].changed(Epoch(1, 1), rows)
        decider.on_event(
            WINDOW_S * self.number, ExecutionChanged(execution=Execution(generation=1, placements=placements))
        )

    def bring(
        self, decider: Decider, previous: Mapping[KeyGroup, Owners], target: WorkerId, phase: HandoverPhase
    ) -> None:
        """Tell the decider that a plan of another app moves these key groups to a worker."""
        [app], [source] = {each.app for each in previous}, {row[0] for row in previous.values()}
        hosts = {"source_host": self.workers[source], "target_host": self.workers[target]}
        handover = a_handover(
            *previous, source=source, target=target, previous=tuple(previous.values()), phase=phase, **hosts
        )
        execution = replace(decider._situation.execution, rounds={app: a_round(None, handover, app=app)})
        decider.on_event(WINDOW_S * self.number, ExecutionChanged(execution=execution))

    def round(self, decider: Decider) -> list[Decision]:
        """A window, and the decisions that follow; plans are carried out at once."""
        snapshot = self.window()
        now, decisions = snapshot.end_ms / 1000.0 + 0.1, []
        actions = decider.on_event(now, SnapshotArrived(snapshot=snapshot))
        while actions:
            action = actions.pop(0)
            if isinstance(action, Decided):
                decisions.append(action.decision)
            if isinstance(action, Solve):
                question = question_of(action.view, decider.settings, self.solve_s)
                actions += decider.on_event(now, SolverAnswered(answer=answer(question, Ticks())))
        for decision in decisions:
            if isinstance(decision, Planned):
                for move in decision.plan.moves:
                    if move.target not in self.followers.get(move.key_group, ()):
                        self.write(move.key_group, move.target, 0)
                self.owners |= {move.key_group: move.target for move in decision.plan.moves}
            if isinstance(decision, Planned | Adopted):
                self.follow(decision.standbys)
            if isinstance(decision, StandbysPlaced):
                self.follow(decision.rows)
        self.place(decider)
        return decisions

    def follow(self, rows: Mapping[KeyGroup, Owners]) -> None:
        """New standbys begin to restore."""
        for key_group, row in rows.items():
            for worker in set(row[1:]) - set(self.followers.get(key_group, ())):
                self.write(key_group, worker, self.standby_windows)
            self.followers[key_group] = row[1:]

    def loads(self) -> dict[WorkerId, float]:
        """What the key groups of each worker use, in percent of its capacity."""
        return {worker: 100.0 * (self.used_by(worker) - self.fixed) / self.capacity for worker in self.workers}
