"""Whatever agents say and wherever the controller is killed: one owner each, epochs rise, the plan ends."""

from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.controller.decider.decider_situations import a_plan
from trimtab_controller.execution.events import (
    AckSeen,
    Action,
    Event,
    ExecutionLimits,
    PlanDecided,
    Publish,
    Resumed,
    RoundEnded,
    StopWanted,
    WindowSeen,
)
from trimtab_controller.execution.journal import JournalEntry, decode_entry, encode_entry
from trimtab_controller.execution.machine import ExecutionMachine
from trimtab_controller.execution.state import IN_FLIGHT, Execution, HandoverPhase, placement_of
from trimtab_controller.plan import Move, Plan
from trimtab_protocol.messages.commands import Ack, Command, CommandKind, Phase, Refusal
from trimtab_protocol.messages.names import NO_EPOCH, AppId, CommandId, Epoch, HostId, KeyGroup, OperatorId, WorkerId

CLUSTER, APP, OPERATOR = "c", AppId("app"), OperatorId("sums")
WORKERS = [WorkerId(f"w{index}") for index in range(4)]
HOSTS = {worker: HostId(f"h{worker[1:]}") for worker in WORKERS}
KEY_GROUPS = [KeyGroup(APP, OPERATOR, partition) for partition in range(8)]
LIMITS = ExecutionLimits(
    schedule_restores=True,
    handovers_in_flight=2,
    key_groups_per_handover=2,
    prepare_timeout_s=10.0,
    handover_timeout_s=5.0,
    attempts=2,
)


@dataclass
class World:
    """Agents and workers: `owners` is the truth; `waiting` are commands that nobody has answered yet."""

    now: float
    machine: ExecutionMachine
    owners: dict[KeyGroup, WorkerId]
    entry: bytes = b""
    last_epoch: Epoch = NO_EPOCH
    waiting: list[Command] = field(default_factory=list)
    prepares: dict[str, Command] = field(default_factory=dict)
    acks: list[Ack] = field(default_factory=list)
    seen: set[CommandId] = field(default_factory=set)
    rounds_ended: int = 0

    def feed(self, event: Event) -> None:
        self.perform(self.machine.on_event(self.now, event))

    def perform(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Publish):
                self.store(action)
            elif isinstance(action, RoundEnded):
                self.rounds_ended += 1

    def store(self, publish: Publish) -> None:
        """What Kafka and the agents see of a publication, and what must hold for every one."""
        execution = publish.execution
        assert execution == self.machine.state
        assert execution.epoch > self.last_epoch
        self.last_epoch = execution.epoch
        assert all(placement.epoch == execution.epoch for placement in publish.placements)
        self.entry = encode_entry(JournalEntry(execution=execution))
        told = decode_entry(self.entry).execution
        assert replace(told, placements=execution.placements) == execution
        self.check_round(execution)
        for command in publish.commands:
            if command.id not in self.seen:  # agents answer a repeat once more, and do not carry it out again
                assert command.epoch == execution.epoch
                self.seen.add(command.id)
                self.waiting.append(command)

    def check_round(self, execution: Execution) -> None:
        phases = [row.phase for row in execution.rounds[APP].handovers]
        if execution.rounds[APP].stopped is not None:
            assert {HandoverPhase.WAITING, HandoverPhase.PREPARING}.isdisjoint(phases), "a stopped plan begins nothing"
        placement = execution.placements[APP]
        assert len(placement.owners[OPERATOR]) == len(KEY_GROUPS)
        running = [row for row in execution.rounds[APP].handovers if row.phase in IN_FLIGHT]
        assert len(running) <= LIMITS.handovers_in_flight
        moving = [key_group for row in running for key_group in row.key_groups]
        assert len(moving) == len(set(moving))
        for row in running:
            wanted = row.source if row.phase is HandoverPhase.PREPARING else row.target
            for key_group in row.key_groups:
                assert placement.of(OPERATOR, key_group.partition)[0] == wanted

    def answer(self, data: st.DataObject) -> None:
        """One agent says something to one of its commands, and does what it says."""
        command = self.waiting.pop(data.draw(st.integers(0, len(self.waiting) - 1)))
        if command.deadline < self.now:  # agents keep deadlines
            return
        refusal = data.draw(st.sampled_from(list(Refusal)))
        match command.kind:
            case CommandKind.PREPARE:
                assert command.handover is not None
                self.prepares[command.handover] = command
                choice = data.draw(
                    st.sampled_from(["prepared", "prepared", "prepared", "refused", "expired", "silent"])
                )
                values: dict[str, object] = {"generation": 3} if choice == "prepared" else {}
            case CommandKind.RELEASE:
                choice = data.draw(st.sampled_from(["took", "took", "took", "took unheard", "refused", "silent"]))
                values = {}
                if choice.startswith("took"):
                    assert command.handover is not None
                    assert command.target is not None
                    self.owners.update(dict.fromkeys(command.key_groups, command.target))
                    if choice == "took":
                        self.say(self.prepares[command.handover], Phase.TOOK, pause_s=0.1)
                    return
            case _:
                return
        if choice == "refused":
            self.say(command, Phase.REFUSED, refusal=refusal)
        elif choice != "silent":
            self.say(command, Phase(choice), **values)

    def say(self, command: Command, phase: Phase, **values: object) -> None:
        self.acks.append(Ack.to(command, phase, at=self.now, **values))

    def crash(self) -> None:
        """A successor begins from journal and placements alone."""
        told = decode_entry(self.entry).execution
        state = replace(told, placements=self.machine.state.placements, generation=told.generation + 1)
        self.machine = ExecutionMachine(CLUSTER, LIMITS, state)
        self.feed(Resumed())


@st.composite
def plans(draw: st.DrawFn) -> tuple[dict[KeyGroup, WorkerId], Plan]:
    owners = {key_group: draw(st.sampled_from(WORKERS)) for key_group in KEY_GROUPS}
    moved = draw(st.lists(st.sampled_from(KEY_GROUPS), min_size=1, unique=True))
    moves = []
    for key_group in moved:
        target = draw(st.sampled_from([worker for worker in WORKERS if worker != owners[key_group]]))
        moves.append(Move(key_group=key_group, source=owners[key_group], target=target, state_bytes=None))
    return owners, a_plan(*moves)


@settings(max_examples=100)
@given(case=plans(), data=st.data())
def test_one_owner_rising_epochs_and_an_end(case: tuple[dict[KeyGroup, WorkerId], Plan], data: st.DataObject) -> None:
    owners, plan = case
    placement = placement_of(CLUSTER, APP, Epoch(1, 1), owners, None)
    state = Execution(generation=1, number=1, placements={APP: placement})
    world = World(now=1000.0, machine=ExecutionMachine(CLUSTER, LIMITS, state), owners=dict(owners))
    world.feed(PlanDecided(plan=plan))
    for _ in range(data.draw(st.integers(0, 60))):
        step = data.draw(
            st.sampled_from([*["answer"] * 4, *["ack"] * 4, *["time", "crash", "report", "repeat"] * 2, "stop"])
        )
        if step == "answer" and world.waiting:
            world.answer(data)
        elif step == "ack" and world.acks:
            world.feed(AckSeen(ack=world.acks.pop(0)))
        elif step == "repeat" and world.acks:
            world.feed(AckSeen(ack=data.draw(st.sampled_from(world.acks))))
        elif step == "time":
            world.now += data.draw(st.sampled_from([0.1, 1.0, 6.0, 13.0]))
            world.perform(world.machine.on_tick(world.now))
        elif step == "report":
            world.feed(WindowSeen(start_s=world.now, end_s=world.now, owners=dict(world.owners)))
        elif step == "crash":
            world.crash()
        elif step == "stop":
            world.feed(StopWanted(app=APP, reason="stopped", answered=("stop",)))
    finish(world)


def finish(world: World) -> None:
    """Nobody answers any more; windows still arrive.  The plan ends, and what it says is so."""
    rows = world.machine.state.rounds[APP].handovers
    given_up = {row.id for row in rows if row.phase is HandoverPhase.UNRESOLVED}  # while no reports came
    for _ in range(400):
        if not world.machine.state.busy(APP):
            break
        world.now += 1.0
        world.perform(world.machine.on_tick(world.now))
        world.feed(WindowSeen(start_s=world.now, end_s=world.now, owners=dict(world.owners)))
    assert not world.machine.state.busy(APP)
    assert world.rounds_ended == 1
    placement = world.machine.state.placements[APP]
    for row in world.machine.state.rounds[APP].handovers:
        if row.id in given_up:
            continue
        assert row.phase is not HandoverPhase.UNRESOLVED, "the reports were there"
        for key_group in row.key_groups:
            owner = placement.of(OPERATOR, key_group.partition)[0]
            assert owner == world.owners[key_group]
            assert (owner == row.target) == (row.phase is HandoverPhase.DONE)
