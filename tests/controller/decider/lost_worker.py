"""A job of sixteen key groups on four workers, one of which is lost."""

from dataclasses import replace

from tests.controller.decider.decider_situations import APP, kg
from tests.controller.decider.decider_situations import a_node as node
from tests.controller.decider.observed_snapshots import owned, snapshot
from trimtab_controller.decider.events import Decided, SnapshotArrived
from trimtab_controller.decider.machine import Decider
from trimtab_controller.decider.values.decision import Planned
from trimtab_controller.decider.values.settings import Requirements, Settings
from trimtab_controller.execution.state import Execution, placement_of
from trimtab_controller.plan import PlanReason
from trimtab_protocol.messages.names import Epoch, KeyGroup, WorkerId
from trimtab_protocol.messages.placement import Placement
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.snapshot import Snapshot

W0, W1, W2, W3, W4 = (WorkerId(f"w{place}") for place in range(5))
HEAVY, LIGHT = 0.30, 0.05
OWNERS = {kg(place): (W0, W1, W2, W3)[place // 4] for place in range(16)}
CPU = {kg(0): HEAVY, kg(1): LIGHT, kg(2): LIGHT, kg(3): LIGHT, **{kg(place): 0.1 for place in range(4, 16)}}
STANDBY_OF_3 = {kg(3): (W0, W1)}


def placement(standbys: dict[KeyGroup, tuple[WorkerId, ...]]) -> Placement:
    return placement_of("c", APP, Epoch(1, 1), OWNERS, None).changed(Epoch(1, 1), standbys)


def seen(number: int, *, lost: WorkerId | None = None, taken: dict[KeyGroup, WorkerId] | None = None) -> Snapshot:
    """A window of ten seconds; `lost` = a worker that is away in it, `taken` = its key groups that others have."""
    rows = [node(name, capacity=1.0, cpu=0.0, standbys=0) for name in (W0, W1, W2, W3)]
    rows = [replace(row, state=WorkerState.AWAY, app=None, cpu=None) if row.worker == lost else row for row in rows]
    owners = {each: name for each, name in OWNERS.items() if name != lost} | (taken or {})
    start_ms = 1_000_000 + 10_000 * number
    found = snapshot(rows, [owned(each.partition, name, cpu=CPU[each]) for each, name in owners.items()])
    return replace(found, start_ms=start_ms, end_ms=start_ms + 10_000)


def decider(standbys: dict[KeyGroup, tuple[WorkerId, ...]], *, acting: bool = True, band: float = 5.0) -> Decider:
    present = Execution(generation=1, number=1, placements={APP: placement(standbys)})
    return Decider(Settings(min_windows=1, load_distance=band), Requirements(), present, acting=acting)


def decision_of(made: Decider, number: int, window: Snapshot) -> object:
    """The first decision in window `number`."""
    actions = made.on_event(1010.0 + 10 * number, SnapshotArrived(snapshot=window))
    return next(action.decision for action in actions if isinstance(action, Decided))


def targets(found: object) -> dict[KeyGroup, WorkerId]:
    """The next owners that a plan names."""
    assert isinstance(found, Planned)
    assert found.plan.reason is PlanReason.LOSS
    return {move.key_group: move.target for move in found.plan.moves}


def stated(found: Snapshot, states: dict[KeyGroup, int]) -> Snapshot:
    """The window in which key groups have these states, in bytes."""
    rows = [replace(row, state_bytes=states.get(row.key_group, 1_000_000)) for row in found.key_groups]
    return replace(found, key_groups=rows)
