"""The control loop: reads Kafka, feeds decider and execution, and performs their actions, in that order."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import assert_never

from confluent_kafka import Message

from trimtab_controller.configuration import Configuration
from trimtab_controller.decider import events as deciding
from trimtab_controller.decider.machine import Decider
from trimtab_controller.decider.memory.predictions import RoundMeasured
from trimtab_controller.decider.policies.instance import question_of
from trimtab_controller.decider.policies.judgement import DrainBlocked
from trimtab_controller.decider.values.decision import Decision, Resized, Skip
from trimtab_controller.execution import events as executing
from trimtab_controller.execution.journal import Hold, JournalEntry
from trimtab_controller.execution.machine import ExecutionMachine
from trimtab_controller.execution.state import Execution
from trimtab_controller.execution.windows import WindowReader
from trimtab_controller.kafka.follower import Follower
from trimtab_controller.kafka.publisher import Publisher, Record
from trimtab_controller.loop.events.log import EventLog
from trimtab_controller.loop.health import Health
from trimtab_controller.loop.hook import Hook
from trimtab_controller.loop.inbox import Inbox, Received
from trimtab_controller.loop.metrics import ControllerMetrics
from trimtab_controller.loop.publications import records_of, status_record, to_sign_again
from trimtab_controller.loop.recovery import (
    RecoveredState,
    generation_known,
    recalled_costs,
    recalled_demand,
    taken_over,
)
from trimtab_controller.loop.stream_process import StreamProcess
from trimtab_controller.loop.telemetry import Telemetry
from trimtab_controller.solver.process import SolverProcess
from trimtab_protocol.messages.intents import AcceptJournal, Intent, Stop
from trimtab_protocol.messages.names import Topics
from trimtab_protocol.messages.placement import Placement
from trimtab_protocol.signing.keys import SigningKey

log = logging.getLogger(__name__)

POLL_S = 0.05
STATUS_SOON_S = 0.5
"""How long after a change the status is published at the latest."""
STATUS_INTERVAL_S = 5.0
"""How often the status is published without a change; a fenced controller notices it by this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What a run has opened, and the state that it recovered.  `stream` None: Spark runs elsewhere.

    `events` = where it tells what it does; None: nowhere, as in a dry run.
    """

    inbox: Inbox
    publisher: Publisher
    follower: Follower
    solver: SolverProcess
    hook: Hook
    stream: StreamProcess | None
    recovered: RecoveredState
    events: EventLog | None = None


class ControlLoop:
    """Reads messages, feeds decider and execution, and performs their actions.  `turn` does each once."""

    def __init__(
        self,
        configuration: Configuration,
        resources: Resources,
        *,
        acting: bool,
        key: SigningKey | None,
        metrics: ControllerMetrics,
        health: Health | None = None,
        clock: Callable[[], float],
    ) -> None:
        recovered = resources.recovered
        takes_over = acting and recovered.hold is None
        execution = taken_over(recovered.execution) if takes_over else recovered.execution
        self._configuration = configuration
        self._acting = acting
        self._key = key
        self._clock = clock
        self._topics = Topics(configuration.cluster)
        self._inbox = resources.inbox
        self._publisher = resources.publisher
        self._follower = resources.follower
        self._solver = resources.solver
        self._hook = resources.hook
        self._stream = resources.stream
        self._recovered = recovered
        self._hold = recovered.hold
        self._events = resources.events
        self._published = execution
        self._forecasts = recalled_demand(recovered.demand, configuration.forecast)
        self._execution = ExecutionMachine(configuration.cluster, configuration.execution, execution)
        self._decider = Decider(
            configuration.balance,
            configuration.needs,
            execution,
            acting=acting,
            scaling=configuration.scaling,
            first=configuration.first,
            plans=configuration.plans,
            rules=configuration.rules,
            recalled=recalled_costs(recovered.acted),
            budget=self._execution.budget,
            forecasts=self._forecasts,
        )
        self._telemetry = Telemetry(
            configuration.cluster, metrics, acting=acting, previous=recovered.status, health=health
        )
        self._windows = WindowReader(configuration.balance.max_link)
        self._acks_read: dict[int, int] = {}
        self._begun = False
        self._stopped: set[Stop] = set()
        self._status_due = 0.0

    # --- start ----------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Continue from the predecessor's state; call this before the first turn."""
        self._telemetry.execution(self._execution.state)
        self._see_hold(self._hold)
        self._hear(self._recovered.intents)
        self._decide(self._inbox.revoked)
        if not self._acting:
            log.info("dry run: nothing moves; start with --act to move key groups")
        elif self._recovered.hold is None:
            self._go_on()

    def _go_on(self) -> None:
        """Continue from the predecessor's state."""
        execution, cluster = self._execution.state, self._configuration.cluster
        plans = ", ".join(row.plan for row in execution.in_flight)
        going_on = f", goes on with plan {plans}" if plans else ""
        log.info("acting as generation %d of cluster %s%s", execution.generation, cluster, going_on)
        self._acks_read = dict(self._recovered.acks_read)
        self._begun = True
        if self._events is not None:
            self._events.begins(self._clock(), execution)
        self._sign_again()
        accepted = (intent.key for intent in self._decider.intents if isinstance(intent, AcceptJournal))
        self._execute(executing.Resumed(answered=tuple(accepted)))
        for message in self._recovered.acks:
            self._take(message)
        self._stop_plans(self._recovered.intents.intents)

    # --- one turn of the loop -------------------------------------------------------------------------------------

    def turn(self) -> None:
        """Read for a moment, act on it, and publish the status when it is due."""
        if self._topics.placement in self._follower.take_recreated() and self._begun:
            log.warning("the placements' topic was re-created: publishing all placements again")
            self._execute(executing.PlacementsLost())
        for message in self._follower.consume(200, POLL_S):
            if message.error() is not None:
                log.warning("cannot read from Kafka: %s", message.error().str())
                continue
            self._take(message)
        if (answer := self._solver.poll()) is not None:
            self._telemetry.answer(answer)
            self._decide(deciding.SolverAnswered(answer=answer))
        if (ended := self._hook.poll()) is not None:
            self._decide(deciding.HookEnded(app=ended.app, failure=ended.failure))
        self._tick()
        if self._stream is not None:
            self._stream.tick()
        self._publish_status()

    def _take(self, message: Message) -> None:
        event = self._inbox.take(message)
        if message.topic() == self._topics.acks:
            # Journalled together with the effect of this ack, so a new leader continues with the next one.
            self._acks_read[message.partition()] = message.offset() + 1
        if event is not None:
            self._receive(event)

    def _receive(self, event: Received) -> None:
        match event:
            case executing.AckSeen():
                if self._acting:
                    self._execute(event)
            case deciding.SnapshotArrived(snapshot=snapshot):
                if self._acting:
                    self._outrank(generation_known(snapshot, self._clock()))
                    self._execute(self._windows.read(snapshot, owners=bool(self._execution.state.in_flight)))
                    self._telemetry.lags(self._execution.lags_s, self._execution.restores_allowed)
                    self._telemetry.full_links(self._execution.full_links)
                self._decide(deciding.RestoresLearned(learned=self._execution.learned()))
                self._decide(event)
                self._telemetry.snapshot(snapshot, self._decider)
            case deciding.IntentsChanged():
                self._hear(event)
            case deciding.HostsRevoked():
                self._decide(event)
            case Placement() | JournalEntry():
                self._look_on(event)
            case _:
                assert_never(event)
        self._status_due = min(self._status_due, self._clock() + STATUS_SOON_S)

    def _hear(self, event: deciding.IntentsChanged) -> None:
        if self._events is not None:
            self._events.heard(event.intents, event.taken_back)
        for key, word in event.taken_back.items():
            log.info("%s is taken back by %s: %s", key, word.by, word.reason)
        self._decide(event)
        hold = self._hold
        for intent in event.intents:
            if self._acting and hold is not None and isinstance(intent, AcceptJournal) and intent.hold == hold.id:
                self._give_journal_up(intent)
        self._stop_plans(event.intents)

    def _stop_plans(self, intents: Iterable[Intent]) -> None:
        """End the plans that an operator wants stopped; each wish once, since its tombstone comes back later."""
        wishes = {intent for intent in intents if isinstance(intent, Stop)}
        if not self._acting or not self._begun or self._hold is not None:
            return
        for wish in sorted(wishes - self._stopped, key=lambda wish: wish.at):
            reason = f"stopped by {wish.by}: {wish.reason}"
            log.info("%s: %s", "all plans" if wish.app is None else f"plan of {wish.app}", reason)
            self._execute(executing.StopWanted(app=wish.app, reason=reason, answered=(wish.key,)))
        self._stopped = wishes

    def _see_hold(self, hold: Hold | None) -> None:
        self._hold = hold
        self._telemetry.hold(hold)
        self._decide(deciding.HoldChanged(reason=None if hold is None else hold.reason))

    def _give_journal_up(self, accepted: AcceptJournal) -> None:
        """Start over from the placements, under a new generation; the reports will correct errors in them."""
        log.warning("starting over without the journal, as accepted by %s: %s", accepted.by, accepted.reason)
        self._see_hold(None)
        self._execution.state = self._published = taken_over(self._recovered.execution)
        self._go_on()

    def _outrank(self, known: int) -> None:
        """Lead above a leader whom only agents and workers know: somebody has deleted all topics, or the broker's disk.

        They refuse what is older.  A plan in flight ends first.
        """
        state = self._execution.state
        if known <= state.generation or state.in_flight or not self._begun:
            return
        self._execution.state = taken_over(state, known)
        log.warning(
            "workers know generation %d, of which there is no record: acting as generation %d",
            known,
            self._execution.state.generation,
        )
        self._execute(executing.PlacementsLost())

    def _look_on(self, event: Placement | JournalEntry) -> None:
        """In a dry run: follow what the acting controller publishes, if there is one."""
        known = self._execution.state
        match event:
            case Placement():
                placements = {**known.placements, event.app: event}
                held = {app: placement for app, placement in placements.items() if not placement.is_taken_back}
                execution = replace(known, placements=held)
            case JournalEntry(execution=told):
                if self._hold is not None:
                    self._see_hold(None)
                execution = replace(told, placements=known.placements)
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
                    settings = self._configuration.balance
                    self._solver.ask(question_of(view, settings, settings.solver_time_limit_s))
                case deciding.Decided(decision=decision, others=others):
                    self._carry_out(decision)
                    self._telemetry.others_wait(others)
                case RoundMeasured():
                    self._telemetry.round_measured(action)
                    if self._events is not None:
                        self._events.measured(self._clock(), action)
                case DrainBlocked():
                    self._telemetry.drain_blocked(action)
                case _:
                    assert_never(action)

    def _carry_out(self, decision: Decision) -> None:
        if self._acting:
            self._act_on(decision)
        self._telemetry.decision(self._clock(), decision, self._execution.state)

    def _act_on(self, decision: Decision) -> None:
        if self._events is not None:
            self._events.decided(decision)
        if isinstance(decision, Resized):
            self._resize(decision)
        elif not isinstance(decision, Skip):
            self._execute(decision)

    def _resize(self, found: Resized) -> None:
        self._execute(found)
        if found.app is not None and found.short and found.change is not None:
            values = {
                "CLUSTER": self._configuration.cluster,
                "APP": found.app,
                "WORKERS": str(found.change.before),
                "DESIRED": str(found.change.after),
                "SHORT": str(found.short),
                "REASON": found.detail,
            }
            self._hook.call(found.app, {f"TRIMTAB_{name}": value for name, value in values.items()})

    # --- the execution's actions ----------------------------------------------------------------------------------

    def _execute(self, event: executing.Event) -> None:
        self._perform_execution(self._execution.on_event(self._clock(), event))

    def _perform_execution(self, actions: list[executing.Action]) -> None:
        for action in actions:
            match action:
                case executing.Publish():
                    self._publish(action)
                    self._see_execution(action.execution)
                case _:
                    self._telemetry.executed(action)

    def _publish(self, action: executing.Publish) -> None:
        """Write journal, placements, commands and events in one transaction."""
        before, events = self._published, self._events
        told = [] if events is None else events.of_step(self._clock(), before, action.execution)
        limited = self._decider.budget.settings.limited
        self._publisher.publish([*records_of(action, self._acks_read, self._topics, limited=limited), *told])
        self._published = action.execution
        self._status_due = min(self._status_due, self._clock() + STATUS_SOON_S)

    def _sign_again(self) -> None:
        """Sign the placements with the present key if an older one signed them."""
        if self._key is None:
            return
        old = to_sign_again(self._recovered.placements, self._recovered.signers, self._key, self._topics)
        if old:
            self._publisher.publish(old)
            log.info("signed %d records of placements again, with key %s", len(old), self._key.public.id)

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
        told = [] if self._events is None else self._events.of_status(status)
        demand = self._forecasts.records() if self._begun else []
        recorded = [Record(topic=self._topics.journal, key=key, value=value) for key, value in demand]
        self._publisher.publish([status_record(status, self._topics), *told, *recorded])
