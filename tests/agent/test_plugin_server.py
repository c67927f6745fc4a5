"""The socket of the plug-ins: what well-behaved workers are told, and what lies in the socket's place."""

import os
import socket
import stat
from pathlib import Path
from unittest.mock import Mock

import pytest

from tests.agent.plugin_connections import (
    ACK,
    REJOIN,
    WELCOME,
    Recorder,
    connect,
    ends,
    hello,
    running,
    statistics,
)
from trimtab_agent import plugin_server as plugins
from trimtab_agent.plugin_server import PluginServer, SocketTakenError
from trimtab_protocol.messages.commands import Phase
from trimtab_protocol.messages.local import decode_frame, encode_frame
from trimtab_protocol.messages.names import WorkerId


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
