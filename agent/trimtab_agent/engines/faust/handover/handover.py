"""Giving key groups away and taking them over inside one generation of the consumer group.

Inside generation g the owner of a key group is the one the group protocol named until a `released` record of g is in
the hand-over topic; from then on the target of that record, once it has started.  The record is written only after the
old owner has finished, flushed and committed under g; the target starts only after a commit of its own under g was
accepted: the broker checks member and generation, so both were members then.  Between generations the group protocol
decides.

Every step looks at the generation again after every await.
"""

import asyncio
import math
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from faust.types import TP

from trimtab_agent.engines.faust.group.ownership import Ownership
from trimtab_agent.engines.faust.settings import SteeringSettings
from trimtab_agent.engines.faust.tables.standbys import Standbys
from trimtab_agent.engines.faust.transport.thread import GenerationOver
from trimtab_protocol.messages.commands import Refusal
from trimtab_protocol.messages.names import KeyGroup

POLL_S = 0.001


class Denied(Exception):
    """A step is refused; this worker owns what it owned before."""

    def __init__(self, refusal: Refusal, detail: str) -> None:
        super().__init__(f"{refusal}: {detail}")
        self.refusal = refusal
        self.detail = detail


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What the old owner left: committed source offsets and changelog ends.  Seconds per step."""

    offsets: Mapping[TP, int]
    ends: Mapping[TP, int]
    drain_s: float
    flush_s: float
    commit_s: float


class Handover:
    """The two sides of a hand-over, on one worker."""

    def __init__(self, app: Any, ownership: Ownership, standbys: Standbys, settings: SteeringSettings) -> None:
        self._app = app
        self._ownership = ownership
        self._standbys = standbys
        self._settings = settings

    @property
    def generation(self) -> int:
        """The generation this worker works in."""
        generation: int = self._app.consumer_generation_id
        return generation

    @property
    def is_stable(self) -> bool:
        """Whether the group is in no rebalance and this worker's tables are restored."""
        app = self._app
        return app.consumer.is_open and not app.rebalancing and not app.should_stop

    def check(self, generation: int) -> None:
        """Raises GenerationOver unless the worker is stable in this generation."""
        if generation != self.generation or not self.is_stable:
            raise GenerationOver(f"not stable in generation {generation}")

    async def request_rejoin(self) -> None:
        """Ask the group for a rebalance."""
        thread = self._app.consumer.thread
        await thread.run(thread.request_rejoin)

    async def release(self, key_groups: Collection[KeyGroup], generation: int) -> Given:
        """Finish, flush, commit, and stop owning.  Whatever it raises, it then owns them as before."""
        self.check(generation)
        sources = self._ownership.sources(key_groups)
        consumer = self._app.consumer
        consumer.block(sources)
        try:
            given = await self._finish(key_groups, generation)
        except Exception:
            if generation == self.generation and self.is_stable:
                await self._go_on(sources, generation)
            raise
        # No await from the last check to here: from now on this worker does not own them in this generation.
        consumer.forget(sources)
        self._ownership.disown(key_groups)
        self._standbys.keep(dict(given.ends))
        return given

    async def _finish(self, key_groups: Collection[KeyGroup], generation: int) -> Given:
        consumer, settings = self._app.consumer, self._settings
        sources, changelogs = self._ownership.sources(key_groups), self._ownership.changelogs(key_groups)
        began = time.monotonic()
        await consumer.thread.run(consumer.thread.pause, generation, sources)
        if not await consumer.drain(sources, settings.drain_limit_s, lambda: self.check(generation)):
            raise Denied(Refusal.DRAIN_TIMEOUT, f"events still in work after {settings.drain_limit_s:g} s")
        drained = time.monotonic()
        await self._app.producer.flush()  # outputs and changelog records of these key groups
        self.check(generation)
        flushed = time.monotonic()
        consumer.withheld |= sources  # a periodic commit of them must not come after the new owner's first
        try:
            await consumer.wait_for_commit()
            self.check(generation)
            offsets = {tp: consumer.next_offset(tp) for tp in sources}
            _, ends = await asyncio.gather(
                consumer.thread.prove_by_commit(generation, offsets, settings.commit_limit_s),
                consumer.highwaters(*changelogs) if changelogs else _nothing(),
            )
        finally:
            consumer.withheld -= sources
        self.check(generation)
        committed = time.monotonic()
        return Given(
            offsets=offsets,
            ends=ends,
            drain_s=drained - began,
            flush_s=flushed - drained,
            commit_s=committed - flushed,
        )

    async def _go_on(self, sources: set[TP], generation: int) -> None:
        """Stay the owner: read again what was taken out of the queues."""
        consumer = self._app.consumer
        # The drain may not have come to this.
        await consumer.take_back(sources, math.inf, lambda: self.check(generation))
        positions = {tp: consumer.next_offset(tp) for tp in sources}
        consumer.go_on_at(positions)
        await consumer.thread.run(consumer.thread.attach, generation, positions)
        consumer.unblock(sources)

    async def forget_released(self, key_groups: Collection[KeyGroup], generation: int) -> None:
        """Take what was released out of aiokafka's assignment as well."""
        consumer = self._app.consumer
        tps = self._ownership.sources(key_groups) | self._ownership.changelogs(key_groups)
        await consumer.thread.run(consumer.thread.detach, generation, tps)

    async def take(
        self, key_groups: Collection[KeyGroup], offsets: Mapping[TP, int], ends: Mapping[TP, int], generation: int
    ) -> None:
        """Own what its old owner has released.  Raises Denied or GenerationOver: then it does not own them."""
        self.check(generation)
        if any(map(self._ownership.holds, key_groups)) or not self._standbys.is_followed(key_groups):
            raise Denied(Refusal.NOT_PREPARED, "owned already, or its tables are not followed")
        same = self._ownership.sources(key_groups) == offsets.keys()
        if not same or self._ownership.changelogs(key_groups) != ends.keys():
            raise Denied(Refusal.PRECONDITION, "its old owner reads other topics: it runs another version of the app")
        consumer = self._app.consumer
        proving = consumer.thread.prove_by_commit(generation, offsets, self._settings.commit_limit_s)
        done = await asyncio.gather(proving, self._catch_up(dict(ends), generation), return_exceptions=True)
        for fault in done:
            if isinstance(fault, BaseException):
                raise fault
        self.check(generation)
        # From here our own writes are the newest: they must not be read back.  No await until it is the owner.
        self._standbys.leave(ends.keys())
        self._ownership.own(key_groups)
        for tp, end in ends.items():
            self._ownership.restored_to(tp, end - 1)
        consumer.start_at(offsets)
        consumer.unblock(offsets.keys())
        await consumer.thread.run(consumer.thread.attach, generation, offsets)

    async def _catch_up(self, ends: dict[TP, int], generation: int) -> None:
        deadline = time.monotonic() + self._settings.catch_up_limit_s
        while not self._standbys.has(ends):
            if time.monotonic() > deadline:
                raise Denied(
                    Refusal.CATCH_UP_TIMEOUT, f"changelogs not applied after {self._settings.catch_up_limit_s} s"
                )
            await asyncio.sleep(POLL_S)
            self.check(generation)


async def _nothing() -> dict[TP, int]:
    return {}
