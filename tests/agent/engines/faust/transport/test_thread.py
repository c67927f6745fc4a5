"""Steps in the consumer's thread."""

import asyncio
import gc

import pytest

from trimtab_agent.engines.faust.transport.thread import SteeredThread


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
