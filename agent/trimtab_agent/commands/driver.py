"""Feeds events to the command machine and performs its actions on journal, acks, local workers and processes."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable

from trimtab_agent.commands.command_checks import CommandRules
from trimtab_agent.commands.events import (
    AckDelivered,
    Acked,
    Action,
    Admitted,
    CommandReceived,
    Damaged,
    Delivered,
    Entry,
    Event,
    KeptNoted,
    KeptWorker,
    Position,
    ProcessFailed,
    ProcessId,
    ProcessStarted,
    SayCrash,
    SendAck,
    StartProcess,
    StopProcess,
    TellWorker,
    Write,
)
from trimtab_agent.commands.journal import Journal
from trimtab_agent.commands.machine import CommandMachine
from trimtab_agent.commands.processes import WorkerProcesses
from trimtab_agent.commands.restarts import backoff_s
from trimtab_agent.configuration import AgentConfiguration
from trimtab_agent.metrics import AgentMetrics
from trimtab_agent.sampler.disks import disk_of
from trimtab_process.logs import fields
from trimtab_protocol.messages.commands import Ack, Command
from trimtab_protocol.messages.names import WorkerId
from trimtab_protocol.messages.report import Absence

TICK_S = 0.5
ACK_RETRY_S = 1.0
POSITION_EVERY_S = 5.0

log = logging.getLogger(__name__)

ProduceAck = Callable[[Ack, Callable[[str | None], None]], None]
"""Sends an ack, then calls back with the error or None."""


class CommandDriver:
    """Runs the machine and performs its actions.  If the journal cannot be written, it stops and calls `fail`."""

    def __init__(
        self,
        configuration: AgentConfiguration,
        metrics: AgentMetrics,
        *,
        tell: Callable[[WorkerId, Command], None],
        produce: ProduceAck,
        free_memory_bytes: Callable[[], int | None],
        fail: Callable[[str], None],
    ) -> None:
        self._configuration = configuration
        self._metrics = metrics
        self._tell = tell
        self._produce = produce
        self._free_memory_bytes = free_memory_bytes
        self._fail = fail
        self._failed = False
        self._positions: dict[tuple[str, int], Position] = {}
        self._unsaved: dict[tuple[str, int], Position] = {}
        self._saved_at = 0.0
        self._processes = WorkerProcesses(
            cluster=configuration.cluster,
            socket=configuration.socket,
            logs=configuration.state_dir,
            trust=configuration.trust,
        )
        workers = configuration.workers
        rules = CommandRules(
            configured=frozenset(workers),
            startable=frozenset(worker for worker, settings in workers.items() if settings.command),
            min_free_disk_bytes=configuration.guard.min_free_disk_bytes,
            min_free_memory_bytes=configuration.guard.min_free_memory_bytes,
        )
        now = time.time()
        self._machine = CommandMachine(
            cluster=configuration.cluster,
            host=configuration.host,
            rules=rules,
            started_at=now,
            max_crashes=configuration.max_crashes,
        )
        self._journal = Journal(configuration.state_dir / "journal")
        self._recover(now)

    @property
    def positions(self) -> list[Position]:
        """The positions at which to continue reading commands."""
        return list(self._positions.values())

    @property
    def newest_generation(self) -> int:
        """The newest leader's that has commanded something; what an older one commands is refused."""
        return self._machine.newest_generation

    def absences(self) -> dict[WorkerId, tuple[Absence, str | None]]:
        """Why workers that the agent can start are not connected, and what an operator must know of it."""
        return self._machine.absences(time.time())

    def resume(self) -> None:
        """Continue the commands that were under way when the agent ended."""
        for worker, process in self._machine.processes.items():
            self._processes.watch(worker, process)
        self._perform(self._machine.resume())

    def handle(self, event: Event) -> None:
        """Pass an event to the machine and perform its actions.  Raises BadMessage for an ack of an unknown command."""
        if not self._failed:
            self._perform(self._machine.on_event(time.time(), event))

    def receive(self, command: Command) -> None:
        """Pass a command to the machine, with the free disk space and memory of this host."""
        if command.host != self._configuration.host:
            return
        free = {
            "free_disk_bytes": self._free_disk_bytes(command.worker),
            "free_memory_bytes": self._free_memory_bytes(),
        }
        self.handle(CommandReceived(command=command, **free))

    def advance(self, position: Position) -> None:
        """Note that all records before this position have been handled."""
        self._positions[position.topic_id, position.partition] = position
        self._unsaved[position.topic_id, position.partition] = position

    def watch(self, worker: WorkerId, process: ProcessId) -> None:
        """Watch the process of a worker that has connected for its end."""
        self._processes.connected(worker, process)

    async def run(self) -> None:
        """Watch clock and processes until cancelled."""
        while True:
            await asyncio.sleep(TICK_S)
            self._tick()

    def close(self) -> None:
        """Save the positions and close the journal.  Workers keep running."""
        if not self._failed:
            self._save_positions()
        self._journal.close()

    def left_running(self) -> dict[str, str]:
        """For the log: the workers that this agent started and leaves running, and how to end them; empty if none."""
        running = sorted(self._machine.processes.items())
        if not running:
            return {}
        return {
            "running": ", ".join(f"{worker} (pid {process.pid})" for worker, process in running),
            "to_end_them": "SIGTERM to the pid; in order, with an agent running: trimtab drain",
        }

    # --- its own work

    def _recover(self, now: float) -> None:
        recovered = self._journal.recover()
        self._machine.restore(recovered.entries)
        for entry in recovered.entries:
            if isinstance(entry, Position):
                self._positions[entry.topic_id, entry.partition] = entry
        self._metrics.journal_faults.set(len(recovered.faults))
        self._metrics.workers_given_up.set(len(self._machine.given_up))
        if recovered.faults:
            log.error(
                "journal damaged: commands issued before a minute from now are refused unless the journal knows them",
                **fields(faults=len(recovered.faults), first=recovered.faults[0]),
            )
            self._machine.restore([Damaged(at=now)])
            self._journal.rewrite(self._entries())

    def _entries(self) -> Iterable[Entry]:
        yield from self._machine.entries()
        yield from self._positions.values()

    def _tick(self) -> None:
        if self._failed:
            return
        for event in self._processes.ended():
            code = "unknown, this agent did not start it" if event.exit_code is None else event.exit_code
            log.info("worker process ended", **fields(worker=event.worker, pid=event.process.pid, exit_code=code))
            self.handle(event)
        now = time.time()  # not before the ends above: to the machine, the clock would have been set back since
        wake_at = self._machine.wake_at
        if wake_at is not None and wake_at <= now:
            self._perform(self._machine.on_tick(now))
        if abs(now - self._saved_at) >= POSITION_EVERY_S:
            self._saved_at = now
            self._perform(self._machine.on_tick(now))
            self._save_positions()

    def _save_positions(self) -> None:
        """Save the positions, unless a command waits for its worker.

        A waiting command is not in the journal yet, so it must be read again after a restart.
        """
        if not self._machine.holding:
            self._perform([Write(entry=position) for position in self._unsaved.values()])
            self._unsaved.clear()

    def _perform(self, actions: Iterable[Action]) -> None:
        try:
            for action in actions:
                self._do(action)
            if self._journal.is_large:
                self._journal.rewrite(self._entries())
        except OSError as exc:
            self._failed = True
            self._fail(f"the journal cannot be written: {exc}")

    def _do(self, action: Action) -> None:
        match action:
            case Write():
                self._journal.append(action.entry, durable=not isinstance(action.entry, Delivered | Position))
                if isinstance(action.entry, Admitted | Acked):
                    self._tell_answer(action.entry.ack)
                if isinstance(action.entry, Admitted | KeptNoted):
                    self._metrics.workers_given_up.set(len(self._machine.given_up))
            case SendAck():
                self._send(action.ack)
            case TellWorker():
                self._tell(action.worker, action.command)
            case StartProcess():
                self._start(action.worker)
            case StopProcess():
                self._stop(action)
            case SayCrash():
                self._say_crash(action.worker, action.kept)

    def _tell_answer(self, ack: Ack) -> None:
        """Count a refusal, and log an answer once, so that repeated commands cannot fill this host's disk."""
        if ack.refusal is not None:
            self._metrics.command_refusals.labels(ack.refusal).inc()
        told = fields(
            kind=ack.kind, worker=ack.worker, phase=ack.phase, refusal=ack.refusal, detail=ack.detail,
            pause_s=ack.pause_s, handover=ack.handover, epoch=ack.epoch, command=ack.command_id,
        )  # fmt: skip
        log.log(logging.INFO if ack.refusal is None else logging.WARNING, "command answered", **told)

    def _say_crash(self, worker: WorkerId, kept: KeptWorker) -> None:
        self._metrics.worker_crashes.labels(worker).inc()
        told = {"worker": worker, "crashes": kept.crashes, "last": kept.detail}
        if kept.given_up:
            log.error("worker crashed, and is not started again", **fields(**told))
        else:
            log.warning("worker crashed, and is started again", **fields(**told, after_s=backoff_s(kept.crashes)))

    def _send(self, ack: Ack) -> None:
        def delivered(fault: str | None) -> None:
            if fault is None:
                self.handle(AckDelivered(command_id=ack.command_id, phase=ack.phase))
            else:
                asyncio.get_running_loop().call_later(ACK_RETRY_S, self._send, ack)

        self._produce(ack, delivered)

    def _start(self, worker: WorkerId) -> None:
        try:
            process = self._processes.ensure(self._configuration.workers[worker])
        except (OSError, KeyError, ValueError) as exc:  # ValueError: characters that the locale does not have
            self._later(ProcessFailed(worker=worker, detail=f"cannot be started: {exc}"))
        else:
            self._later(ProcessStarted(worker=worker, process=process))

    def _stop(self, action: StopProcess) -> None:
        try:
            self._processes.terminate(action.worker, action.process)
        except OSError as exc:
            self._later(ProcessFailed(worker=action.worker, detail=f"cannot be signalled: {exc}"))

    def _later(self, event: Event) -> None:
        """Pass an event to the machine after the current actions, so that an outcome cannot overtake later actions."""
        asyncio.get_running_loop().call_soon(self.handle, event)

    def _free_disk_bytes(self, worker: WorkerId) -> int | None:
        settings = self._configuration.workers.get(worker)
        if settings is None or settings.data_dir is None:
            return None
        disk = disk_of(settings.data_dir)
        return None if disk is None else disk.free_bytes
