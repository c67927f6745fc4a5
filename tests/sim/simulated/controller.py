"""A controller process: the real candidacy, driver, recovery, inbox, publisher and machines over simulated clients."""

import itertools
import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import lru_cache
from types import SimpleNamespace
from unittest.mock import patch

from tests.narrow import of_type
from tests.sim.simulated import kafka_client
from tests.sim.simulated.broker import Broker
from tests.sim.simulated.election import Election, SimulatedMembership
from tests.sim.simulated.kafka_client import CommitFate, Killed, SimulatedConsumer
from tests.sim.simulated.ledger import Violation
from tests.sim.simulated.network import Network
from tests.sim.simulated.timeline import Timeline
from trimtab_controller.configuration import Configuration
from trimtab_controller.kafka import follower, publisher, reader, startup
from trimtab_controller.kafka.connection import Connection, StoppedError, Stopping
from trimtab_controller.kafka.publisher import FencedError
from trimtab_controller.leadership import driver as leading
from trimtab_controller.leadership.driver import Candidacy
from trimtab_controller.leadership.machine import REJOIN_DELAY_S, CandidateRole, TermFenced
from trimtab_controller.leadership.metrics import ProcessMetrics
from trimtab_controller.loop import driver, run
from trimtab_controller.loop.recovery import RecoveredState
from trimtab_controller.solver.answer import Answer, NoAnswer, Question
from trimtab_controller.solver.balance import answer, answer_instead
from trimtab_controller.solver.process import Serve, serve
from trimtab_protocol.messages.names import Topics
from trimtab_protocol.signing.keys import PublicKey

STATUS_EVERY_S = 60.0
"""The status is not what is simulated here: seldom enough to cost little, often enough that the fenced one notices."""
SEARCH_CHECKS = 60
"""Not seconds but so many looks at the clock are what the search of the balance model gets: every machine replays."""


def _ask(method: Callable[..., Answer | NoAnswer], question: Question) -> Answer | NoAnswer:
    looks = itertools.count()
    limited = replace(question, time_limit_s=SEARCH_CHECKS)
    return method(limited, clock=lambda: float(next(looks)))


class SolverModel:
    """Instead of the solver's process; the models that answer are the real ones."""

    def __init__(self, *, serve: Serve = serve) -> None:
        self._process = kafka_client.running[-1]
        assert isinstance(self._process, ControllerProcess)
        self._answer: Answer | NoAnswer | None = None
        self.ready_at: float | None = None
        self.kills = 0

    def ask(self, question: Question) -> None:
        """Search at once, answer later."""
        process = of_type(ControllerProcess, self._process)
        self._answer = _ask(answer_instead, question)
        # That costs little, and is all that there is when the solver is silent; where it is stuck a search may not be.
        stuck = not isinstance(self._answer, Answer) or self._answer.load_distance > process.band
        if process.solver_answers and (process.searches or stuck):
            self._answer = _ask(answer, question)
        self.ready_at = process.timeline.now + process.timeline.random.uniform(0.05, 2.0)

    def poll(self) -> Answer | NoAnswer | None:
        """The answer, when its time has come."""
        process = of_type(ControllerProcess, self._process)
        if self.ready_at is None or process.timeline.now < self.ready_at:
            return None
        self.ready_at = None
        return self._answer

    def close(self) -> None:
        """Nothing is open."""


class _Term:
    """Begins a term, and returns: its turns are steps of the timeline."""

    def __init__(self, process: "ControllerProcess", office: Candidacy) -> None:
        self._process, self._office = process, office

    def run(self) -> None:
        """Take over."""
        try:
            self._process.begin_term(self._office)
        except StoppedError:
            self._process.end_term()


class ControllerProcess:
    """One process from its start to its end: the real candidacy, and a term of the real driver while it leads."""

    def __init__(
        self,
        name: str,
        configuration: Configuration,
        *,
        timeline: Timeline,
        broker: Broker,
        network: Network,
        election: Election,
        took_office: Callable[[RecoveredState], None],
    ) -> None:
        self.name = name
        self.cluster = configuration.cluster
        self.timeline = timeline
        self.broker = broker
        self.election = election
        self.band = configuration.balance.load_distance
        self.searches = False
        self.solver_answers = True
        self.fate: Iterator[CommitFate] = iter(())
        self.alive = True
        self.frozen = False
        self._configuration = configuration
        self._network = network
        self._took_office = took_office
        self._stopping = False
        self._busy = False
        self._turn_at: float | None = None
        self._stack = ExitStack()
        self._topics = Topics(self.cluster)
        self._candidacy: Candidacy | None = None
        self._controller: driver.ControlLoop | None = None
        timeline.after(0.0, self.wake)

    @property
    def connected(self) -> bool:
        """Whether it reaches the broker."""
        return self._network.reaches("controllers") and self._network.reaches(self.name)

    @property
    def role(self) -> CandidateRole:
        """Where it stands, by its own mind."""
        return self._candidacy._candidate.role if self._candidacy is not None else CandidateRole.AWAY

    @property
    def in_office(self) -> bool:
        """Whether a term runs, or stands still."""
        return self.alive and self._controller is not None

    def next_commit(self) -> CommitFate:
        """What happens to its next commit."""
        return next(self.fate, CommitFate())

    def block(self, seconds: float) -> None:
        """Wait; the others go on."""
        self.timeline.run_until(self.timeline.now + seconds)
        while self.frozen and self.alive:
            self.timeline.run_until(self.timeline.now + 0.5)
        if not self.alive:
            raise Killed

    def position(self, topic: str) -> int:
        """How far it has read in its term."""
        assert self._controller is not None
        consumer = of_type(SimulatedConsumer, self._controller._follower._consumer)
        return consumer.positions.get(topic, 0)

    # --- signals

    def kill(self) -> None:
        """SIGKILL."""
        if self.alive:
            self.alive = False
            self.broker.unwatch(self.wake)

    def terminate(self) -> None:
        """SIGTERM; who is stopped hears of it when it is continued."""
        self._stopping = True
        self.wake()

    def freeze(self) -> None:
        """SIGSTOP."""
        self.frozen = True

    def thaw(self) -> None:
        """SIGCONT."""
        self.frozen = False
        self.wake()

    # --- a term

    def begin_term(self, office: Candidacy) -> None:
        """Take over, and be woken by what comes.  Raises FencedError, StoppedError, Violation."""
        this_run = run.ControllerRun(
            self._configuration,
            acting=True,
            stopping=office.over,
            suspended=office.suspended,
            clock=lambda: self.timeline.now,
        )
        resources = this_run.open(self._stack)
        self._took_office(resources.recovered)
        self._controller = this_run.loop(resources)
        self._controller.begin()
        if (hold := resources.recovered.hold) is not None:
            raise Violation(f"the journal cannot be restored: {hold.flaw}, {hold.detail}")
        for topic in (self._topics.acks, self._topics.snapshots, self._topics.intents, self._topics.keys):
            self.broker.watch(topic, self.wake)

    def end_term(self) -> None:
        """Nothing of it is left."""
        self._controller = None
        self.broker.unwatch(self.wake)
        self._stack.close()

    # --- time

    def wake(self) -> None:
        """Something has come, or been said."""
        self._schedule(self.timeline.now + self._network.delay_s())

    def _schedule(self, when: float) -> None:
        if self._turn_at is None or when < self._turn_at:
            self._turn_at = when
            self.timeline.at(when, lambda: self._turn(when))

    def _turn(self, due: float) -> None:
        if due != self._turn_at:
            return  # an earlier one came in between
        self._turn_at = None
        if not self.alive or self.frozen or self._busy:
            return  # `thaw`, or the end of the present turn, brings the next one
        self._busy = True
        kafka_client.running.append(self)
        try:
            self._step()
        except (Killed, StoppedError):
            self.kill()
        finally:
            kafka_client.running.remove(self)
            self._busy = False
        if self.alive:
            self._schedule(max(self.timeline.now + 0.05, min(self._wakes(), default=math.inf)))

    def _wakes(self) -> Iterator[float]:
        term = self._controller
        if self.role is CandidateRole.AWAY:
            yield self.timeline.now + REJOIN_DELAY_S
        elif term is not None and self.role is CandidateRole.LEADING:
            looks = term._execution.wake_at, term._decider.wake_at, term._status_due, term._solver.ready_at  # type: ignore[attr-defined]
            yield from (when for when in looks if when is not None)
        elif term is not None or self._stopping:
            yield self.timeline.now + 1.0

    def _step(self) -> None:
        """One turn of `Candidacy.run`, or of a term."""
        if self._candidacy is None:
            self._candidacy = Candidacy(
                Connection(kafka=self._configuration.kafka),
                self._topics,
                self._configuration.lease_s,
                new_term=lambda office: _Term(self, office),
                metrics=ProcessMetrics(),
                stopping=lambda: self._stopping,
            )
        candidacy = self._candidacy
        over = candidacy.over()
        if self._controller is not None and over:
            self.end_term()
        if self._stopping:
            candidacy._membership.leave()
            self.kill()
        elif candidacy._elected:
            candidacy._run_term()
        elif self._controller is not None and not candidacy.suspended():
            self._work(candidacy)
        if self._controller is not None and candidacy._term_over:
            self.end_term()

    def _work(self, candidacy: Candidacy) -> None:
        assert self._controller is not None
        try:
            self._controller.turn()
        except StoppedError:
            self.end_term()
        except FencedError as error:
            self.end_term()
            candidacy._feed(TermFenced(detail=str(error)))


def _find_broker(connection: Connection, name: str, stopping: Stopping) -> kafka_client.SimulatedAdmin:
    """Whether it is there shows in the next request."""
    if stopping():
        raise StoppedError
    return kafka_client.SimulatedAdmin({})


@contextmanager
def simulated_clients() -> Iterator[None]:
    """The controller's modules meet simulated clients, and fake time where they wait."""
    clock = SimpleNamespace(monotonic=lambda: kafka_client.running[-1].timeline.now)  # type: ignore[attr-defined]
    with ExitStack() as stack:
        for module, name, value in (
            (reader, "Consumer", SimulatedConsumer),
            (follower, "AdminClient", kafka_client.SimulatedAdmin),
            (follower, "time", clock),
            (publisher, "Producer", kafka_client.SimulatedProducer),
            (publisher, "pause", kafka_client.pause),
            (run, "pause", kafka_client.pause),
            (startup, "pause", kafka_client.pause),
            (startup, "wait_for_broker", _find_broker),
            (run, "SolverProcess", SolverModel),
            (driver, "STATUS_INTERVAL_S", STATUS_EVERY_S),
            (driver, "STATUS_SOON_S", STATUS_EVERY_S),
            (leading, "Membership", SimulatedMembership),
            (leading, "members", lambda *_: ()),
            (leading, "AdminClient", kafka_client.SimulatedAdmin),
            (leading, "time", clock),
            (PublicKey, "signed", lru_cache(maxsize=100_000)(PublicKey.signed)),
        ):
            stack.enter_context(patch.object(module, name, value))
        yield
