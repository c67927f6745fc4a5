"""The command machine under random events and crashes: what was said is remembered, nothing is decided twice."""

from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.agent.commands.agent_transcripts import APP, H0, W0, command, key_groups
from trimtab_agent.commands.command_checks import CommandRules
from trimtab_agent.commands.events import (
    AckDelivered,
    Acked,
    Action,
    Admitted,
    CommandReceived,
    Entry,
    ProcessEnded,
    ProcessId,
    ProcessStarted,
    SendAck,
    StartProcess,
    StopProcess,
    TellWorker,
    WorkerAcked,
    WorkerConnected,
    WorkerDisconnected,
    WorkerReported,
    Write,
)
from trimtab_agent.commands.ledger import ANSWERS, ENDS
from trimtab_agent.commands.machine import CommandMachine
from trimtab_protocol.messages.commands import Ack, Command, CommandKind, Phase, Refusal
from trimtab_protocol.messages.decode import BadMessage
from trimtab_protocol.messages.names import CommandId

RULES = CommandRules(configured=frozenset({W0}), startable=frozenset({W0}))
(KEY_GROUP,) = key_groups(3)
TIMES = {"issued_at": 0.0, "deadline": 40.0}
COMMANDS = tuple(command(kind, number, **TIMES) for number, kind in enumerate(CommandKind, start=1))


class World:
    """An agent with a disk, and everything that was ever said or done."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pid = 1
        self.disk: list[Entry] = []
        self.said: list[Ack] = []
        self.told: list[CommandId] = []
        self.boot()

    def boot(self) -> None:
        self.machine = CommandMachine(cluster="demo", host=H0, rules=RULES, started_at=self.now)
        self.machine.restore(self.disk)
        self.perform(self.machine.resume(), None)

    def perform(self, actions: Sequence[Action], crash_after: int | None) -> None:
        """Do the actions; with a crash only so many of them, then start again from the disk."""
        for action in actions[:crash_after]:
            match action:
                case Write(entry=entry):
                    self.disk.append(entry)
                case SendAck(ack=ack):
                    assert ack in written(self.disk), "sent before it was written"
                    self.said.append(ack)
                case TellWorker(command=told):
                    assert told.id in admitted(self.disk), "handed on before it was written"
                    self.told.append(told.id)
                case StartProcess() | StopProcess():
                    pass
        if crash_after is not None:
            self.boot()

    def step(self, what: str, about: Command, choice: int, crash_after: int | None) -> None:
        self.now += 0.7
        possible = sorted(ANSWERS[about.kind]) or [Phase.STARTED]
        phase = possible[choice % len(possible)]
        if what == "tick":
            actions = self.machine.on_tick(self.now)
            if StartProcess(worker=W0) in actions:
                assert last_told(self.disk) is CommandKind.START, "started again against a stop"
            self.perform(actions, crash_after)
            return
        try:
            self.perform(self.machine.on_event(self.now, self.event(what, about, phase)), crash_after)
        except BadMessage:
            assert what == "answer"

    def event(self, what: str, about: Command, phase: Phase) -> Any:
        process = ProcessId(pid=self.pid, created=1.0)
        match what:
            case "receive":
                return CommandReceived(command=about)
            case "connect":
                return WorkerConnected(worker=W0, app=APP, process=process, steering=True)
            case "disconnect":
                return WorkerDisconnected(worker=W0)
            case "report full" | "report empty":
                owned = frozenset({KEY_GROUP} if what == "report full" else ())
                return WorkerReported(worker=W0, owned=owned, complete=True)
            case "started":
                return ProcessStarted(worker=W0, process=process)
            case "ended" | "crashed":
                return ProcessEnded(worker=W0, process=process, exit_code=0 if what == "ended" else 1)
            case "delivered":
                return AckDelivered(command_id=about.id, phase=phase)
            case _:
                return WorkerAcked(worker=W0, ack=answer(about, phase, self.now))


def answer(about: Command, phase: Phase, at: float) -> Ack:
    refusal = Refusal.GENERATION if phase is Phase.REFUSED else None
    return Ack.to(about, phase, at=at, refusal=refusal)


def written(disk: Sequence[Entry]) -> list[Ack]:
    return [entry.ack for entry in disk if isinstance(entry, Admitted | Acked)]


def last_told(disk: Sequence[Entry]) -> CommandKind | None:
    """The last accepted START, or the last STOP that was accepted or not needed."""
    told = (
        (entry.command.kind, entry.ack.phase)
        for entry in reversed(disk)
        if isinstance(entry, Admitted) and entry.command.kind in (CommandKind.START, CommandKind.STOP)
    )
    return next((kind for kind, phase in told if phase in (Phase.ACCEPTED, Phase.STOPPED)), None)


def admitted(disk: Sequence[Entry]) -> set[CommandId]:
    return {entry.command.id for entry in disk if isinstance(entry, Admitted)}


STEPS = st.tuples(
    st.sampled_from(
        ["receive", "receive", "connect", "disconnect", "report full", "report empty", "started", "ended", "crashed",
         "delivered", "answer", "answer", "tick"]
    ),
    st.sampled_from(COMMANDS),
    st.integers(0, 4),
    st.none() | st.integers(0, 4),
)  # fmt: skip


@settings(max_examples=150)
@given(st.lists(STEPS, min_size=20, max_size=80))
def test_crashes_at_any_action_lose_and_double_nothing(steps: list[tuple[str, Command, int, int | None]]) -> None:
    world = World()

    for step in [("connect", COMMANDS[0], 0, None), *steps]:
        world.step(*step)

    admissions = [entry.command.id for entry in world.disk if isinstance(entry, Admitted)]
    assert len(admissions) == len(set(admissions)), "a command was judged twice"
    for about in COMMANDS:
        phases = [ack.phase for ack in written(world.disk) if ack.command_id == about.id]
        assert len(phases) == len(set(phases)), "a phase was answered twice"
        assert len(ENDS.intersection(phases)) <= 1, "a command ended twice"
    again = CommandMachine(cluster="demo", host=H0, rules=RULES, started_at=world.now)
    again.restore(world.machine.entries())
    assert list(again.entries()) == list(world.machine.entries()), "a rewritten journal says something else"


SCALINGS = tuple(command((CommandKind.STOP, CommandKind.START)[number % 2], number, **TIMES) for number in range(1, 9))
HAPPENINGS = ["receive", "connect", "disconnect", "report empty", "started", "crashed", "crashed", "ended", "tick"]


@settings(max_examples=300)
@given(st.lists(st.tuples(st.sampled_from(HAPPENINGS), st.none() | st.integers(0, 4)), max_size=40))
def test_a_crashed_worker_is_never_started_against_a_stop(steps: list[tuple[str, int | None]]) -> None:
    world, waiting = World(), list(SCALINGS)
    begin = [(what, None) for what in ("receive", "started", "connect", "report empty")]

    for what, crash_after in [*begin, *steps]:
        about = waiting.pop(0) if what == "receive" and waiting else SCALINGS[0]
        world.step(what, about, 0, crash_after)
    world.now += 100
    for _ in range(3):
        world.step("tick", SCALINGS[0], 0, None)
