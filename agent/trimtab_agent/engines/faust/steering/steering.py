"""The steering part of the plug-in: carries out commands, keeps the placement's standbys warm, watches the group."""

import asyncio
import gc
import logging
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any

from aiokafka.errors import KafkaError

from trimtab_agent.engines.faust.group.operators import Layout, MixedPartitions
from trimtab_agent.engines.faust.group.ownership import Ownership
from trimtab_agent.engines.faust.group.shared_state import PluginState
from trimtab_agent.engines.faust.handover.channel import Channel
from trimtab_agent.engines.faust.handover.handover import Denied, Handover
from trimtab_agent.engines.faust.handover.records import by_partition, released, took
from trimtab_agent.engines.faust.settings import SteeringSettings
from trimtab_agent.engines.faust.steering.answers import MAX_REMEMBERED, Answer, Answers
from trimtab_agent.engines.faust.steering.facts import Facts
from trimtab_agent.engines.faust.steering.standby_reconciler import StandbyReconciler
from trimtab_agent.engines.faust.tables.changelog_reader import ChangelogReader
from trimtab_agent.engines.faust.tables.standbys import Standbys
from trimtab_agent.engines.faust.tables.windows import Windows
from trimtab_agent.engines.faust.transport.client import Connection
from trimtab_agent.engines.faust.transport.side_loop import SideLoop
from trimtab_agent.engines.faust.transport.thread import CommitRefused, GenerationOver
from trimtab_agent.engines.outcomes import Abandoned, Outcome, Prepared, Refused, Rejoined, Released, Report, Took
from trimtab_protocol.messages.commands import Command, CommandKind, Refusal
from trimtab_protocol.messages.handover import HandoverKind, HandoverRecord
from trimtab_protocol.messages.names import NO_EPOCH, KeyGroup, OperatorId

log = logging.getLogger(__name__)

POLL_S = 0.02
SETTLE_LIMIT_S = 10.0
"""How long a command waits for a rebalance to end."""

PATIENT = frozenset({CommandKind.PREPARE, CommandKind.ABANDON, CommandKind.REJOIN})

Named = Callable[[], Mapping[OperatorId, frozenset[str]]]
"""The topics of the operators that the author named; called when the app is complete."""


class FaustSteering(Facts):
    """Implements `outcomes.Steering` and the transport's `Watcher` for one app in one worker process."""

    def __init__(
        self,
        app: Any,
        shared: PluginState,
        *,
        connection: Connection,
        named: Named,
        unfit_tables: Callable[[], Iterable[str]],
        settings: SteeringSettings,
    ) -> None:
        ownership = Ownership(app, shared.app)
        self._reader = ChangelogReader(connection)
        standbys = Standbys(app, ownership, self._reader)
        super().__init__(app, shared, ownership, standbys, Handover(app, ownership, standbys, settings))
        self._named = named
        self._unfit_tables = unfit_tables
        self._settings = settings
        self._channel = Channel(
            shared, connection, on_placement=self._follow_placement, on_handover=self._read_handover
        )
        self._windows = Windows(app, ownership)
        self._answers = Answers()
        self._prepared: dict[str, tuple[Answer, tuple[KeyGroup, ...]]] = {}
        """Hand-overs prepared here, by id; their answer is still to say `took`."""
        self._taken: dict[str, asyncio.Event] = {}
        """Hand-overs released here, by id; set when the target says `took`."""
        self._seen: dict[tuple[HandoverKind, str, int], None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._following = StandbyReconciler(
            shared,
            ownership,
            standbys,
            self._handover,
            prepared=lambda: (key_group for _, key_groups in self._prepared.values() for key_group in key_groups),
            ready=self._may_keep_warm,
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._side: SideLoop | None = None

    def refuse(self, reason: str) -> None:
        """Only report from now on."""
        log.warning("this worker is not steered: %s", reason)
        self._refusal = reason

    def _withdraw(self, reason: str) -> None:
        """Refuse now that the app is known: the group assigns as stock Faust does."""
        self.refuse(reason)
        self._shared.layout = None
        self._app.assignor.replicas = self._shared.faust_standbys

    # ---- what the group does (transport.Watcher)

    async def before_join(self, topics: frozenset[str]) -> None:
        """Learn what the app consists of, and the placement: this worker may be elected leader."""
        if self._refusal is not None:
            return
        if reasons := list(self._unfit_tables()):
            self._withdraw("; ".join(reasons))
            return
        changelogs = frozenset(self._app.tables.changelog_topics)
        own = {self._app._leader_assignor._leader_topic_name, self._app.conf.reply_to}
        try:
            self._shared.layout = Layout(named=self._named(), sources=topics - changelogs - own, changelogs=changelogs)
        except ValueError as error:
            self._withdraw(str(error))
            return
        if self._side is not None:  # subscribed again, to topics that came later
            return
        # Faust collects garbage for every table at every rebalance, with everything stopped.  What has been loaded by
        # now never becomes garbage; not looking at it makes that milliseconds instead of tenths of seconds.
        gc.collect()
        gc.freeze()
        self._loop = asyncio.get_running_loop()
        self._side = SideLoop("trimtab")
        self._side.submit(self._channel.run())
        self._side.submit(self._reader.run())
        if not await self._until(self._channel.loaded.is_set, self._settings.placement_load_limit_s):
            log.warning("joining without a placement: it could not be read in time")

    def rebalancing(self) -> None:
        """The group leaves its generation: what was prepared in it is void, and Faust alone restores state."""
        self._disturbed()
        self._standbys.stop()
        prepared, self._prepared = self._prepared, {}
        for answer, _ in prepared.values():
            answer.say(Refused(refusal=Refusal.GENERATION, detail="a rebalance came between"))

    def stable(self) -> None:
        """Tables are restored, sources are open."""
        if self._shared.layout is not None:
            try:
                self._ownership.learn(self._shared.layout)
            except MixedPartitions as error:
                self._withdraw(str(error))
            self._start(self._following.settle())
            self._start(self._windows.follow())

    def breached(self) -> None:
        """Count it; the worker is about to end."""
        self._shared.breaches += 1

    async def close(self) -> None:
        """End everything that runs beside the app."""
        if self._side is not None:
            side, self._side = self._side, None
            await asyncio.wrap_future(side.submit(self._channel.close()))
            await side.close()

    # ---- what comes over the channel (on the side loop)

    def _follow_placement(self) -> None:
        if self._channel.loaded.is_set():
            self._on_loop(self._following.settle)

    def _read_handover(self, record: HandoverRecord, written_at: float) -> None:
        if record.app == self._shared.app:
            self._on_loop(lambda: self._on_record(record, written_at))

    def _on_loop(self, coroutine: Callable[[], Coroutine[Any, Any, None]]) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(lambda: self._start(coroutine()))

    def _start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(self._disturbing(coroutine))
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("steering failed", exc_info=task.exception())

    async def _may_keep_warm(self) -> bool:
        """Not in a rebalance: it ends with `stable()`, which settles again."""
        return self._refusal is None and await self._until(lambda: self._handover.is_stable, SETTLE_LIMIT_S)

    # ---- commands

    async def execute(self, command: Command, report: Report) -> None:
        """Carry out a prepare, release, abandon or rejoin; a repeat is only answered again."""
        if (known := self._answers.known(command.id)) is not None:
            known.repeat(report)
            return
        answer = self._answers.begin(command.id, report)
        try:
            await self._disturbing(self._carry_out(command, answer))
        except Exception as fault:  # the worker goes on; the controller hears why this did not work
            log.warning("%s %s is refused: %r", command.kind, command.handover or command.id, fault)
            answer.say(_refused(fault))

    async def _carry_out(self, command: Command, answer: Answer) -> None:
        await self._admit(command)
        await self._steps[command.kind](self, command, answer)

    async def _admit(self, command: Command) -> None:
        """Refuse what does not fit this worker; what can wait for the end of a rebalance waits."""
        if (refusal := self.refusal) is not None:
            raise Denied(Refusal.NOT_STEERING, refusal)
        if command.kind not in self._steps:
            raise Denied(Refusal.FAILED, f"{command.kind} is not for the worker")
        if (command.worker, command.app) != (self._shared.worker, self._shared.app):
            raise Denied(Refusal.UNKNOWN_WORKER, f"this is {self._shared.worker} of {self._shared.app}")
        limit_s = command.deadline - time.time() if command.kind in PATIENT else 0.0
        if not await self._until(lambda: self._handover.is_stable, limit_s):
            raise GenerationOver("the worker is in a rebalance")
        if not self._ownership.known(command.key_groups):
            raise Denied(Refusal.PRECONDITION, f"operators here: {dict(self.operators())}")

    async def _prepare(self, command: Command, answer: Answer) -> None:
        assert command.handover is not None
        generation, key_groups = self._handover.generation, command.key_groups
        if command.target != self._shared.worker or any(map(self._ownership.holds, key_groups)):
            raise Denied(Refusal.PRECONDITION, "this worker is not the target, or owns some of them already")
        self._prepared[command.handover] = (answer, key_groups)
        try:
            lag = await self._warm_up(command, generation)
        except Exception:
            if self._prepared.pop(command.handover, None) is None:
                return  # a rebalance has voided it, and said so
            raise
        sizes = [size for key_group in key_groups if (size := self.state_bytes(key_group)) is not None]
        answer.say(Prepared(generation=generation, lag_records=lag, state_bytes=sum(sizes) if sizes else None))

    async def _warm_up(self, command: Command, generation: int) -> int:
        """Follow the changelogs until the lag is small; returns the lag in records."""
        limit_s = min(self._settings.prepare_limit_s, command.deadline - time.time())
        deadline = time.monotonic() + limit_s
        await self._following.warm(command.key_groups, generation)
        while (lag := await self._standbys.lag_records(command.key_groups)) > self._settings.prepared_lag_records:
            self._handover.check(generation)
            if time.monotonic() > deadline:
                raise Denied(Refusal.CATCH_UP_TIMEOUT, f"{lag} records behind after {limit_s:.1f} s")
            await asyncio.sleep(POLL_S)
        self._handover.check(generation)
        return lag

    async def _abandon(self, command: Command, answer: Answer) -> None:
        assert command.handover is not None
        self._prepared.pop(command.handover, None)
        await self._following.cool()
        answer.say(Abandoned())

    async def _rejoin(self, command: Command, answer: Answer) -> None:
        # The command may be faster than the placement that it is to bring about.
        await self._until(lambda: (self.epoch or NO_EPOCH) >= command.epoch, self._settings.placement_wait_s)
        if self._shared.applied < max(self.epoch or NO_EPOCH, command.epoch):
            generation = self._handover.generation
            await self._ask_for_rejoin()
            limit_s = max(0.0, command.deadline - time.time())
            if not await self._until(
                lambda: self._handover.is_stable and self._handover.generation > generation, limit_s
            ):
                raise Denied(Refusal.FAILED, f"no stable generation after {generation} within {limit_s:.1f} s")
        answer.say(Rejoined(generation=self._handover.generation, epoch=self._shared.applied))

    async def _release(self, command: Command, answer: Answer) -> None:
        assert command.handover is not None
        assert command.generation is not None
        generation, key_groups = command.generation, command.key_groups
        self._handover.check(generation)
        if command.source != self._shared.worker or not all(map(self._ownership.owns, key_groups)):
            raise Denied(Refusal.PRECONDITION, "this worker does not own all of them")
        # The next rebalance must give what the hand-over gives.
        if not await self._until(lambda: self._is_placed(command), self._settings.placement_wait_s):
            raise Denied(Refusal.PRECONDITION, f"the placement seen here does not name {command.target} as their owner")
        began = time.monotonic()
        given = await self._handover.release(key_groups, generation)
        log.info("hand-over %s: released %s to %s", command.handover, _names(key_groups), command.target)
        self._start(self._windows.follow())
        self._taken[command.handover] = asyncio.Event()
        try:
            await self._publish(released(command, given, self._shared.cluster, time.monotonic() - began))
        except KafkaError:  # written or not: only a rebalance can tell
            del self._taken[command.handover]
            await self._ask_for_rejoin()
            raise
        answer.say(
            Released(generation=generation, drain_s=given.drain_s, flush_s=given.flush_s, commit_s=given.commit_s)
        )
        self._start(self._look_after(command.handover, key_groups, generation))

    def _is_placed(self, command: Command) -> bool:
        placement = self._shared.placement
        return placement is not None and all(
            placement.of(k.operator, k.partition)[:1] == (command.target,) for k in command.key_groups
        )

    async def _look_after(self, handover: str, key_groups: tuple[KeyGroup, ...], generation: int) -> None:
        """After a release: nobody took it in time? Then the group shall decide, by the placement."""
        try:
            await self._handover.forget_released(key_groups, generation)
            async with asyncio.timeout(self._settings.took_limit_s):
                await self._taken[handover].wait()
        except TimeoutError:
            if self._handover.generation == generation and self._handover.is_stable:
                log.warning("hand-over %s was not taken: asking for a rebalance", handover)
                await self._ask_for_rejoin()
        except GenerationOver:
            pass
        finally:
            self._taken.pop(handover, None)

    async def _ask_for_rejoin(self) -> None:
        thread = self._app.consumer.thread
        await thread.run(thread.request_rejoin)

    _steps = {  # noqa: RUF012
        CommandKind.PREPARE: _prepare,
        CommandKind.RELEASE: _release,
        CommandKind.ABANDON: _abandon,
        CommandKind.REJOIN: _rejoin,
    }

    # ---- records of the other workers

    async def _on_record(self, record: HandoverRecord, written_at: float) -> None:
        this = record.kind, record.handover, record.generation  # another attempt has the id, not the generation
        if this in self._seen:  # a repeat must not revive an old hand-over
            return
        self._seen[this] = None
        if len(self._seen) > MAX_REMEMBERED:
            del self._seen[next(iter(self._seen))]
        if record.kind is HandoverKind.TOOK:
            if (taken := self._taken.get(record.handover)) is not None:
                taken.set()
        elif record.target == self._shared.worker and self._refusal is None:
            await self._take(record, written_at)

    async def _take(self, record: HandoverRecord, written_at: float) -> None:
        try:
            await self._handover.take(
                record.key_groups, by_partition(record.offsets), by_partition(record.ends), record.generation
            )
        except Exception as fault:
            log.warning("hand-over %s is not taken: %r", record.handover, fault)
            self._say_at_last(record.handover, _refused(fault))
            if self._handover.generation == record.generation and self._handover.is_stable:
                await self._ask_for_rejoin()  # do not let its events wait for the source's time-out
            return
        pause_s = record.held_s + max(0.0, time.time() - written_at)
        log.info("hand-over %s: took %s after %.3f s", record.handover, _names(record.key_groups), pause_s)
        self._start(self._windows.follow())
        self._say_at_last(record.handover, Took(generation=record.generation, pause_s=pause_s))
        await self._publish(took(record))

    def _say_at_last(self, handover: str, outcome: Outcome) -> None:
        """End the answer to a prepare, unless a rebalance has ended it."""
        if (prepared := self._prepared.pop(handover, None)) is not None:
            prepared[0].say(outcome)

    async def _publish(self, record: HandoverRecord) -> None:
        assert self._side is not None
        await asyncio.wrap_future(self._side.submit(self._channel.publish(record)))

    async def _until(self, done: Callable[[], bool], limit_s: float) -> bool:
        deadline = time.monotonic() + limit_s
        while not done():
            if time.monotonic() > deadline or self._app.should_stop:
                return False
            await asyncio.sleep(POLL_S)
        return True


def _refused(fault: Exception) -> Refused:
    match fault:
        case Denied():
            return Refused(refusal=fault.refusal, detail=fault.detail)
        case CommitRefused():
            return Refused(refusal=Refusal.COMMIT_REFUSED, detail=str(fault))
        case GenerationOver():
            return Refused(refusal=Refusal.GENERATION, detail=str(fault))
        case _:
            return Refused(refusal=Refusal.FAILED, detail=repr(fault))


def _names(key_groups: Iterable[KeyGroup]) -> str:
    return ", ".join(map(str, sorted(key_groups)))
