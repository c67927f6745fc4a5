"""What several tests of the decider speak of: an app on two workers, views and rounds of it, a word to a worker."""

from collections.abc import Iterable
from dataclasses import replace

from trimtab_controller.decider.window.owned import Owned
from trimtab_controller.decider.window.view import PlannableView, Worker
from trimtab_controller.execution.state import Round
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


def a_round(ended_at: float | None) -> Round:
    return Round(
        plan="1.2",
        app=APP,
        reason="r",
        status="optimal",
        fallback=False,
        before=30.0,
        planned=2.0,
        lower_bound=1.0,
        started_at=900.0,
        handovers=(),
        ended_at=ended_at,
    )


def to_w1(kind: CommandKind, issued_at: float = 1000.0) -> Command:
    """A stop or a start."""
    return Command(
        cluster="c",
        kind=kind,
        epoch=Epoch(1, 2),
        host=HostId("h1"),
        worker=W1,
        app=None,
        issued_at=issued_at,
        deadline=issued_at + 60.0,
    )
