"""Reacts to the hand-over records of other workers: takes over key groups that are released to this worker."""

import asyncio
import logging
import time
from dataclasses import replace

from aiokafka.errors import KafkaError

from trimtab_agent.engines.faust.handover.handover import Denied, by_partition, given_back, refused_for, took
from trimtab_agent.engines.faust.steering.parts import SteeringParts, wait_until
from trimtab_protocol.messages.commands import Phase, Refusal
from trimtab_protocol.messages.handover import HandoverKind, HandoverRecord
from trimtab_protocol.messages.rate_limit import RateLimit

log = logging.getLogger(__name__)

MAX_UNCONFIRMED = 10_000
"""Key groups in all `took` records of other workers that wait for their placement; more come only from who invents
them.
"""


class HandoverReceiver:
    """Receives every hand-over record of the app, in topic order, on the app's event loop."""

    def __init__(self, parts: SteeringParts) -> None:
        self._parts = parts
        self._complaints = RateLimit(rate=1, burst=100)
        self._unconfirmed: list[HandoverRecord] = []
        """`took` records of other workers that are newer than the placement read here."""

    async def receive(self, record: HandoverRecord, written_at: float) -> None:
        """Handle a record with the broker's timestamp `written_at` (epoch seconds)."""
        pending, shared = self._parts.pending, self._parts.shared
        ended_here = pending.end_released(record)
        if record.kind is HandoverKind.TOOK:
            if record.target != shared.worker:
                self._unconfirmed += self._not_confirmed([record])
                while sum(len(each.key_groups) for each in self._unconfirmed) > MAX_UNCONFIRMED:
                    del self._unconfirmed[0]
            return
        if ended_here or record.target != shared.worker or shared.refusal is not None:
            return
        if pending.accept(record):
            await self._take(record, written_at)
        elif self._complaints.spend(time.monotonic()):  # a flood must not fill the log
            log.warning(
                "hand-over %s from %s in generation %d: ignored, since no prepare has announced it here, or no longer",
                record.handover, record.source, record.generation,
            )  # fmt: skip

    def confirm(self) -> None:
        """Send requests for key groups to the worker that says it has taken them, if the placement says so too.

        Only the placement is signed: a hand-made record must not send them elsewhere.
        """
        self._unconfirmed = self._not_confirmed(self._unconfirmed)

    def _not_confirmed(self, taken: list[HandoverRecord]) -> list[HandoverRecord]:
        """Those of these records that the placement does not confirm, or not yet."""
        ownership, generation, left = self._parts.ownership, self._parts.handover.generation, []
        for record in taken:
            placed = self._parts.shared.is_placed(record.key_groups, record.target)
            if record.generation == generation and ownership.known(record.key_groups) and placed:
                ownership.moved(record.key_groups, generation, record.target)
            elif record.generation >= generation:
                left.append(replace(record, offsets=(), ends=()))
        return left

    async def _take(self, record: HandoverRecord, written_at: float) -> None:
        handover, pending, work, side = self._parts.handover, self._parts.pending, self._parts.work, self._parts.side
        try:
            await self._wait_until_placed(record)
            await handover.take(
                record.key_groups,
                by_partition(record.offsets),
                by_partition(record.ends),
                record.generation,
                taken=lambda: work.start(side.publish(took(record))),
            )
        except Exception as fault:
            log.warning("hand-over %s: not taken: %r", record.handover, fault)
            if (answer := pending.end_prepared(record.handover)) is not None:
                answer.refuse(*refused_for(fault))
            await self._give_back(record, fault)
            return
        pause_s = record.held_s + max(0.0, time.time() - written_at)
        names = ", ".join(map(str, sorted(record.key_groups)))
        log.info("hand-over %s: took %s after a pause of %.3f s", record.handover, names, pause_s)
        if (answer := pending.end_prepared(record.handover)) is not None:
            answer.say(Phase.TOOK, generation=record.generation, pause_s=pause_s)

    async def _wait_until_placed(self, record: HandoverRecord) -> None:
        """Raise Denied unless the placement names this worker as the owner: it is signed, and the record is not."""
        shared, limit_s = self._parts.shared, self._parts.settings.catch_up_limit_s
        if not await wait_until(self._parts.app, lambda: shared.is_placed(record.key_groups, shared.worker), limit_s):
            raise Denied(Refusal.PRECONDITION, "the placement seen here does not name this worker as their owner")

    async def _give_back(self, record: HandoverRecord, fault: Exception) -> None:
        """Release to the source again what this worker has never owned; where that is not certain, ask for a rebalance.

        It is certain after Denied.  After any other fault the commit of this worker may still arrive at the broker,
        and overwrite what the source commits meanwhile.  In a new generation the broker refuses it.
        """
        parts = self._parts
        if parts.handover.generation != record.generation or not parts.handover.is_stable:
            return  # a rebalance decides
        if isinstance(fault, Denied) and not any(map(parts.ownership.holds, record.key_groups)):
            back = given_back(record)
            parts.pending.release(back)
            try:
                await parts.side.publish(back)
                async with asyncio.timeout(parts.settings.took_limit_s):
                    await parts.pending.wait_until_ended(back.handover)
                return
            except (KafkaError, TimeoutError) as error:  # whether it is in the log or not, a rebalance settles it
                log.warning("hand-over %s: not taken back: %r; asking for a rebalance", record.handover, error)
            finally:
                parts.pending.forget_released(back.handover)
            if parts.handover.generation != record.generation or not parts.handover.is_stable:
                return
        # Otherwise the events would wait for the source's time-out.
        await parts.handover.request_rejoin(record.key_groups)
