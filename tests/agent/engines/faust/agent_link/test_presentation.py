import asyncio
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.agent.engines.faust.agent_link.agent_link_situations import (
    APP,
    COPIES,
    INTERVAL_S,
    LIMIT_S,
    WELCOME,
    WORKER,
    Connection,
    FakeAgent,
    running,
)
from trimtab_agent.engines.faust.agent_link import until_multiple
from trimtab_protocol.messages.local import Hello, Statistics, encode_frame
from trimtab_protocol.messages.names import OperatorId


async def test_it_presents_itself_and_then_reports_at_multiples_of_the_interval(path: Path):
    async with FakeAgent(path) as agent, running(path):
        connection = Connection(*await asyncio.wait_for(agent.connections.get(), LIMIT_S))
        hello = await connection.read()
        connection.write(encode_frame(WELCOME))
        statistics = [each for _ in range(3) if isinstance(each := await connection.read(), Statistics)]

    assert isinstance(hello, Hello)
    assert (hello.app, hello.worker, hello.steering, hello.reason) == (APP, WORKER, True, None)
    assert dict(hello.operators) == {"sums": 8}
    assert {"python", "faust-streaming", "aiokafka"} <= hello.versions.keys()
    assert [s.at_ms % 50 for s in statistics] == [0, 0, 0]
    assert [s.cpu_s for s in statistics] == [101.0, 102.0, 103.0]  # what was before the welcome is skipped
    assert all(s.interval_s >= INTERVAL_S / 2 for s in statistics)


@pytest.mark.parametrize(
    ("refusal", "waits_for", "told"),
    [
        ("workers differ", "the broker does not know these topics: a", (False, "workers differ")),
        (None, "the broker does not know these topics: a", (True, "the broker does not know these topics: a")),
        ("x" * 5000, None, (False, "x" * 4000)),
    ],
)
async def test_it_says_why_it_only_reports_or_what_it_lacks(
    path: Path, refusal: str | None, waits_for: str | None, told: object
):
    async with FakeAgent(path) as agent, running(path) as link:
        await (await agent.accept()).close()
        link._status.refusal, link._status.waits_for = refusal, waits_for  # type: ignore[misc]
        hello = await Connection(*await asyncio.wait_for(agent.connections.get(), LIMIT_S)).read()
    assert isinstance(hello, Hello)
    assert (hello.steering, hello.reason) == told


@pytest.mark.parametrize("protocol", [None, 2, 3])
async def test_an_agent_of_any_protocol_is_told_all(path: Path, protocol: int | None):
    async with FakeAgent(path) as agent, running(path):
        connection = Connection(*await asyncio.wait_for(agent.connections.get(), LIMIT_S))
        hello = await connection.read()
        connection.write(encode_frame(replace(WELCOME, protocol=protocol)))
        statistics = await connection.read()
    assert isinstance(hello, Hello)
    assert isinstance(statistics, Statistics)
    assert hello.versions.keys() >= {"trimtab", "trimtab-protocol"}
    assert hello.protocol == 2
    assert (statistics.standbys, statistics.unknown, statistics.breaches, statistics.copies) == (
        1, "no base yet", 3, COPIES,
    )  # fmt: skip


async def test_that_state_was_in_danger_is_said_before_the_worker_has_ended(path: Path):
    async with FakeAgent(path) as agent:
        async with running(path) as link:
            connection = Connection(*await asyncio.wait_for(agent.connections.get(), LIMIT_S))
            await connection.read()
            connection.write(encode_frame(replace(WELCOME, protocol=2, interval_s=60.0)))
            while link._last_words is None:
                await asyncio.sleep(0.01)
            link._status.breaches = 1  # type: ignore[misc]
            began = time.monotonic()
        statistics = await connection.read()
        seconds = time.monotonic() - began
    assert isinstance(statistics, Statistics)
    assert statistics.breaches == 3
    assert seconds < 30.0, "it waited for the interval's end"


async def test_that_state_was_in_danger_is_said_also_by_a_worker_that_is_just_reconnecting(path: Path):
    """Where partitions were added, it is no longer steered in the second in which it ends, so that it reconnects."""

    async with FakeAgent(path) as agent, running(path) as link:
        first = await agent.accept()
        while link._last_words is None:
            await asyncio.sleep(0.01)
        await first.close()
        while link._last_words is not None:
            await asyncio.sleep(0.01)
        link._status.breaches = 1  # type: ignore[misc]
        stopping = asyncio.create_task(link.stop())
        second = Connection(*await asyncio.wait_for(agent.connections.get(), LIMIT_S))
        await second.read()
        second.write(encode_frame(replace(WELCOME, protocol=2, interval_s=60.0)))
        statistics = await second.read()
        await stopping
    assert isinstance(statistics, Statistics)
    assert statistics.breaches == 3


async def test_a_worker_in_danger_waits_for_no_agent_that_is_away(path: Path):
    async with running(path) as link:
        link._status.breaches = 1  # type: ignore[misc]
        began = time.monotonic()
        await link.stop()
    assert time.monotonic() - began < LIMIT_S


async def test_it_presents_itself_anew_when_that_has_changed(path: Path):
    async with FakeAgent(path) as agent, running(path) as link:
        link._status.known = {}  # type: ignore[attr-defined]
        first = Connection(*await asyncio.wait_for(agent.connections.get(), LIMIT_S))
        before = await first.read()
        first.write(encode_frame(WELCOME))
        link._status.known = {OperatorId("sums"): 8}  # type: ignore[attr-defined]
        second = Connection(*await asyncio.wait_for(agent.connections.get(), LIMIT_S))
        after = await second.read()
    assert isinstance(before, Hello)
    assert isinstance(after, Hello)
    assert (dict(before.operators), dict(after.operators)) == ({}, {"sums": 8})


async def test_a_reason_that_is_too_long_for_a_hello_is_cut(path: Path):
    async with FakeAgent(path) as agent, running(path) as link:
        link._status.refusal = "x is gone; " * 1000  # type: ignore[misc]
        hello = await Connection(*await asyncio.wait_for(agent.connections.get(), LIMIT_S)).read()
    assert isinstance(hello, Hello)
    assert (hello.steering, hello.reason) == (False, ("x is gone; " * 1000)[:4000])


@pytest.mark.parametrize(("now", "left"), [(10.0, 2.0), (10.5, 1.5), (11.999, 0.001), (0.0, 2.0)])
def test_the_next_multiple_is_always_ahead(now: float, left: float):
    assert until_multiple(now, 2.0) == pytest.approx(left)
