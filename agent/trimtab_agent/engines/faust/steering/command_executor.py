"""Carries out the controller's commands in this worker: prepare, release, abandon, rejoin."""

import asyncio
import logging
import time

from aiokafka.errors import KafkaError, TopicAuthorizationFailedError

from trimtab_agent.engines.faust.handover.handover import Denied, by_partition, given_back, refused_for, released, took
from trimtab_agent.engines.faust.steering.parts import POLL_S, SteeringParts, wait_until
from trimtab_agent.engines.faust.transport.thread import GenerationOver
from trimtab_agent.engines.outcomes import Answers, CommandOutcomes, Report
from trimtab_protocol.messages.commands import Command, CommandKind, Phase, Refusal
from trimtab_protocol.messages.handover import HandoverRecord
from trimtab_protocol.messages.names import NO_EPOCH, Epoch, KeyGroup

log = logging.getLogger(__name__)

WAITS_FOR_REBALANCE = frozenset({CommandKind.PREPARE, CommandKind.ABANDON, CommandKind.REJOIN})
"""Commands that wait for a rebalance to end.  A release belongs to one generation, so it is refused at once."""


class FaustCommandExecutor:
    """Carries out the agent's commands.  Called on the app's event loop."""

    def __init__(self, parts: SteeringParts) -> None:
        self._parts = parts
        self._answers = Answers()
        self._steps = {
            CommandKind.PREPARE: self._prepare,
            CommandKind.RELEASE: self._release,
            CommandKind.ABANDON: self._abandon,
            CommandKind.REJOIN: self._rejoin,
        }

    async def execute(self, command: Command, report: Report) -> None:
        """Carry out a prepare, release, abandon or rejoin.  A repeated command is only answered again.

        Every outcome goes to `report`, also those that follow after this call has returned.
        """
        if (known := self._answers.known(command.id)) is not None:
            known.repeat(report)
            return
        answer = self._answers.begin(command, report)
        try:
            await self._parts.work.during(self._carry_out(command, answer))
        except Exception as fault:  # the worker goes on, and the controller gets the reason
            log.warning("refused %s %s: %r", command.kind, command.handover or command.id, fault)
            answer.refuse(*refused_for(fault))

    async def _carry_out(self, command: Command, answer: CommandOutcomes) -> None:
        await self._check(command)
        await self._steps[command.kind](command, answer)

    async def _check(self, command: Command) -> None:
        """Wait for a rebalance to end, then raise Denied or GenerationOver if the command does not fit this worker."""
        shared = self._parts.shared
        if (reason := shared.reports_only) is not None:
            raise Denied(Refusal.NOT_STEERING, reason)
        if command.kind not in self._steps:
            raise Denied(Refusal.FAILED, f"{command.kind} is not for the worker")
        if (command.worker, command.app) != (shared.worker, shared.app):
            raise Denied(Refusal.UNKNOWN_WORKER, f"this is {shared.worker} of {shared.app}")
        limit_s = command.deadline - time.time() if command.kind in WAITS_FOR_REBALANCE else 0.0
        if not await wait_until(self._parts.app, lambda: self._parts.handover.is_stable, limit_s):
            raise GenerationOver("the worker is in a rebalance")
        if not self._parts.ownership.known(command.key_groups):
            operators = {one.id: one.partitions for one in self._parts.ownership.operators().values()}
            raise Denied(Refusal.PRECONDITION, f"operators here: {operators}")

    # ---- as the target of a hand-over

    async def _prepare(self, command: Command, answer: CommandOutcomes) -> None:
        assert command.handover is not None
        parts, key_groups = self._parts, command.key_groups
        generation = parts.handover.generation
        if command.target != parts.shared.worker or any(map(parts.ownership.holds, key_groups)):
            raise Denied(Refusal.PRECONDITION, "this worker is not the target, or owns some of them already")
        parts.pending.prepare(command, generation, answer)
        try:
            lag = await self._warm_up(command, generation)
        except Exception:
            if parts.pending.end_prepared(command.handover) is None:
                return  # a rebalance has voided and answered it
            raise
        sizes = [size for key_group in key_groups if (size := parts.standbys.state_bytes(key_group)) is not None]
        size = sum(sizes) if sizes else None
        answer.say(Phase.PREPARED, generation=generation, lag_records=lag, state_bytes=size)

    async def _warm_up(self, command: Command, generation: int) -> int:
        """Follow the changelogs until the lag is small; returns the lag in records."""
        parts = self._parts
        limit_s = min(parts.settings.prepare_limit_s, command.deadline - time.time())
        deadline = time.monotonic() + limit_s
        await parts.handover.check_inputs(command.key_groups)
        await parts.reconciler.warm(command.key_groups, generation)
        while (lag := await parts.standbys.lag_records(command.key_groups)) > self._prepared_lag:
            parts.handover.check(generation)
            if time.monotonic() > deadline:
                raise Denied(Refusal.CATCH_UP_TIMEOUT, f"{lag} records behind after {limit_s:.1f} s")
            await asyncio.sleep(POLL_S)
        parts.handover.check(generation)
        return lag

    @property
    def _prepared_lag(self) -> float:
        """How many records behind a standby may be to count as prepared."""
        settings = self._parts.settings
        return max(settings.prepared_lag_records, settings.prepared_lag_s * self._parts.standbys.records_s)

    async def _abandon(self, command: Command, answer: CommandOutcomes) -> None:
        assert command.handover is not None
        self._parts.pending.end_prepared(command.handover)
        await self._parts.reconciler.cool()
        answer.say(Phase.ABANDONED)

    # ---- as the source of a hand-over

    async def _release(self, command: Command, answer: CommandOutcomes) -> None:
        assert command.handover is not None
        assert command.generation is not None
        parts, generation, key_groups = self._parts, command.generation, command.key_groups
        parts.handover.check(generation)
        if command.source != parts.shared.worker or not all(map(parts.ownership.owns, key_groups)):
            raise Denied(Refusal.PRECONDITION, "this worker does not own all of them")
        # The next rebalance must give the key groups to the same target as this hand-over.
        assert command.target is not None
        target, limit_s = command.target, parts.settings.placement_wait_s
        if not await wait_until(parts.app, lambda: parts.shared.is_placed(key_groups, target), limit_s):
            raise Denied(Refusal.PRECONDITION, f"the placement seen here does not name {target} as their owner")
        wait_s = command.deadline - time.time() - parts.settings.commit_limit_s
        given = await parts.handover.release(key_groups, generation, wait_s)
        log.info("hand-over %s: released %s to %s", command.handover, _names(key_groups), command.target)
        record = released(command, given, parts.shared.cluster)
        parts.pending.release(record)
        try:
            await parts.side.publish(record)
        except TopicAuthorizationFailedError:  # it is not in the log, so nobody takes them
            await self._take_back_untold(record)
            topic = parts.shared.topics.handover
            raise Denied(Refusal.FAILED, f"the worker may not write to {topic}; see `trimtab acl`") from None
        except KafkaError:  # the record may or may not be in the log, only a rebalance can settle that
            parts.pending.forget_released(command.handover)
            await parts.handover.request_rejoin(key_groups)
            raise
        steps = f"drain {given.drain_s:.3f} s, flush {given.flush_s:.3f} s, commit {given.commit_s:.3f} s"
        answer.say(Phase.RELEASED, generation=generation, detail=steps)
        parts.work.start(self._follow_release(record))

    async def _follow_release(self, record: HandoverRecord) -> None:
        """After a release: take back what the target gives back; ask for a rebalance unless it answers in time."""
        parts, limit_s = self._parts, self._parts.settings.took_limit_s
        try:
            await parts.handover.forget_released(record.key_groups, record.generation)
            async with asyncio.timeout(limit_s):
                came_back = await parts.pending.wait_until_ended(record.handover)
            if came_back:
                await self._take_back(record)
                log.warning("hand-over %s: %s gave %s back", record.handover, record.target, _names(record.key_groups))
        except TimeoutError:
            await self._rejoin_after(record, f"was not taken within {limit_s:g} s")
            return  # its copies may be wanted once more
        except GenerationOver:
            return
        finally:
            parts.pending.forget_released(record.handover)
        await parts.reconciler.cool()  # the placement may want no standby of them here

    async def _take_back_untold(self, record: HandoverRecord) -> None:
        """Go on with key groups of whose release nobody has heard."""
        try:
            await self._parts.handover.forget_released(record.key_groups, record.generation)
            await self._take_back(record, told=False)
        finally:
            self._parts.pending.forget_released(record.handover)

    async def _take_back(self, record: HandoverRecord, *, told: bool = True) -> None:
        """Go on with key groups from where this worker released them; `told`: the target has given them back."""
        parts = self._parts

        def taken() -> None:
            if told:
                parts.work.start(parts.side.publish(took(given_back(record))))

        try:
            await parts.handover.take(
                record.key_groups,
                by_partition(record.offsets),
                by_partition(record.ends),
                record.generation,
                taken,
            )
        except Exception as fault:
            await self._rejoin_after(record, f"came back and cannot be taken back: {fault!r}")

    async def _rejoin_after(self, record: HandoverRecord, what: str) -> None:
        handover = self._parts.handover
        if handover.generation == record.generation and handover.is_stable:
            log.warning("hand-over %s %s; asking for a rebalance", record.handover, what)
            await handover.request_rejoin(record.key_groups)

    # ---- as a member of the group

    async def _rejoin(self, command: Command, answer: CommandOutcomes) -> None:
        parts = self._parts
        # The command may arrive before the placement that it should apply.
        await wait_until(parts.app, lambda: self._epoch >= command.epoch, parts.settings.placement_wait_s)
        if parts.shared.applied < max(self._epoch, command.epoch):
            generation = parts.handover.generation
            await parts.handover.request_rejoin()
            limit_s = max(0.0, command.deadline - time.time())
            if not await wait_until(
                parts.app, lambda: parts.handover.is_stable and parts.handover.generation > generation, limit_s
            ):
                raise Denied(Refusal.FAILED, f"no stable generation after {generation} within {limit_s:.1f} s")
        answer.say(Phase.REJOINED, generation=parts.handover.generation, detail=f"placement {parts.shared.applied}")

    @property
    def _epoch(self) -> Epoch:
        placement = self._parts.shared.placement
        return placement.epoch if placement is not None else NO_EPOCH


def _names(key_groups: tuple[KeyGroup, ...]) -> str:
    return ", ".join(map(str, sorted(key_groups)))
