"""A controller process: the real driver, recovery, inbox, publisher and machines over simulated clients."""

import itertools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest.mock import patch

from simulated import kafka_client
from simulated.broker import Broker
from simulated.kafka_client import CommitFate, Killed, SimulatedConsumer
from simulated.ledger import Violation
from simulated.network import Network
from simulated.timeline import Timeline

from trimtab_controller import driver
from trimtab_controller.configuration import Configuration
from trimtab_controller.kafka import publisher, reader
from trimtab_controller.kafka.publisher import FencedError
from trimtab_controller.solver.answer import Answer, NoAnswer, Question
from trimtab_controller.solver.balance import answer, answer_greedily
from trimtab_models.messages.names import Topics

STATUS_EVERY_S = 60.0
"""The status is not what is simulated here: seldom enough to cost little, often enough that the fenced one notices."""
SEARCH_CHECKS = 60
"""Not seconds but so many looks at the clock are what the search of the balance model gets: every machine replays."""


class SolverModel:
    """Instead of the solver's process; the models that answer are the real ones."""

    def __init__(self) -> None:
        self._process = kafka_client.running[-1]
        assert isinstance(self._process, ControllerProcess)
        self._answer: Answer | NoAnswer | None = None
        self.ready_at: float | None = None
        self.kills = 0

    def ask(self, question: Question) -> None:
        """Search at once, answer later."""
        process = self._process
        assert isinstance(process, ControllerProcess)
        if process.solver_answers:
            looks = itertools.count()
            limited = Question(instance=question.instance, time_limit_s=SEARCH_CHECKS)
            emptying = any(node.removing for node in question.instance.nodes)  # the greedy one seldom manages that
            method = answer if process.searches or emptying else answer_greedily
            self._answer = method(limited, clock=lambda: float(next(looks)))
        else:
            self._answer = NoAnswer(reason="simulated")
        self.ready_at = process.timeline.now + process.timeline.random.uniform(0.05, 2.0)

    def poll(self) -> Answer | NoAnswer | None:
        """The answer, when its time has come."""
        process = self._process
        assert isinstance(process, ControllerProcess)
        if self.ready_at is None or process.timeline.now < self.ready_at:
            return None
        self.ready_at = None
        return self._answer

    def close(self) -> None:
        """Nothing is open."""


class ControllerProcess:
    """One process from its start to its end; a successor is another object."""

    def __init__(
        self, name: str, configuration: Configuration, timeline: Timeline, broker: Broker, network: Network
    ) -> None:
        self.name = name
        self.cluster = configuration.cluster
        self.timeline = timeline
        self.broker = broker
        self.searches = False
        self.solver_answers = True
        self.fate: Iterator[CommitFate] = iter(())
        self.ended: str | None = None
        self._network = network
        self._alive = True
        self._frozen = False
        self._busy = False
        self._turn_at: float | None = None
        self._stack = ExitStack()
        self._topics = Topics(self.cluster)
        self._controller = driver.Controller(
            configuration, Path("controller.toml"), acting=True, stopping=lambda: False, clock=lambda: timeline.now
        )

    @property
    def alive(self) -> bool:
        """Whether it runs, frozen or not."""
        return self._alive

    @property
    def connected(self) -> bool:
        """Whether it reaches the broker."""
        return self._network.reaches("controller")

    def next_commit(self) -> CommitFate:
        """What happens to its next commit."""
        return next(self.fate, CommitFate())

    def block(self, seconds: float) -> None:
        """Wait; the others go on."""
        self.timeline.run_until(self.timeline.now + seconds)
        while self._frozen and self._alive:
            self.timeline.run_until(self.timeline.now + 0.5)
        if not self._alive:
            raise Killed

    def position(self, topic: str) -> int:
        """How far it has read."""
        consumer = getattr(self._controller, "_consumer", None)
        return consumer.positions.get(topic, 0) if isinstance(consumer, SimulatedConsumer) else 0

    def start(self) -> None:
        """Take over."""
        self._enter(lambda: self._controller._start(self._stack))
        if self._alive:
            if (hold := self._controller._found.hold) is not None:
                raise Violation(f"the journal cannot be restored: {hold.flaw}, {hold.detail}")
            for topic in (self._topics.acks, self._topics.snapshots, self._topics.intents):
                self.broker.watch(topic, self._wake)
            self._wake()

    def kill(self) -> None:
        """SIGKILL."""
        self._end("killed")

    def freeze(self) -> None:
        """SIGSTOP."""
        self._frozen = True

    def thaw(self) -> None:
        """SIGCONT."""
        self._frozen = False
        self._wake()

    def _wake(self) -> None:
        self._schedule(self.timeline.now + self._network.delay_s())

    def _schedule(self, when: float) -> None:
        if self._turn_at is None or when < self._turn_at:
            self._turn_at = when
            self.timeline.at(when, lambda: self._turn(when))

    def _turn(self, due: float) -> None:
        if due != self._turn_at:
            return  # an earlier one came in between
        self._turn_at = None
        if not self._alive or self._frozen or self._busy:
            return  # `thaw`, or the end of the present turn, brings the next one
        self._enter(self._controller._turn)
        if self._alive:
            wakes = (
                self._controller._execution.wake_at,
                self._controller._decider.wake_at,
                self._controller._status_due,
                self._controller._solver.ready_at,  # type: ignore[attr-defined]
            )
            self._schedule(max(self.timeline.now + 0.05, min(when for when in wakes if when is not None)))

    def _enter(self, act: object) -> None:
        """Run the process's own code, until it returns, blocks for ever, or dies."""
        self._busy = True
        kafka_client.running.append(self)
        try:
            act()  # type: ignore[operator]
        except Killed:
            self._end("killed")
        except FencedError:
            self._end("fenced")
        finally:
            kafka_client.running.remove(self)
            self._busy = False

    def _end(self, how: str) -> None:
        if self._alive:
            self._alive = False
            self.ended = how
            self.broker.unwatch(self._wake)


@contextmanager
def simulated_clients() -> Iterator[None]:
    """The controller's modules meet simulated clients, and fake time where they wait."""
    with ExitStack() as stack:
        for module, name, value in (
            (reader, "Consumer", SimulatedConsumer),
            (publisher, "Producer", kafka_client.SimulatedProducer),
            (publisher, "pause", kafka_client.pause),
            (driver, "pause", kafka_client.pause),
            (driver, "wait_for_broker", lambda admin, connection, stopping: None),
            (driver, "AdminClient", kafka_client.SimulatedAdmin),
            (driver, "SolverProcess", SolverModel),
            (driver, "STATUS_INTERVAL_S", STATUS_EVERY_S),
            (driver, "STATUS_SOON_S", STATUS_EVERY_S),
        ):
            stack.enter_context(patch.object(module, name, value))
        yield
