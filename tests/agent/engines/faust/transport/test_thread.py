"""Steps in the consumer's thread."""

import asyncio
import contextlib
import gc
import inspect
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.consumer.fetcher import FetchError, FetchResult
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    InconsistentGroupProtocolError,
    KafkaError,
    TopicAuthorizationFailedError,
)
from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread, Consumer, Producer
from faust.types import TP
from mode.threads import MethodQueue

from trimtab_agent.engines.faust.safety.fence import Fence
from trimtab_agent.engines.faust.transport import thread as thread_module
from trimtab_agent.engines.faust.transport.consumer import SteeredConsumer
from trimtab_agent.engines.faust.transport.producer import SteeredProducer
from trimtab_agent.engines.faust.transport.thread import COMMIT_LIMIT_S, GenerationOver, SteeredThread


def test_a_step_that_comes_when_the_worker_ends_fails_and_leaves_no_coroutine(recwarn: pytest.WarningsRecorder) -> None:
    thread = SteeredThread.__new__(SteeredThread)
    thread.thread_loop = asyncio.new_event_loop()
    thread.thread_loop.close()
    with pytest.raises(RuntimeError, match="closed"):
        asyncio.run(thread.ends_not_fetched((), 1.0, 1.0))
    with pytest.raises(RuntimeError, match="closed"):
        asyncio.run(thread.run(int))
    gc.collect()
    assert [each for each in (str(warning.message) for warning in recwarn) if "SteeredThread" in each] == []


@pytest.fixture
def running() -> Iterator[SteeredThread]:
    """A thread whose loop runs."""
    thread = SteeredThread.__new__(SteeredThread)
    thread.thread_loop = asyncio.new_event_loop()
    runner = threading.Thread(target=thread.thread_loop.run_forever)
    runner.start()
    yield thread
    thread.thread_loop.call_soon_threadsafe(thread.thread_loop.stop)
    runner.join(60.0)
    thread.thread_loop.close()


def test_a_step_that_the_end_of_the_thread_cuts_off_fails_and_does_not_cancel_its_caller(
    running: SteeredThread,
) -> None:
    """A rebalance that looked cancelled ended the thread in the middle of its stop, and the worker hung."""

    async def cut_off() -> None:
        asyncio.current_task().cancel()  # type: ignore[union-attr]
        await asyncio.sleep(60.0)

    with pytest.raises(RuntimeError, match="the consumer's thread ends"):
        asyncio.run(running._in_thread(cut_off()))


def test_a_caller_that_is_cancelled_ends_its_step(running: SteeredThread) -> None:
    ended = threading.Event()

    async def wait() -> None:
        try:
            await asyncio.sleep(60.0)
        finally:
            ended.set()

    async def ask() -> None:
        async with asyncio.timeout(0.1):
            await running._in_thread(wait())

    with pytest.raises(TimeoutError):
        asyncio.run(ask())
    assert ended.wait(60.0)


@pytest.mark.parametrize(
    ("kind", "stock"),
    [(SteeredConsumer, Consumer), (SteeredThread, AIOKafkaConsumerThread), (SteeredProducer, Producer)],
)
def test_what_an_app_awaits_of_fausts_classes_it_can_still_await(kind: type, stock: type) -> None:
    """`await app.consumer.position(tp)` asks the thread; a number cannot be awaited."""
    public = [name for name in set(vars(kind)).intersection(dir(stock)) if name[0] != "_" and name != "logger"]
    changed = [
        name
        for name in public
        if len({inspect.iscoroutinefunction(inspect.unwrap(getattr(each, name))) for each in (kind, stock)}) > 1
    ]
    assert public
    assert changed == []


class SilentBroker:
    """A client whose broker does not answer."""

    async def end_offsets(self, _: object) -> dict[TP, int]:
        await asyncio.sleep(60.0)
        return {}

    beginning_offsets = end_offsets


def test_questions_to_a_silent_broker_hold_up_no_fetch_from_others(running: SteeredThread) -> None:
    """Faust's thread does two things at a time.  Standbys and copies ask about logs that the job does not need."""
    running.consumer = SimpleNamespace(in_transaction=False)  # type: ignore[assignment]
    running._consumer = SilentBroker()
    running._method_queue = MethodQueue(loop=running.thread_loop)

    async def fetch() -> str:
        return "records"

    async def ask() -> object:
        running.parent_loop = asyncio.get_running_loop()
        start, stop = running._method_queue.start(), running._method_queue.stop()
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(start, running.thread_loop))
        steps = [step(TP("ks-sums-changelog", 0)) for step in (running.highwaters, running.earliest_offsets) * 2]
        questions = [asyncio.ensure_future(step) for step in steps]
        await asyncio.sleep(0.1)
        try:
            async with asyncio.timeout(5.0):
                return await running.call_thread(fetch)
        finally:
            for question in questions:
                question.cancel()
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(stop, running.thread_loop))

    assert asyncio.run(ask()) == "records"


def test_a_silent_coordinator_is_noticed_also_without_a_commit_and_a_flush_that_waits_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    thread = SteeredThread.__new__(SteeredThread)
    thread.app = SimpleNamespace(conf=SimpleNamespace(broker_heartbeat_interval=3.0))  # type: ignore[assignment]
    thread.transport = SimpleNamespace(fence=Fence(60.0))  # type: ignore[assignment]
    now = 100.0
    monkeypatch.setattr(f"{SteeredThread.__module__}.uptime", lambda: now)
    assert not thread.commit_waits, "nothing was heard yet"
    thread.fence.heard(now)
    now += 3.0 + COMMIT_LIMIT_S
    assert not thread.commit_waits
    now += 0.1
    assert thread.commit_waits
    thread.fence.heard(now)
    assert not thread.commit_waits
    thread.committing_since = now
    now += COMMIT_LIMIT_S + 0.1
    thread.fence.heard(now)
    assert thread.commit_waits, "the commit, or the flush before it"


def alone(**known: Any) -> SteeredThread:
    """A thread that does its steps where it is called."""
    thread = SteeredThread.__new__(SteeredThread)

    async def call(step: Any, *arguments: Any) -> Any:
        return await step(*arguments)

    thread.__dict__.update(
        {"transport": SimpleNamespace(fence=Fence(60.0)), "call_thread": call, "tp_last_committed_at": {}} | known
    )
    return thread


@pytest.mark.parametrize("denied", [TopicAuthorizationFailedError({"in"}), GroupAuthorizationFailedError("ks")])
async def test_a_commit_that_kafka_does_not_let_the_app_do_ends_no_worker(
    denied: KafkaError, caplog: pytest.LogCaptureFixture
) -> None:
    """Faust's driver catches every other error, and ends the worker."""
    answers = iter([denied, denied, None])
    crashes: list[BaseException] = []

    async def commit(offsets: Any) -> None:
        if (error := next(answers)) is not None:
            raise error

    async def crash(error: BaseException) -> None:
        crashes.append(error)

    consumer = SimpleNamespace(commit=commit)
    thread = alone(_ensure_consumer=lambda: consumer, assignment=lambda: {TP("in", 0)}, crash=crash)
    thread._note_denials(consumer)

    assert [await thread.commit({TP("in", 0): 7}) for _ in range(3)] == [False, False, True]
    assert crashes == []
    assert caplog.text.count("not committed, because Kafka does not let the app") == 1


async def test_a_commit_that_proves_a_hand_over_is_not_made_in_a_generation_that_begins_before_it_is_sent() -> None:
    """There it would overwrite the offset of who has taken over meanwhile."""
    sent: list[int] = []

    class Coordinator:
        generation, _performed_join_prepare, _commit_lock = 4, False, asyncio.Lock()

        async def ensure_coordinator_known(self) -> None: ...

        async def _do_commit_offsets(self, assignment: Any, offsets: Any) -> None:
            sent.append(self.generation)

    coordinator = Coordinator()
    assigned = SimpleNamespace(subscription=SimpleNamespace(_reassignment_in_progress=False, assignment=None))
    consumer = SimpleNamespace(_coordinator=coordinator, _subscription=assigned)
    app = SimpleNamespace(consumer_generation_id=4)
    known: dict[str, Any] = {"joins": object(), "consumer": SimpleNamespace(held=set()), "app": app}
    thread = alone(_ensure_consumer=lambda: consumer, thread_loop=asyncio.get_running_loop(), **known)

    await thread.prove_by_commit(4, {TP("in", 0): 7}, 1.0)
    acquire = coordinator._commit_lock.acquire

    async def acquire_while_the_join_ends() -> Any:
        asyncio.get_running_loop().call_soon(setattr, coordinator, "generation", 5)
        return await acquire()

    coordinator._commit_lock.acquire = acquire_while_the_join_ends  # type: ignore[method-assign, assignment]
    with pytest.raises(GenerationOver, match="generation 4 is over"):
        await thread.prove_by_commit(4, {TP("in", 0): 7}, 1.0)

    assert sent == [4]


class Fetched(list[int]):
    """Records of one partition, as aiokafka's fetcher has them."""

    next_fetch_offset = 0

    def __next__(self) -> int:
        if not self:
            raise StopIteration
        return self.pop(0)

    def __iter__(self) -> "Fetched":
        return self


async def test_no_more_is_read_of_a_backlog_than_there_is_room_for_and_nothing_of_it_is_lost() -> None:
    tps = [TP("in", partition) for partition in range(3)]
    state = SimpleNamespace(paused=False, position=0, consumed_to=lambda _: None)
    assignment = SimpleNamespace(active=True, state_value=lambda _: state)

    class Fetcher:
        _closed, _wait_consume_future, woken = False, None, 0
        _subscriptions = SimpleNamespace(fetch_context=contextlib.nullcontext)

        def __init__(self) -> None:
            self._records: dict[Any, Any] = {
                tp: FetchResult(tp, assignment=assignment, partition_records=Fetched(range(5)), backoff=0.0)
                for tp in tps
            }

        async def fetched_records(self, partitions: Any, **_: Any) -> Any:
            found = {}
            for tp in [tp for tp in self._records if not partitions or tp in partitions]:
                result = self._records.pop(tp)
                if isinstance(result, FetchError):
                    result.check_raise()
                found[tp] = result.getall()
            return found

        def _notify(self, _: Any) -> None:
            self.woken += 1

    fetcher = Fetcher()
    consumer = SimpleNamespace(_fetcher=fetcher, _closed=False)
    thread = alone(consumer=SimpleNamespace(flow_active=True))
    whole = list(range(5))

    assert await thread._fetch_records(consumer, set(tps[:1])) == {tps[0]: whole}
    thread.room = {tps[1]: 2, tps[2]: 0}
    assert await thread._fetch_records(consumer, set(tps)) == {tps[1]: [0, 1]}
    assert await thread._fetch_records(consumer, {tps[1]}) == {tps[1]: [2, 3]}  # of no partition would mean of all
    thread.room = {tps[1]: 9}
    assert await thread._fetch_records(consumer, set(tps)) == {tps[1]: [4], tps[2]: whole}
    assert fetcher._records == {}
    assert fetcher.woken == 1  # what it has had it gets again only if it is told

    fetcher._records[tps[1]] = FetchError(error=KafkaError("unreadable"), backoff=0.0)
    with pytest.raises(KafkaError, match="unreadable"):
        await thread._fetch_records(consumer, set(tps))


def test_nothing_is_committed_after_records_were_dropped_until_the_next_generation() -> None:
    committed: list[Any] = []

    async def commit(offsets: Any) -> None:
        committed.append(offsets)

    thread = alone(_ensure_consumer=lambda: SimpleNamespace(commit=commit), assignment=lambda: {TP("in", 0)})
    thread.fence.dropped = True
    assert asyncio.run(thread.commit({TP("in", 0): 7})) is False
    assert committed == []
    thread.fence.renew()
    assert asyncio.run(thread.commit({TP("in", 0): 7})) is True


def test_a_leader_makes_only_changelogs_again() -> None:
    made: list[str] = []
    loop = SimpleNamespace(call_soon_threadsafe=lambda step, topic: step(topic))
    app = SimpleNamespace(
        tables=SimpleNamespace(changelog_topics={"log"}), producer=SimpleNamespace(make_again=made.append), loop=loop
    )
    thread = alone(app=app)
    assert [thread._make_again(topic) for topic in ("log", "in")] == [True, False]
    assert made == ["log"]


def test_a_commit_of_a_deleted_topic_is_not_repeated_without_end() -> None:
    thread = alone(
        _ensure_consumer=lambda: SimpleNamespace(
            _client=SimpleNamespace(cluster=SimpleNamespace(topics=lambda: {"in"}))
        )
    )
    response = SimpleNamespace(topics=[("in", [(0, 0), (1, 3)]), ("gone", [(0, 3), (1, 16)])])
    thread._leave_out_deleted(response)
    assert response.topics == [("in", [(0, 0), (1, 3)]), ("gone", [(0, 0), (1, 16)])]


@pytest.mark.parametrize(
    ("error", "waits"),
    [
        (GroupAuthorizationFailedError("ks"), True),
        (InconsistentGroupProtocolError(), True),
        (KafkaError("else"), False),
    ],
)
async def test_a_worker_waits_for_its_group_and_joins_again(
    error: KafkaError, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread_module, "RETRY_S", 0.01)

    told: list[str] = []

    async def give_up(_: KafkaError) -> None:
        told.append("gave up")

    coordinator = SimpleNamespace(
        _push_error_to_user=give_up,
        _closing=asyncio.get_running_loop().create_future(),
        request_rejoin=lambda: told.append("joins again"),
    )
    alone()._join_again(coordinator)
    await coordinator._push_error_to_user(error)
    assert told == (["joins again"] if waits else ["gave up"])


@pytest.mark.parametrize("answers", [True, False])
def test_who_leaves_its_group_sends_nothing_more_whether_the_group_answers_or_not(
    running: SteeredThread, *, answers: bool
) -> None:
    told: list[bool] = []

    async def tell() -> None:
        told.append(running.fence.closed_now())
        if not answers:
            await asyncio.sleep(60.0)

    running.transport = SimpleNamespace(fence=Fence(10.0))  # type: ignore[assignment]
    running._consumer = SimpleNamespace(_coordinator=SimpleNamespace(_maybe_leave_group=tell))
    asyncio.run(running.leave(20.0 if answers else 2.0))
    assert (told, running.fence.over) == ([True], True), "closed before the others hear of it"
