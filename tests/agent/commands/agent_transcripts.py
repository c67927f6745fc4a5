"""What the transcripts of the command machine are written in: events in, the whole list of actions out."""

from typing import Any

from trimtab_agent.commands.command_checks import CommandRules
from trimtab_agent.commands.events import (
    Acked,
    Action,
    Admitted,
    CommandReceived,
    Event,
    ProcessId,
    SendAck,
    WorkerConnected,
    WorkerReported,
    Write,
)
from trimtab_agent.commands.machine import CommandMachine
from trimtab_protocol.messages.commands import Ack, Command, CommandKind, Phase
from trimtab_protocol.messages.names import AppId, Epoch, HostId, KeyGroup, OperatorId, WorkerId

NOW = 1000.0
H0, W0, W1, W9 = HostId("h0"), WorkerId("w0"), WorkerId("w1"), WorkerId("w9")
APP = AppId("flights")
PROCESS = ProcessId(pid=70, created=900.0)
RULES = CommandRules(
    configured=frozenset({W0, W1}), startable=frozenset({W1}), min_free_disk_bytes=100, min_free_memory_bytes=200
)


def key_groups(*partitions: int) -> tuple[KeyGroup, ...]:
    return tuple(KeyGroup(APP, OperatorId("sums"), partition) for partition in partitions)


def command(kind: CommandKind, number: int = 5, **changes: Any) -> Command:
    values: dict[str, Any] = {
        "cluster": "demo", "kind": kind, "epoch": Epoch(1, number), "host": H0, "worker": W0, "app": APP,
        "issued_at": NOW - 1, "deadline": NOW + 60,
    }  # fmt: skip
    if kind in (CommandKind.PREPARE, CommandKind.RELEASE, CommandKind.ABANDON):
        source, target = (W0, W9) if kind is CommandKind.RELEASE else (W9, W0)
        values |= {"handover": "ho1", "key_groups": key_groups(3), "source": source, "target": target}
    if kind is CommandKind.RELEASE:
        values |= {"generation": 4}
    return Command(**{**values, **changes})


def ack(to: Command, phase: Phase, at: float = NOW, **more: Any) -> Ack:
    return Ack(
        cluster=to.cluster, command_id=to.id, epoch=to.epoch, kind=to.kind, host=to.host, worker=to.worker,
        phase=phase, at=at, handover=to.handover, **more,
    )  # fmt: skip


def answered(to: Command, phase: Phase, at: float = NOW, **more: Any) -> list[Action]:
    """What a further answer looks like: first written, then sent."""
    answer = ack(to, phase, at, **more)
    return [Write(entry=Acked(ack=answer)), SendAck(ack=answer)]


def admitted(to: Command, phase: Phase = Phase.ACCEPTED, at: float = NOW, **more: Any) -> list[Action]:
    answer = ack(to, phase, at, **more)
    return [Write(entry=Admitted(command=to, ack=answer)), SendAck(ack=answer)]


def received(what: Command, disk: int | None = 10_000, memory: int | None = 10_000) -> CommandReceived:
    return CommandReceived(command=what, free_disk_bytes=disk, free_memory_bytes=memory)


def connected(worker: WorkerId = W0, **changes: Any) -> WorkerConnected:
    values = {"worker": worker, "app": APP, "process": PROCESS, "steering": True, **changes}
    return WorkerConnected(**values)


def owning(*partitions: int, worker: WorkerId = W0, complete: bool = True) -> WorkerReported:
    return WorkerReported(worker=worker, owned=frozenset(key_groups(*partitions)), complete=complete)


def machine(*events: Event, rules: CommandRules = RULES, started_at: float = NOW - 100) -> CommandMachine:
    """A machine that has long been running and saw these events."""
    made = CommandMachine(cluster="demo", host=H0, rules=rules, started_at=started_at)
    for event in events:
        made.on_event(NOW - 50, event)
    return made


def act(on: CommandMachine, event: Event, now: float = NOW) -> list[Action]:
    return list(on.on_event(now, event))


def reborn(of: CommandMachine, *, at: float = NOW, rules: CommandRules = RULES) -> CommandMachine:
    """The machine after a restart of the agent."""
    fresh = CommandMachine(cluster="demo", host=H0, rules=rules, started_at=at)
    fresh.restore(of.entries())
    return fresh
