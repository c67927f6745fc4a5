"""The command machine: accepts each command once, follows it to its end, and answers every phase.

Passive: events and the time go in, actions come out in the order in which they must be performed.  An answer is in the
journal before it is sent, and a command before it is passed on.  So a machine restored from the journal knows
everything that may have had an effect.  Commands for other hosts are ignored.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import assert_never

from trimtab_agent.commands.command_checks import CommandRules, ConnectedWorker, HostState, Objection, first_objection
from trimtab_agent.commands.events import (
    AckDelivered,
    Acked,
    Action,
    Admitted,
    CommandReceived,
    Delivered,
    Entry,
    Event,
    ProcessEnded,
    ProcessFailed,
    ProcessId,
    ProcessNoted,
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
from trimtab_agent.commands.ledger import ANSWERS, CommandLedger, CommandRecord, check_answer
from trimtab_agent.commands.restarts import Restarts, ending
from trimtab_agent.configuration import MAX_CRASHES
from trimtab_protocol.messages.commands import Ack, Command, CommandKind, Phase, Refusal
from trimtab_protocol.messages.decode import BadMessage, Fault
from trimtab_protocol.messages.names import HostId, WorkerId
from trimtab_protocol.messages.report import Absence

WORKERS_RETURN_S = 5.0
"""How long after its start the agent holds commands for workers that have not reconnected yet, and starts none: it may
not have read a command that stops one."""


class CommandMachine:
    """All commands of one host.  `on_event` and `on_tick` return actions; `wake_at` is the time of the next tick."""

    def __init__(
        self,
        *,
        cluster: str,
        host: HostId,
        rules: CommandRules,
        started_at: float,
        max_crashes: int = MAX_CRASHES,
    ) -> None:
        self._cluster = cluster
        self._host = host
        self._rules = rules
        self._started_at, self._hold_until = started_at, started_at + WORKERS_RETURN_S
        self._ledger = CommandLedger()
        self._restarts = Restarts(self._ledger, max_crashes, rules.startable)
        self._connected: dict[WorkerId, ConnectedWorker] = {}
        self._held: list[CommandReceived] = []

    @property
    def processes(self) -> dict[WorkerId, ProcessId]:
        """Processes that the agent started or is stopping, and that are alive as far as it knows."""
        return dict(self._ledger.processes)

    @property
    def holding(self) -> bool:
        """Whether a command waits for its worker to connect.

        Such a command is not in the journal yet, so it must be read again after a restart.
        """
        return bool(self._held)

    @property
    def wake_at(self) -> float | None:
        """When to call `on_tick` next (epoch seconds); None = only after an event."""
        times = [record.command.deadline for record in self._ledger.records.values() if record.unanswered]
        if self._held:
            times.append(self._hold_until)
        times += [max(self._hold_until, due_at) for due_at in self._restarts.due.values()]
        return min(times, default=None)

    @property
    def given_up(self) -> frozenset[WorkerId]:
        """Crashed workers that the agent no longer starts by itself."""
        return self._restarts.given_up

    @property
    def newest_generation(self) -> int:
        """The newest leader's that has commanded something."""
        return self._ledger.highest_epoch.generation

    def absences(self, now: float) -> dict[WorkerId, tuple[Absence, str | None]]:
        """Why workers that the agent can start are not connected, and what an operator must know of it."""
        return self._restarts.absences(self._connected, just_started=self._holds(now))

    def _holds(self, now: float) -> bool:
        """Whether the agent has just started; not if the clock has been set back since, as it often is at a boot."""
        return self._started_at <= now < self._hold_until

    # --- state that survives a restart

    def restore(self, entries: Iterable[Entry]) -> None:
        """Apply the entries of a journal, in order."""
        self._ledger.restore(entries)

    def entries(self) -> Iterator[Entry]:
        """The entries of a journal that restores this machine."""
        return self._ledger.entries()

    def resume(self) -> tuple[Action, ...]:
        """Actions after a restart: send acks that may not have arrived, begin scaling that may not have begun."""
        actions = list(self._restarts.resume())
        for record in self._ledger.records.values():
            actions += [SendAck(ack=ack) for phase, ack in record.acks.items() if phase in record.undelivered]
        for record in self._ledger.records.values():
            if not record.unanswered:
                continue
            if record.command.kind is CommandKind.START or (
                record.command.kind is CommandKind.STOP and record.command.worker in self._ledger.processes
            ):
                actions.append(self._begin(record.command))
        return tuple(actions)

    # --- entrances

    def on_event(self, now: float, event: Event) -> tuple[Action, ...]:
        """The actions that follow from an event at `now` (epoch seconds).

        Raises BadMessage for an ack of an unknown command, and for a known command id with other content.
        """
        match event:
            case CommandReceived():
                return tuple(self._receive(now, event))
            case WorkerConnected():
                return tuple(self._connect(now, event))
            case WorkerDisconnected():
                self._connected.pop(event.worker, None)
                return ()
            case WorkerReported():
                return tuple(self._learn_ownership(now, event))
            case WorkerAcked():
                return tuple(self._pass_on(event))
            case ProcessStarted():
                return tuple(self._note_start(now, event))
            case ProcessFailed():
                return tuple(self._fail_scaling(now, event))
            case ProcessEnded():
                return tuple(self._end_process(now, event))
            case AckDelivered():
                return tuple(self._deliver(event))
            case _:
                assert_never(event)

    def on_tick(self, now: float) -> tuple[Action, ...]:
        """The actions that follow from the time alone: deadlines have passed, or holding is over."""
        actions: list[Action] = []
        for record in list(self._ledger.records.values()):
            if record.unanswered and record.command.deadline <= now:
                what = "its process does not end" if record.command.kind is CommandKind.STOP else "no answer"
                actions += self._answer(record, now, Phase.EXPIRED, detail=f"{what} by the deadline")
        if not self._holds(now):
            actions += self._retry_held(now, None)
            actions += self._restarts.on_tick(now)
        self._ledger.forget(now)
        return tuple(actions)

    # --- commands

    def _receive(self, now: float, event: CommandReceived) -> Iterator[Action]:
        command = event.command
        if (command.cluster, command.host) != (self._cluster, self._host):
            return
        record = self._ledger.records.get(command.id)
        held = next((each.command for each in self._held if each.command.id == command.id), None)
        if command != (record.command if record else held or command):
            raise BadMessage(Fault.REPEATED, "id", command.id, "the content that came with it before")
        if record:
            yield SendAck(ack=record.last)
        elif held:
            pass  # the held command is answered later
        elif self._must_wait(now, command):
            self._held.append(event)
        else:
            yield from self._admit(now, event)

    def _must_wait(self, now: float, command: Command) -> bool:
        """Whether to hold a command for now.

        Just after the agent's start it means nothing yet that a worker is absent or has not reported what it owns.
        A start need not wait, because a running process is found.
        """
        if not self._holds(now) or command.deadline <= now or command.kind is CommandKind.START:
            return False
        worker = self._connected.get(command.worker)
        return worker is None or (command.kind is CommandKind.STOP and worker.owned is None and not command.owning)

    def _retry_held(self, now: float, worker: WorkerId | None) -> Iterator[Action]:
        """Check held commands again: all of them, or those for one worker."""
        again = [event for event in self._held if worker in (None, event.command.worker)]
        self._held = [event for event in self._held if event not in again]
        for event in again:
            yield from self._receive(now, event)

    def _admit(self, now: float, event: CommandReceived) -> Iterator[Action]:
        command = event.command
        objection = first_objection(event, self._host_state(now), self._rules)
        ack = self._first_ack(now, command, objection)
        if command.kind is CommandKind.STOP and ack.phase is Phase.ACCEPTED:
            process = self._connected[command.worker].process
            yield self._note_process(command.worker, process)
        self._ledger.remember(command, ack)
        yield Write(entry=Admitted(command=command, ack=ack))
        yield SendAck(ack=ack)
        if ack.phase is Phase.ACCEPTED:
            yield self._begin(command)

    def _first_ack(self, now: float, command: Command, objection: Objection | None) -> Ack:
        if objection is not None:
            refusal, detail = objection
            phase = Phase.REFUSED if refusal else Phase.EXPIRED
            return Ack.to(command, phase, at=now, refusal=refusal, detail=detail)
        if command.kind is CommandKind.START and command.worker in self._connected:
            return Ack.to(command, Phase.STARTED, at=now, detail="it was running already")
        if command.kind is CommandKind.STOP and command.worker not in self._connected:
            return Ack.to(command, Phase.STOPPED, at=now, detail="it was not running")
        return Ack.to(command, Phase.ACCEPTED, at=now)

    def _begin(self, command: Command) -> Action:
        match command.kind:
            case CommandKind.START:
                return StartProcess(worker=command.worker)
            case CommandKind.STOP:
                return StopProcess(worker=command.worker, process=self._ledger.processes[command.worker])
            case _:
                return TellWorker(worker=command.worker, command=command)

    # --- workers

    def _connect(self, now: float, event: WorkerConnected) -> Iterator[Action]:
        self._connected[event.worker] = ConnectedWorker(
            app=event.app, process=event.process, steering=event.steering, reason=event.reason
        )
        yield from self._restarts.connected(now, event.worker, event.process)
        known = self._ledger.processes.get(event.worker)
        if event.process not in (None, known) and event.worker in self._ledger.kept:
            yield self._note_process(event.worker, event.process)  # it may be a child of the one that was started
        for record in self._ledger.open_of(event.worker):
            if record.command.kind is CommandKind.START:
                yield from self._answer(record, now, Phase.STARTED)
            elif ANSWERS[record.command.kind] and now < record.command.deadline:
                yield TellWorker(worker=event.worker, command=record.command)
        yield from self._retry_held(now, event.worker)

    def _learn_ownership(self, now: float, event: WorkerReported) -> Iterator[Action]:
        if worker := self._connected.get(event.worker):
            self._connected[event.worker] = replace(worker, owned=event.owned, complete=event.complete)
            yield from self._retry_held(now, event.worker)

    def _pass_on(self, event: WorkerAcked) -> Iterator[Action]:
        ack, record = event.ack, self._ledger.records.get(event.ack.command_id)
        if record is None or record.command.worker != event.worker:
            raise BadMessage(Fault.RANGE, "command_id", ack.command_id, f"a command given to {event.worker}")
        check_answer(ack, record.command)
        if record.ended or ack.phase in record.acks:
            return
        self._follow_ownership(record.command, ack.phase)
        record.note(ack)
        yield Write(entry=Acked(ack=ack))
        yield SendAck(ack=ack)

    def _follow_ownership(self, command: Command, phase: Phase) -> None:
        """Update what a worker owns after a hand-over, before its next report says so."""
        worker = self._connected.get(command.worker)
        if worker is None or worker.owned is None:
            return
        if phase is Phase.TOOK:
            self._connected[command.worker] = replace(worker, owned=worker.owned.union(command.key_groups))
        elif phase is Phase.RELEASED:
            self._connected[command.worker] = replace(worker, owned=worker.owned.difference(command.key_groups))

    # --- processes

    def _note_process(self, worker: WorkerId, process: ProcessId | None) -> Write:
        self._ledger.note_process(worker, process)
        return Write(entry=ProcessNoted(worker=worker, process=process))

    def _note_start(self, now: float, event: ProcessStarted) -> Iterator[Action]:
        yield self._note_process(event.worker, event.process)
        yield from self._restarts.started(now, event.worker)
        if event.worker in self._connected:
            for record in self._ledger.open_of(event.worker, CommandKind.START):
                yield from self._answer(record, now, Phase.STARTED)

    def _fail_scaling(self, now: float, event: ProcessFailed) -> Iterator[Action]:
        for record in self._ledger.open_of(event.worker, CommandKind.START, CommandKind.STOP):
            yield from self._answer(record, now, Phase.REFUSED, refusal=Refusal.FAILED, detail=event.detail)
            if record.command.kind is CommandKind.START:
                yield from self._restarts.start_failed(now, event.worker, event.detail)
        yield from self._restarts.not_started(now, event.worker, event.detail)

    def _end_process(self, now: float, event: ProcessEnded) -> Iterator[Action]:
        code = ending(event.exit_code)
        for record in self._ledger.open_of(event.worker):
            match record.command.kind:
                case CommandKind.STOP:
                    yield from self._answer(record, now, Phase.STOPPED, exit_code=event.exit_code)
                case CommandKind.START:
                    detail = f"it ended with {code} before it connected"
                    yield from self._answer(record, now, Phase.REFUSED, refusal=Refusal.FAILED, detail=detail)
                    yield from self._restarts.start_failed(now, event.worker, detail)
                case _:
                    detail = f"its process ended with {code}"
                    yield from self._answer(record, now, Phase.REFUSED, refusal=Refusal.WORKER_AWAY, detail=detail)
        if self._ledger.processes.get(event.worker) == event.process:
            # First how it ended: a worker whose process alone is forgotten would look as if it had never crashed.
            yield from self._restarts.ended(now, event.worker, event.exit_code)
            yield self._note_process(event.worker, None)

    # --- answers

    def _answer(
        self,
        record: CommandRecord,
        now: float,
        phase: Phase,
        *,
        refusal: Refusal | None = None,
        detail: str | None = None,
        exit_code: int | None = None,
    ) -> Iterator[Action]:
        ack = Ack.to(record.command, phase, at=now, refusal=refusal, detail=detail, exit_code=exit_code)
        record.note(ack)
        yield Write(entry=Acked(ack=ack))
        yield SendAck(ack=ack)

    def _deliver(self, event: AckDelivered) -> Iterator[Action]:
        record = self._ledger.records.get(event.command_id)
        if record is not None and event.phase in record.undelivered:
            record.undelivered.discard(event.phase)
            yield Write(entry=Delivered(command_id=event.command_id, phase=event.phase))

    # --- state

    def _host_state(self, now: float) -> HostState:
        return HostState(
            now=now,
            highest_epoch=self._ledger.highest_epoch,
            damaged_at=self._ledger.damaged_at,
            connected=self._connected,
            processes=self._ledger.processes,
            stopping=self._ledger.stopping(),
        )
