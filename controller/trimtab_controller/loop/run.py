"""One run of the controller: connect, recover the predecessor's state, and loop until told to stop."""

import logging
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from confluent_kafka.admin import AdminClient

from trimtab_controller.configuration import Configuration
from trimtab_controller.kafka.connection import Connection, StoppedError, events_obstacle, pause
from trimtab_controller.kafka.follower import Follower
from trimtab_controller.kafka.publisher import OptionalTopic, Publisher
from trimtab_controller.kafka.reader import reading, since
from trimtab_controller.kafka.startup import start_when_ready
from trimtab_controller.loop.driver import POLL_S, ControlLoop, Resources
from trimtab_controller.loop.events.log import EventLog
from trimtab_controller.loop.health import Health
from trimtab_controller.loop.hook import Hook
from trimtab_controller.loop.inbox import Inbox
from trimtab_controller.loop.metrics import ControllerMetrics
from trimtab_controller.loop.recovery import RecoveredState, recover
from trimtab_controller.loop.stream_process import StreamProcess
from trimtab_controller.solver.answer import Method
from trimtab_controller.solver.process import SolverProcess, serve_collocating
from trimtab_process.credential_files import load_trust
from trimtab_protocol.messages.names import Topics, transactional_id
from trimtab_protocol.signing.hosts import HostChecking
from trimtab_protocol.signing.keys import SigningKey, TrustedKeys

log = logging.getLogger(__name__)

WINDOWS_TO_CATCH_UP = 3


class ControllerRun:
    """One run of the controller; for an acting controller, one term as leader.

    `run` returns when `stopping`, waits while `suspended`, and raises FencedError when another controller takes over.
    `stream` publishes during the run; None: Spark runs elsewhere.  `name` = that of the controller in its events.
    """

    def __init__(
        self,
        configuration: Configuration,
        *,
        acting: bool,
        stopping: Callable[[], bool],
        suspended: Callable[[], bool] = lambda: False,
        stream: StreamProcess | None = None,
        name: str = "this controller",
        metrics: ControllerMetrics | None = None,
        health: Health | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._configuration = configuration
        self._stream = stream
        self._name = name
        self._acting = acting
        self._stopping = stopping
        self._suspended = suspended
        self._clock = clock
        self._topics = Topics(configuration.cluster)
        self._connection = Connection(kafka=configuration.kafka)
        self._metrics = metrics or ControllerMetrics()
        self._health = health
        self._key, self._trusted = self._find_keys()

    def _find_keys(self) -> tuple[SigningKey | None, TrustedKeys | None]:
        """A dry run publishes nothing that needs a key."""
        files = self._configuration.signing
        if files is None:
            log.warning("commands and placements are not signed: there is no [signing] in the configuration")
            return None, None
        if not self._acting:
            return None, load_trust(files.trust)
        key, trusted = files.load()
        log.info("commands and placements are signed by key %s", key.public.id)
        return key, trusted

    def run(self) -> None:
        """Run until `stopping`."""
        try:
            with ExitStack() as stack:
                loop = self.loop(self.open(stack))
                loop.begin()
                while not self._stopping():
                    if self._suspended():
                        pause(POLL_S, self._stopping)
                    else:
                        loop.turn()
        except StoppedError:
            pass
        log.info("the controller's run has ended")

    def open(self, stack: ExitStack) -> Resources:
        """Take over from the predecessor and start the processes; `stack` closes everything.

        Raises StoppedError, FencedError, KafkaException.
        """
        self._metrics.acting.set(self._acting)
        if self._health is not None:
            self._health.see_window(None)
        collocating = self._configuration.balance.method is Method.ALBIC
        solver = SolverProcess(serve=serve_collocating) if collocating else SolverProcess()
        stack.callback(solver.close)
        stream = self._stream
        if stream is not None:
            stack.callback(stream.stand_by)
            stream.tick()  # first, since Spark takes longest to start
        hook = Hook(self._configuration.scaling)
        stack.callback(hook.close)
        inbox = Inbox(self._topics, self._clock, trusted=self._trusted, checking=self._configuration.host_signatures)
        publisher, follower, recovered = start_when_ready(
            self._connection,
            self._topics,
            self._stopping,
            partial(self._take_over, inbox),
            host_keys=self._configuration.host_signatures is not HostChecking.OFF,
        )
        stack.callback(follower.close)
        if stream is not None:
            stream.lead()
        return Resources(
            inbox=inbox,
            publisher=publisher,
            follower=follower,
            solver=solver,
            hook=hook,
            stream=stream,
            recovered=recovered,
            events=EventLog(self._topics, self._name, previous=recovered.status) if self._acting else None,
        )

    def loop(self, resources: Resources) -> ControlLoop:
        """The loop over these resources; it publishes nothing before `begin`."""
        return ControlLoop(
            self._configuration,
            resources,
            acting=self._acting,
            key=self._key,
            metrics=self._metrics,
            health=self._health,
            clock=self._clock,
        )

    def _take_over(self, inbox: Inbox, admin: AdminClient) -> tuple[Publisher, Follower, RecoveredState]:
        """Fence the predecessor, and read the state that it leaves.  Raises FencedError, ReadError, KafkaException."""
        told = OptionalTopic(self._topics.events, partial(events_obstacle, admin, self._topics))
        # From here on no predecessor can publish, so what is read next is final.
        own_id = transactional_id(self._topics.cluster, acting=self._acting)
        publisher = Publisher(self._connection, own_id, self._stopping, self._key, told)
        recovered = recover(self._connection, self._topics, inbox, acting=self._acting)
        stream = self._configuration.stream
        from_s = self._clock() - WINDOWS_TO_CATCH_UP * stream.window_s - stream.watermark_s
        with reading(self._connection, "windows") as consumer:
            snapshots = since(consumer, self._topics.snapshots, from_s)
        positions = [*recovered.positions, *snapshots]
        follower = Follower(self._connection, "controller", positions, watched=[self._topics.placement])
        return publisher, follower, recovered
