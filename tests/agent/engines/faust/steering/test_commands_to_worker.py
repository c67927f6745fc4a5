"""Commands to a worker: what is refused and why, what is answered, and who looks after a release."""

import asyncio
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import faust
import pytest
from aiokafka.errors import TopicAuthorizationFailedError
from faust.types import TP

from tests.fuzz.fuzzed.samples import RELEASE, RELEASED, SUMS, W0, W1
from trimtab_agent.engines.faust import SteeringSettings
from trimtab_agent.engines.faust.group.shared_state import PluginState
from trimtab_agent.engines.faust.handover.handover import Denied, Given, given_back, refused_for, took
from trimtab_agent.engines.faust.steering.background_work import BackgroundWork
from trimtab_agent.engines.faust.steering.command_executor import FaustCommandExecutor
from trimtab_agent.engines.faust.steering.group_watcher import GroupWatcher
from trimtab_agent.engines.faust.steering.handover_receiver import HandoverReceiver
from trimtab_agent.engines.faust.steering.parts import SteeringParts
from trimtab_agent.engines.faust.steering.pending_handovers import PendingHandovers
from trimtab_agent.engines.faust.steering.worker_status import FaustWorkerStatus
from trimtab_agent.engines.faust.tables.bulk_restore import BulkRestore
from trimtab_agent.engines.faust.transport.thread import CommitRefused, GenerationOver
from trimtab_protocol.messages.commands import Ack, Command, CommandKind, Phase, Refusal
from trimtab_protocol.messages.handover import HandoverKind, HandoverRecord
from trimtab_protocol.messages.names import AppId, Epoch, KeyGroup, OperatorId, WorkerId
from trimtab_protocol.messages.placement import Placement

APP = AppId("ks")
ME, OTHER = W0, W1
MINE = KeyGroup(APP, SUMS, 0)
VOID = [(Phase.REFUSED, Refusal.GENERATION, "a rebalance came between")]
SETTINGS = SteeringSettings(placement_wait_s=0.03, took_limit_s=0.03, catch_up_limit_s=0.03)


class Handover:
    """Stands in for the steps inside Faust."""

    generation, is_stable = 3, True
    fault: Exception | None = None
    rejoins = 0

    async def check_inputs(self, key_groups: Any) -> None: ...

    async def request_rejoin(self, nobodys: Any = ()) -> None:
        self.rejoins += 1

    def check(self, generation: int) -> None:
        if generation != self.generation:
            raise GenerationOver(f"not stable in generation {generation}")

    async def release(self, key_groups: Any, generation: int, wait_s: float) -> Given:
        if self.fault is not None:
            raise self.fault
        return Given(offsets={TP("in", 0): 7}, ends={TP("log", 0): 5}, drain_s=0.1, flush_s=0.2, commit_s=0.3)

    async def forget_released(self, key_groups: Any, generation: int) -> None: ...


class Ownership:
    def known(self, key_groups: Any) -> bool:
        return all(key_group.operator == SUMS for key_group in key_groups)

    def owns(self, key_group: KeyGroup) -> bool:
        return key_group == MINE

    def owned(self) -> frozenset[KeyGroup]:
        return frozenset({MINE})

    def holds(self, key_group: KeyGroup) -> bool:
        return self.owns(key_group)

    def operators(self) -> dict[OperatorId, Any]:
        return {}

    def moved(self, key_groups: Any, generation: int, target: WorkerId) -> None: ...


class Standbys:
    """Nothing is followed but what the test says."""

    applied_records = 0
    records_s = 0.0
    stopped = False

    async def lag_records(self, key_groups: Any) -> int:
        return 2

    def state_bytes(self, key_group: KeyGroup) -> int | None:
        return 100

    def stop(self) -> None:
        self.stopped = True


class Reconciler:
    """Warms at once; `warming` is called meanwhile.  `cooled` = how often it has closed what nobody wants."""

    warming: Callable[[], None] = staticmethod(lambda: None)
    cooled = 0

    async def warm(self, key_groups: Any, generation: int) -> None:
        self.warming()

    async def cool(self) -> frozenset[KeyGroup]:
        self.cooled += 1
        return frozenset()


async def has_state(changelogs: Collection[str]) -> bool:
    """The app runs: it is not empty."""
    return False


class Worker:
    def __init__(self, *, placed: WorkerId = OTHER, settings: SteeringSettings = SETTINGS) -> None:
        self.shared = PluginState(cluster="c", app=APP, worker=ME)
        self.shared.offer(Placement(cluster="c", app=APP, epoch=Epoch(1, 1), owners={SUMS: ((placed, ME),)}))
        self.handover, self.standbys, self.reconciler = Handover(), Standbys(), Reconciler()
        self.published: list[HandoverRecord] = []
        self.may_write = True
        self.said: list[Ack] = []
        parts: dict[str, Any] = {
            "ownership": Ownership(),
            "standbys": self.standbys,
            "handover": self.handover,
            "reconciler": self.reconciler,
            "side": self,
            "bulk": BulkRestore({}),
        }
        self.parts = SteeringParts(
            app=faust.App("ks", web_enabled=False),
            shared=self.shared,
            work=BackgroundWork(),
            pending=PendingHandovers(),
            settings=settings,
            **parts,
        )
        self.executor = FaustCommandExecutor(self.parts)
        self.receiver = HandoverReceiver(self.parts)
        self.status = FaustWorkerStatus(self.parts)
        self.watcher = self.watcher_with()

    def watcher_with(
        self, *, named: Any = dict, unfit: Any = list, is_empty: Any = has_state, **parts: Any
    ) -> GroupWatcher:
        """A watcher of an app like this, and with these parts in the place of the worker's own."""
        return GroupWatcher(replace(self.parts, **parts), named_topics=named, unfit_parts=unfit, is_empty=is_empty)

    @property
    def rejoins(self) -> int:
        return self.handover.rejoins

    async def publish(self, record: HandoverRecord) -> None:
        if not self.may_write:
            raise TopicAuthorizationFailedError
        self.published.append(record)

    def hears(self, command: Command, then: Callable[[], Any] = lambda: None, *, wait_s: float = 0.0) -> list[Ack]:
        async def run() -> None:
            await self.executor.execute(command, self.said.append)
            await asyncio.sleep(0)
            if (following := then()) is not None:
                await following
            await asyncio.sleep(wait_s)

        asyncio.run(run())
        return self.said


def told(said: Collection[Ack]) -> list[tuple[object, ...]]:
    """What a worker has answered: phases, each with what an operator reads of it."""
    return [(ack.phase, *([ack.refusal] if ack.refusal else []), ack.detail) for ack in said]


def release(**changed: Any) -> Command:
    now = time.time()
    times = {"epoch": Epoch(1, 1), "issued_at": now, "deadline": now + 10}
    return replace(RELEASE, **{"app": APP, "handover": "h", "key_groups": (MINE,), "generation": 3, **times, **changed})


def test_a_release_is_told_to_the_target_and_answered() -> None:
    worker = Worker()

    (said,) = worker.hears(release())
    assert (said.phase, said.generation) == (Phase.RELEASED, 3)
    assert said.detail == "drain 0.100 s, flush 0.200 s, commit 0.300 s"
    (record,) = worker.published
    assert (record.kind, record.handover, record.generation) == (HandoverKind.RELEASED, "h", 3)
    assert (record.offsets, record.ends) == ((("in", 0, 7),), (("log", 0, 5),))


def test_what_nobody_takes_is_left_to_a_rebalance() -> None:
    worker = Worker()
    worker.hears(release(), wait_s=0.1)
    assert (worker.rejoins, worker.reconciler.cooled) == (1, 0), "its copies may be wanted once more"


def test_what_was_taken_is_not_and_its_copies_are_closed_unless_the_placement_wants_them() -> None:
    worker = Worker()

    def take() -> Any:
        (record,) = worker.published
        return worker.receiver.receive(took(record), 0.0)

    worker.hears(release(), take, wait_s=0.1)
    assert (worker.rejoins, worker.reconciler.cooled) == (0, 1)


@pytest.mark.parametrize(
    ("changed", "refusal"),
    [
        ({"worker": OTHER}, Refusal.UNKNOWN_WORKER),
        ({"generation": 2}, Refusal.GENERATION),
        ({"source": OTHER, "target": ME}, Refusal.PRECONDITION),
        ({"key_groups": (KeyGroup(APP, SUMS, 1),)}, Refusal.PRECONDITION),
        ({"key_groups": (KeyGroup(APP, OperatorId("else"), 0),)}, Refusal.PRECONDITION),
        ({"target": WorkerId("w2")}, Refusal.PRECONDITION),
    ],
)
def test_a_release_that_does_not_fit_changes_nothing(changed: dict[str, Any], refusal: Refusal) -> None:
    worker = Worker()
    (said,) = worker.hears(release(**changed))

    assert (said.refusal, worker.published, worker.rejoins) == (refusal, [], 0)


@pytest.mark.parametrize(
    ("fault", "refusal"),
    [
        (Denied(Refusal.DRAIN_TIMEOUT, "slow"), Refusal.DRAIN_TIMEOUT),
        (GenerationOver("over"), Refusal.GENERATION),
        (CommitRefused("no"), Refusal.COMMIT_REFUSED),
        (ZeroDivisionError("bug"), Refusal.FAILED),
    ],
)
def test_a_step_that_fails_is_refused_with_its_reason(fault: Exception, refusal: Refusal) -> None:
    worker = Worker()
    worker.handover.fault = fault
    (said,) = worker.hears(release())

    assert (said.refusal, worker.published) == (refusal, [])


def test_a_repeat_is_answered_not_carried_out() -> None:
    worker = Worker()
    command = release()
    first = list(worker.hears(command))

    assert worker.hears(command) == first * 2
    assert len(worker.published) == 1


def test_a_worker_in_a_rebalance_and_one_that_is_not_steered_refuse() -> None:
    busy, unsteered = Worker(), Worker()
    busy.handover.is_stable = False
    unsteered.shared.refuse("exactly_once")

    assert told(busy.hears(release())) == [(Phase.REFUSED, Refusal.GENERATION, "the worker is in a rebalance")]
    assert told(unsteered.hears(release())) == [(Phase.REFUSED, Refusal.NOT_STEERING, "exactly_once")]


THEIRS = KeyGroup(APP, SUMS, 1)


def to_me(**changed: Any) -> HandoverRecord:
    """The record with which OTHER releases what `prepare` has announced."""
    whose = {"app": APP, "source": OTHER, "target": ME, "key_groups": (THEIRS,), "epoch": Epoch(1, 2)}
    what = {"handover": "h", "generation": 3, "offsets": (("in", 1, 7),), "ends": (("log", 1, 5),)}
    return replace(RELEASED, **{**whose, **what, **changed})


def target(
    fault: Exception | None = None, settings: SteeringSettings = SETTINGS, app_s: float = 0.0
) -> tuple[Worker, list[dict[TP, int]]]:
    """A worker that the placement names as the next owner of THEIRS, and the offsets at which it takes over.

    Its app takes `app_s` for what it does when partitions come.
    """
    worker, begun = Worker(settings=settings), list[dict[TP, int]]()
    rows = {SUMS: ((OTHER, ME), (ME, OTHER))}
    worker.shared.offer(Placement(cluster="c", app=APP, epoch=Epoch(1, 2), owners=rows))

    async def take(key_groups: Any, offsets: dict[TP, int], ends: Any, generation: int, taken: Any) -> None:
        begun.append(offsets)
        if fault is not None:
            raise fault
        taken()
        await asyncio.sleep(app_s)

    worker.handover.take = take  # type: ignore[attr-defined]
    return worker, begun


@pytest.mark.parametrize(
    "made_up",
    [
        {"handover": "made-up"},
        {"source": WorkerId("nobody")},
        {"generation": 2},
        {"key_groups": (THEIRS, KeyGroup(APP, SUMS, 2))},
        {"epoch": Epoch(0, 0)},
        {"kind": HandoverKind.TOOK, "source": ME, "target": OTHER, "key_groups": (MINE,)},
    ],
)
def test_only_what_a_prepare_has_announced_is_taken_and_a_made_up_record_does_not_hide_the_true_one(
    made_up: dict[str, Any],
) -> None:
    worker, taken = target()

    async def story() -> None:
        await worker.executor.execute(prepare(), worker.said.append)
        for record in (to_me(**made_up), to_me(), to_me()):
            await worker.receiver.receive(record, time.time())

    asyncio.run(worker.receiver.receive(to_me(), time.time()))
    assert taken == [], "nothing is prepared"
    asyncio.run(story())

    assert taken == [{TP("in", 1): 7}]
    assert [ack.phase for ack in worker.said] == [Phase.PREPARED, Phase.TOOK]
    assert [record.kind for record in worker.published] == [HandoverKind.TOOK]


def test_the_source_knows_that_a_key_group_is_taken_before_the_app_has_done_what_it_does_then() -> None:
    worker, _ = target(app_s=60.0)

    async def story() -> None:
        await worker.executor.execute(prepare(), worker.said.append)
        receiving = asyncio.create_task(worker.receiver.receive(to_me(), time.time()))
        await asyncio.sleep(0.05)
        assert not receiving.done()
        receiving.cancel()

    asyncio.run(story())

    assert [ack.phase for ack in worker.said] == [Phase.PREPARED], "the pause is not over"
    assert worker.published == [took(to_me())]


def test_what_the_placement_gives_to_somebody_else_is_not_taken() -> None:
    worker, taken = target()
    rows = {SUMS: ((OTHER, ME), (OTHER, ME))}
    worker.shared.offer(Placement(cluster="c", app=APP, epoch=Epoch(1, 3), owners=rows))

    worker.hears(prepare(), lambda: worker.receiver.receive(to_me(), time.time()))

    assert taken == []
    assert worker.published == [given_back(to_me())]


@pytest.mark.parametrize("answered", [True, False])
@pytest.mark.parametrize(
    ("fault", "returned"),
    [
        (Denied(Refusal.CATCH_UP_TIMEOUT, "changelogs not applied"), True),
        (Denied(Refusal.PRECONDITION, "other topics"), True),
        (CommitRefused("its commit may still arrive"), False),
        (ZeroDivisionError("bug"), False),
    ],
)
def test_what_cannot_be_taken_goes_back_to_its_source_or_if_that_is_not_safe_to_a_rebalance(
    fault: Exception, *, returned: bool, answered: bool
) -> None:
    worker, _ = target(fault, replace(SETTINGS, took_limit_s=60.0) if answered else SETTINGS)

    async def released() -> None:
        receiving = asyncio.ensure_future(worker.receiver.receive(to_me(), time.time()))
        while returned and not worker.published:
            await asyncio.sleep(0)
        if returned and answered:
            await worker.receiver.receive(took(given_back(to_me())), time.time())
        await receiving

    worker.hears(prepare(), released)

    assert (worker.said[-1].refusal, worker.said[-1].detail) == refused_for(fault)
    assert worker.published == ([given_back(to_me())] if returned else [])
    assert worker.rejoins == (0 if returned and answered else 1)
    assert list(worker.parts.pending.key_groups()) == []


@pytest.mark.parametrize(("fault", "rejoins"), [(None, 0), (CommitRefused("not a member"), 1)])
def test_what_comes_back_is_taken_back_where_it_was_released_and_a_made_up_return_is_not(
    fault: Exception | None, rejoins: int
) -> None:
    worker, taken = target(fault)

    async def comes_back() -> None:
        (record,) = worker.published
        for wrong in ({"offsets": (("in", 0, 8),)}, {"source": WorkerId("w9")}, {"generation": 2}):
            await worker.receiver.receive(replace(given_back(record), **wrong), time.time())
        await asyncio.sleep(0)
        assert taken == []
        assert list(worker.parts.pending.key_groups()) == [MINE], "its copies stay open meanwhile"
        await worker.receiver.receive(given_back(record), time.time())

    worker.hears(release(), comes_back, wait_s=0.1)

    assert (taken, worker.rejoins) == ([{TP("in", 0): 7}], rejoins)
    assert [record.kind for record in worker.published[1:]] == ([HandoverKind.TOOK] if fault is None else [])
    assert list(worker.parts.pending.key_groups()) == []


def test_who_may_not_tell_the_target_keeps_its_key_groups_without_a_rebalance_and_says_what_right_it_lacks() -> None:
    worker, taken = target()
    worker.may_write = False

    (said,) = worker.hears(release(), wait_s=0.1)

    assert (said.refusal, "may not write to trimtab.c.handover" in (said.detail or "")) == (Refusal.FAILED, True)
    assert (taken, worker.rejoins, worker.published) == ([{TP("in", 0): 7}], 0, [])
    assert list(worker.parts.pending.key_groups()) == []


def test_a_worker_counts_all_that_it_does_beside_the_job_and_says_nothing_while_it_goes_on() -> None:
    """A base that is learned meanwhile would be of a busy worker."""
    worker = Worker()
    seen: list[int | None] = [worker.status.work_beside_the_job]

    def note() -> None:
        seen.append(worker.status.work_beside_the_job)

    async def release_takes(key_groups: Any, generation: int, wait_s: float) -> Given:
        note()
        raise Denied(Refusal.DRAIN_TIMEOUT, "slow")

    worker.handover.release = release_takes  # type: ignore[method-assign]
    worker.hears(release(), note)
    worker.watcher.rebalancing()
    note()
    worker.standbys.applied_records += 7  # a standby that was behind
    note()

    assert seen == [0, None, 1, 2, 9]


def test_what_follows_a_command_goes_on_after_its_answer() -> None:
    worker = Worker()
    seen: list[int | None] = []

    worker.hears(release(), lambda: seen.append(worker.status.work_beside_the_job), wait_s=0.1)

    assert seen == [None], "it still looks after the release"
    assert worker.status.work_beside_the_job == 2


def prepare(kind: CommandKind = CommandKind.PREPARE) -> Command:
    fields = {"source": OTHER, "target": ME, "generation": None, "key_groups": (THEIRS,)}
    return release(kind=kind, **fields)


def test_a_prepare_is_answered_with_its_lag_and_a_rebalance_voids_it_once() -> None:
    worker = Worker()
    worker.hears(prepare())
    worker.watcher.rebalancing()
    worker.watcher.rebalancing()

    prepared, void = worker.said
    assert (prepared.phase, prepared.generation, prepared.lag_records) == (Phase.PREPARED, 3, 2)
    assert (prepared.state_bytes, told([void])) == (100, VOID)
    assert worker.standbys.stopped


def test_a_prepare_that_a_rebalance_interrupts_is_refused_once() -> None:
    worker = Worker()

    def rebalance() -> None:
        worker.watcher.rebalancing()
        raise GenerationOver("a rebalance")

    worker.reconciler.warming = rebalance  # type: ignore[method-assign]

    assert told(worker.hears(prepare())) == VOID


def test_what_was_abandoned_hears_of_no_rebalance() -> None:
    worker = Worker()
    worker.hears(prepare())
    worker.hears(prepare(CommandKind.ABANDON))
    worker.watcher.rebalancing()

    assert [ack.phase for ack in worker.said] == [Phase.PREPARED, Phase.ABANDONED]
