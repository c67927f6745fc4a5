"""Connections of plug-ins to a server on a real Unix socket, and who listens to the server."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from trimtab_agent.plugin_server import PluginServer
from trimtab_protocol.messages.commands import Ack, Command, CommandKind, Phase
from trimtab_protocol.messages.decode import BadMessage, Fault
from trimtab_protocol.messages.local import Hello, Statistics, Welcome, encode_frame
from trimtab_protocol.messages.names import AppId, Epoch, HostId, KeyGroup, OperatorId, WorkerId
from trimtab_protocol.messages.report import KeyGroupSample, WorkerState

WELCOME = Welcome(cluster="demo", host=HostId("h0"), interval_s=1.0)
REJOIN = Command(
    cluster="demo", kind=CommandKind.REJOIN, epoch=Epoch(1, 1), host=HostId("h0"), worker=WorkerId("w0"),
    app=AppId("flights"), issued_at=1.0, deadline=2.0,
)  # fmt: skip
ACK = Ack(
    cluster="demo", command_id=REJOIN.id, epoch=REJOIN.epoch, kind=REJOIN.kind, host=REJOIN.host,
    worker=REJOIN.worker, phase=Phase.REJOINED, at=1.5,
)  # fmt: skip


def hello(worker: str = "w0", versions: Mapping[str, str] | None = None) -> bytes:
    return encode_frame(
        Hello(
            app=AppId("flights"), worker=WorkerId(worker), pid=1, steering=True, reason=None, operators={},
            versions=versions or {},
        )
    )  # fmt: skip


def statistics(*owners: str, partition: int = 0, at_ms: int = 1000, apps: Sequence[str] = ("flights",)) -> bytes:
    samples = [
        KeyGroupSample(
            key_group=KeyGroup(AppId(app), OperatorId("sums"), partition), worker=WorkerId(owner),
            cpu_s=0.1, tuples_in=1,
        )
        for app in apps for owner in owners
    ]  # fmt: skip
    return encode_frame(
        Statistics(
            at_ms=at_ms, interval_s=1.0, state=WorkerState.RUNNING, cpu_s=0.1, epoch=None, generation=None,
            complete=True, key_groups=tuple(samples), pairs=(),
        )
    )  # fmt: skip


class Recorder:
    """Listens, and lets a test wait for what it expects."""

    def __init__(self) -> None:
        self.heard: list[tuple[Any, ...]] = []
        self.pids: list[int | None] = []

    def worker_connected(self, hello: Hello, pid: int | None) -> None:
        self.pids.append(pid)
        self.heard.append(("connected", hello.worker))

    def worker_reported(self, worker: WorkerId, statistics: Statistics) -> None:
        self.heard.append(("reported", worker, len(statistics.key_groups)))

    def worker_acked(self, worker: WorkerId, ack: Ack) -> None:
        if ack.worker != worker:
            raise BadMessage(Fault.RANGE, "worker", ack.worker, worker)
        self.heard.append(("acked", worker, ack.phase))

    def worker_gone(self, worker: WorkerId) -> None:
        self.heard.append(("gone", worker))

    def frame_refused(self, worker: WorkerId | None, reason: str, detail: str) -> None:
        self.heard.append(("refused", worker, reason))

    async def until(self, *expected: tuple[Any, ...]) -> None:
        """Until these are the whole story, in this order."""
        for _ in range(500):
            if self.heard == list(expected):
                return
            await asyncio.sleep(0.01)
        assert self.heard == list(expected)


@asynccontextmanager
async def running(path: Path, *admitted: str) -> AsyncIterator[tuple[PluginServer, Recorder]]:
    recorder = Recorder()
    server = PluginServer(path, WELCOME, recorder, frozenset(map(WorkerId, admitted)))
    await server.start()
    try:
        yield server, recorder
    finally:
        await server.stop()


async def connect(path: Path, *frames: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_unix_connection(str(path))
    writer.write(b"".join(frames))
    return reader, writer


async def ends(reader: asyncio.StreamReader) -> bool:
    """Whether the server closes the connection."""
    with suppress(ConnectionError):
        await asyncio.wait_for(reader.read(), 5)
    return True


async def wait_for_end(recorder: Recorder) -> None:
    """Until the server has done with the last connection."""
    for _ in range(500):
        if recorder.heard[-1] == ("gone", "w0"):
            return
        await asyncio.sleep(0.01)
    assert recorder.heard[-1] == ("gone", "w0")
