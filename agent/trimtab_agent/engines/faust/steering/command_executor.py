"""Carries out the controller's commands in this worker: prepare, release, abandon, rejoin."""

import asyncio
import logging
import time

from aiokafka.errors import KafkaError

from trimtab_agent.engines.faust.handover.handover import Denied
from trimtab_agent.engines.faust.handover.records import released
from trimtab_agent.engines.faust.steering.answers import Answer, Answers
from trimtab_agent.engines.faust.steering.parts import Parts
from trimtab_agent.engines.faust.steering.refusals import refused_for
from trimtab_agent.engines.faust.steering.waiting import POLL_S, wait_until
from trimtab_agent.engines.faust.transport.thread import GenerationOver
from trimtab_agent.engines.outcomes import Abandoned, Prepared, Rejoined, Released, Report
from trimtab_protocol.messages.commands import Command, CommandKind, Refusal
from trimtab_protocol.messages.names import NO_EPOCH, Epoch, KeyGroup

log = logging.getLogger(__name__)

WAITS_FOR_REBALANCE = frozenset({CommandKind.PREPARE, CommandKind.ABANDON, CommandKind.REJOIN})
"""Commands that wait for a rebalance to end.  A release belongs to one generation, so it is refused at once."""


class FaustCommandExecutor:
    """Implements `outcomes.CommandExecutor`.  Called on the app's event loop."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._answers = Answers()
        self._steps = {
            CommandKind.PREPARE: self._prepare,
            CommandKind.RELEASE: self._release,
            CommandKind.ABANDON: self._abandon,
            CommandKind.REJOIN: self._rejoin,
        }

    async def execute(self, command: Command, report: Report) -> None:
        """Carry out a command.  A repeated command is only answered again."""
        if (known := self._answers.known(command.id)) is not None:
            known.repeat(report)
            return
        answer = self._answers.begin(command.id, report)
        try:
            await self._parts.work.during(self._carry_out(command, answer))
        except Exception as fault:  # the worker goes on, and the controller gets the reason
            log.warning("refused %s %s: %r", command.kind, command.handover or command.id, fault)
            answer.say(refused_for(fault))

    async def _carry_out(self, command: Command, answer: Answer) -> None:
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

    async def _prepare(self, command: Command, answer: Answer) -> None:
        assert command.handover is not None
        parts, key_groups = self._parts, command.key_groups
        generation = parts.handover.generation
        if command.target != parts.shared.worker or any(map(parts.ownership.holds, key_groups)):
            raise Denied(Refusal.PRECONDITION, "this worker is not the target, or owns some of them already")
        parts.pending.prepare(command.handover, answer, key_groups)
        try:
            lag = await self._warm_up(command, generation)
        except Exception:
            if not parts.pending.drop_prepared(command.handover):
                return  # a rebalance has voided and answered it
            raise
        sizes = [size for key_group in key_groups if (size := parts.standbys.state_bytes(key_group)) is not None]
        answer.say(Prepared(generation=generation, lag_records=lag, state_bytes=sum(sizes) if sizes else None))

    async def _warm_up(self, command: Command, generation: int) -> int:
        """Follow the changelogs until the lag is small; returns the lag in records."""
        parts = self._parts
        limit_s = min(parts.settings.prepare_limit_s, command.deadline - time.time())
        deadline = time.monotonic() + limit_s
        await parts.reconciler.warm(command.key_groups, generation)
        while (lag := await parts.standbys.lag_records(command.key_groups)) > parts.settings.prepared_lag_records:
            parts.handover.check(generation)
            if time.monotonic() > deadline:
                raise Denied(Refusal.CATCH_UP_TIMEOUT, f"{lag} records behind after {limit_s:.1f} s")
            await asyncio.sleep(POLL_S)
        parts.handover.check(generation)
        return lag

    async def _abandon(self, command: Command, answer: Answer) -> None:
        assert command.handover is not None
        self._parts.pending.drop_prepared(command.handover)
        await self._parts.reconciler.cool()
        answer.say(Abandoned())

    # ---- as the source of a hand-over

    async def _release(self, command: Command, answer: Answer) -> None:
        assert command.handover is not None
        assert command.generation is not None
        parts, generation, key_groups = self._parts, command.generation, command.key_groups
        parts.handover.check(generation)
        if command.source != parts.shared.worker or not all(map(parts.ownership.owns, key_groups)):
            raise Denied(Refusal.PRECONDITION, "this worker does not own all of them")
        # The next rebalance must give the key groups to the same target as this hand-over.
        if not await wait_until(parts.app, lambda: self._is_placed(command), parts.settings.placement_wait_s):
            raise Denied(Refusal.PRECONDITION, f"the placement seen here does not name {command.target} as their owner")
        began = time.monotonic()
        given = await parts.handover.release(key_groups, generation)
        log.info("hand-over %s: released %s to %s", command.handover, _names(key_groups), command.target)
        parts.pending.release(command.handover)
        try:
            await parts.side.publish(released(command, given, parts.shared.cluster, time.monotonic() - began))
        except KafkaError:  # the record may or may not be in the log, only a rebalance can settle that
            parts.pending.forget_released(command.handover)
            await parts.handover.request_rejoin()
            raise
        answer.say(
            Released(generation=generation, drain_s=given.drain_s, flush_s=given.flush_s, commit_s=given.commit_s)
        )
        parts.work.start(self._rejoin_unless_taken(command.handover, key_groups, generation))

    def _is_placed(self, command: Command) -> bool:
        placement = self._parts.shared.placement
        return placement is not None and all(
            placement.of(k.operator, k.partition)[:1] == (command.target,) for k in command.key_groups
        )

    async def _rejoin_unless_taken(self, handover: str, key_groups: tuple[KeyGroup, ...], generation: int) -> None:
        """After a release, ask for a rebalance unless the target takes over in time."""
        parts = self._parts
        try:
            await parts.handover.forget_released(key_groups, generation)
            async with asyncio.timeout(parts.settings.took_limit_s):
                await parts.pending.wait_until_taken(handover)
            await parts.reconciler.cool()  # the placement may want no standby of them here
        except TimeoutError:
            if parts.handover.generation == generation and parts.handover.is_stable:
                log.warning("hand-over %s was not taken within %g s; asking for a rebalance", handover,
                            parts.settings.took_limit_s)  # fmt: skip
                await parts.handover.request_rejoin()
        except GenerationOver:
            pass
        finally:
            parts.pending.forget_released(handover)

    # ---- as a member of the group

    async def _rejoin(self, command: Command, answer: Answer) -> None:
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
        answer.say(Rejoined(generation=parts.handover.generation, epoch=parts.shared.applied))

    @property
    def _epoch(self) -> Epoch:
        placement = self._parts.shared.placement
        return placement.epoch if placement is not None else NO_EPOCH


def _names(key_groups: tuple[KeyGroup, ...]) -> str:
    return ", ".join(map(str, sorted(key_groups)))
