"""Which key groups this worker keeps warm: those that the placement and its prepared hand-overs name, and no others."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable

from trimtab_agent.engines.faust.group.ownership import Ownership
from trimtab_agent.engines.faust.group.shared_state import PluginState
from trimtab_agent.engines.faust.handover.handover import Handover
from trimtab_agent.engines.faust.tables.standbys import Standbys
from trimtab_agent.engines.faust.transport.thread import GenerationOver
from trimtab_protocol.messages.names import KeyGroup

log = logging.getLogger(__name__)

WARMED_AT_ONCE = 4
"""Key groups that are opened before a command has its turn; each of their tables takes 5 to 70 ms."""


class StandbyReconciler:
    """One step at a time; `ready` waits for the end of a rebalance and says whether there is anything to keep warm."""

    def __init__(
        self,
        shared: PluginState,
        ownership: Ownership,
        standbys: Standbys,
        handover: Handover,
        *,
        prepared: Callable[[], Iterable[KeyGroup]],
        ready: Callable[[], Awaitable[bool]],
    ) -> None:
        self._shared = shared
        self._ownership = ownership
        self._standbys = standbys
        self._handover = handover
        self._prepared = prepared
        self._ready = ready
        self._turn = asyncio.Lock()

    async def settle(self) -> None:
        """Close standbys that are no longer wanted, open those that are missing.

        There may be hundreds to open: a few at a time, with as long a pause for the app's own work.  Commands come in
        between.
        """
        cold = sorted(await self.cool())
        for first in range(0, len(cold), WARMED_AT_ONCE):
            began = time.monotonic()
            if not await self._warm_placed(cold[first : first + WARMED_AT_ONCE]):
                return
            await asyncio.sleep(time.monotonic() - began)

    async def cool(self) -> frozenset[KeyGroup]:
        """Close what is not to be kept warm; returns what is to be, and is not yet."""
        async with self._turn:
            if not await self._ready():
                return frozenset()
            wanted = self._placed().union(self._prepared())
            self._standbys.cool(self._standbys.followed() - wanted)
            return frozenset(key_group for key_group in wanted if not self._standbys.is_followed([key_group]))

    async def warm(self, key_groups: Collection[KeyGroup], generation: int) -> None:
        """Open and follow these.  Raises GenerationOver, and whatever keeps a table from being used."""
        async with self._turn:
            await self._standbys.warm(key_groups, lambda: self._handover.check(generation))

    async def _warm_placed(self, key_groups: Iterable[KeyGroup]) -> bool:
        """Follow those that are still placed here.  False: a rebalance came between, and ends with a reconciliation."""
        async with self._turn:
            generation = self._handover.generation
            try:
                self._handover.check(generation)
                await self._warm_each(list(filter(self._is_placed, key_groups)), generation)
            except GenerationOver:
                return False
            return True

    async def _warm_each(self, key_groups: Collection[KeyGroup], generation: int) -> None:
        """Together, with two requests; one by one where a table cannot be used: the others must not stay cold."""
        try:
            await self._standbys.warm(key_groups, lambda: self._handover.check(generation))
        except GenerationOver:
            raise
        except Exception as fault:
            if len(key_groups) > 1:
                for key_group in key_groups:
                    await self._warm_each([key_group], generation)
            else:
                log.warning("cannot keep %s warm: %r", ", ".join(map(str, key_groups)), fault)

    def _placed(self) -> frozenset[KeyGroup]:
        return frozenset(
            key_group
            for operator in self._ownership.operators().values()
            for key_group in (self._ownership.key_group(operator, p) for p in range(operator.partitions))
            if self._is_placed(key_group)
        )

    def _is_placed(self, key_group: KeyGroup) -> bool:
        """Whether the placement gives it to this worker in any role, and this worker does not own it (yet)."""
        placement = self._shared.placement
        row = placement.of(key_group.operator, key_group.partition) if placement is not None else ()
        return self._shared.worker in row and not self._ownership.holds(key_group)
