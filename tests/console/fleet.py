"""Messages of a made-up cluster of any size, as they are on the topics: what console and browser are shown."""

import math
import random
from array import array
from collections.abc import Iterator
from dataclasses import dataclass

from tests.kafka_record import Record
from trimtab_console.access.entrance import Entrance
from trimtab_console.api.source import Source
from trimtab_console.desk import Desk
from trimtab_console.watch import Watch
from trimtab_console.why import Explainer
from trimtab_controller.execution.journal import KEY as JOURNAL_KEY
from trimtab_controller.execution.journal import JournalEntry, encode_entry
from trimtab_controller.execution.state import Execution, Handover, Round
from trimtab_controller.kafka.chunks import split
from trimtab_controller.leadership.group import Member
from trimtab_protocol.messages.codec import encoded
from trimtab_protocol.messages.intents import Drain
from trimtab_protocol.messages.key_group_table import KeyGroupBlock, KeyGroupTable
from trimtab_protocol.messages.names import AppId, Epoch, HostId, KeyGroup, OperatorId, Topics, WorkerId
from trimtab_protocol.messages.placement import Placement
from trimtab_protocol.messages.report import Basis, WorkerState
from trimtab_protocol.messages.rules import Rule, RuleKind
from trimtab_protocol.messages.snapshot import HostWindow, NodeWindow, PairWindow, Snapshot
from trimtab_protocol.messages.status import (
    AppStatus,
    CapacityStatus,
    ConcernStatus,
    DecisionStatus,
    FixedStatus,
    ForecastStatus,
    HostStatus,
    NodeStatus,
    PoolStatus,
    ProposalStatus,
    ProposedMove,
    RoundStatus,
    RuleStatus,
    SizeStatus,
    Status,
    status_key,
)

CLUSTER = "prod"
TOPICS = Topics(CLUSTER)
APP = AppId("orders")
OPERATORS = (OperatorId("by-customer"), OperatorId("by-product"))
NOW = 1_800_000_000.0
WINDOW_S = 10.0


LICENCE = Rule(name="licence", kind=RuleKind.PIN, reason="one seat", operator="audit", workers=("orders-0",))


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """A cluster of `workers` with four to a host, whose apps' key groups differ in load by a seeded choice."""

    workers: int = 4
    key_groups: int = 64
    seed: int = 7
    operators: tuple[OperatorId, ...] = OPERATORS
    now: float = NOW
    """When the messages are read (epoch seconds)."""

    @property
    def per_host(self) -> int:
        return 1 if self.workers <= 8 else 4

    def worker(self, index: int) -> WorkerId:
        return WorkerId(f"{APP}-{index}")

    def host(self, index: int) -> HostId:
        return HostId(f"host-{index // self.per_host:04d}")

    def zone(self, host: HostId) -> str:
        return f"zone-{'abc'[int(host.removeprefix('host-')) % 3]}"

    def loads(self, window: int = 0) -> list[float]:
        """Load per worker, in percent of its capacity; a shift comes and is balanced away."""
        chosen = random.Random(self.seed)
        spread = 14.0 * math.exp(-(window % 40) / 6.0) + 1.5
        return [max(2.0, chosen.gauss(62.0 + 6.0 * math.sin(window / 20.0), spread)) for _ in range(self.workers)]

    def uses(self) -> list[float]:
        """Use per worker, in percent of its capacity."""
        return [min(100.0, load + 9.0) for load in self.loads()]

    def snapshot(self, window: int = 0) -> Snapshot:
        end_ms = int((self.now - 4 + window * WINDOW_S) * 1000)
        hosts = sorted({self.host(index) for index in range(self.workers)})
        return Snapshot(
            cluster=CLUSTER, start_ms=end_ms - 10_000, end_ms=end_ms, published_ms=end_ms + 900,
            hosts_seen=len(hosts), hosts_expected=len(hosts), watermark_ms=end_ms, late_rows=0,
            hosts=tuple(
                HostWindow(host=host, covered_s=10.0, cpu=2.4, cores=4.0, basis=Basis.CGROUP) for host in hosts
            ),
            nodes=tuple(
                NodeWindow(
                    worker=self.worker(index), host=self.host(index), app=APP, state=WorkerState.RUNNING, capacity=1.0,
                    covered_s=10.0, cpu=load / 100.0, complete=True, steering=True,
                )
                for index, load in enumerate(self.loads(window))
            ),
            key_groups=KeyGroupTable(self._block(operator, number) for number, operator in enumerate(self.operators)),
            pairs=tuple(self._pairs()),
        )  # fmt: skip

    def _pairs(self) -> Iterator[PairWindow]:
        """Each operator sends to the next, every third one also to the one after it; a third stays on its worker."""
        count = self.key_groups // len(self.operators)
        for number, source in enumerate(self.operators):
            for target in self.operators[number + 1 : number + (3 if number % 3 == 0 else 2)]:
                for place in range(count):
                    to = place if place % 3 == 0 else (place * 7 + 1) % count
                    rate = 12.0 + place % 5 + 40.0 / (number + 1)
                    yield PairWindow(
                        source=KeyGroup(APP, source, place), target=KeyGroup(APP, target, to), tuples_s=rate,
                        bytes_s=150.0 * rate, direct_s=0.9 * rate if place % 3 == 0 else 0.0,
                    )  # fmt: skip

    def _block(self, operator: OperatorId, number: int) -> KeyGroupBlock:
        chosen, count = random.Random(self.seed + number), self.key_groups // len(self.operators)
        mean = 0.62 * self.workers / self.key_groups
        cpu = [mean * chosen.paretovariate(2.2) / 1.83 for _ in range(count)]
        for place in range(0, count, 37):
            cpu[place] = -1.0 if place % 2 else cpu[place]
        return KeyGroupBlock(
            app=APP, operator=operator, workers=tuple(self.worker(index) for index in range(self.workers)),
            partition=array("q", range(count)), worker=array("q", [place % self.workers for place in range(count)]),
            covered_s=array("d", [10.0] * count), cpu=array("d", cpu),
            tuples_in_s=array("d", [max(0.0, 4000 * each) for each in cpu]), tuples_out_s=array("d", [-1.0] * count),
            bytes_in_s=array("d", [-1.0] * count), bytes_out_s=array("d", [-1.0] * count),
            state_bytes=array("q", [chosen.randrange(1_000_000, 90_000_000) for _ in range(count)]),
            lag_records=array("q", [-1] * count), backlog=array("q", [chosen.randrange(0, 300) for _ in range(count)]),
        )  # fmt: skip

    def status(self, window: int = 0, **other: object) -> Status:
        at = self.now - 2 + window * WINDOW_S
        loads = self.loads(window)
        mean = sum(loads) / len(loads)
        distance = max(abs(load - mean) for load in loads)
        default: dict[str, object] = {
            "cluster": CLUSTER, "at": at, "acting": True, "epoch": Epoch(3, 15), "paused": None,
            "window_end": at - 2, "coverage": 1.0, "nodes": self._nodes(loads), "apps": (self._app(distance, mean),),
            "hosts": tuple(
                HostStatus(
                    host=host, used_pct=58.0, memory_bytes=6 << 30, memory_limit_bytes=16 << 30, demand_pct=63.0,
                    bottleneck="CPU", type="c6", speed=1.0, level="moderate", zone=self.zone(host),
                )
                for host in sorted({self.host(index) for index in range(self.workers)})
            ),
            "pool": (PoolStatus(app=APP, worker=WorkerId("orders-spare"), host=HostId("host-spare"), capacity=1.0),),
            "rules": (RuleStatus(rule=LICENCE),), "intents": {},
            "rounds": (self.past(at), self.in_flight(at)),
            "proposals": (self.waiting(at),),
            "decisions": (
                DecisionStatus(
                    at=at - 300, kind="skip", reason="inside_band",
                    text="nothing: orders: load distance 2.3 pp, inside the band of 5.0 pp",
                ),
                DecisionStatus(
                    at=at - 8, kind="plan", reason="load_distance",
                    text="plan 3.15: orders: 3 moves, load distance 11.4 to 1.9 pp (bound 1.2)",
                ),
                DecisionStatus(at=at - 2, kind="skip", reason="plan_in_flight", text="nothing: plan 3.15 is in flight"),
            ),
            "concerns": (
                ConcernStatus(
                    kind="over_capacity", app=APP, text=f"{self.worker(1)} is asked for 108 % of its capacity"
                ),
            ),
        }  # fmt: skip
        return Status(**{**default, **other})  # type: ignore[arg-type]

    def _nodes(self, loads: list[float]) -> tuple[NodeStatus, ...]:
        return tuple(
            NodeStatus(
                worker=self.worker(index), host=self.host(index), app=APP, state=WorkerState.RUNNING, capacity=1.0,
                load_pct=load, key_groups=self.key_groups // self.workers, draining=self.workers > 8 and index == 5,
                steering=self.workers < 8 or index != 11, used_pct=min(100.0, load + 9.0),
                demand_pct=108.0 if index == 1 else load + 11.0, backlog=int(load * 31), memory_bytes=430 << 20,
                reason="the plug-in is of another version" if self.workers > 8 and index == 11 else None,
                level="moderate",
            )
            for index, load in enumerate(loads)
        )  # fmt: skip

    def _app(self, distance: float, mean: float) -> AppStatus:
        demand = self.asked(self.now)
        return AppStatus(
            app=APP, key_groups=self.key_groups, load_distance=distance, mean_load=mean, not_ready=None, noise=0.6,
            collocation=0.12, local_sends=0.1, missing_standbys=2, n_minus_1_pct=84.0, n_minus_1_bound_pct=82.0,
            n_minus_1_worker=self.worker(1), n_minus_1_lost=(self.worker(0),),
            fixed=(FixedStatus(worker=self.worker(0), reason="worker_not_steering", text=""),),
            stale_key_groups=1, unknown_load=0.004,
            size=SizeStatus(
                text=f"{self.workers} workers, demand {demand:.2f} of {self.workers:.2f} cores "
                f"({100 * demand / self.workers:.0f}%)",
                workers=self.workers, wanted=self.workers, desired=self.workers, demand_cores=demand,
                capacity_cores=float(self.workers),
            ),
            capacity=CapacityStatus(headroom=1.21, potential=1.36, bound=1.41, first=self.worker(1), accuracy=0.97),
            forecast=self.forecast(),
        )  # fmt: skip

    def asked(self, at: float) -> float:
        """The cores that the app is asked for at this time: a day has its peak in the afternoon."""
        noise = random.Random(f"{self.seed}/{at // 300}").gauss(0.0, 0.012)
        return self.workers * (0.56 + 0.2 * math.sin(2.0 * math.pi * (at / 86_400.0 - 0.4)) + noise)

    def forecast(self) -> ForecastStatus:
        """The next hour."""
        peak = self.workers * 0.8
        return ForecastStatus(
            text=f"{peak:.2f} cores at most, 15 min ahead; mean error 0.12 cores (2 %), of the last value 0.30 (5 %)",
            used=True, peak_cores=peak, period_s=86_400.0, at=self.now - 7200.0, known_s=1.2e6,
        )  # fmt: skip

    def past(self, at: float) -> RoundStatus:
        return RoundStatus(
            plan="3.14", app=APP, reason="load distance 8.6 above 5.0", status="optimal", fallback=False,
            started_at=at - 900, ended_at=at - 884, before=8.6, planned=0.9, after=1.1, lower_bound=0.8, migrations=13,
            failed=1, bytes_moved=812_000_000, handovers={"done": 13, "failed": 1}, pauses_s=(0.1, 0.2, 0.31),
            recovery_planned_s=9.0, recovery_bound_s=8.0, recovery_s=11.5,
        )  # fmt: skip

    def in_flight(self, at: float) -> RoundStatus:
        return RoundStatus(
            plan="3.15", app=APP, reason="load distance 11.4 above 5.0", status="feasible", fallback=False,
            started_at=at - 8, ended_at=None, before=11.4, planned=1.9, after=None, lower_bound=1.2, migrations=1,
            failed=0, bytes_moved=64_000_000, handovers={"done": 1, "releasing": 1, "waiting": 1}, pauses_s=(0.14,),
        )  # fmt: skip

    def waiting(self, at: float) -> ProposalStatus:
        key_group, size = KeyGroup(APP, OPERATORS[0], 0), 64_000_000
        move = ProposedMove(key_group=str(key_group), source=self.worker(0), target=self.worker(1), state_bytes=size)
        return ProposalStatus(
            plan="3.16", app=APP, reason="load distance 7.4 above 5.0", at=at - 60, expires_at=at + 1740, before=7.4,
            planned=1.2, lower_bound=1.1, moves=(move,), moves_total=1, to_standbys=0, restore_bytes=size, unmeasured=0,
        )  # fmt: skip

    def journal(self) -> JournalEntry:
        handovers = tuple(
            Handover(
                id=f"3.15-{index}", key_groups=(KeyGroup(APP, OPERATORS[0], index),), previous=((self.worker(1),),),
                source=self.worker(1), target=self.worker(2 + index % 2), source_host=self.host(1),
                target_host=self.host(2 + index % 2), state_bytes=64_000_000, since=self.now - 5,
            )
            for index in range(3)
        )  # fmt: skip
        row = Round(
            plan="3.15", app=APP, reason="load distance 11.4 above 5.0", status="feasible", fallback=False, before=11.4,
            planned=1.9, lower_bound=1.2, started_at=self.now - 10, handovers=handovers,
        )  # fmt: skip
        return JournalEntry(execution=Execution(generation=3, number=15, rounds={APP: row}))

    def placement(self, part_size: int | None = None) -> Placement:
        count = self.key_groups // len(self.operators)
        rows = [(self.worker(at % self.workers), self.worker((at + 1) % self.workers)) for at in range(count)]
        return Placement(
            cluster=CLUSTER,
            app=APP,
            epoch=Epoch(3, 14),
            owners=dict.fromkeys(self.operators, rows),
            part_size=part_size,
        )

    def records(self) -> list[Record]:
        """One of each kind."""
        intent = Drain(worker=self.worker(0), by="ann@ops", at=self.now - 60, reason="kernel update")
        return [
            status_record(self.status()),
            *(Record(TOPICS.snapshots, each.payload, b"prod", each.headers) for each in split(self.snapshot())),
            Record(TOPICS.intents, encoded(intent), intent.key.encode()),
            Record(TOPICS.journal, encode_entry(self.journal()), JOURNAL_KEY),
        ]


def status_record(status: Status) -> Record:
    return Record(TOPICS.status, encoded(status), status_key(acting=status.acting))


def placement_record(placement: Placement) -> Record:
    return Record(TOPICS.placement, encoded(placement), placement.app.encode())


def watching(fleet: Fleet, windows: int = 0) -> Watch:
    """A watch that has read the fleet's messages, with the statuses of so many windows before."""
    watch = Watch(TOPICS, lambda: NOW)
    for window in range(-windows, 0):
        watch.take(status_record(fleet.status(window)))
    for record in fleet.records():
        watch.take(record)
    if fleet.key_groups <= 1_000:
        watch.take(placement_record(fleet.placement()))
    watch.set_controllers((Member(name="ctl-1:2817", address="127.0.0.1", leads=True),))
    watch.set_reading(read=True, fault=None)
    return watch


def source_of(
    watch: Watch, entrance: Entrance | None = None, desk: Desk | None = None, explainer: Explainer | None = None
) -> Source:
    return Source(
        cluster=CLUSTER,
        watch=watch,
        clock=lambda: NOW,
        stopping=lambda: False,
        entrance=entrance or Entrance(None, lambda: NOW),
        desk=desk,
        explainer=explainer,
    )
