"""The checks, in order, that a command must pass before the agent carries it out.  Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from trimtab_agent.commands.events import CommandReceived, ProcessId
from trimtab_protocol.messages.commands import MIGRATIONS, Command, CommandKind, Refusal
from trimtab_protocol.messages.names import AppId, Epoch, KeyGroup, WorkerId

FUTURE_LIMIT_S = 60.0
"""How far a command's issue time may be ahead of this host's clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRules:
    """The part of the agent's configuration that restricts commands."""

    startable: frozenset[WorkerId]
    configured: frozenset[WorkerId]
    min_free_disk_bytes: int = 0
    min_free_memory_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectedWorker:
    """A worker whose plug-in is connected.

    `owned` None: not reported yet.  `complete`: it owns no other key groups than `owned`.
    """

    app: AppId
    process: ProcessId | None
    steering: bool
    reason: str | None
    owned: frozenset[KeyGroup] | None = None
    complete: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HostState:
    """What the agent knows about its host when it checks a command."""

    now: float
    highest_epoch: Epoch
    damaged_at: float | None
    connected: Mapping[WorkerId, ConnectedWorker]
    processes: Mapping[WorkerId, ProcessId]
    stopping: frozenset[WorkerId]


Objection = tuple[Refusal | None, str]
"""Reason and detail of a refused command.  Reason None: its deadline has passed."""


def first_objection(event: CommandReceived, state: HostState, rules: CommandRules) -> Objection | None:
    """The objection of the first check that the command fails; None = carry it out."""
    command = event.command
    # Commands that were carried out before the damage were issued at most FUTURE_LIMIT_S after it.
    if state.damaged_at is not None and command.issued_at <= state.damaged_at + FUTURE_LIMIT_S:
        return Refusal.FAILED, "the agent's journal was damaged: this command may have been carried out before"
    if command.deadline <= state.now:
        return None, f"{state.now - command.deadline:.1f} s too late"
    if command.issued_at > state.now + FUTURE_LIMIT_S:
        return Refusal.FAILED, f"issued {command.issued_at - state.now:.0f} s in the future: compare the clocks"
    if command.epoch < state.highest_epoch:
        return Refusal.OLD_EPOCH, f"epoch {command.epoch}, but {state.highest_epoch} has been seen"
    known = command.worker in rules.configured or command.worker in state.connected
    if not known:
        return Refusal.UNKNOWN_WORKER, f"no worker {command.worker} on this host"
    match command.kind:
        case CommandKind.START:
            return _check_start(event, state, rules)
        case CommandKind.STOP:
            return _check_stop(command, state)
        case _:
            return _check_steering(event, state, rules)


def _check_start(event: CommandReceived, state: HostState, rules: CommandRules) -> Objection | None:
    if event.command.worker in state.stopping:
        return Refusal.WORKER_AWAY, "it is being stopped"
    if event.command.worker not in rules.startable:
        return Refusal.NOT_CONFIGURED, f"no command line for worker {event.command.worker} in the configuration"
    return _check_room(event, rules)


def _check_stop(command: Command, state: HostState) -> Objection | None:
    worker = state.connected.get(command.worker)
    if worker is None:
        if command.worker not in state.processes:
            return None  # not running: there is nothing to do
        return Refusal.WORKER_AWAY, "its process runs, but it is not connected: what it owns is unknown"
    if not command.owning and (objection := _check_empty(worker)) is not None:
        return objection
    if worker.process is None:
        return Refusal.FAILED, "its process is not visible to the agent"
    return None


def _check_empty(worker: ConnectedWorker) -> Objection | None:
    if worker.owned is None:
        return Refusal.NOT_EMPTY, "it has not reported yet: what it owns is unknown"
    if worker.owned:
        return Refusal.NOT_EMPTY, f"it owns {len(worker.owned)} key groups ({min(map(str, worker.owned))} ...)"
    if not worker.complete:
        return Refusal.NOT_EMPTY, "its last report was incomplete"
    return None


def _check_steering(event: CommandReceived, state: HostState, rules: CommandRules) -> Objection | None:
    command, worker = event.command, state.connected.get(event.command.worker)
    if worker is None:
        return Refusal.WORKER_AWAY, "not connected to the agent"
    if command.worker in state.stopping:
        return Refusal.WORKER_AWAY, "it is being stopped"
    if not worker.steering:
        return Refusal.NOT_STEERING, worker.reason or "the plug-in gives no reason"
    if command.kind not in MIGRATIONS:
        return None
    if worker.app != command.app:
        return Refusal.PRECONDITION, f"the worker runs app {worker.app}"
    end = command.source if command.kind is CommandKind.RELEASE else command.target
    if end != command.worker:
        return Refusal.PRECONDITION, f"{command.kind} is for {end}, not for {command.worker}"
    return _check_ownership(command, worker) or (
        _check_room(event, rules) if command.kind is CommandKind.PREPARE else None
    )


def _check_ownership(command: Command, worker: ConnectedWorker) -> Objection | None:
    """Check the command against the worker's report.  Without a report, the worker's own check decides."""
    if worker.owned is None:
        return None
    owned = worker.owned.intersection(command.key_groups)
    if command.kind is CommandKind.PREPARE and owned:
        return Refusal.PRECONDITION, f"{min(map(str, owned))} is already owned here"
    if command.kind is CommandKind.RELEASE and worker.complete and len(owned) < len(command.key_groups):
        missing = set(command.key_groups) - owned
        return Refusal.PRECONDITION, f"{min(map(str, missing))} is not owned here"
    return None


def _check_room(event: CommandReceived, rules: CommandRules) -> Objection | None:
    for what, free, least in (
        ("disk", event.free_disk_bytes, rules.min_free_disk_bytes),
        ("memory", event.free_memory_bytes, rules.min_free_memory_bytes),
    ):
        if least and free is not None and free < least:
            return Refusal.GUARD, f"{free} bytes of {what} free, at least {least} wanted"
    return None
