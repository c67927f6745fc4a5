"""Gives key groups away and takes them over inside one generation of the consumer group.

Who owns a key group in generation g:

- Until a `released` record of g is in the hand-over topic: the worker that the group protocol named.  It writes the
  record only after it has finished, flushed and committed under g.
- From then on: the target of that record.  It starts only after the broker accepted a commit of its own under g.
  If it cannot take over and has not owned them, it writes a `released` record of its own with the same offsets and
  ends: then the first owner is the target, and takes them back in the same way.  A worker takes only what it has
  announced itself: one record for each prepare of its own, or the return of what it has released.
- Between generations the group protocol decides, or, where members keep what they own, nothing changes: a hand-over
  that a join meets ends.  What nobody owns then is given to a member, which takes it over without a source (`adopt`).

The broker checks member and generation of a commit, so both workers were members of g when they committed.
Every step checks the generation again after every await.

The app is told as by a rebalance, since it may keep something in memory for its partitions: `on_partitions_revoked`
before the last commit of the old owner; `on_partitions_assigned`, and `on_recover` of the tables, before the first
event of the new one.
"""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from aiokafka.errors import KafkaError
from faust.types import TP

from trimtab_agent.engines.faust.group.ownership import Ownership
from trimtab_agent.engines.faust.measure.monitor import leave_out
from trimtab_agent.engines.faust.safety.in_place import group_generation
from trimtab_agent.engines.faust.settings import SteeringSettings
from trimtab_agent.engines.faust.tables.standbys import Standbys
from trimtab_agent.engines.faust.transport.in_work import seconds_to_wait
from trimtab_agent.engines.faust.transport.thread import CommitRefused, GenerationOver
from trimtab_agent.engines.faust.waiting import POLL_S, until
from trimtab_protocol.messages.commands import Command, Refusal
from trimtab_protocol.messages.handover import HandoverKind, HandoverRecord, Offsets
from trimtab_protocol.messages.names import KeyGroup

log = logging.getLogger(__name__)

WATCH_S, BEHIND_S = 0.05, 0.5
"""How often a release that waits looks at the begun events, and at an agent that is behind another one."""


class Denied(Exception):
    """A step is refused.  This worker owns the same key groups as before."""

    def __init__(self, refusal: Refusal, detail: str) -> None:
        super().__init__(f"{refusal}: {detail}")
        self.refusal = refusal
        self.detail = detail


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """Result of a release: committed source offsets, changelog ends, and the seconds that each step took."""

    offsets: Mapping[TP, int]
    ends: Mapping[TP, int]
    drain_s: float
    flush_s: float
    commit_s: float


class KeyGroupHandover:
    """The two sides of a hand-over, on one worker."""

    def __init__(self, app: Any, ownership: Ownership, standbys: Standbys, settings: SteeringSettings) -> None:
        self._app = app
        self._ownership = ownership
        self._standbys = standbys
        self._settings = settings

    @property
    def generation(self) -> int:
        """The group generation that this worker is in."""
        return group_generation(self._app)

    @property
    def is_stable(self) -> bool:
        """Whether the group is in no rebalance, in place or not, and this worker's tables are restored."""
        app = self._app
        if getattr(app.consumer, "joining", False):
            return False
        is_open = getattr(app.consumer, "is_open", None)
        if is_open is None:  # a worker that is not steered has Faust's own consumer
            is_open = not app.tables.recovery.in_recovery
        return bool(is_open) and not app.rebalancing and not app.should_stop

    def check(self, generation: int) -> None:
        """Raises GenerationOver unless the worker is stable in this generation."""
        if generation != self.generation or not self.is_stable:
            raise GenerationOver(f"not stable in generation {generation}")

    async def check_inputs(self, key_groups: Collection[KeyGroup]) -> None:
        """Raises Denied unless this worker could read the inputs, of which it may have read none so far."""
        if (silent := await self._app.consumer.check_leaders(self._ownership.sources(key_groups))) is not None:
            raise Denied(Refusal.FAILED, f"the inputs are out of reach: {silent}")

    async def request_rejoin(self, nobodys: Collection[KeyGroup] = ()) -> None:
        """Ask the group for a rebalance at which all revoke what they have.

        `nobodys`: it is only for these, and unless this worker holds them, nobody does.  Then members may keep theirs.
        """
        thread = self._app.consumer.thread
        kept = nobodys and not any(map(self._ownership.holds, nobodys))
        await thread.run(thread.rejoin if kept else thread.request_rejoin)

    async def release(self, key_groups: Collection[KeyGroup], generation: int, wait_s: float = 0.0) -> Given:
        """Finish, flush, commit, and give up ownership.  After any exception the worker owns them as before.

        For up to `wait_s` seconds it lets the key groups go on, until events that stay in work for long will soon end.
        """
        self.check(generation)
        sources = self._ownership.sources(key_groups)
        consumer, assigned_in = self._app.consumer, self._app.consumer_generation_id
        await self._wait_for_events(sources, generation, time.monotonic() + wait_s)
        try:
            await self._let_answers_come(sources, generation)
            consumer.block(sources)
            given = await self._finish(key_groups, generation)
        except Exception:
            await self._remain_owner(key_groups, assigned_in)
            raise
        # No await since the last check.  From here on this worker does not own them in this generation.
        consumer.forget(sources)
        self._ownership.disown(key_groups)
        leave_out(self._app.monitor, sources)
        self._standbys.keep(dict(given.ends))
        return given

    async def _wait_for_events(self, sources: set[TP], generation: int, deadline: float) -> None:
        """Raises Denied, with nothing stopped, if begun events will not end in time."""
        consumer, limit_s = self._app.consumer, self._settings.drain_limit_s
        while True:
            behind_s = consumer.bring_forward(sources)
            oldest, longest_s = consumer.oldest_in_work(sources), consumer.in_work.longest_s(sources)
            left_s = seconds_to_wait(oldest, longest_s, limit_s)
            if left_s is None:
                raise Denied(Refusal.DRAIN_TIMEOUT, f"{oldest}, and nobody knows for how long (limit {limit_s:g} s)")
            if left_s == 0.0:
                in_time = time.monotonic() + behind_s < deadline
                if behind_s <= (BEHIND_S if in_time else limit_s / 2):
                    return
                if not in_time:
                    behind = f"an agent needs about {behind_s:.0f} s for what another one of its topic has begun"
                    raise Denied(Refusal.DRAIN_TIMEOUT, f"{behind} (limit {limit_s / 2:g} s)")
            elif time.monotonic() + left_s > deadline:
                raise Denied(
                    Refusal.DRAIN_TIMEOUT, f"{oldest}, for {longest_s:.0f} s as those before it (limit {limit_s:g} s)"
                )
            await asyncio.sleep(min(left_s, WATCH_S) or BEHIND_S)
            self.check(generation)

    async def _let_answers_come(self, sources: Collection[TP], generation: int) -> None:
        """Wait for the answers to agents that ask in the middle of an event, and let them begin no other one.

        What they ask may be in the same key groups, so the other topics still flow.
        """
        consumer, deadline = self._app.consumer, time.monotonic() + self._settings.drain_limit_s
        while asking := consumer.asking(sources):
            if waiting := asking - consumer.blocked:
                consumer.block(waiting)
                await consumer.thread.run(consumer.thread.pause, generation, waiting)
                await consumer.take_back(waiting, deadline, lambda: self.check(generation))
            if time.monotonic() > deadline:
                raise Denied(Refusal.DRAIN_TIMEOUT, f"agents wait for answers after {self._settings.drain_limit_s:g} s")
            await asyncio.sleep(POLL_S)
            self.check(generation)

    async def _finish(self, key_groups: Collection[KeyGroup], generation: int) -> Given:
        consumer, settings = self._app.consumer, self._settings
        sources, changelogs = self._ownership.sources(key_groups), self._ownership.changelogs(key_groups)
        began = time.monotonic()
        await consumer.thread.run(consumer.thread.pause, generation, sources)
        if not await consumer.drain(sources, settings.drain_limit_s, lambda: self.check(generation)):
            oldest = consumer.oldest_in_work(sources)
            if oldest is not None:  # the next release looks at this before it stops anything
                consumer.in_work.note(oldest.tp, oldest.age_s)
            raise Denied(
                Refusal.DRAIN_TIMEOUT, f"{oldest or 'an event was in work'}, longer than {settings.drain_limit_s:g} s"
            )
        if (left := consumer.abandoned(sources)) is not None:  # the next owner would begin behind it
            raise Denied(Refusal.DRAIN_TIMEOUT, f"{left} was not acknowledged, and nobody works on it")
        await self._tell_app(self._app.on_partitions_revoked.send(sources | changelogs))
        self.check(generation)
        drained = time.monotonic()
        try:
            async with asyncio.timeout(settings.commit_limit_s):
                await self._app.producer.flush()  # outputs and changelog records of these key groups
        except TimeoutError:
            limit = f"within {settings.commit_limit_s:g} s"
            raise Denied(Refusal.FAILED, f"Kafka has not taken what this worker has written {limit}") from None
        self.check(generation)
        flushed = time.monotonic()
        consumer.withheld |= sources  # a periodic commit must not overwrite the new owner's first commit
        try:
            await consumer.wait_for_commit()
            self.check(generation)
            offsets = {tp: consumer.next_offset(tp) for tp in sources}
            _, ends = await asyncio.gather(
                consumer.thread.prove_by_commit(generation, offsets, settings.commit_limit_s),
                self._ends(changelogs),
            )
        finally:
            consumer.withheld -= sources
        self.check(generation)
        if (ahead := self._standbys.ahead(ends)) is not None:
            await self.request_rejoin()  # a rebalance restores the table from what is left
            raise Denied(Refusal.FAILED, f"the changelog {ahead}")
        committed = time.monotonic()
        return Given(
            offsets=offsets,
            ends=ends,
            drain_s=drained - began,
            flush_s=flushed - drained,
            commit_s=committed - flushed,
        )

    async def _ends(self, changelogs: Collection[TP]) -> dict[TP, int]:
        if not changelogs:
            return {}
        limit_s = self._settings.commit_limit_s
        try:
            found: dict[TP, int] = await self._app.consumer.thread.ends(changelogs, limit_s)
        except (KafkaError, TimeoutError) as fault:
            told = f"Kafka does not say within {limit_s:g} s where the changelogs end: {fault!r}"
            raise Denied(Refusal.FAILED, told) from None
        return found

    async def _remain_owner(self, key_groups: Collection[KeyGroup], assigned_in: int) -> None:
        """Go on, unless a rebalance has revoked them or is about to; one in place leaves them here."""
        app = self._app
        while app.consumer_generation_id == assigned_in and not app.should_stop:
            if self.is_stable:
                try:
                    await self._go_on(key_groups, self.generation)
                    return
                except GenerationOver:
                    if not app.consumer.joining:
                        raise
            elif not app.consumer.joining:
                return
            await asyncio.sleep(POLL_S)

    async def _go_on(self, key_groups: Collection[KeyGroup], generation: int) -> None:
        """Remain the owner: read the events again that were taken out of the queues."""
        consumer, sources = self._app.consumer, self._ownership.sources(key_groups)
        consumer.block(sources)  # those that were still flowing go on with the others
        # The drain may have failed before it took the events back.
        await consumer.take_back(sources, math.inf, lambda: self.check(generation))
        tps = sources | self._ownership.changelogs(key_groups)
        await self._tell_app(self._app.on_partitions_assigned.send(tps))
        positions = {tp: consumer.next_offset(tp) for tp in sources}
        consumer.go_on_at(positions)
        await consumer.thread.run(consumer.thread.attach, generation, positions)
        consumer.unblock(sources)

    async def forget_released(self, key_groups: Collection[KeyGroup], generation: int) -> None:
        """Remove released key groups from aiokafka's assignment as well, unless they have come back."""
        consumer = self._app.consumer
        key_groups = [key_group for key_group in key_groups if not self._ownership.holds(key_group)]
        tps = self._ownership.sources(key_groups) | self._ownership.changelogs(key_groups)
        await consumer.thread.run(consumer.thread.detach, generation, tps)

    async def take(
        self,
        key_groups: Collection[KeyGroup],
        offsets: Mapping[TP, int],
        ends: Mapping[TP, int],
        generation: int,
        taken: Callable[[], None],
    ) -> None:
        """Take over released key groups.  After Denied or GenerationOver this worker does not own them.

        `taken` is called as soon as it does: what the app then does may take longer than their source waits.
        """
        self.check(generation)
        if any(map(self._ownership.holds, key_groups)) or not self._standbys.is_followed(key_groups):
            raise Denied(Refusal.NOT_PREPARED, "owned here already, or its changelogs are not followed")
        same = self._ownership.sources(key_groups) == offsets.keys()
        if not same or self._ownership.changelogs(key_groups) != ends.keys():
            raise Denied(Refusal.PRECONDITION, "the old owner reads other topics: it runs another version of the app")
        consumer = self._app.consumer
        proving = consumer.thread.prove_by_commit(generation, offsets, self._settings.commit_limit_s)
        done = await asyncio.gather(proving, self._catch_up(dict(ends), generation), return_exceptions=True)
        for fault in done:
            if isinstance(fault, BaseException):
                raise fault
        self.check(generation)
        await self._begin(key_groups, offsets, ends, generation, taken)

    async def adopt(self, key_groups: Collection[KeyGroup], generation: int) -> None:
        """Take over key groups that nobody owned at the last join: their owner was gone by then.

        Each begins as soon as its state is here, however long that takes; the others are not waited for.  Raises
        GenerationOver, Denied and KafkaError.
        """
        consumer, ownership = self._app.consumer, self._ownership
        changelogs, waiting = ownership.changelogs(key_groups), set(key_groups)
        self.check(generation)
        offsets, ends = await consumer.thread.committed(ownership.sources(key_groups)), {}
        if changelogs:
            ends = await consumer.thread.ends(changelogs, self._settings.commit_limit_s)
        self._standbys.prefer(changelogs)
        try:
            while waiting:
                self.check(generation)
                if ready := [each for each in sorted(waiting) if self._is_here(each, ends)]:
                    await self._adopt_now(ready, offsets, ends, generation)
                    waiting.difference_update(ready)
                await asyncio.sleep(POLL_S)
        finally:
            self._standbys.prefer_no_more(changelogs)

    def _is_here(self, key_group: KeyGroup, ends: Mapping[TP, int]) -> bool:
        own = {tp: ends[tp] for tp in self._ownership.changelogs([key_group])}
        return self._standbys.has(own) and self._standbys.is_followed([key_group])

    async def _adopt_now(
        self, key_groups: Collection[KeyGroup], offsets: Mapping[TP, int], ends: Mapping[TP, int], generation: int
    ) -> None:
        """Begin with those of these key groups whose state is here, unless this worker has more than the changelog."""
        if any(map(self._ownership.holds, key_groups)):
            raise Denied(Refusal.NOT_PREPARED, "owned here already")
        own = {tp: ends[tp] for tp in self._ownership.changelogs(key_groups)}
        if (ahead := self._standbys.ahead(own)) is not None:
            raise Denied(Refusal.FAILED, f"the changelog {ahead}")
        sources = self._ownership.sources(key_groups)
        self._app.consumer.begin_behind(sources)
        await self._begin(key_groups, {tp: offsets[tp] for tp in sources}, own, generation)

    async def adopt_topics(self, tps: Collection[TP], generation: int) -> None:
        """Take over partitions of Faust's own topics that nobody had at the last join."""
        consumer = self._app.consumer
        offsets = await consumer.thread.committed(tps)
        self.check(generation)
        self._ownership.own_topics(set(tps))
        consumer.start_at(offsets)
        consumer.unblock(tps)
        await consumer.thread.run(consumer.thread.attach, generation, offsets)

    async def _begin(
        self,
        key_groups: Collection[KeyGroup],
        offsets: Mapping[TP, int],
        ends: Mapping[TP, int],
        generation: int,
        taken: Callable[[], None] = lambda: None,
    ) -> None:
        # From here on this worker's own writes are the newest, and must not be read back from the changelog.
        # No await until ownership is complete.
        consumer = self._app.consumer
        self._standbys.leave(ends.keys())
        self._ownership.own(key_groups)
        for tp, end in ends.items():
            self._ownership.restored_to(tp, end - 1)
        consumer.start_at(offsets)
        consumer.unblock(offsets.keys())
        taken()
        await self._tell_app(self._app.on_partitions_assigned.send({*offsets, *ends}))
        for table in dict.fromkeys(map(self._ownership.table, ends)):  # once, as at a rebalance
            await self._tell_app(table.call_recover_callbacks())
        await consumer.thread.run(consumer.thread.attach, generation, offsets)

    async def _tell_app(self, callbacks: Awaitable[None]) -> None:
        """Let the app do what it has connected.  If that fails, the worker ends, as in a rebalance."""
        try:
            await callbacks
        except Exception as fault:
            log.exception("a function of the app for changed partitions has failed; this worker ends")
            await self._app.crash(fault)
            raise

    async def _catch_up(self, ends: dict[TP, int], generation: int) -> None:
        deadline = time.monotonic() + self._settings.catch_up_limit_s
        self._standbys.prefer(ends.keys())  # the key groups wait, and other restores may have a long way to go
        try:
            if not await until(lambda: self._standbys.has(ends), deadline):
                raise Denied(
                    Refusal.CATCH_UP_TIMEOUT, f"changelogs not applied after {self._settings.catch_up_limit_s} s"
                )
                self.check(generation)
        finally:
            self._standbys.prefer_no_more(ends.keys())


def released(command: Command, given: Given, cluster: str) -> HandoverRecord:
    """The record that allows the target to take over."""
    assert command.handover is not None
    assert command.generation is not None
    assert command.source is not None
    assert command.target is not None
    assert command.app is not None
    return HandoverRecord(
        kind=HandoverKind.RELEASED,
        cluster=cluster,
        app=command.app,
        handover=command.handover,
        epoch=command.epoch,
        generation=command.generation,
        source=command.source,
        target=command.target,
        key_groups=command.key_groups,
        offsets=_rows(given.offsets),
        ends=_rows(given.ends),
        held_s=given.drain_s + given.flush_s + given.commit_s,
    )


def took(record: HandoverRecord) -> HandoverRecord:
    """The record that confirms that the target has taken over."""
    return replace(record, kind=HandoverKind.TOOK, offsets=(), ends=(), held_s=0.0)


def given_back(record: HandoverRecord) -> HandoverRecord:
    """The record with which a target that has never owned the key groups releases them to their source again."""
    return replace(record, source=record.target, target=record.source)


def _rows(offsets: Mapping[TP, int]) -> Offsets:
    return tuple((tp.topic, tp.partition, offset) for tp, offset in sorted(offsets.items()))


def by_partition(rows: Offsets) -> dict[TP, int]:
    """Offsets of a record by Faust partition."""
    return {TP(topic, partition): offset for topic, partition, offset in rows}


def refused_for(fault: Exception) -> tuple[Refusal, str]:
    """What to report for an exception of a step, with its detail."""
    match fault:
        case Denied():
            return fault.refusal, fault.detail
        case CommitRefused():
            return Refusal.COMMIT_REFUSED, str(fault)
        case GenerationOver():
            return Refusal.GENERATION, str(fault)
        case _:
            return Refusal.FAILED, repr(fault)
