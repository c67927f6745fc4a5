"""Joins the consumer group while the worker goes on with its key groups (`safety/in_place.py` has the rules).

aiokafka revokes everything before it sends a JoinGroup.  `JoinInPlace` takes the place of that step where the rules
allow it, and else lets aiokafka do as ever.  All of it runs in the consumer's thread, except what it asks of the
`Holder`, on the app's event loop, where hand-overs change what this worker owns.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine
from typing import Any, Protocol

from aiokafka.consumer.group_coordinator import JoinGroupRequest
from aiokafka.coordinator.protocol import ConsumerProtocol
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    GroupCoordinatorNotAvailableError,
    GroupLoadInProgressError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    KafkaError,
    MemberIdRequired,
    NoError,
    NotCoordinatorForGroupError,
    RebalanceInProgressError,
    UnknownMemberIdError,
    for_code,
)
from aiokafka.protocol.commit import OffsetCommitRequest
from aiokafka.protocol.group import HeartbeatRequest, SyncGroupRequest
from aiokafka.util import create_future
from faust.types import TP

from trimtab_agent.engines.faust.safety.fence import uptime
from trimtab_agent.engines.faust.safety.in_place import COMMON, OWN, AssignmentChange, MemberInPlace
from trimtab_agent.engines.faust.settings import InPlace

log = logging.getLogger(__name__)

JOINS: Any = 2
"""JoinGroup and SyncGroup have a connection of their own.  The broker answers a connection's requests one by one, so a
commit behind a waiting JoinGroup would be judged only after its generation is over."""
HEARTBEATS = 4
"""The broker is told a rebalance time-out of at least the session and so many heartbeats."""
MOST_BEAT_S = 0.25
"""The longest time between two heartbeats.  From them a member learns that the group rebalances, and until all have
learned it, what a worker had that has left is nobody's."""
OTHER_BROKER = (GroupCoordinatorNotAvailableError, NotCoordinatorForGroupError)
AGAIN = (GroupLoadInProgressError, RebalanceInProgressError)


class Holder(Protocol):
    """What owns the key groups, on the app's event loop."""

    def may_keep(self) -> str | None:
        """Why this worker cannot go on with what it owns through a rebalance; None: it can."""

    def owned(self) -> frozenset[TP]:
        """All partitions that this worker owns, its changelogs' too."""

    def renew(self, assignment: Any, new: frozenset[TP], generation: int) -> None:
        """Adopt the leader's assignment, in which nothing is lost.  What is new is taken over later."""


class JoinInPlace:
    """One worker's joins.  `on_app(step)` runs a coroutine function on the app's event loop."""

    def __init__(
        self,
        coordinator: Any,
        assignor: Any,
        member: MemberInPlace[TP],
        holder: Holder,
        on_app: Callable[[Callable[[], Coroutine[Any, Any, Any]]], Awaitable[Any]],
        *,
        mode: Callable[[], InPlace],
    ) -> None:
        self.member = member
        self.stopped = 0
        """How often this worker has revoked everything to join, after its first join."""
        self._coordinator, self._assignor, self._holder, self._on_app = coordinator, assignor, holder, on_app
        self._mode = mode
        self._ask_all: str | None = None
        self._has_joined = self._assigns = False
        self._stock_join = coordinator.ensure_active_group
        self._lookup = coordinator._lookup_assignor
        coordinator.ensure_active_group = self._ensure_active_group
        coordinator._do_rejoin_group = self._rejoin_with_nothing
        coordinator._lookup_assignor = lambda name: self._lookup(COMMON if name == OWN else name)
        coordinator._on_metadata_change = self._see_new_topics
        coordinator._rebalance_timeout_ms = int(member.fence.rebalance_s * 1e3)
        coordinator._heartbeat_interval_ms = min(coordinator._heartbeat_interval_ms, int(MOST_BEAT_S * 1e3))
        coordinator._send_req = self._apart(coordinator._send_req)

    def _apart(self, send: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Awaitable[Any]]:
        coordinator = self._coordinator

        async def send_apart(request: Any) -> Any:
            node = coordinator.coordinator_id
            if node is None or not isinstance(request, JoinGroupRequest | SyncGroupRequest):
                return await send(request)
            try:
                return await coordinator._client.send(node, request, group=JOINS)
            except KafkaError:
                coordinator.coordinator_dead()
                raise

        return send_apart

    def stop_all(self, reason: str) -> None:
        """Ask for a rebalance at which everybody revokes everything."""
        self._ask_all = reason if self.member.in_place else None
        self.stop(reason)

    def _see_new_topics(self) -> None:
        """Topics are not as they were, except to a leader that assigns: it may see them for the first time."""
        if not self._assigns:
            self.stop_all("topics have changed")

    def stop(self, reason: str) -> None:
        """Revoke everything that this worker owns, and join again."""
        self.member.doubt = self.member.doubt or reason
        self._coordinator.request_rejoin()

    # ---- answers between the joins

    def heard(self, request: Any, response: Any, sent_at: float) -> None:
        """Note what an answer says; leave nothing in it that concerns a generation which this member has left."""
        if isinstance(request, HeartbeatRequest):
            self._heard_beat(request, response, sent_at)
        elif isinstance(request, OffsetCommitRequest):
            codes = {code for _, partitions in response.topics for _, code in partitions}
            over = {IllegalGenerationError.errno, UnknownMemberIdError.errno, RebalanceInProgressError.errno}
            if codes & over and self.member.is_late(request._consumer_group_generation_id):
                raise IllegalGenerationError(self._coordinator.group_id)  # aiokafka would leave the group for it

    def _heard_beat(self, request: Any, response: Any, sent_at: float) -> None:
        error, generation = for_code(response.error_code), request._generation_id
        if error in (NoError, RebalanceInProgressError):
            self.member.beat(generation, sent_at, stable=error is NoError)
        elif error is not IllegalGenerationError:
            return
        if self.member.is_late(generation):
            response.error_code = NoError.errno  # it joins already, or has just joined

    # ---- joins

    async def _ensure_active_group(self, subscription: Any, before: Any) -> Any:
        coordinator, member = self._coordinator, self.member
        known = coordinator.member_id != JoinGroupRequest.UNKNOWN_MEMBER_ID
        if not (known and subscription.assignment is not None and member.keeps(uptime())):
            return await self._stop_and_join(subscription, before)
        try:
            why_not, data = await self._on_app(lambda: self._take_claim(subscription.topics))
        except Exception as fault:
            log.exception("what this worker has cannot be told")
            why_not, data = repr(fault), b""
        if why_not is not None:
            member.doubt = why_not
            return await self._stop_and_join(subscription, before)
        coordinator._group_subscription = None
        try:
            answer = await self._join_and_sync(subscription, [(OWN, data)])
        except InconsistentGroupProtocolError:
            self.stop("a worker has joined that does not keep its key groups in place")
            return None
        if answer is None:
            coordinator.request_rejoin()
            await asyncio.sleep(coordinator._retry_backoff_ms / 1000)
            return None
        await self._take_answer(answer)
        # All members begin to count anew, as at a join of aiokafka: so they notice the next rebalance together.
        await coordinator._stop_heartbeat_task()
        coordinator._start_heartbeat_task()
        return subscription.assignment

    async def _take_claim(self, topics: Collection[str]) -> tuple[str | None, bytes]:
        """On the app's event loop: from here on this worker owns what it claims until the answer says more."""
        if (why_not := self._holder.may_keep()) is not None:
            return why_not, b""
        self.member.claim(self._holder.owned())
        return None, self._data(topics, keeps=True)

    def _data(self, topics: Collection[str], *, keeps: bool) -> bytes:
        in_place = self._mode() is InPlace.ON and self._ask_all is None
        generation = self.member.synced
        data: bytes = self._assignor.metadata(topics, keeps=keeps, in_place=in_place, generation=generation).encode()
        return data

    async def _stop_and_join(self, subscription: Any, before: Any) -> Any:
        if self._has_joined and not self._coordinator._performed_join_prepare:
            self.stopped += 1
            if self.member.in_place:
                why = self.member.doubt or "its membership is in doubt"
                log.warning("this worker stops for the rebalance, for the %d. time: %s", self.stopped, why)
        self.member.claim(None)  # whatever it had is revoked before the JoinGroup
        return await self._stock_join(subscription, before)

    async def _rejoin_with_nothing(self, subscription: Any) -> bool:
        """In the place of aiokafka's join, which sends one JoinGroup for each name.  All is revoked by now."""
        coordinator = self._coordinator
        data = self._data(subscription.topics, keeps=False)
        # After an answer that it is not in place, the common name is preferred: if the broker takes it, nobody keeps
        # anything, whatever the members' data say.
        last = self.member.synced >= 0 and not self.member.in_place
        names = (COMMON, OWN) if last or self._mode() is not InPlace.ON else (OWN, COMMON)
        offers = [(name, data) for name in names]
        answer = await self._join_and_sync(subscription, offers)
        if not subscription.active:
            return False
        if answer is None:
            await asyncio.sleep(coordinator._retry_backoff_ms / 1000)
            return False
        protocol, sent_at, told = answer
        _, _, revoke = self._synced(sent_at, told)
        if revoke:  # who asks goes on to: a member that has not heard of it would claim what it has once more
            coordinator.request_rejoin()
            return False
        self._has_joined, self._ask_all = True, None
        await coordinator._on_join_complete(coordinator.generation, coordinator.member_id, protocol, told)
        self.member.settled()
        return True

    async def _take_answer(self, answer: tuple[str, float, bytes]) -> None:
        _, sent_at, told = answer
        generation = self._coordinator.generation
        assignment, change, _ = self._synced(sent_at, told)
        if self.member.doubt is not None:
            self._coordinator.request_rejoin()
            return
        log.info("generation %d in place: %d partitions kept, %d new", generation, len(change.kept), len(change.new))
        try:
            await self._on_app(lambda: self._renew(assignment, change, generation))
        except Exception as fault:
            log.exception("the group's answer cannot be carried out")
            self.stop(repr(fault))

    def _synced(self, sent_at: float, told: bytes) -> tuple[Any, AssignmentChange[TP], bool]:
        """Read the leader's answer: the assignment, what it means for this member, and whether all must revoke."""
        assignment = ConsumerProtocol.ASSIGNMENT.decode(told)
        in_place, revoke = self._assignor.leader_says(assignment)
        given = {TP(*tp) for tp in assignment.partitions()}
        return assignment, self.member.synced_with(given, sent_at, in_place=in_place, revoke=revoke), revoke

    async def _renew(self, assignment: Any, change: AssignmentChange[TP], generation: int) -> None:
        self._holder.renew(assignment, change.new, generation)
        self.member.settled()

    async def _join_and_sync(
        self, subscription: Any, offers: list[tuple[str, bytes]]
    ) -> tuple[str, float, bytes] | None:
        """JoinGroup and SyncGroup once: protocol, when the SyncGroup was sent, assignment; None: try again.

        Raises KafkaError where aiokafka's own join does.
        """
        coordinator = self._coordinator
        for _ in range(2):
            sent_at = uptime()
            try:
                response = await coordinator._send_req(self._join_request(offers))
            except KafkaError:
                return None
            error = for_code(response.error_code)
            if error is not MemberIdRequired:
                break
            coordinator.member_id = response.member_id
        if error is not NoError:
            self._refused(error)
            return None
        if not subscription.active:
            return None
        coordinator.member_id, coordinator.generation = response.member_id, response.generation_id
        self.member.joined(response.generation_id, sent_at)
        protocol, rows = response.group_protocol, []
        log.info("joined group %s, generation %d (%s)", coordinator.group_id, coordinator.generation, protocol)
        if response.leader_id == response.member_id:
            self._assignor.protocol = protocol
            self._assigns = True
            try:
                given = await coordinator._perform_assignment(response)
            except Exception as fault:
                raise KafkaError(repr(fault)) from fault
            finally:
                self._assigns = False
            rows = [(member, each.encode()) for member, each in given.items()]
        return await self._sync(protocol, rows)

    def _join_request(self, offers: list[tuple[str, bytes]]) -> Any:
        coordinator = self._coordinator
        return JoinGroupRequest(
            coordinator.group_id,
            coordinator._session_timeout_ms,
            coordinator._rebalance_timeout_ms,
            coordinator.member_id,
            coordinator._group_instance_id,
            ConsumerProtocol.PROTOCOL_TYPE,
            offers,
        )

    async def _sync(self, protocol: str, rows: list[tuple[str, bytes]]) -> tuple[str, float, bytes] | None:
        coordinator = self._coordinator
        coordinator._rejoin_needed_fut = create_future()
        generation, member_id, sent_at = coordinator.generation, coordinator.member_id, uptime()
        request = SyncGroupRequest(coordinator.group_id, generation, member_id, coordinator._group_instance_id, rows)
        try:
            response = await coordinator._send_req(request)
        except KafkaError:
            coordinator.request_rejoin()
            return None
        error = for_code(response.error_code)
        if error is NoError and coordinator.member_id == member_id:
            return protocol, sent_at, response.member_assignment
        coordinator.request_rejoin()
        if error is IllegalGenerationError:
            coordinator.reset_generation()
        elif error is not NoError:
            self._refused(error)
        return None

    def _refused(self, error: Any) -> None:
        coordinator = self._coordinator
        log.info("the group %s has refused a join: %s", coordinator.group_id, error.__name__)
        if error is UnknownMemberIdError:
            coordinator.reset_generation()
        elif error in OTHER_BROKER:
            coordinator.coordinator_dead()
        elif error is GroupAuthorizationFailedError:
            raise error(coordinator.group_id)
        elif error not in AGAIN:
            raise error()


def in_place_rebalance_s(configured_s: float, session_s: float, heartbeat_s: float) -> float:
    """The rebalance time-out that a member in place tells the broker."""
    return max(configured_s, session_s + HEARTBEATS * heartbeat_s)
