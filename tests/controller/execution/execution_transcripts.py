"""What the transcripts of the execution machine are written in: a situation, an event, the whole list of actions."""

from dataclasses import replace

from tests.controller.decider.decider_situations import a_command, a_handover, a_plan, a_round
from trimtab_controller.execution.events import (
    AckSeen,
    Action,
    ExecutionLimits,
    PlanDecided,
    Publish,
)
from trimtab_controller.execution.handovers import ACK_GRACE_S
from trimtab_controller.execution.machine import ExecutionMachine
from trimtab_controller.execution.state import (
    Execution,
    Handover,
    HandoverPhase,
    placement_of,
)
from trimtab_controller.plan import Move
from trimtab_protocol.messages.commands import Ack, Command, CommandKind, Phase, Refusal
from trimtab_protocol.messages.names import AppId, Epoch, HostId, KeyGroup, OperatorId, WorkerId
from trimtab_protocol.messages.owner_rows import Owners

CLUSTER, APP, OPERATOR = "c", AppId("app"), OperatorId("sums")
W0, W1, W2 = WorkerId("w0"), WorkerId("w1"), WorkerId("w2")
HOSTS = {W0: HostId("h0"), W1: HostId("h1"), W2: HostId("h2")}
UNCERTAIN = (
    Refusal.GENERATION,
    Refusal.FAILED,
    Refusal.COMMIT_REFUSED,
    Refusal.WORKER_AWAY,
    Refusal.PRECONDITION,
)
LIMITS = ExecutionLimits(
    schedule_restores=False,
    handovers_in_flight=1,
    restores_at_first=100,
    key_groups_per_handover=2,
    prepare_timeout_s=60.0,
    handover_timeout_s=20.0,
    attempts=2,
)
T0 = 1000.0


def kg(partition: int, app: AppId = APP) -> KeyGroup:
    return KeyGroup(app, OPERATOR, partition)


def started(
    *owners: WorkerId, generation: int = 1, limits: ExecutionLimits = LIMITS, apps: tuple[AppId, ...] = (APP,)
) -> ExecutionMachine:
    """A machine; the placement of each app names these owners of key groups 0, 1, ... under epoch 1.1."""
    placements = {
        app: placement_of(CLUSTER, app, Epoch(1, 1), {kg(p, app): owner for p, owner in enumerate(owners)}, None)
        for app in apps
    }
    return ExecutionMachine(CLUSTER, limits, Execution(generation=generation, number=1, placements=placements))


def plan(*moves: tuple[int, WorkerId, WorkerId], app: AppId = APP) -> PlanDecided:
    rows = (
        Move(key_group=kg(partition, app), source=source, target=target, state_bytes=100)
        for partition, source, target in moves
    )
    return PlanDecided(plan=a_plan(*rows, hosts=HOSTS))


def published(actions: list[Action]) -> Publish:
    [found] = [action for action in actions if isinstance(action, Publish)]
    return found


def rows(publish: Publish) -> dict[int, Owners]:
    """The owners in the one placement that is published."""
    [placement] = publish.placements
    return dict(enumerate(placement.owners[OPERATOR]))


def ack(command: Command | None, phase: Phase, **values: object) -> AckSeen:
    assert command is not None
    return AckSeen(ack=Ack.to(command, phase, at=T0, **values))


def refused(command: Command | None, refusal: Refusal) -> AckSeen:
    return ack(command, Phase.REFUSED, refusal=refusal)


def handover(machine: ExecutionMachine, index: int = 0, app: AppId = APP) -> Handover:
    return machine.state.rounds[app].handovers[index]


def released(machine: ExecutionMachine) -> Handover:
    """The first hand-over, up to its release."""
    machine.on_event(T0, plan((0, W0, W1)))
    machine.on_event(T0 + 1, ack(handover(machine).prepare, Phase.PREPARED, generation=7, lag_records=3))
    return handover(machine)


PREPARE = a_command(
    CommandKind.PREPARE,
    W1,
    T0,
    app=APP,
    handover="1.2-0",
    key_groups=(kg(0),),
    source=W0,
    target=W1,
)
RELEASE = replace(
    PREPARE,
    kind=CommandKind.RELEASE,
    epoch=Epoch(1, 3),
    host=HOSTS[W0],
    worker=W0,
    issued_at=T0 + 1,
    deadline=T0 + 21,
    generation=7,
)
PREPARING = a_handover(
    kg(0),
    state_bytes=100,
    phase=HandoverPhase.PREPARING,
    attempt=1,
    wake_at=T0 + 60 + ACK_GRACE_S,
    prepare=PREPARE,
)
BEGUN = a_round(
    None, PREPARING, reason="load distance 18.4 above 5.0", before=18.4, planned=1.1, lower_bound=1.1, started_at=T0
)
