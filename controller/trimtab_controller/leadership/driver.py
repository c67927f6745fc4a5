"""Keeps this process a member of the group of controllers, and runs the controller while it leads."""

import logging
import time
from collections.abc import Callable, Iterable
from typing import Protocol, assert_never

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from trimtab_controller.kafka.connection import Connection, StoppedError
from trimtab_controller.kafka.publisher import FencedError, ProducerEndedError
from trimtab_controller.kafka.startup import start_when_ready
from trimtab_controller.leadership.group import Membership, members, own_name
from trimtab_controller.leadership.machine import (
    ENDED,
    Action,
    Candidate,
    CandidateRole,
    Event,
    GroupEvent,
    LeadershipAction,
    ProducerEnded,
    StandDown,
    TermFenced,
)
from trimtab_controller.leadership.metrics import ProcessMetrics
from trimtab_protocol.messages.names import Topics

log = logging.getLogger(__name__)

POLL_S = 0.05
REPEAT_LOG_S = 60.0
"""How often a standby logs which leader it waits for."""


class Term(Protocol):
    """One run of the controller."""

    def run(self) -> None:
        """Run until the term is over.

        Raises FencedError when another controller takes over, ProducerEndedError when the broker ends its producer.
        """


class Candidacy:
    """Runs a term whenever this process leads; `run` returns when `stopping`.

    `tend` is called all the time, to keep running what runs in each role.

    Everything runs in one thread: a running term asks its candidacy in each turn and in each wait, and that polls the
    group.
    """

    def __init__(
        self,
        connection: Connection,
        topics: Topics,
        lease_s: float,
        *,
        new_term: Callable[["Candidacy"], Term],
        metrics: ProcessMetrics,
        stopping: Callable[[], bool],
        tend: Callable[[], None] = lambda: None,
    ) -> None:
        self._connection = connection
        self._topics = topics
        self._new_term = new_term
        self._metrics = metrics
        self._stopping = stopping
        self._tend = tend
        self._membership = Membership(connection, topics, lease_s)
        self._candidate = Candidate()
        self._elected = False
        self._term_over = True
        self._logged_at = 0.0

    def run(self) -> None:
        """Run until `stopping`.

        Raises MembershipError, MissingTopicsError, and the errors of a term except those two.
        """
        try:
            while not self._stopping():
                self._poll(POLL_S)
                if self._elected:
                    self._run_term()
                elif time.monotonic() - self._logged_at >= REPEAT_LOG_S:
                    self._log_leader()
            self._feed(GroupEvent.END_ASKED)
        except StoppedError:
            pass
        finally:
            self._membership.leave()

    @property
    def role(self) -> CandidateRole:
        """The present role."""
        return self._candidate.role

    @property
    def heard_at(self) -> float | None:
        """When the broker last answered this member of the group (epoch seconds); None = not yet."""
        return self._membership.heard_at

    # --- the lease as the term sees it ----------------------------------------------------------------------------

    def over(self) -> bool:
        """Whether the term is to end."""
        if self._stopping():
            self._feed(GroupEvent.END_ASKED)  # at once, so that the next leader need not wait for the end of the term
        else:
            self._poll(0.0)
        return self._term_over

    def suspended(self) -> bool:
        """Whether the term must wait for now."""
        return self._candidate.role is CandidateRole.SUSPENDED

    # --- events and actions ---------------------------------------------------------------------------------------

    def _poll(self, timeout_s: float) -> None:
        self._tend()
        for event in self._membership.poll(timeout_s):
            self._feed(event)
        self._perform(self._candidate.on_tick(time.monotonic()))
        self._metrics.see(self._candidate.role)

    def _feed(self, event: Event) -> None:
        self._perform(self._candidate.on_event(time.monotonic(), event))

    def _perform(self, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case LeadershipAction.JOIN:
                    self._join()
                case LeadershipAction.LEAVE:
                    self._membership.leave()
                case LeadershipAction.WAIT:
                    self._log_leader()
                case LeadershipAction.LEAD:
                    self._elected = True
                case LeadershipAction.SUSPEND:
                    log.warning("the lease expired: no commands until it is known who leads")
                case LeadershipAction.RESUME:
                    log.info("the lease is back: continuing; the next publication fails if another controller led")
                case StandDown(reason=reason, taken=taken):
                    # This term is over for good; the next election begins a new one.
                    self._elected, self._term_over = False, True
                    if taken:
                        self._metrics.stood_down.inc()
                    log.log(logging.INFO if action is ENDED else logging.WARNING, "no longer the leader: %s", reason)
                case _:
                    assert_never(action)

    def _join(self) -> None:
        def join(_: AdminClient) -> None:
            log.info("candidate for leader of cluster %s, as %s", self._topics.cluster, own_name())
            self._membership.join()

        start_when_ready(self._connection, self._topics, self._stopping, join)
        self._logged_at = time.monotonic()

    def _run_term(self) -> None:
        self._elected = self._term_over = False
        log.info("leader of cluster %s", self._topics.cluster)
        try:
            self._new_term(self).run()
        except FencedError as error:
            self._feed(TermFenced(detail=str(error)))
        except ProducerEndedError as error:
            self._metrics.producers_ended.inc()
            self._feed(ProducerEnded(detail=str(error)))
        finally:
            self._metrics.show(None)

    def _log_leader(self) -> None:
        self._logged_at = time.monotonic()
        if self._candidate.role is CandidateRole.JOINING:
            log.warning("waiting to join the group of controllers")
            return
        admin = AdminClient(self._connection.client("trimtab-controller-admin"))
        try:
            leaders = [row for row in members(admin, self._topics.cluster) if row.leads]
        except (KafkaException, TimeoutError) as error:
            log.warning("standby: waiting, but cannot find the leader: %s", error)
            return
        who = ", ".join(f"{row.name} ({row.address})" for row in leaders) or "the election"
        log.info("standby: waiting until %s ends or loses its lease", who)
