"""The agent's end of the socket, played: keeps every frame of every worker, and may misbehave on request."""

import asyncio
import json
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trimtab_protocol.messages.commands import Ack, Command
from trimtab_protocol.messages.decode import BadMessage
from trimtab_protocol.messages.local import MAX_FRAME_BYTES, Hello, Statistics, Welcome, decode_frame, encode_frame
from trimtab_protocol.messages.names import HostId, WorkerId

HOST = HostId("h0")
INTERVAL_S = 0.25
SILENCE_S = 0.5
"""How long the welcome is held back, to see that nothing is sent before it."""


@dataclass(slots=True)
class Connection:
    """One connection of a worker, and what came over it."""

    hello: Hello
    protocol: int | None
    writer: asyncio.StreamWriter
    statistics: list[tuple[float, dict[str, Any], Statistics]] = field(default_factory=list)
    """When it came (epoch seconds), the JSON as it came, the decoded frame."""
    ended: bool = False


class PlayedAgent:
    """Listens like the agent of a host; `faults` has everything that no plug-in may send."""

    def __init__(self, path: Path, cluster: str) -> None:
        self.faults: list[str] = []
        self.connections: dict[WorkerId, list[Connection]] = defaultdict(list)
        self.acks: list[Ack] = []
        self.protocol: int | None = 2
        """What the welcome says; None: an agent that speaks the first protocol only."""
        self.unwelcoming = 0
        """So many of the next connections get an answer that is no welcome."""
        self._path = path
        self._cluster = cluster
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_unix_server(self._serve, path=str(self._path), limit=MAX_FRAME_BYTES)

    async def stop(self) -> None:
        """End as a killed agent does: all connections break, nobody listens."""
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._path.unlink(missing_ok=True)

    def connection(self, worker: WorkerId) -> Connection | None:
        """The living connection of a worker."""
        last = self.connections[worker][-1:]
        return last[0] if last and not last[0].ended else None

    def newest(self, worker: WorkerId) -> tuple[float, Statistics] | None:
        """The last statistics of a worker over its living connection, and when they came."""
        connection = self.connection(worker)
        if connection is None or not connection.statistics:
            return None
        at, _, statistics = connection.statistics[-1]
        return at, statistics

    def send(self, worker: WorkerId, frame: Command | bytes) -> None:
        """Send a command, or any bytes; nothing happens when the worker is not connected."""
        if (connection := self.connection(worker)) is not None:
            connection.writer.write(frame if isinstance(frame, bytes) else encode_frame(frame))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        connection = None
        try:
            hello = decode_frame((await reader.readuntil(b"\n"))[:-1])
            if not isinstance(hello, Hello):
                self.faults.append(f"the first frame is a {type(hello).__name__}, expected a hello")
                return
            if self.unwelcoming:
                self.unwelcoming -= 1
                writer.write(b'{"v":1,"frame":"unheard-of"}\n')
                await reader.read()
                return
            if not await self._is_silent(reader, hello):
                return
            if self.connection(hello.worker) is not None:
                self.faults.append(f"{hello.worker} has two connections")
                return
            connection = Connection(hello=hello, protocol=self.protocol, writer=writer)
            self.connections[hello.worker].append(connection)
            writer.write(self._welcome())
            while True:
                self._take(connection, (await reader.readuntil(b"\n"))[:-1])
        except BadMessage as error:
            self.faults.append(f"a frame that cannot be read: {error.fault}: {error}")
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # either side has ended
        finally:
            self._tasks.discard(task)
            if connection is not None:
                connection.ended = True
            writer.transport.abort()

    async def _is_silent(self, reader: asyncio.StreamReader, hello: Hello) -> bool:
        """Whether nothing comes before the welcome."""
        try:
            async with asyncio.timeout(SILENCE_S):
                early = await reader.read(1)
        except TimeoutError:
            return True
        if early:
            self.faults.append(f"{hello.worker} sends before it is welcomed")
        return False

    def _welcome(self) -> bytes:
        """With a field of a later version, which a plug-in must ignore."""
        welcome = Welcome(cluster=self._cluster, host=HOST, interval_s=INTERVAL_S, protocol=self.protocol)
        line = json.loads(encode_frame(welcome))
        return json.dumps({**line, "of_a_later_version": {"any": [1, None]}}).encode() + b"\n"

    def _take(self, connection: Connection, line: bytes) -> None:
        match decode_frame(line):
            case Statistics() as statistics:
                connection.statistics.append((time.time(), json.loads(line), statistics))
            case Ack() as ack:
                self.acks.append(ack)
            case other:
                self.faults.append(f"{connection.hello.worker} sends a {type(other).__name__} after its hello")
