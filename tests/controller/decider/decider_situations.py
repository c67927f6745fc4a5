"""What many tests speak of: an app on two workers, windows, views, plans and rounds of it, commands to workers."""

from collections.abc import Iterable
from dataclasses import replace

from trimtab_controller.decider.window.owned import Owned
from trimtab_controller.decider.window.view import PlannableView, Worker
from trimtab_controller.execution.state import Handover, Round, ScalingPhase, WorkerScaling
from trimtab_controller.plan import Move, Plan, PlanReason
from trimtab_protocol.messages.commands import Command, CommandKind
from trimtab_protocol.messages.names import AppId, Epoch, HostId, KeyGroup, OperatorId, WorkerId
from trimtab_protocol.messages.report import Basis, WorkerState
from trimtab_protocol.messages.snapshot import HostWindow, KeyGroupWindow, NodeWindow, Snapshot

APP, OPERATOR = AppId("app"), OperatorId("sums")
W0, W1 = WorkerId("w0"), WorkerId("w1")


def kg(partition: int, app: AppId = APP) -> KeyGroup:
    return KeyGroup(app, OPERATOR, partition)


def a_worker(name: str, host: str | None = None, capacity: float = 1.0, *, draining: bool = False) -> Worker:
    """A worker; w1 runs on h1 unless a host is given."""
    return Worker(id=WorkerId(name), host=HostId(host or f"h{name[1:]}"), capacity=capacity, draining=draining)


def owned(key_group: KeyGroup, owner: str, load: float = 10.0, state_bytes: int | None = 1) -> Owned:
    return Owned(key_group=key_group, owner=WorkerId(owner), load=load, state_bytes=state_bytes)


def plannable(workers: Iterable[Worker], rows: Iterable[Owned], **changes: object) -> PlannableView:
    """A view of the first ten seconds."""
    key_groups = tuple(rows)
    app = key_groups[0].key_group.app if key_groups else APP
    made = PlannableView(app=app, start_s=0.0, end_s=10.0, workers=tuple(workers), key_groups=key_groups, flows={})
    return replace(made, **changes)  # type: ignore[arg-type]


def a_node(worker: str, **changes: object) -> NodeWindow:
    """A worker of half a core that runs the app; w1 runs on h1 unless a host is given."""
    made = NodeWindow(
        worker=WorkerId(worker),
        host=HostId(f"h{worker[1:]}"),
        app=APP,
        state=WorkerState.RUNNING,
        capacity=0.5,
        covered_s=10.0,
        cpu=0.3,
        complete=True,
        steering=True,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def a_load(key_group: KeyGroup, worker: str, cpu: float | None = 0.1, **changes: object) -> KeyGroupWindow:
    """What a window has of a key group, which has done one input per second."""
    made = KeyGroupWindow(key_group=key_group, worker=WorkerId(worker), covered_s=10.0, cpu=cpu, tuples_in_s=1.0)
    return replace(made, **changes)  # type: ignore[arg-type]


def a_window(
    end_s: float, nodes: Iterable[NodeWindow], key_groups: Iterable[KeyGroupWindow], **changes: object
) -> Snapshot:
    """A window of ten seconds in which all hosts have reported, each of four cores unless `hosts` are given."""
    rows = tuple(nodes)
    names = sorted({row.host for row in rows})
    made = Snapshot(
        cluster="c",
        start_ms=round(end_s * 1000) - 10_000,
        end_ms=round(end_s * 1000),
        published_ms=round(end_s * 1000),
        hosts_seen=len(names),
        hosts_expected=len(names),
        watermark_ms=None,
        late_rows=0,
        hosts=tuple(HostWindow(host=each, covered_s=10.0, cpu=2.0, cores=4.0, basis=Basis.CONFIG) for each in names),
        nodes=rows,
        key_groups=tuple(key_groups),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def a_round(ended_at: float | None, *handovers: Handover, **changes: object) -> Round:
    """A plan of the app that began at 900; while `ended_at` is None, it is in flight."""
    made = Round(
        plan="1.2",
        app=APP,
        reason="r",
        status="optimal",
        fallback=False,
        before=30.0,
        planned=2.0,
        lower_bound=1.0,
        started_at=900.0,
        handovers=handovers,
        ended_at=ended_at,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def a_handover(*key_groups: KeyGroup, source: WorkerId = W0, target: WorkerId = W1, **changes: object) -> Handover:
    """Key groups without standbys go from w0 to w1; w1 runs on h1."""
    made = Handover(
        id="1.2-0",
        key_groups=key_groups,
        previous=((source,),) * len(key_groups),
        source=source,
        target=target,
        source_host=HostId(f"h{source[1:]}"),
        target_host=HostId(f"h{target[1:]}"),
        state_bytes=1,
        since=1000.0,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def a_plan(*moves: Move, **changes: object) -> Plan:
    """A plan for balance with these moves; w1 runs on h1."""
    workers = {worker for move in moves for worker in (move.source, move.target)}
    made = Plan(
        app=moves[0].key_group.app,
        reason=PlanReason.LOAD_DISTANCE,
        detail="load distance 18.4 above 5.0",
        moves=moves,
        hosts={worker: HostId(f"h{worker[1:]}") for worker in workers},
        before=18.4,
        planned=1.1,
        lower_bound=1.1,
        status="optimal",
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def a_command(
    kind: CommandKind, worker: WorkerId = W1, issued_at: float = 1000.0, *, app: AppId | None = None, **changes: object
) -> Command:
    """A command, which nobody carries out after a minute; w1 runs on h1."""
    values: dict[str, object] = {
        "cluster": "c",
        "kind": kind,
        "epoch": Epoch(1, 2),
        "host": HostId(f"h{worker[1:]}"),
        "worker": worker,
        "app": app,
        "issued_at": issued_at,
        "deadline": issued_at + 60.0,
    }
    return Command(**{**values, **changes})  # type: ignore[arg-type]


def a_scaling(
    kind: CommandKind,
    worker: WorkerId = W1,
    at: float = 1000.0,
    phase: ScalingPhase = ScalingPhase.DONE,
    **of_command: object,
) -> WorkerScaling:
    """How far a stop or a start has got; unless `issued_at` is given, the phase began when it was sent."""
    command = a_command(kind, worker, **{"issued_at": at, **of_command})  # type: ignore[arg-type]
    return WorkerScaling(command=command, phase=phase, at=at)
