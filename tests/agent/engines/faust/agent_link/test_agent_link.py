import asyncio
import os
import stat
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from tests.agent.engines.faust.agent_link.agent_link_situations import (
    COPIES,
    INTERVAL_S,
    LIMIT_S,
    WELCOME,
    WORKER,
    FakeAgent,
    FakeCollector,
    FakeSteering,
    command,
    nothing,
    running,
    told,
)
from tests.fuzz.fuzzed.samples import APP
from trimtab_agent.engines.faust import agent_link as link_module
from trimtab_agent.engines.faust.agent_link import AgentConnection, until_multiple
from trimtab_agent.engines.outcomes import Report
from trimtab_protocol.messages.commands import Command, Phase, Refusal
from trimtab_protocol.messages.local import Statistics, encode_frame
from trimtab_protocol.messages.names import OperatorId, WorkerId

Counts = dict[str, int]


async def test_the_app_goes_on_while_there_is_no_agent_and_the_link_comes_back(path: Path):
    async with running(path) as link:
        async with asyncio.timeout(60):
            while link.faults.get("no agent", 0) < 2:
                await asyncio.sleep(0.01)
        for _ in range(3):
            async with FakeAgent(path) as agent:
                connection = await agent.accept()
                assert isinstance(await connection.read(), Statistics)
                await connection.close()
        faults = dict(link.faults)
    assert faults["connection to the agent ended"] >= 2  # the third end may not be noticed yet


def is_socket(descriptor: int) -> bool:
    try:
        return stat.S_ISSOCK(os.fstat(descriptor).st_mode)
    except OSError:
        return False


async def test_no_process_that_the_app_forks_keeps_the_connection(path: Path):
    """A pool of processes outlives a worker that is killed; the agent sees the end of the connection all the same."""
    async with FakeAgent(path) as agent, running(path):
        await agent.accept()
        (descriptor,) = link_module._connections
        with ProcessPoolExecutor(1, get_context("fork")) as pool:
            there = await asyncio.get_running_loop().run_in_executor(pool, is_socket, descriptor)
        assert [there, is_socket(descriptor)] == [False, True]
    assert link_module._connections == set()


async def test_who_is_not_welcome_comes_back_less_and_less_often(path: Path):
    waits: list[float] = []

    async with FakeAgent(path) as agent, running(path) as link:
        sleep = link.sleep

        async def noted(seconds: float) -> None:
            waits.append(seconds)
            await sleep(seconds)

        link.sleep = noted
        for _ in range(3):  # as if another process had the worker's name
            _, writer = await asyncio.wait_for(agent.connections.get(), LIMIT_S)
            writer.close()
        await (await agent.accept()).close()
        await agent.accept()
    assert waits[:4] == [0.01, 0.02, 0.02, 0.01]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"not json\n", "malformed"),
        (b'{"v":99,"frame":"command"}\n', "wrong_version"),
        (b'{"v":1,"frame":"dance"}\n', "out_of_range"),
        (encode_frame(WELCOME), "out_of_range"),
        (encode_frame(command()).replace(b'"w0"', b'"w9"'), "out_of_range"),
    ],
)
async def test_bad_frames_are_counted_and_what_follows_is_done(path: Path, line: bytes, reason: str):
    async def execute(command: Command, report: Report) -> None:
        report(told(command, Phase.ABANDONED))

    async with FakeAgent(path) as agent, running(path, execute) as link:
        connection = await agent.accept()
        connection.write(line * 3 + encode_frame(command()))
        answer = await connection.read_ack()
        faults = dict(link.faults)
    assert {k: n for k, n in faults.items() if "bad frame" in k} == {f"bad frame from the agent: {reason}": 3}
    assert answer.phase is Phase.ABANDONED


async def test_a_line_without_end_costs_the_connection_only(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(link_module, "MAX_FRAME_BYTES", 1000)

    async with FakeAgent(path) as agent, running(path) as link:
        connection = await agent.accept()
        connection.write(b"x" * 5000)
        again = await agent.accept()
        assert isinstance(await again.read(), Statistics)
        await connection.close()
        await again.close()
        found = dict(link.faults)
    assert found["connection to the agent ended"] == 1


async def test_it_ends_also_when_the_stop_comes_as_a_write_is_done(path: Path):
    """The drain ends in the same round of the loop in which the link is cancelled: the cancellation must win."""

    class Writer:
        def __init__(self) -> None:
            self.drained = asyncio.get_running_loop().create_future()

        def write(self, line: bytes) -> None: ...

        async def drain(self) -> None:
            await asyncio.shield(self.drained)

    steering = FakeSteering(nothing)
    link = AgentConnection(
        app=APP, worker=WORKER, socket=path, executor=steering, status=steering, collector=FakeCollector()
    )
    writer = Writer()
    task = asyncio.ensure_future(link._write(writer, WELCOME))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    writer.drained.set_result(None)
    await asyncio.sleep(0)  # the future is done, and whoever waits for it is about to be told
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


# --- how a worker presents itself, and what it reports


async def test_it_presents_itself_and_then_reports_at_multiples_of_the_interval(path: Path):
    async with FakeAgent(path) as agent, running(path):
        connection, hello = await agent.meet()
        connection.write(encode_frame(WELCOME))
        statistics = [await connection.read_statistics() for _ in range(3)]

    assert (hello.app, hello.worker, hello.steering, hello.reason) == (APP, WORKER, True, None)
    assert (dict(hello.operators), hello.protocol) == ({"sums": 8}, 2)
    assert {"python", "faust-streaming", "aiokafka", "trimtab", "trimtab-protocol"} <= hello.versions.keys()
    assert [s.at_ms % 50 for s in statistics] == [0, 0, 0]
    assert [s.cpu_s for s in statistics] == [101.0, 102.0, 103.0]  # what was before the welcome is skipped
    assert all(s.interval_s >= INTERVAL_S / 2 for s in statistics)
    assert {(s.standbys, s.unknown, s.breaches, s.copies) for s in statistics} == {(1, "no base yet", 3, COPIES)}


@pytest.mark.parametrize(
    ("refusal", "waits_for", "told"),
    [
        ("workers differ", "the broker does not know these topics: a", (False, "workers differ")),
        (None, "the broker does not know these topics: a", (True, "the broker does not know these topics: a")),
        ("x is gone; " * 1000, None, (False, ("x is gone; " * 1000)[:4000])),
    ],
    ids=["only reports", "lacks something", "a reason too long for a hello"],
)
async def test_it_says_why_it_only_reports_or_what_it_lacks(
    path: Path, refusal: str | None, waits_for: str | None, told: object
):
    async with FakeAgent(path) as agent, running(path) as link:
        await (await agent.accept()).close()
        link._status.refusal, link._status.waits_for = refusal, waits_for  # type: ignore[misc]
        _, hello = await agent.meet()
    assert (hello.steering, hello.reason) == told


async def test_that_state_was_in_danger_is_said_before_the_worker_has_ended(path: Path):
    async with FakeAgent(path) as agent:
        async with running(path) as link:
            connection = await agent.accept(replace(WELCOME, interval_s=60.0))
            while link._last_words is None:
                await asyncio.sleep(0.01)
            link._status.breaches = 1  # type: ignore[misc]
            began = time.monotonic()
        statistics = await connection.read_statistics()
    assert statistics.breaches == 3
    assert time.monotonic() - began < 30.0, "it waited for the interval's end"


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
        second = await agent.accept(replace(WELCOME, interval_s=60.0))
        assert (await second.read_statistics()).breaches == 3
        await stopping


async def test_a_worker_in_danger_waits_for_no_agent_that_is_away(path: Path):
    async with running(path) as link:
        link._status.breaches = 1  # type: ignore[misc]
        began = time.monotonic()
        await link.stop()
    assert time.monotonic() - began < LIMIT_S


async def test_it_presents_itself_anew_when_that_has_changed(path: Path):
    async with FakeAgent(path) as agent, running(path) as link:
        link._status.known = {}  # type: ignore[attr-defined]
        first, before = await agent.meet()
        first.write(encode_frame(WELCOME))
        link._status.known = {OperatorId("sums"): 8}  # type: ignore[attr-defined]
        _, after = await agent.meet()
    assert (dict(before.operators), dict(after.operators)) == ({}, {"sums": 8})


@pytest.mark.parametrize(("now", "left"), [(10.0, 2.0), (10.5, 1.5), (11.999, 0.001), (0.0, 2.0)])
def test_the_next_multiple_is_always_ahead(now: float, left: float):
    assert until_multiple(now, 2.0) == pytest.approx(left)


# --- what becomes of commands


async def test_every_outcome_of_a_command_is_acked_also_after_it_returned(path: Path):
    async def execute(command: Command, report: Report) -> None:
        report(told(command, Phase.PREPARED, generation=5, lag_records=2, state_bytes=77))
        took = told(command, Phase.TOOK, generation=5, pause_s=0.1)
        asyncio.get_running_loop().call_later(0.02, report, took)

    async with FakeAgent(path) as agent, running(path, execute):
        connection = await agent.accept()
        connection.write(encode_frame(command()))
        acks = [await connection.read_ack() for _ in range(2)]

    assert [(a.phase, a.command_id, a.generation) for a in acks] == [
        (Phase.PREPARED, command().id, 5),
        (Phase.TOOK, command().id, 5),
    ]
    assert [(a.cluster, a.host, a.worker, a.handover) for a in acks] == [("c", "h0", "w0", "h-1")] * 2


async def test_acks_wait_for_the_next_agent(path: Path):
    may_answer = asyncio.Event()

    async def execute(command: Command, report: Report) -> None:
        await may_answer.wait()
        report(told(command, Phase.PREPARED, generation=5, lag_records=2))

    async with running(path, execute):
        async with FakeAgent(path) as agent:
            connection = await agent.accept()
            connection.write(encode_frame(command()))
            await connection.read()  # statistics: the command before them has been read
            await connection.read()
            await connection.close()
        may_answer.set()
        await asyncio.sleep(0.05)
        async with FakeAgent(path) as agent:
            found = await (await agent.accept()).read_ack()
    assert found.phase is Phase.PREPARED


async def test_more_acks_than_fit_cost_the_oldest(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(link_module, "MAX_WAITING_ACKS", 2)

    async def execute(command: Command, report: Report) -> None:
        for lag in (1, 2, 3):
            report(told(command, Phase.PREPARED, generation=5, lag_records=lag))

    async with FakeAgent(path) as agent, running(path, execute) as link:
        connection = await agent.accept()
        connection.write(encode_frame(command()))
        acks, dropped = [await connection.read_ack() for _ in range(2)], link.faults["an ack is dropped"]
    assert ([a.lag_records for a in acks], dropped) == ([2, 3], 1)


async def broken(command: Command, report: Report) -> None:
    raise RuntimeError("disk full")


@pytest.mark.parametrize(
    ("changes", "steers", "refusal", "detail"),
    [
        ({"worker": WorkerId("w7"), "target": WorkerId("w7")}, None, Refusal.UNKNOWN_WORKER, None),
        ({}, "version of aiokafka", Refusal.NOT_STEERING, None),
        ({}, None, Refusal.FAILED, "RuntimeError('disk full')"),
    ],
    ids=["of another worker", "not steered", "it fails"],
)
async def test_what_this_worker_cannot_do_is_refused(
    path: Path, changes: dict[str, Any], steers: str | None, refusal: Refusal, detail: str | None
):
    async with FakeAgent(path) as agent, running(path, broken) as link:
        link._status.refusal = steers  # type: ignore[misc]
        connection = await agent.accept()
        connection.write(encode_frame(command(**changes)))
        found = await connection.read_ack()
    assert (found.refusal, detail or found.detail) == (refusal, found.detail)
