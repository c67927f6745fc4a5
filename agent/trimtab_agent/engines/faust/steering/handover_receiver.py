"""Reacts to the hand-over records of other workers: takes over key groups that are released to this worker."""

import logging
import time

from trimtab_agent.engines.faust.handover.records import by_partition, took
from trimtab_agent.engines.faust.steering.answers import MAX_REMEMBERED
from trimtab_agent.engines.faust.steering.parts import Parts
from trimtab_agent.engines.faust.steering.refusals import refused_for
from trimtab_agent.engines.outcomes import Took
from trimtab_protocol.messages.handover import HandoverKind, HandoverRecord

log = logging.getLogger(__name__)

MAX_UNCONFIRMED = 100
"""How many `took` records of other workers wait for their placement; more come only from who invents them."""


class HandoverReceiver:
    """Receives every hand-over record of the app, in topic order, on the app's event loop."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._seen: dict[tuple[HandoverKind, str, int], None] = {}
        self._unconfirmed: list[HandoverRecord] = []
        """`took` records of other workers that are newer than the placement read here."""

    async def receive(self, record: HandoverRecord, written_at: float) -> None:
        """Handle a record with the broker's timestamp `written_at` (epoch seconds)."""
        this = record.kind, record.handover, record.generation  # a retry has the same id in another generation
        if this in self._seen:  # a repeat must not revive an old hand-over
            return
        self._seen[this] = None
        if len(self._seen) > MAX_REMEMBERED:
            del self._seen[next(iter(self._seen))]
        shared = self._parts.shared
        if record.kind is HandoverKind.TOOK:
            self._parts.pending.note_took(record.handover)
            if record.target != shared.worker:
                self._unconfirmed = [*self._unconfirmed[1 - MAX_UNCONFIRMED :], record]
                self.confirm()
        elif record.target == shared.worker and shared.refusal is None:
            await self._take(record, written_at)

    def confirm(self) -> None:
        """Send requests for key groups to the worker that says it has taken them, if the placement says so too.

        Only the placement is signed: a hand-made record must not send them elsewhere.
        """
        ownership, generation = self._parts.ownership, self._parts.handover.generation
        taken, self._unconfirmed = self._unconfirmed, []
        for record in taken:
            if record.generation == generation and ownership.known(record.key_groups) and self._is_placed(record):
                ownership.moved(record.key_groups, generation, record.target)
            elif record.generation >= generation:
                self._unconfirmed.append(record)

    def _is_placed(self, record: HandoverRecord) -> bool:
        placement = self._parts.shared.placement
        return placement is not None and all(
            placement.of(key_group.operator, key_group.partition)[:1] == (record.target,)
            for key_group in record.key_groups
        )

    async def _take(self, record: HandoverRecord, written_at: float) -> None:
        handover, pending = self._parts.handover, self._parts.pending
        try:
            await handover.take(
                record.key_groups, by_partition(record.offsets), by_partition(record.ends), record.generation
            )
        except Exception as fault:
            log.warning("hand-over %s: not taken: %r", record.handover, fault)
            pending.end_prepared(record.handover, refused_for(fault))
            if handover.generation == record.generation and handover.is_stable:
                await handover.request_rejoin()  # otherwise the events would wait for the source's time-out
            return
        pause_s = record.held_s + max(0.0, time.time() - written_at)
        names = ", ".join(map(str, sorted(record.key_groups)))
        log.info("hand-over %s: took %s after a pause of %.3f s", record.handover, names, pause_s)
        self._parts.work.start(self._parts.windows.follow())
        pending.end_prepared(record.handover, Took(generation=record.generation, pause_s=pause_s))
        await self._parts.side.publish(took(record))
