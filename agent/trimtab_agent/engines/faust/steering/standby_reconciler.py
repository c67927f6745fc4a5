"""Keeps exactly those key groups warm that the placement and the prepared hand-overs name for this worker."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable

from trimtab_agent.engines.faust.group.ownership import Ownership
from trimtab_agent.engines.faust.group.shared_state import PluginState
from trimtab_agent.engines.faust.handover.handover import KeyGroupHandover
from trimtab_agent.engines.faust.tables.standbys import Standbys
from trimtab_agent.engines.faust.transport.thread import GenerationOver
from trimtab_protocol.messages.names import KeyGroup, OperatorId, WorkerId
from trimtab_protocol.messages.owner_rows import OwnerPart, OwnerTable
from trimtab_protocol.messages.placement import Placement

NO_TABLE = OwnerTable((), 1)
log = logging.getLogger(__name__)

WARMED_AT_ONCE = 4
"""Number of key groups opened before a command gets its turn.  Opening one table takes 5 to 70 ms."""


class NamedHere:
    """The key groups that the placement names this worker for, kept up to date with each change of the placement.

    It looks only at the parts that have changed since the placement before.
    """

    def __init__(self, worker: WorkerId) -> None:
        self._worker = worker
        self._seen: dict[OperatorId, OwnerTable] = {}
        self._named: dict[OperatorId, dict[int, tuple[int, ...]]] = {}
        """Per operator and part, the partitions that name this worker; parts without any are left out."""

    def follow(self, placement: Placement | None) -> dict[OperatorId, list[int]]:
        """Per operator, the partitions whose row names this worker, in any role."""
        tables = dict(placement.owners) if placement is not None else {}
        for operator in self._seen.keys() - tables.keys():
            del self._named[operator]
        for operator, table in tables.items():
            before = self._seen.get(operator, NO_TABLE)
            if table is not before:
                self._follow(operator, before, table)
        self._seen = tables
        return {operator: [each for part in named.values() for each in part] for operator, named in self._named.items()}

    def _follow(self, operator: OperatorId, before: OwnerTable, table: OwnerTable) -> None:
        same = before.size == table.size
        named = self._named.get(operator, {}) if same else {}
        old: tuple[OwnerPart, ...] = before.parts if same else ()
        for index, part in enumerate(table.parts):
            if index < len(old) and old[index] is part:
                continue
            first = index * table.size
            found = tuple(first + at for at, row in enumerate(part.rows) if self._worker in row)
            if found:
                named[index] = found
            else:
                named.pop(index, None)
        for index in range(len(table.parts), len(old)):
            named.pop(index, None)
        self._named[operator] = named


class StandbyReconciler:
    """Opens and closes standbys, one step at a time.

    `ready` waits for the end of a rebalance and returns whether standbys may be kept warm.  `changed` is called when
    standbys may have been closed, and after each rebalance.
    """

    def __init__(
        self,
        shared: PluginState,
        ownership: Ownership,
        standbys: Standbys,
        handover: KeyGroupHandover,
        *,
        prepared: Callable[[], Iterable[KeyGroup]],
        ready: Callable[[], Awaitable[bool]],
        changed: Callable[[], None],
    ) -> None:
        self._shared = shared
        self._ownership = ownership
        self._standbys = standbys
        self._handover = handover
        self._prepared = prepared
        self._ready = ready
        self._changed = changed
        self._named = NamedHere(shared.worker)
        self._turn = asyncio.Lock()

    async def settle(self) -> None:
        """Close standbys that are no longer wanted, then open those that are missing.

        Hundreds may be missing.  They are opened a few at a time, each time followed by an equally long pause for the
        app's own work.  Commands may run in between.
        """
        cold = sorted(await self.cool())
        for first in range(0, len(cold), WARMED_AT_ONCE):
            began = time.monotonic()
            if not await self._warm_placed(cold[first : first + WARMED_AT_ONCE]):
                return
            await asyncio.sleep(time.monotonic() - began)

    async def cool(self) -> frozenset[KeyGroup]:
        """Close standbys that are no longer wanted; returns the key groups that should be warm but are not yet."""
        async with self._turn:
            if not await self._ready():
                return frozenset()
            wanted = self._placed().union(self._prepared())
            self._standbys.cool(self._standbys.followed() - wanted)
            self._changed()
            return frozenset(key_group for key_group in wanted if not self._standbys.is_followed([key_group]))

    @property
    def cold(self) -> int | None:
        """How many key groups the placement has this worker stand by for that are not warm; None without a placement.

        The target of a hand-over is named behind the standbys that the app asks for, so it does not count.
        """
        placement, wanted = self._shared.placement, self._shared.faust_standbys
        if placement is None:
            return None
        rows = ((each, placement.of(each.operator, each.partition)) for each in self._placed())
        return self._standbys.cold(each for each, row in rows if self._shared.worker in row[1 : 1 + wanted])

    async def warm(self, key_groups: Collection[KeyGroup], generation: int) -> None:
        """Open and follow these key groups.  Raises GenerationOver, or the error that makes a table unusable."""
        async with self._turn:
            await self._standbys.warm(key_groups, lambda: self._handover.check(generation))

    async def _warm_placed(self, key_groups: Iterable[KeyGroup]) -> bool:
        """Follow the key groups that are still placed here.

        Returns False if a rebalance came between; at its end the standbys are reconciled again.
        """
        async with self._turn:
            generation = self._handover.generation
            try:
                self._handover.check(generation)
                await self._warm_each(list(filter(self._is_placed, key_groups)), generation)
            except GenerationOver:
                return False
            return True

    async def _warm_each(self, key_groups: Collection[KeyGroup], generation: int) -> None:
        """Warm key groups together with two requests, or one by one if a table cannot be used.

        One unusable table must not keep the other key groups cold.
        """
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
        """The key groups to keep warm for the placement; looks only at those that name this worker."""
        known, named = self._ownership.operators(), self._named.follow(self._shared.placement)
        return frozenset(
            key_group
            for operator in known.keys() & named.keys()
            for key_group in (self._ownership.key_group(known[operator], partition) for partition in named[operator])
            if key_group.partition < known[operator].partitions and not self._ownership.holds(key_group)
        )

    def _is_placed(self, key_group: KeyGroup) -> bool:
        """Whether the placement names this worker for the key group, in any role, and it does not own it (yet)."""
        placement = self._shared.placement
        row = placement.of(key_group.operator, key_group.partition) if placement is not None else ()
        return self._shared.worker in row and not self._ownership.holds(key_group)
