"""Steps in the consumer's thread."""

import asyncio
import gc
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from trimtab_agent.engines.faust.safety.fence import Fence
from trimtab_agent.engines.faust.transport.thread import COMMIT_LIMIT_S, SteeredThread


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


def test_a_silent_coordinator_is_noticed_also_while_a_flush_before_the_commit_waits(
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
    thread._committing_since = now
    now += COMMIT_LIMIT_S + 0.1
    thread.fence.heard(now)
    assert thread.commit_waits, "the commit itself"
