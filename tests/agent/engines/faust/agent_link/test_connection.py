import asyncio
import os
import stat
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from tests.agent.engines.faust.agent_link.agent_link_situations import (
    APP,
    LIMIT_S,
    WELCOME,
    WORKER,
    FakeAgent,
    FakeCollector,
    FakeSteering,
    command,
    nothing,
    running,
)
from trimtab_agent.engines.faust import agent_link as link_module
from trimtab_agent.engines.faust.agent_link import AgentConnection
from trimtab_agent.engines.outcomes import Abandoned, Report
from trimtab_protocol.messages.commands import Command, Phase
from trimtab_protocol.messages.local import Statistics, encode_frame

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
        report(Abandoned())

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
