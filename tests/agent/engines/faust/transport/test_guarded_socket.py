"""What a connection sends after the fence has closed: real sockets, with and without TLS."""

import asyncio
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.e2e.security.certificates import make_certificates
from trimtab_agent.engines.faust.transport.client import reset_connections
from trimtab_agent.engines.faust.transport.producer import guard

LARGE = 32 << 20
"""Bytes: more than the socket buffers of both ends take."""


class Contexts:
    """TLS of both ends, or none."""

    def __init__(self, tls: bool, folder: Path) -> None:
        self.server: ssl.SSLContext | None = None
        self.client: ssl.SSLContext | None = None
        if tls:
            authority, identity = make_certificates(folder / "tls")
            self.server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            self.server.load_cert_chain(identity)
            self.client = ssl.create_default_context(cafile=str(authority))


@pytest.fixture(params=[False, True], ids=["plain", "TLS"])
def contexts(request: pytest.FixtureRequest, tmp_path: Path) -> Contexts:
    return Contexts(request.param, tmp_path)


@contextmanager
def guarded(writer: asyncio.StreamWriter) -> Iterator[Callable[[], None]]:
    """Guards a connection; yields what closes the fence."""
    shut: list[bool] = []
    connection: Any = SimpleNamespace(_writer=writer)
    for _ in range(2):  # a connection is looked at before each request
        guard(connection, lambda: bool(shut))
    yield lambda: shut.append(True)
    writer.close()


async def received(contexts: Contexts, send: Callable[[asyncio.StreamWriter, asyncio.Event], Any]) -> int:
    """How many bytes arrive at a server that begins to read when it is told to."""
    read, count = asyncio.Event(), asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        total = 0
        await read.wait()
        try:
            while data := await reader.read(1 << 20):
                total += len(data)
        except OSError:  # TLS: the other end went without a word
            pass
        count.set_result(total)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=contexts.server)
    async with server:
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname(), ssl=contexts.client)
        await send(writer, read)
        read.set()
        return int(await asyncio.wait_for(count, 60))


def test_everything_is_sent_while_the_fence_is_open(contexts: Contexts) -> None:
    async def send(writer: asyncio.StreamWriter, read: asyncio.Event) -> None:
        with guarded(writer):
            writer.write(bytes(LARGE))
            read.set()
            await writer.drain()

    assert asyncio.run(received(contexts, send)) == LARGE


def test_nothing_is_sent_after_it_has_closed(contexts: Contexts) -> None:
    async def send(writer: asyncio.StreamWriter, _: asyncio.Event) -> None:
        with guarded(writer) as close:
            close()
            writer.write(b"a request")
            await asyncio.sleep(0)
            assert writer.transport.is_closing()

    assert asyncio.run(received(contexts, send)) == 0


def test_a_request_that_waits_half_sent_is_not_completed_after_it_has_closed(contexts: Contexts) -> None:
    async def send(writer: asyncio.StreamWriter, read: asyncio.Event) -> None:
        with guarded(writer) as close:
            writer.write(bytes(LARGE))  # what the buffers do not take waits in the process
            close()
            read.set()
            await asyncio.sleep(0.2)

    assert 0 < asyncio.run(received(contexts, send)) < LARGE


def test_what_the_kernel_still_has_of_a_connection_that_is_reset_never_arrives(contexts: Contexts) -> None:
    """A worker that has left its group is back later than its packets would be: they would follow what others wrote."""

    def sending(*, reset: bool) -> Callable[[asyncio.StreamWriter, asyncio.Event], Any]:
        async def send(writer: asyncio.StreamWriter, read: asyncio.Event) -> None:
            with guarded(writer) as close:
                writer.write(bytes(LARGE))
                await asyncio.sleep(0)
                close()
                if reset:
                    connections = {1: SimpleNamespace(_writer=writer, close=writer.close)}
                    reset_connections(SimpleNamespace(_conns=connections))
                read.set()
                await asyncio.sleep(0.2)

        return send

    assert asyncio.run(received(contexts, sending(reset=True))) < asyncio.run(received(contexts, sending(reset=False)))


def test_a_connection_that_is_not_there_or_has_no_socket_of_python_is_left_alone() -> None:
    guard(SimpleNamespace(_writer=None), lambda: True)  # type: ignore[arg-type]
    guard(SimpleNamespace(_writer=SimpleNamespace(transport=object())), lambda: True)  # type: ignore[arg-type]
