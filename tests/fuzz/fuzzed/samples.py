"""One true value of every message, with as many fields set as it can have."""

from dataclasses import replace

from trimtab_protocol.messages.commands import Ack, Command, CommandKind, Phase, Refusal
from trimtab_protocol.messages.copies import Copy
from trimtab_protocol.messages.decode import Fault
from trimtab_protocol.messages.events import Event, EventKind, EventLoad, EventMove
from trimtab_protocol.messages.handover import HandoverKind, HandoverRecord
from trimtab_protocol.messages.intents import (
    AcceptJournal,
    AddRule,
    Approve,
    Drain,
    ForgetApp,
    ForgetWorker,
    MoveKeyGroups,
    Pause,
    Reject,
    RequestedMove,
    RollingRestart,
    Scale,
    Stop,
    Undrain,
)
from trimtab_protocol.messages.local import Hello, Statistics, Welcome
from trimtab_protocol.messages.names import AppId, Epoch, HostId, KeyGroup, OperatorId, WorkerId
from trimtab_protocol.messages.placement import Placement
from trimtab_protocol.messages.placement_parts import PlacementPart, head_of
from trimtab_protocol.messages.report import (
    Absence,
    Basis,
    HostSample,
    KeyGroupSample,
    Mark,
    PairSample,
    Report,
    WorkerSample,
    WorkerState,
)
from trimtab_protocol.messages.rules import Rule, RuleKind
from trimtab_protocol.messages.snapshot import HostWindow, KeyGroupWindow, NodeWindow, PairWindow, Snapshot
from trimtab_protocol.messages.status import (
    AppStatus,
    BalanceStatus,
    CapacityStatus,
    CollocationStatus,
    ConcernStatus,
    DecisionStatus,
    FixedStatus,
    ForecastStatus,
    HoldStatus,
    HostStatus,
    NodeStatus,
    OperatorCostStatus,
    PoolStatus,
    RedundancyStatus,
    RemoteCostStatus,
    RoundStatus,
    RuleStatus,
    SizeStatus,
    Status,
)

CLUSTER = "c"
NOW = 1_000.0
APP, HOST, W0, W1, SUMS = AppId("a"), HostId("h0"), WorkerId("w0"), WorkerId("w1"), OperatorId("sums")
SUMS_1, SUMS_2 = KeyGroup(APP, SUMS, 1), KeyGroup(APP, SUMS, 2)
EPOCH = Epoch(2, 9)

PREPARE = Command(
    cluster=CLUSTER, kind=CommandKind.PREPARE, epoch=EPOCH, host=HOST, worker=W1, app=APP, issued_at=NOW,
    deadline=NOW + 60, handover="2.9-0", key_groups=(SUMS_1, SUMS_2), source=W0, target=W1,
)  # fmt: skip
RELEASE = Command(
    cluster=CLUSTER, kind=CommandKind.RELEASE, epoch=EPOCH, host=HOST, worker=W0, app=APP, issued_at=NOW,
    deadline=NOW + 60, handover="2.9-0", key_groups=(SUMS_1, SUMS_2), source=W0, target=W1, generation=4,
)  # fmt: skip
STOP = Command(
    cluster=CLUSTER, kind=CommandKind.STOP, epoch=EPOCH, host=HOST, worker=W0, app=None, issued_at=NOW, deadline=NOW + 9
)
STOP_OWNING = replace(STOP, owning=True)
TOOK = Ack(
    cluster=CLUSTER, command_id=PREPARE.id, epoch=EPOCH, kind=PREPARE.kind, host=HOST, worker=W1, phase=Phase.TOOK,
    at=NOW, handover="2.9-0", detail="fine", generation=4, lag_records=0, state_bytes=1024, pause_s=0.12,
)  # fmt: skip
REFUSED = Ack(
    cluster=CLUSTER, command_id=STOP.id, epoch=EPOCH, kind=STOP.kind, host=HOST, worker=W0, phase=Phase.REFUSED,
    at=NOW, refusal=Refusal.UNSIGNED, exit_code=-9,
)  # fmt: skip
PLACEMENT = Placement(cluster=CLUSTER, app=APP, epoch=EPOCH, owners={SUMS: ((W0,), (W1, W0), ()), OperatorId("x"): ()})
IN_PARTS = Placement(cluster=CLUSTER, app=APP, epoch=EPOCH, owners={SUMS: ((W0,), (W1, W0), ())}, part_size=2)
HEAD = head_of(IN_PARTS)
PART = PlacementPart(cluster=CLUSTER, app=APP, epoch=EPOCH, operator=SUMS, part=0, rows=((W0,), (W1, W0)))
RELEASED = HandoverRecord(
    kind=HandoverKind.RELEASED, cluster=CLUSTER, app=APP, handover="2.9-0", epoch=EPOCH, generation=4, source=W0,
    target=W1, key_groups=(SUMS_1, SUMS_2), offsets=(("in", 1, 120),), ends=(("a-sums-changelog", 1, 300),), held_s=0.1,
)  # fmt: skip
KEY_GROUP_SAMPLE = KeyGroupSample(
    key_group=SUMS_1, worker=W0, cpu_s=0.02, tuples_in=10, tuples_out=1, bytes_in=2, bytes_out=3, state_bytes=4,
    lag_records=5, backlog=6,
)  # fmt: skip
PAIR_SAMPLE = PairSample(source=SUMS_1, target=SUMS_2, tuples=10, bytes=900, direct=4, topic="words")
REPORT = Report(
    cluster=CLUSTER, host=HOST, at_ms=999_000, interval_s=1.0, sequence=5,
    sample=HostSample(
        cpu_s=0.5, cores=2.0, basis=Basis.CGROUP, received_bytes=5, sent_bytes=6, memory_bytes=7, memory_limit_bytes=8,
        disk_total_bytes=10**12, disk_free_bytes=10**11, zone="rack-7", ended=True,
    ),
    workers=(
        WorkerSample(
            worker=W0, app=APP, state=WorkerState.RUNNING, capacity=0.25, cpu_s=0.1, memory_bytes=9, steering=True,
            epoch=EPOCH, generation=4, marks=(Mark.CLAMPED,), operators={SUMS: 64, OperatorId("x"): 2}, standbys=1,
            cold=3, unknown="parts do not add up: 0.3 of 0.5 s", reason="waits for topics: 2", declared=APP,
            fresh=True,
            copies=(Copy(SUMS, 5, 120), Copy(OperatorId("x"), 1, 7)), following_s=0.01, paused_s=2.5, paused=3,
            waiting=0.25,
        ),
        WorkerSample(
            worker=W1, app=None, state=WorkerState.AWAY, capacity=0.5, cpu_s=None, reason="crashed once",
            absence=Absence.STARTING, declared=APP, steering=False, marks=(),
        ),
    ),
    key_groups=(KEY_GROUP_SAMPLE,), pairs=(PAIR_SAMPLE,),
)  # fmt: skip
SNAPSHOT = Snapshot(
    cluster=CLUSTER, start_ms=989_000, end_ms=999_000, published_ms=999_900, hosts_seen=1, hosts_expected=2,
    watermark_ms=990_000, late_rows=3, rejected={"malformed": 2}, ended=(HOST,),
    hosts=(HostWindow(host=HOST, covered_s=10.0, cpu=0.5, cores=2.0, basis=Basis.HOST, received_bytes_s=1.5,
        disk_total_bytes=10**12, disk_free_bytes=10**11, zone="rack-7"),),
    nodes=(
        NodeWindow(
            worker=W0, host=HOST, app=APP, state=WorkerState.RUNNING, capacity=0.25, covered_s=10.0, cpu=0.1,
            complete=True, steering=True, epoch=EPOCH, generation=4, memory_bytes=3, operators={SUMS: 64}, standbys=1,
            cold=3, unknown="parts do not add up", reason="waits for topics: 2", also_on=(HostId("h7"),),
            declared=APP, fresh=True, copies=(Copy(SUMS, 5, 120),), following=0.02,
            paused_s=2.5, paused=3, waiting=0.25,
        ),
        NodeWindow(
            worker=W1, host=HOST, app=None, state=WorkerState.AWAY, capacity=0.5, covered_s=10.0, cpu=None,
            complete=True, steering=False, absence=Absence.STOPPED, declared=APP,
        ),
    ),
    key_groups=(KeyGroupWindow(key_group=SUMS_1, worker=W0, covered_s=10.0, cpu=None, tuples_in_s=1.5, backlog=3),),
    pairs=(PairWindow(source=SUMS_1, target=SUMS_2, tuples_s=1.0, bytes_s=90.0, direct_s=0.4, topic="words"),),
)  # fmt: skip
DRAIN = Drain(worker=W1, by="ann", at=NOW, reason="kernel update")
PAUSE = Pause(by="ann", at=NOW, reason="release day")
ACCEPT = AcceptJournal(hold="0123456789abcdef", by="ann", at=NOW, reason="nothing is in flight")
STOP_ALL = Stop(app=None, by="ann", at=NOW, reason="lag")
STOP_APP = Stop(app=APP, by="ann", at=NOW, reason="lag")
FORGET_APP = ForgetApp(app=APP, by="ann", at=NOW, reason="replaced")
FORGET_WORKER = ForgetWorker(worker=W1, by="ann", at=NOW, reason="renamed")
SCALE = Scale(app=APP, workers=4, by="ann", at=NOW, reason="a sale")
RESTART = RollingRestart(app=APP, workers=(WorkerId("w0"), WorkerId("w1")), by="ann", at=NOW, reason="new version")
APPROVE = Approve(plan="3.17", by="ann", at=NOW, reason="fine")
REJECT = Reject(plan="3.17", by="ann", at=NOW, reason="not during the sale")
MOVE = MoveKeyGroups(
    moves=(RequestedMove(key_group=KeyGroup(APP, OperatorId("sums"), 1), worker=W1),),
    by="ann",
    at=NOW,
    reason="profile it",
)
UNDO = MoveKeyGroups(moves=MOVE.moves, by="ann", at=NOW, reason="it was worse", undoes="3.16")
ON_PLANS = (APPROVE, REJECT, MOVE, UNDO)
RULE = Rule(
    name="ssd", kind=RuleKind.POOL, reason="fast disks", app="orders*", operator="sums", key_groups=((0, 15), (40, 40)),
    workers=("w*",), hosts=("h9",), zones=("rack-7",), priority=5, until=NOW + 60.0,
)  # fmt: skip
ADD_RULE = AddRule(rule=RULE, by="ann", at=NOW, reason=RULE.reason)
UNDRAIN = Undrain(worker=W1, by="ann", at=NOW, reason="it is new")
HELLO = Hello(app=APP, worker=W0, pid=77, steering=False, reason="old", operators={SUMS: 64}, versions={"f": "1"})
WELCOME = Welcome(cluster=CLUSTER, host=HOST, interval_s=1.0, protocol=2)
STATISTICS = Statistics(
    at_ms=999_000, interval_s=1.0, state=WorkerState.RUNNING, cpu_s=0.1, epoch=EPOCH, generation=4, complete=True,
    key_groups=(KEY_GROUP_SAMPLE,), pairs=(PAIR_SAMPLE,), refused={Fault.UNSIGNED: 3}, standbys=1, cold=3,
    unknown="parts do not add up", copies=(Copy(SUMS, 5, 120),),
)  # fmt: skip
STATUS = Status(
    cluster=CLUSTER, at=NOW, acting=True, epoch=EPOCH, paused="by ann", window_end=NOW, coverage=0.5,
    rules=(RuleStatus(rule=RULE), RuleStatus(rule=RULE, by="ann", at=NOW, ignored="there is one of this name")),
    nodes=(
        NodeStatus(
            worker=W0, host=HOST, app=APP, state=WorkerState.RUNNING, capacity=1.0, load_pct=50.0, key_groups=3,
            draining=False, steering=True, used_pct=110.0, demand_pct=130.5, backlog=7, level="heavy",
            memory_bytes=2**28, reason="waits for topics: 2", absence=Absence.CRASHED,
        ),
    ),
    hosts=(HostStatus(host=HOST, used_pct=80.0, memory_bytes=2**30, received_bytes_s=1.5, sent_bytes_s=0.0,
        link_bytes_s=1e9, demand_pct=90.0, bottleneck="CPU 90 %", type="m5-x2", speed=0.5, level="heavy",
        disk_total_bytes=10**12, disk_free_bytes=10**11, zone="rack-7"),),
    apps=(
        AppStatus(
            app=APP, key_groups=3, load_distance=1.0, mean_load=2.0, not_ready="no [samples]", noise=0.5,
            redundancy=RedundancyStatus(since=NOW, measured_s=30.0, lacking=2, planned_s=25.0, bound_s=20.5),
            missing_standbys=1, n_minus_1_pct=81.0, n_minus_1_bound_pct=79.0, n_minus_1_worker=W0, n_minus_1_lost=(W0,),
            fixed=(
                FixedStatus(worker=W0, reason="worker_missing", text=""),
                FixedStatus(worker=W1, reason="worker_incomplete", text="2 of 3 reports"),
            ),
            stale_key_groups=2, unknown_load=0.03, local_sends=0.4,
            size=SizeStatus(
                text="2 workers", workers=2, wanted=3, desired=3, demand_cores=1.9, capacity_cores=2.0, leaving=(W1,),
                restart_s=120.0, measured_restart_s=14.5, own_settings=("max_workers = 4",),
            ),
            capacity=CapacityStatus(headroom=1.5, potential=2.0, bound=2.5, first="w0", heaviest="kg", accuracy=0.93),
            remote_costs=CollocationStatus(
                operators=(
                    OperatorCostStatus(
                        operator=OperatorId("sums"), sending=RemoteCostStatus(
                            value=1e-4, error=2e-5, freedom=9.5, significant=True
                        ),
                        receiving=RemoteCostStatus(unknown="no tuple was local"),
                    ),
                ),
                obtainable=0.5, worth_cores=0.25,
            ),
            forecast=ForecastStatus(
                text="2.10 cores at most", used=True, peak_cores=2.1, period_s=86_400.0, at=NOW, known_s=6e5,
            ),
        ),
    ),
    pool=(PoolStatus(app=APP, worker=W1, host=HOST, capacity=0.5),),
    decisions=(DecisionStatus(at=NOW, kind="skip", reason="balanced", text="inside the band", app=APP),),
    rounds=(
        RoundStatus(
            plan="2.9", app=APP, reason="balance", status="optimal", fallback=False, started_at=NOW, ended_at=NOW + 9,
            before=9.0, planned=1.0, after=1.5, lower_bound=0.5, migrations=2, failed=0, bytes_moved=99,
            handovers={"done": 1}, pauses_s=(0.1, 0.2), incomparable="w2 joined", saved_planned_pp=2.5, saved_pp=-0.5,
        ),
    ),
    concerns=(ConcernStatus(kind="over_capacity", app=APP, text="w0 uses 110 %"),),
    rejected={"acks.malformed": 1}, hold=HoldStatus(id="0123456789abcdef", text="the journal"),
    intents={"drain/w1": NOW}, balance=BalanceStatus(smoothing=0.5, catch_up_s=300.0, max_disk=0.9, max_link=0.8),
)  # fmt: skip
EVENT = Event(
    id="2-1000.000-1", cluster=CLUSTER, at=NOW, kind=EventKind.PLAN, phase="begun", text="1 move", reason="drain",
    app=APP, plan="2.9", worker=W1, by="ann", before=9.0, planned=1.0, lower_bound=0.5, measured=1.5, mean_load=40.0,
    moves=(EventMove(key_group=KeyGroup(APP, SUMS, 5), source=W0, target=W1, why="drain", warm="copy", load_pct=2.5,
        outcome="done", pause_s=0.25),),
    moves_total=1, loads=(EventLoad(worker=W0, before=50.0, planned=41.0, measured=40.5),),
    rule=RULE,
)  # fmt: skip
