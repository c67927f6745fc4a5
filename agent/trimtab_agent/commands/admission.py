"""Whether a command may be carried out now: each rule once, in the order in which they are asked."""

from collections.abc import Mapping
from dataclasses import dataclass

from trimtab_agent.commands.events import CommandReceived, ProcessId
from trimtab_protocol.messages.commands import MIGRATIONS, Command, CommandKind, Refusal
from trimtab_protocol.messages.names import AppId, Epoch, KeyGroup, WorkerId

FUTURE_LIMIT_S = 60.0
"""How far a command's issue time may be ahead of this host's clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the agent's configuration says about commands."""

    startable: frozenset[WorkerId]
    configured: frozenset[WorkerId]
    min_free_disk_bytes: int = 0
    min_free_memory_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Presence:
    """A connected worker.  `owned` None: it has not reported yet; `complete`: nothing else is owned."""

    app: AppId
    process: ProcessId | None
    steering: bool
    reason: str | None
    owned: frozenset[KeyGroup] | None = None
    complete: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What the machine knows when it judges a command."""

    now: float
    highest_epoch: Epoch
    damaged_at: float | None
    present: Mapping[WorkerId, Presence]
    processes: Mapping[WorkerId, ProcessId]
    stopping: frozenset[WorkerId]


Objection = tuple[Refusal | None, str]
"""Why not, and the details; None = too late."""


def object_to(event: CommandReceived, standing: Standing, rules: Rules) -> Objection | None:
    """The first rule that a command breaks; None = carry it out."""
    command = event.command
    # What was carried out before was issued at most this long after the agent's clock.
    if standing.damaged_at is not None and command.issued_at <= standing.damaged_at + FUTURE_LIMIT_S:
        return Refusal.FAILED, "the agent's journal was damaged: this command may have been carried out before"
    if command.deadline <= standing.now:
        return None, f"{standing.now - command.deadline:.1f} s too late"
    if command.issued_at > standing.now + FUTURE_LIMIT_S:
        return Refusal.FAILED, f"issued {command.issued_at - standing.now:.0f} s in the future: compare the clocks"
    if command.epoch < standing.highest_epoch:
        return Refusal.OLD_EPOCH, f"epoch {command.epoch}, but {standing.highest_epoch} has been seen"
    known = command.worker in rules.configured or command.worker in standing.present
    if not known:
        return Refusal.UNKNOWN_WORKER, f"no worker {command.worker} on this host"
    match command.kind:
        case CommandKind.START:
            return _object_to_start(event, standing, rules)
        case CommandKind.STOP:
            return _object_to_stop(command, standing)
        case _:
            return _object_to_steering(event, standing, rules)


def _object_to_start(event: CommandReceived, standing: Standing, rules: Rules) -> Objection | None:
    if event.command.worker in standing.stopping:
        return Refusal.WORKER_AWAY, "it is being stopped"
    if event.command.worker not in rules.startable:
        return Refusal.NOT_CONFIGURED, f"no command line for worker {event.command.worker} in the configuration"
    return _object_to_room(event, rules)


def _object_to_stop(command: Command, standing: Standing) -> Objection | None:
    presence = standing.present.get(command.worker)
    if presence is None:
        if command.worker not in standing.processes:
            return None  # not running: there is nothing to do
        return Refusal.WORKER_AWAY, "its process runs, but it is not connected: what it owns is unknown"
    if presence.owned is None:
        return Refusal.NOT_EMPTY, "it has not reported yet: what it owns is unknown"
    if presence.owned:
        return Refusal.NOT_EMPTY, f"it owns {len(presence.owned)} key groups ({min(map(str, presence.owned))} ...)"
    if not presence.complete:
        return Refusal.NOT_EMPTY, "its last report was incomplete"
    if presence.process is None:
        return Refusal.FAILED, "its process is not visible to the agent"
    return None


def _object_to_steering(event: CommandReceived, standing: Standing, rules: Rules) -> Objection | None:
    command, presence = event.command, standing.present.get(event.command.worker)
    if presence is None:
        return Refusal.WORKER_AWAY, "not connected to the agent"
    if command.worker in standing.stopping:
        return Refusal.WORKER_AWAY, "it is being stopped"
    if not presence.steering:
        return Refusal.NOT_STEERING, presence.reason or "the plug-in gives no reason"
    if command.kind not in MIGRATIONS:
        return None
    if presence.app != command.app:
        return Refusal.PRECONDITION, f"the worker runs app {presence.app}"
    end = command.source if command.kind is CommandKind.RELEASE else command.target
    if end != command.worker:
        return Refusal.PRECONDITION, f"{command.kind} is for {end}, not for {command.worker}"
    return _object_to_ownership(command, presence) or (
        _object_to_room(event, rules) if command.kind is CommandKind.PREPARE else None
    )


def _object_to_ownership(command: Command, presence: Presence) -> Objection | None:
    """What the worker has not reported is unknown: then its own check decides."""
    if presence.owned is None:
        return None
    owned = presence.owned.intersection(command.key_groups)
    if command.kind is CommandKind.PREPARE and owned:
        return Refusal.PRECONDITION, f"{min(map(str, owned))} is already owned here"
    if command.kind is CommandKind.RELEASE and presence.complete and len(owned) < len(command.key_groups):
        missing = set(command.key_groups) - owned
        return Refusal.PRECONDITION, f"{min(map(str, missing))} is not owned here"
    return None


def _object_to_room(event: CommandReceived, rules: Rules) -> Objection | None:
    for what, free, least in (
        ("disk", event.free_disk_bytes, rules.min_free_disk_bytes),
        ("memory", event.free_memory_bytes, rules.min_free_memory_bytes),
    ):
        if least and free is not None and free < least:
            return Refusal.GUARD, f"{free} bytes of {what} free, at least {least} wanted"
    return None
