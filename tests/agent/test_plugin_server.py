"""The socket of the plug-ins: a real Unix socket, well-behaved workers and others."""

import asyncio
import os
import socket
import stat
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from trimtab_agent import plugin_server as plugins
from trimtab_agent.plugin_server import PluginServer, SocketTakenError
from trimtab_protocol.messages.commands import Ack, Command, CommandKind, Phase
from trimtab_protocol.messages.decode import BadMessage, Fault
from trimtab_protocol.messages.local import Hello, Statistics, Welcome, decode_frame, encode_frame
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


def statistics(*owners: str, partition: int = 0, at_ms: int = 1000) -> bytes:
    samples = [
        KeyGroupSample(
            key_group=KeyGroup(AppId("flights"), OperatorId("sums"), partition), worker=WorkerId(owner),
            cpu_s=0.1, tuples_in=1,
        )
        for owner in owners
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
async def running(path: Path) -> AsyncIterator[tuple[PluginServer, Recorder]]:
    recorder = Recorder()
    server = PluginServer(path, WELCOME, recorder)
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


def run(test: Callable[[Path], Awaitable[None]], folder: Path) -> None:
    async def limited() -> None:
        await asyncio.wait_for(test(folder / "a.sock"), 20)

    asyncio.run(limited())


@pytest.mark.parametrize(
    ("versions", "protocol"), [({}, None), ({"trimtab-protocol": "1"}, None), ({"trimtab-protocol": "2"}, 2)]
)
def test_only_who_speaks_a_protocol_is_told_the_agents(
    tmp_path: Path, versions: dict[str, str], protocol: int | None
) -> None:
    async def story(path: Path) -> None:
        async with running(path):
            reader, writer = await connect(path, hello(versions=versions))
            assert decode_frame(await reader.readline()) == replace(WELCOME, protocol=protocol)
            writer.close()

    run(story, tmp_path)


def test_a_worker_from_hello_to_its_end(tmp_path: Path) -> None:
    async def story(path: Path) -> None:
        async with running(path) as (server, recorder):
            reader, writer = await connect(path, hello(), statistics("w0"), encode_frame(ACK))
            assert decode_frame(await reader.readline()) == WELCOME
            await recorder.until(("connected", "w0"), ("reported", "w0", 1), ("acked", "w0", Phase.REJOINED))
            assert recorder.pids == [os.getpid()]  # the kernel's word, not the hello's
            server.tell(WorkerId("w0"), REJOIN)
            server.tell(WorkerId("w7"), REJOIN)
            assert decode_frame(await reader.readline()) == REJOIN
            writer.close()
            await recorder.until(
                ("connected", "w0"), ("reported", "w0", 1), ("acked", "w0", Phase.REJOINED), ("gone", "w0")
            )

    run(story, tmp_path)


def test_only_this_user_may_connect_and_nothing_is_left_behind(tmp_path: Path) -> None:
    async def story(path: Path) -> None:
        async with running(path):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert not path.exists()

    run(story, tmp_path)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{]\n", "malformed"),
        (b"\n", "malformed"),
        (b'{"v":2,"frame":"ack"}\n', "wrong_version"),
        (b'{"v":1,"frame":"shout"}\n', "out_of_range"),
        (hello(), "out_of_range"),
        (statistics("w8"), "out_of_range"),
        (statistics("w0", "w0"), "out_of_range"),
        (statistics("w0").replace(b'"cpu":0.1', b'"cpu":NaN'), "out_of_range"),
        (statistics("w0").replace(b'"cpu":0.1', b'"cpu":-1'), "out_of_range"),
        (statistics("w0").replace(b'"cpu":0.1', b'"cpu":10001'), "out_of_range"),
        (statistics("w0").replace(b'"ni":1', b'"ni":9007199254740993'), "out_of_range"),
        (statistics("w0").replace(b'"ni":1', b'"ni":1.5'), "wrong_type"),
        (statistics("w0", at_ms=10**14), "future_dated"),
        (encode_frame(ACK).replace(b'"w0"', b'"w9"'), "out_of_range"),
    ],
)
def test_a_bad_frame_is_counted_and_dropped_and_the_next_one_counts(tmp_path: Path, line: bytes, reason: str) -> None:
    async def story(path: Path) -> None:
        async with running(path) as (_, recorder):
            _, writer = await connect(path, hello(), line, statistics("w0"))
            await recorder.until(("connected", "w0"), ("refused", "w0", reason), ("reported", "w0", 1))
            writer.close()

    run(story, tmp_path)


@pytest.mark.parametrize(
    ("sent", "reason"),
    [(statistics("w0"), "out_of_range"), (b"GET / HTTP/1.1\r\n", "malformed")],
    ids=["statistics first", "not a plug-in"],
)
def test_without_a_hello_the_connection_is_closed(tmp_path: Path, sent: bytes, reason: str) -> None:
    async def story(path: Path) -> None:
        async with running(path) as (_, recorder):
            reader, writer = await connect(path, sent)
            assert await ends(reader)
            await recorder.until(("refused", None, reason))
            writer.close()

    run(story, tmp_path)


def test_who_says_nothing_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "HELLO_LIMIT_S", 0.05)

    async def story(path: Path) -> None:
        async with running(path) as (_, recorder):
            reader, writer = await connect(path)
            assert await ends(reader)
            await recorder.until(("refused", None, "no_hello"))
            writer.close()

    run(story, tmp_path)


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (statistics("w0") * 3000, "flood"),
        (b"x\n" * 200, "flood"),
        (b"x" * (plugins.MAX_FRAME_BYTES + 2), "oversized"),  # type: ignore[attr-defined]
    ],
    ids=["too many frames", "too many bad frames", "an endless line"],
)
def test_a_worker_that_floods_is_closed_and_the_others_do_not_notice(tmp_path: Path, sent: bytes, reason: str) -> None:
    async def story(path: Path) -> None:
        async with running(path) as (_, recorder):
            calm_reader, calm = await connect(path, hello("calm"))
            assert decode_frame(await calm_reader.readline()) == WELCOME
            reader, writer = await connect(path, hello("w0"))
            await reader.readline()
            for start in range(0, len(sent), 65536):
                writer.write(sent[start : start + 65536])
                try:
                    await writer.drain()
                except ConnectionError:
                    break
            assert await ends(reader)
            calm.write(statistics("calm"))
            for _ in range(500):
                if ("reported", "calm", 1) in recorder.heard and ("gone", "w0") in recorder.heard:
                    break
                await asyncio.sleep(0.01)
            assert recorder.heard[-3:] == [
                ("refused", "w0", reason), ("gone", "w0"), ("reported", "calm", 1),
            ]  # fmt: skip
            calm.close()
            writer.close()

    run(story, tmp_path)


def test_the_second_of_a_name_is_refused_and_the_first_stays(tmp_path: Path) -> None:
    async def story(path: Path) -> None:
        async with running(path) as (_, recorder):
            _, first = await connect(path, hello())
            await recorder.until(("connected", "w0"))
            reader, second = await connect(path, hello())
            assert await ends(reader)
            first.write(statistics("w0"))
            await recorder.until(("connected", "w0"), ("refused", None, "duplicate_worker"), ("reported", "w0", 1))
            first.close()
            second.close()

    run(story, tmp_path)


def test_a_worker_whom_a_fault_of_ours_turned_away_may_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(path: Path) -> None:
        async with running(path) as (_, recorder):
            with monkeypatch.context() as patched:
                patched.setattr(recorder, "worker_connected", Mock(side_effect=OSError(24, os.strerror(24))))
                turned_away, _writer = await connect(path, hello())
                assert await ends(turned_away)
            again, _writer = await connect(path, hello())
            assert decode_frame(await again.readline()) == WELCOME
            await recorder.until(("gone", "w0"), ("connected", "w0"))

    run(story, tmp_path)


def test_a_worker_that_does_not_read_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "MAX_UNSENT_BYTES", 50_000)

    async def story(path: Path) -> None:
        async with running(path) as (server, recorder):
            _, writer = await connect(path, hello())
            await recorder.until(("connected", "w0"))
            for _ in range(5000):
                server.tell(WorkerId("w0"), REJOIN)
                if len(recorder.heard) > 1:
                    break
            await recorder.until(("connected", "w0"), ("refused", "w0", "unread"), ("gone", "w0"))
            writer.close()

    run(story, tmp_path)


def test_what_a_dead_agent_left_is_removed_and_a_live_one_is_respected(tmp_path: Path) -> None:
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(tmp_path / "a.sock"))
    left.close()

    async def story(path: Path) -> None:
        async with running(path):
            with pytest.raises(SocketTakenError, match="another agent listens there"):
                await PluginServer(path, WELCOME, Recorder()).start()
            _, writer = await connect(path, hello())
            writer.close()

    run(story, tmp_path)


def test_a_file_in_the_way_is_not_removed(tmp_path: Path) -> None:
    (tmp_path / "a.sock").write_text("precious")

    with pytest.raises(SocketTakenError, match="not a socket"):
        plugins.bind_socket(tmp_path / "a.sock")

    assert (tmp_path / "a.sock").read_text() == "precious"


def test_a_worker_that_flooded_and_comes_back_goes_on_where_it_was(tmp_path: Path) -> None:
    async def story(path: Path) -> None:
        async with running(path) as (_, recorder):
            for _ in range(3):
                reader, writer = await connect(path, hello(), b"x\n" * 200)
                assert await ends(reader)
                writer.close()
                await wait_for_end(recorder)
            dropped = [entry for entry in recorder.heard if entry == ("refused", "w0", "malformed")]
            assert 101 <= len(dropped) < 110  # not 300: one more per connection, and one per second

    run(story, tmp_path)


def test_half_lines_of_many_connections_are_bounded_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "MAX_HELD_BYTES", 500_000)

    async def story(path: Path) -> None:
        async with running(path) as (server, recorder):
            _, calm = await connect(path, hello("calm"))
            await recorder.until(("connected", "calm"))
            halves = [await connect(path, b"x" * 200_000) for _ in range(5)]
            for _ in range(500):
                if recorder.heard.count(("refused", None, "held")) == 3:
                    break
                await asyncio.sleep(0.01)
            assert recorder.heard.count(("refused", None, "held")) == 3
            assert server._held.total <= 500_000
            for _, writer in halves:
                writer.close()
            calm.write(statistics("calm"))
            for _ in range(500):
                if recorder.heard[-1] == ("reported", "calm", 1) and not server._held.total:
                    break
                await asyncio.sleep(0.01)
            assert (recorder.heard[-1], server._held.total) == (("reported", "calm", 1), 0)
            calm.close()

    run(story, tmp_path)


def test_a_line_in_many_small_parts_is_one_line(tmp_path: Path) -> None:
    async def story(path: Path) -> None:
        async with running(path) as (_, recorder):
            _, writer = await connect(path)
            for byte in hello() + statistics("w0") + statistics("w0")[:10]:
                writer.write(bytes((byte,)))
                await writer.drain()
            writer.write(statistics("w0")[10:])
            await recorder.until(("connected", "w0"), ("reported", "w0", 1), ("reported", "w0", 1))
            writer.close()

    run(story, tmp_path)


def test_a_hello_is_short(tmp_path: Path) -> None:
    async def story(path: Path) -> None:
        async with running(path) as (_, recorder):
            reader, writer = await connect(path, b" " * plugins.MAX_HELLO_BYTES + hello())
            assert await ends(reader)
            await recorder.until(("refused", None, "oversized"))
            writer.close()

    run(story, tmp_path)


def test_who_only_connects_and_leaves_is_not_served_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "MAX_CONNECTIONS", 5)
    monkeypatch.setattr(plugins, "ARRIVALS_PER_S", 0)

    async def story(path: Path) -> None:
        async with running(path) as (_, recorder):
            for _ in range(7):
                reader, writer = await connect(path, b"x\n")
                assert await ends(reader)
                writer.close()
            reasons = [entry[2] for entry in recorder.heard]
            assert reasons == ["malformed"] * 5 + ["connections"] * 2

    run(story, tmp_path)


async def wait_for_end(recorder: Recorder) -> None:
    """Until the server has done with the last connection."""
    for _ in range(500):
        if recorder.heard[-1] == ("gone", "w0"):
            return
        await asyncio.sleep(0.01)
    assert recorder.heard[-1] == ("gone", "w0")
