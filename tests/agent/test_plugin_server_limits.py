"""The socket of the plug-ins: bad frames, and workers that say too much, too little or never read."""

import asyncio
from pathlib import Path

import pytest

from tests.agent.plugin_connections import (
    ACK,
    REJOIN,
    WELCOME,
    connect,
    ends,
    hello,
    running,
    statistics,
    wait_for_end,
)
from trimtab_agent import plugin_server as plugins
from trimtab_protocol.messages.local import decode_frame, encode_frame
from trimtab_protocol.messages.names import WorkerId


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
        (statistics("w0", apps=("flights", "other")), "out_of_range"),
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
    [(statistics("w0"), "out_of_range"), (b"GET / HTTP/1.1\r\n", "malformed")],
    ids=["statistics first", "not a plug-in"],
)
async def test_without_a_hello_the_connection_is_closed(path: Path, sent: bytes, reason: str) -> None:
    async with running(path) as (_, recorder):
        reader, writer = await connect(path, sent)
        assert await ends(reader)
        await recorder.until(("refused", None, reason))
        writer.close()


async def test_who_says_nothing_is_closed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "HELLO_LIMIT_S", 0.05)

    async with running(path) as (_, recorder):
        reader, writer = await connect(path)
        assert await ends(reader)
        await recorder.until(("refused", None, "no_hello"))
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
        for _ in range(500):
            if ("reported", "calm", 1) in recorder.heard and ("gone", "w0") in recorder.heard:
                break
            await asyncio.sleep(0.01)
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
            await wait_for_end(recorder)
        dropped = [entry for entry in recorder.heard if entry == ("refused", "w0", "malformed")]
        assert 101 <= len(dropped) < 110  # not 300: one more per connection, and one per second


async def test_half_lines_of_many_connections_are_bounded_together(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "MAX_HELD_BYTES", 500_000)

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


async def test_a_hello_is_short(path: Path) -> None:
    async with running(path) as (_, recorder):
        reader, writer = await connect(path, b" " * plugins.MAX_HELLO_BYTES + hello())
        assert await ends(reader)
        await recorder.until(("refused", None, "oversized"))
        writer.close()


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
