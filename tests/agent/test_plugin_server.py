"""The socket of the plug-ins: what workers are told, what lies in the socket's place, and what is refused."""

import asyncio
import os
import socket
import stat
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from tests.fuzz.fuzzed.samples import APP, HELLO, PREPARE, STATISTICS, SUMS, W0, WELCOME
from trimtab_agent import plugin_server as plugins
from trimtab_agent.plugin_server import PluginServer, SocketTakenError
from trimtab_protocol.messages.commands import Ack, CommandKind, Phase
from trimtab_protocol.messages.decode import BadMessage, Fault
from trimtab_protocol.messages.local import Hello, Statistics, decode_frame, encode_frame
from trimtab_protocol.messages.names import AppId, KeyGroup, WorkerId
from trimtab_protocol.messages.report import KeyGroupSample

REJOIN = replace(
    PREPARE, kind=CommandKind.REJOIN, worker=W0, handover=None, key_groups=(), source=None, target=None
)  # fmt: skip
ACK = Ack.to(REJOIN, Phase.REJOINED, at=1.5)


def hello(worker: str = "w0", versions: Mapping[str, str] | None = None) -> bytes:
    return encode_frame(replace(HELLO, worker=WorkerId(worker), versions=versions or {}))


def statistics(*owners: str, partition: int = 0, at_ms: int = 1000, apps: Sequence[str] = (APP,)) -> bytes:
    samples = [
        KeyGroupSample(
            key_group=KeyGroup(AppId(app), SUMS, partition), worker=WorkerId(owner), cpu_s=0.1, tuples_in=1
        )
        for app in apps for owner in owners
    ]  # fmt: skip
    return encode_frame(replace(STATISTICS, at_ms=at_ms, key_groups=tuple(samples), pairs=(), refused={}))


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
        await self.wait_for(lambda: self.heard == list(expected))
        assert self.heard == list(expected)

    async def wait_for(self, condition: Callable[[], bool]) -> None:
        """Until it is true, or too long has passed: then the test says what is wrong."""
        for _ in range(500):
            if condition():
                return
            await asyncio.sleep(0.01)


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


# --- workers that behave, and what lies in the socket's place


async def test_a_worker_from_hello_to_its_end(path: Path) -> None:
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


async def test_only_this_user_may_connect_and_nothing_is_left_behind(path: Path) -> None:
    async with running(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not path.exists()


async def test_the_second_of_a_name_is_refused_and_the_first_stays(path: Path) -> None:
    async with running(path) as (_, recorder):
        _, first = await connect(path, hello())
        await recorder.until(("connected", "w0"))
        reader, second = await connect(path, hello())
        assert await ends(reader)
        first.write(statistics("w0"))
        await recorder.until(("connected", "w0"), ("refused", None, "duplicate_worker"), ("reported", "w0", 1))
        first.close()
        second.close()


async def test_a_worker_whom_a_fault_of_ours_turned_away_may_come_back(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(path) as (_, recorder):
        with monkeypatch.context() as patched:
            patched.setattr(recorder, "worker_connected", Mock(side_effect=OSError(24, os.strerror(24))))
            turned_away, _writer = await connect(path, hello())
            assert await ends(turned_away)
        again, _writer = await connect(path, hello())
        assert decode_frame(await again.readline()) == WELCOME
        await recorder.until(("gone", "w0"), ("connected", "w0"))


async def test_what_a_dead_agent_left_is_removed_and_a_live_one_is_respected(path: Path) -> None:
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(path))
    left.close()

    async with running(path):
        with pytest.raises(SocketTakenError, match="another agent listens there"):
            await PluginServer(path, WELCOME, Recorder()).start()
        _, writer = await connect(path, hello())
        writer.close()


def test_a_file_in_the_way_is_not_removed(tmp_path: Path) -> None:
    (tmp_path / "a.sock").write_text("precious")

    with pytest.raises(SocketTakenError, match="not a socket"):
        plugins.bind_socket(tmp_path / "a.sock")

    assert (tmp_path / "a.sock").read_text() == "precious"


async def test_a_line_in_many_small_parts_is_one_line(path: Path) -> None:
    async with running(path) as (_, recorder):
        _, writer = await connect(path)
        for byte in hello() + statistics("w0") + statistics("w0")[:10]:
            writer.write(bytes((byte,)))
            await writer.drain()
        writer.write(statistics("w0")[10:])
        await recorder.until(("connected", "w0"), ("reported", "w0", 1), ("reported", "w0", 1))
        writer.close()


# --- bad frames, and workers that say too much, too little or never read


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
        (statistics("w0", apps=("a", "other")), "out_of_range"),
        (statistics("w0").replace(b'"cpu":0.1', b'"cpu":NaN'), "out_of_range"),
        (statistics("w0").replace(b'"cpu":0.1', b'"cpu":-1'), "out_of_range"),
        (statistics("w0").replace(b'"cpu":0.1', b'"cpu":10001'), "out_of_range"),
        (statistics("w0").replace(b'"ni":1', b'"ni":9007199254740993'), "out_of_range"),
        (statistics("w0").replace(b'"ni":1', b'"ni":1.5'), "wrong_type"),
        (statistics("w0", at_ms=10**14), "future_dated"),
        (encode_frame(ACK).replace(b'"w0"', b'"w9"'), "out_of_range"),
    ],
)
async def test_a_bad_frame_is_counted_and_dropped_and_the_next_one_counts(path: Path, line: bytes, reason: str) -> None:
    async with running(path) as (_, recorder):
        _, writer = await connect(path, hello(), line, statistics("w0"))
        await recorder.until(("connected", "w0"), ("refused", "w0", reason), ("reported", "w0", 1))
        writer.close()


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (statistics("w0"), "out_of_range"),
        (b"GET / HTTP/1.1\r\n", "malformed"),
        (b" " * plugins.MAX_HELLO_BYTES + hello(), "oversized"),
        (b"", "no_hello"),
    ],
    ids=["statistics first", "not a plug-in", "a long hello", "nothing"],
)
async def test_without_a_hello_the_connection_is_closed(
    path: Path, sent: bytes, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not sent:
        monkeypatch.setattr(plugins, "HELLO_LIMIT_S", 0.05)
    async with running(path) as (_, recorder):
        reader, writer = await connect(path, sent)
        assert await ends(reader)
        await recorder.until(("refused", None, reason))
        writer.close()


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (statistics("w0") * 3000, "flood"),
        (b"x\n" * 200, "flood"),
        (b"x" * (plugins.MAX_FRAME_BYTES + 2), "oversized"),  # type: ignore[attr-defined]
    ],
    ids=["too many frames", "too many bad frames", "an endless line"],
)
async def test_a_worker_that_floods_is_closed_and_the_others_do_not_notice(
    path: Path, sent: bytes, reason: str
) -> None:
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
        await recorder.wait_for(lambda: {("reported", "calm", 1), ("gone", "w0")} <= set(recorder.heard))
        assert recorder.heard[-3:] == [
            ("refused", "w0", reason), ("gone", "w0"), ("reported", "calm", 1),
        ]  # fmt: skip
        calm.close()
        writer.close()


async def test_a_worker_that_does_not_read_is_closed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "MAX_UNSENT_BYTES", 50_000)

    async with running(path) as (server, recorder):
        _, writer = await connect(path, hello())
        await recorder.until(("connected", "w0"))
        for _ in range(5000):
            server.tell(WorkerId("w0"), REJOIN)
            if len(recorder.heard) > 1:
                break
        await recorder.until(("connected", "w0"), ("refused", "w0", "unread"), ("gone", "w0"))
        writer.close()


async def test_a_worker_that_flooded_and_comes_back_goes_on_where_it_was(path: Path) -> None:
    async with running(path) as (_, recorder):
        for _ in range(3):
            reader, writer = await connect(path, hello(), b"x\n" * 200)
            assert await ends(reader)
            writer.close()
            await recorder.wait_for(lambda: recorder.heard[-1] == ("gone", "w0"))
            assert recorder.heard[-1] == ("gone", "w0")
        dropped = [entry for entry in recorder.heard if entry == ("refused", "w0", "malformed")]
        assert 101 <= len(dropped) < 110  # not 300: one more per connection, and one per second


async def test_half_lines_of_many_connections_are_bounded_together(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "MAX_HELD_BYTES", 500_000)

    async with running(path) as (server, recorder):
        _, calm = await connect(path, hello("calm"))
        await recorder.until(("connected", "calm"))
        halves = [await connect(path, b"x" * 200_000) for _ in range(5)]
        await recorder.wait_for(lambda: recorder.heard.count(("refused", None, "held")) == 3)
        assert recorder.heard.count(("refused", None, "held")) == 3
        assert server._held.total <= 500_000
        for _, writer in halves:
            writer.close()
        calm.write(statistics("calm"))
        await recorder.wait_for(lambda: recorder.heard[-1] == ("reported", "calm", 1) and not server._held.total)
        assert (recorder.heard[-1], server._held.total) == (("reported", "calm", 1), 0)
        calm.close()


async def test_who_only_connects_and_leaves_is_not_served_for_ever(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "MAX_CONNECTIONS", 5)
    monkeypatch.setattr(plugins, "ARRIVALS_PER_S", 0)

    async with running(path) as (_, recorder):
        for _ in range(7):
            reader, writer = await connect(path, b"x\n")
            assert await ends(reader)
            writer.close()
        reasons = [entry[2] for entry in recorder.heard]
        assert reasons == ["malformed"] * 5 + ["connections"] * 2


async def test_where_the_workers_of_a_host_are_configured_no_other_name_is_admitted(path: Path) -> None:
    async with running(path, "w7") as (_, recorder):
        reader, writer = await connect(path, hello())
        assert await ends(reader)
        writer.close()
        assert recorder.heard == [("refused", None, "unknown_worker")]
