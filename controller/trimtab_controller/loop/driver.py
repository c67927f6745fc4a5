"""The active shell around the two machines: reads Kafka, feeds them, and performs what they say, in that order."""

import logging
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import assert_never

from confluent_kafka import KafkaException, Message
from confluent_kafka.admin import AdminClient

from trimtab_controller.configuration import Configuration
from trimtab_controller.decider import events as deciding
from trimtab_controller.decider.decision import Adopted, Decision, Forgotten, Planned, Scaled, Skip, StandbysPlaced
from trimtab_controller.decider.instance import question_of
from trimtab_controller.decider.machine import Decider
from trimtab_controller.decider.observe import ownership
from trimtab_controller.execution import events as executing
from trimtab_controller.execution.inheritance import Hold
from trimtab_controller.execution.journal import JournalEntry
from trimtab_controller.execution.machine import ExecutionMachine
from trimtab_controller.execution.state import Execution
from trimtab_controller.kafka.connection import (
    Connection,
    StoppedError,
    ensure_topics,
    pause,
    wait_for_broker,
)
from trimtab_controller.kafka.follower import Follower
from trimtab_controller.kafka.publisher import Publisher
from trimtab_controller.kafka.reader import ReadError, reading, since
from trimtab_controller.loop.inbox import Inbox, Received
from trimtab_controller.loop.metrics import Metrics
from trimtab_controller.loop.publications import records_of, status_record, to_sign_anew
from trimtab_controller.loop.recovery import RecoveredState, recover, taken_over
from trimtab_controller.loop.stream_process import StreamProcess, stream_command
from trimtab_controller.loop.telemetry import Telemetry
from trimtab_controller.solver.answer import Method
from trimtab_controller.solver.process import SolverProcess, serve_collocating
from trimtab_process.credential_files import load_trust
from trimtab_process.kafka_errors import is_transient
from trimtab_protocol.messages.intents import AcceptJournal
from trimtab_protocol.messages.names import Topics, transactional_id
from trimtab_protocol.messages.placement import Placement
from trimtab_protocol.signing.keys import SigningKey, TrustedKeys

log = logging.getLogger(__name__)

POLL_S = 0.05
RETRY_S = 1.0
STATUS_SOON_S = 0.5
"""After a change the status is published so much later at the latest ..."""
STATUS_INTERVAL_S = 5.0
"""... and without one so often: a controller that was fenced learns of it then."""
WINDOWS_TO_CATCH_UP = 3


class ControlLoop:
    """One run of the controller, of one that acts: its term.  It reads the journal, goes on from there, and decides.

    `run` returns when `stopping`, stands still while `suspended`, and raises FencedError when another one takes over.
    """

    def __init__(
        self,
        configuration: Configuration,
        path: Path,
        *,
        acting: bool,
        stopping: Callable[[], bool],
        suspended: Callable[[], bool] = lambda: False,
        metrics: Metrics | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._configuration = configuration
        self._path = path
        self._acting = acting
        self._stopping = stopping
        self._suspended = suspended
        self._clock = clock
        self._topics = Topics(configuration.cluster)
        self._connection = Connection(kafka=configuration.kafka)
        self._metrics = metrics or Metrics()
        self._key, trusted = self._find_keys()
        self._inbox = Inbox(self._topics, clock, trusted=trusted)
        self._acks_read: dict[int, int] = {}
        self._status_due = 0.0

    def _find_keys(self) -> tuple[SigningKey | None, TrustedKeys | None]:
        """A dry run publishes nothing that needs a key."""
        files = self._configuration.signing
        if files is None:
            log.warning("commands and placements are not signed; see [signing]")
            return None, None
        if not self._acting:
            return None, load_trust(files.trust)
        key, trusted = files.load()
        log.info("commands and placements are signed by key %s", key.public.id)
        return key, trusted

    def run(self) -> None:
        """Until it is to end."""
        try:
            with ExitStack() as stack:
                self._start(stack)
                while not self._stopping():
                    if self._suspended():
                        pause(POLL_S, self._stopping)
                    else:
                        self._turn()
        except StoppedError:
            pass
        log.info("ended")

    # --- start ----------------------------------------------------------------------------------------------------

    def _start(self, stack: ExitStack) -> None:
        self._metrics.acting.set(self._acting)
        collocating = self._configuration.balance.planned_with is Method.ALBIC
        self._solver = SolverProcess(serve=serve_collocating) if collocating else SolverProcess()
        stack.callback(self._solver.close)
        self._follower, found = self._connect()
        stack.callback(self._follower.close)
        # Spark is started last and ended first: without Kafka it would only retry.
        self._stream = StreamProcess(stream_command(self._path)) if self._configuration.stream.embedded else None
        if self._stream is not None:
            stack.callback(self._stream.close)
        self._begin(found)

    def _connect(self) -> tuple[Follower, RecoveredState]:
        """Take over, and read what the predecessor left; the broker may be away for any time."""
        admin = AdminClient(self._connection.client("trimtab-controller-admin"))
        while True:
            wait_for_broker(admin, self._connection, self._stopping)
            try:
                ensure_topics(admin, self._topics)
                # From here on nobody before us can publish, so what is read next is final.
                own_id = transactional_id(self._topics.cluster, acting=self._acting)
                self._publisher = Publisher(self._connection, own_id, self._stopping, self._key)
                found = recover(self._connection, self._topics, self._inbox, acting=self._acting)
                stream = self._configuration.stream
                from_s = self._clock() - WINDOWS_TO_CATCH_UP * stream.window_s - stream.watermark_s
                with reading(self._connection, "windows") as consumer:
                    snapshots = since(consumer, self._topics.snapshots, from_s)
            except (KafkaException, ReadError) as error:
                if isinstance(error, KafkaException) and not is_transient(error.args[0]):
                    raise
                log.warning("the start does not succeed yet: %s", error)
                pause(RETRY_S, self._stopping)
            else:
                return Follower(self._connection, "controller", [*found.positions, *snapshots]), found

    def _begin(self, found: RecoveredState) -> None:
        configuration = self._configuration
        self._found = found
        execution = taken_over(found.execution) if self._acting and found.hold is None else found.execution
        self._execution = ExecutionMachine(configuration.cluster, configuration.execution, execution)
        self._decider = Decider(configuration.balance, configuration.needs, execution, acting=self._acting)
        self._telemetry = Telemetry(configuration.cluster, self._metrics, acting=self._acting, previous=found.status)
        self._telemetry.execution(execution)
        self._see_hold(found.hold)
        self._hear(found.intents)
        if not self._acting:
            log.info("dry run: nothing will be moved; --act makes it act")
        elif found.hold is None:
            self._go_on()

    def _go_on(self) -> None:
        """From where the predecessor stood."""
        configuration, execution, found = self._configuration, self._execution.state, self._found
        going_on = f", goes on with plan {execution.round.plan}" if execution.busy and execution.round else ""
        log.info("acting as generation %d of cluster %s%s", execution.generation, configuration.cluster, going_on)
        self._acks_read = dict(found.acks_read)
        self._sign_anew(found)
        self._execute(executing.Resumed())
        for message in found.acks:
            self._take(message)

    # --- one turn of the loop -------------------------------------------------------------------------------------

    def _turn(self) -> None:
        for message in self._follower.consume(200, POLL_S):
            if message.error() is not None:
                log.warning("reading: %s", message.error().str())
                continue
            self._take(message)
        if (answer := self._solver.poll()) is not None:
            self._telemetry.answer(answer)
            self._decide(deciding.SolverAnswered(answer=answer))
        self._tick()
        if self._stream is not None:
            self._stream.tick()
        self._publish_status()

    def _take(self, message: Message) -> None:
        event = self._inbox.take(message)
        if message.topic() == self._topics.acks:
            # Journalled with what follows from this ack: a successor begins with the next one.
            self._acks_read[message.partition()] = message.offset() + 1
        if event is not None:
            self._receive(event)

    def _receive(self, event: Received) -> None:
        match event:
            case executing.AckSeen():
                if self._acting:
                    self._execute(event)
            case deciding.SnapshotArrived(snapshot=snapshot):
                if self._acting and self._execution.state.busy:
                    start_s = snapshot.start_ms / 1000.0
                    self._execute(executing.OwnershipSeen(start_s=start_s, owners=ownership(snapshot)))
                self._decide(event)
                self._telemetry.snapshot(snapshot, self._decider)
            case deciding.IntentsChanged():
                self._hear(event)
            case Placement() | JournalEntry():
                self._look_on(event)
            case _:
                assert_never(event)
        self._status_due = min(self._status_due, self._clock() + STATUS_SOON_S)

    def _hear(self, event: deciding.IntentsChanged) -> None:
        self._decide(event)
        hold = self._found.hold
        for intent in event.intents:
            if self._acting and hold is not None and isinstance(intent, AcceptJournal) and intent.hold == hold.id:
                self._give_journal_up(intent)

    def _see_hold(self, hold: Hold | None) -> None:
        self._found = replace(self._found, hold=hold)
        self._telemetry.hold(hold)
        self._decide(deciding.HoldChanged(reason=None if hold is None else hold.reason))

    def _give_journal_up(self, accepted: AcceptJournal) -> None:
        """Begin anew under a generation above all, from the placements; the reports correct what they say wrong."""
        log.warning("the journal is given up, accepted by %s: %s", accepted.by, accepted.reason)
        self._see_hold(None)
        self._execution.state = taken_over(self._found.execution)
        self._go_on()

    def _look_on(self, event: Placement | JournalEntry) -> None:
        """In a dry run: what the acting controller, if there is one, has published."""
        present = self._execution.state
        match event:
            case Placement():
                placements = {**present.placements, event.app: event}
                held = {app: placement for app, placement in placements.items() if not placement.is_taken_back}
                execution = replace(present, placements=held)
            case JournalEntry(execution=told):
                if self._found.hold is not None:
                    self._see_hold(None)
                execution = replace(told, placements=present.placements)
        self._execution.state = execution
        self._see_execution(execution)

    def _tick(self) -> None:
        now = self._clock()
        if self._acting and (wake_at := self._execution.wake_at) is not None and wake_at <= now:
            self._perform_execution(self._execution.on_tick(now))
        self._perform_decisions(self._decider.on_tick(now))

    # --- the decider's actions ------------------------------------------------------------------------------------

    def _decide(self, event: deciding.Event) -> None:
        self._perform_decisions(self._decider.on_event(self._clock(), event))

    def _perform_decisions(self, actions: list[deciding.Action]) -> None:
        for action in actions:
            match action:
                case deciding.Solve(view=view):
                    limit_s = self._configuration.solver_time_limit_s
                    self._solver.ask(question_of(view, self._configuration.balance, limit_s))
                case deciding.Decided(decision=decision):
                    self._carry_out(decision)
                case deciding.RoundMeasured():
                    self._telemetry.round_measured(action, self._execution.state)
                case _:
                    assert_never(action)

    def _carry_out(self, decision: Decision) -> None:
        if self._acting:
            self._act_on(decision)
        self._telemetry.decision(self._clock(), decision, self._execution.state)

    def _act_on(self, decision: Decision) -> None:
        match decision:
            case Planned(plan=plan, standbys=rows):
                self._execute(executing.PlanDecided(plan=plan, standbys=rows))
            case Adopted(app=app, owners=owners, standbys=rows):
                self._execute(executing.PlacementWanted(app=app, owners=owners, standbys=rows))
            case StandbysPlaced(app=app, rows=rows):
                self._execute(executing.StandbysWanted(app=app, rows=rows))
            case Scaled(kind=kind, worker=worker, host=host):
                self._execute(executing.ScalingWanted(kind=kind, worker=worker, host=host))
            case Forgotten(answered=answered, app=app, worker=gone):
                self._execute(executing.ForgetWanted(answered=answered, app=app, worker=gone))
            case Skip():
                pass
            case _:
                assert_never(decision)

    # --- the execution's actions ----------------------------------------------------------------------------------

    def _execute(self, event: executing.Event) -> None:
        self._perform_execution(self._execution.on_event(self._clock(), event))

    def _perform_execution(self, actions: list[executing.Action]) -> None:
        for action in actions:
            match action:
                case executing.Publish():
                    self._publish(action)
                    self._see_execution(action.execution)
                case executing.HandoverEnded():
                    self._telemetry.handover_ended(action)
                case executing.RoundEnded():
                    self._telemetry.round_ended(action)
                case _:
                    assert_never(action)

    def _publish(self, action: executing.Publish) -> None:
        """Journal, placements and commands in one transaction; nothing else in the controller writes them."""
        self._publisher.publish(records_of(action, self._acks_read, self._topics))
        self._status_due = min(self._status_due, self._clock() + STATUS_SOON_S)

    def _sign_anew(self, found: RecoveredState) -> None:
        """What was signed by a key that has been replaced."""
        if self._key is None:
            return
        old = to_sign_anew(found.placements, found.signatures, self._key, self._topics)
        if old:
            self._publisher.publish(old)
            log.info("%d placements are signed by key %s now", len(old), self._key.public.id)

    def _see_execution(self, execution: Execution) -> None:
        self._telemetry.execution(execution)
        self._decide(deciding.ExecutionChanged(execution=execution))

    def _publish_status(self) -> None:
        now = self._clock()
        restarts = max(0, self._stream.restarts) if self._stream is not None else 0
        self._telemetry.turn(now, self._decider, self._inbox, solver_kills=self._solver.kills, stream_restarts=restarts)
        if now < self._status_due:
            return
        self._status_due = now + STATUS_INTERVAL_S
        status = self._telemetry.status(now, self._decider, self._execution.state, self._inbox)
        self._publisher.publish([status_record(status, self._topics)])
