"""A worker's link, what it serves and an agent on the other end of the socket."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.fuzz.fuzzed.samples import APP, PREPARE, STATISTICS, W0
from trimtab_agent.engines.faust.agent_link import AgentConnection
from trimtab_agent.engines.outcomes import Report
from trimtab_protocol.messages.commands import Ack, Command, Phase
from trimtab_protocol.messages.copies import Copy
from trimtab_protocol.messages.local import Frame, Hello, Statistics, Welcome, decode_frame, encode_frame
from trimtab_protocol.messages.names import Epoch, HostId, OperatorId, WorkerId

WORKER = W0
INTERVAL_S = 0.05
WELCOME = Welcome(cluster="c", host=HostId("h0"), interval_s=INTERVAL_S)
LIMIT_S = 60.0
COPIES = (Copy(OperatorId("sums"), 5, 70),)


def command(number: int = 1, **changes: Any) -> Command:
    given = {"epoch": Epoch(1, number), "worker": WORKER, "handover": "h-1", "source": WorkerId("w1"), "target": WORKER}
    return replace(PREPARE, **{**given, **changes})


def told(command: Command, phase: Phase, **fields: Any) -> Ack:
    """An outcome, as the steering part reports it."""
    return Ack.to(command, phase, at=time.time(), **fields)


class FakeSteering:
    """Does with a command what the test says."""

    def __init__(self, execute: Callable[[Command, Report], Awaitable[None]]) -> None:
        self.execute = execute
        self.refusal: str | None = None
        self.waits_for: str | None = None
        self.breaches = 0
        self.known = {OperatorId("sums"): 8}

    def operators(self) -> Mapping[OperatorId, int]:
        return self.known


class FakeCollector:
    """Numbers the intervals; what was skipped is missing."""

    def __init__(self) -> None:
        self.count = 0

    def skip(self) -> None:
        self.count += 100

    def collect(self, *, at_ms: int, interval_s: float) -> Statistics:
        self.count += 1
        return replace(
            STATISTICS, at_ms=at_ms, interval_s=interval_s, cpu_s=float(self.count), key_groups=(), pairs=(),
            unknown="no base yet", breaches=3, copies=COPIES,
        )  # fmt: skip


class FakeAgent:
    """Listens on the socket as an agent does."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.connections: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()

    async def __aenter__(self) -> "FakeAgent":
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self.connections.put((reader, writer))

        self.server = await asyncio.start_unix_server(connected, str(self.path))
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.server.close()
        while not self.connections.empty():
            self.connections.get_nowait()[1].close()
        self.path.unlink(missing_ok=True)  # from Python 3.13 on, the server has removed it

    async def meet(self) -> tuple["Connection", Hello]:
        """A connection, and with what the worker presents itself; it waits to be welcomed."""
        connection = Connection(*await asyncio.wait_for(self.connections.get(), LIMIT_S))
        hello = await connection.read()
        assert isinstance(hello, Hello)
        return connection, hello

    async def accept(self, welcome: Welcome = WELCOME) -> "Connection":
        connection, _ = await self.meet()
        connection.write(encode_frame(welcome))
        return connection


class Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def read(self) -> Frame:
        return decode_frame((await asyncio.wait_for(self.reader.readline(), LIMIT_S))[:-1])

    async def read_statistics(self) -> Statistics:
        frame = await self.read()
        assert isinstance(frame, Statistics)
        return frame

    async def read_ack(self) -> Ack:
        while not isinstance(frame := await self.read(), Ack):
            pass
        return frame

    def write(self, line: bytes) -> None:
        self.writer.write(line)

    async def close(self) -> None:
        self.writer.close()
        await self.writer.wait_closed()


async def nothing(command: Command, report: Report) -> None:
    """A steering part that answers nothing."""


@asynccontextmanager
async def running(
    path: Path, execute: Callable[[Command, Report], Awaitable[None]] = nothing
) -> AsyncIterator[AgentConnection]:
    steering, collector = FakeSteering(execute), FakeCollector()
    link = AgentConnection(
        app=APP, worker=WORKER, socket=path, executor=steering, status=steering, collector=collector, clock=time.time
    )
    await link.start()
    try:
        yield link
    finally:
        await link.stop()
