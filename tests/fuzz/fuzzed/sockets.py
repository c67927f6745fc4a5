"""Where bytes come as a stream: both sides of the local socket, and the port of the metrics."""

import asyncio
import socket
import struct
from collections.abc import Callable
from functools import cache
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from prometheus_client import CollectorRegistry, Gauge

from tests.fuzz.fuzzed.decoder import Decoder, Form, Refused
from tests.fuzz.fuzzed.samples import APP, HELLO, PREPARE, RELEASE, STATISTICS, TOOK, W1, WELCOME
from trimtab_agent.engines.faust.agent_link import AgentConnection
from trimtab_agent.plugin_server import PluginServer
from trimtab_process.metrics_port import MetricsServer
from trimtab_protocol.messages.decode import BadMessage
from trimtab_protocol.messages.local import Hello, encode_frame
from trimtab_protocol.settings.listen import Listen


class Writer:
    """As much of asyncio's as is used; what is written is gone."""

    def __init__(self) -> None:
        self.transport = self

    def write(self, data: bytes) -> None:
        pass

    async def drain(self) -> None:
        pass

    def close(self) -> None:
        pass

    async def wait_closed(self) -> None:
        pass

    def abort(self) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, _: str) -> Any:
        return SimpleNamespace(getsockopt=lambda *_: struct.pack("3i", 7, 0, 0), fileno=lambda: -1)


@cache
def loop() -> asyncio.AbstractEventLoop:
    """One for all records of a process; what nobody handled is a fault."""
    found = asyncio.new_event_loop()
    found.set_exception_handler(_fail)
    return found


def _fail(_: Any, context: dict[str, Any]) -> None:
    raise AssertionError(context)


def stream(data: bytes, limit: int) -> asyncio.StreamReader:
    """A connection that has sent this, and ended."""
    reader = asyncio.StreamReader(limit=limit, loop=loop())
    reader.feed_data(data)
    reader.feed_eof()
    return reader


# ---- the agent's side


class Heard:
    """The agent, as far as the socket tells it anything."""

    def __init__(self) -> None:
        self.refused: list[str] = []
        self.workers: list[Any] = []
        self.heard = 0

    def worker_connected(self, hello: Hello, pid: int | None) -> None:
        self.workers.append(hello.worker)

    def worker_gone(self, worker: Any) -> None:
        self.workers.remove(worker)

    def worker_reported(self, worker: Any, statistics: Any) -> None:
        self.heard += 1

    def worker_acked(self, worker: Any, ack: Any) -> None:
        self.heard += 1

    def frame_refused(self, worker: Any, reason: str, detail: str) -> None:
        self.refused.append(str(reason))


HELLO_LINE = encode_frame(HELLO)


def serve(data: bytes) -> None:
    """A connection of a plug-in, which says hello if the record does not: it leaves nothing behind."""
    heard = Heard()
    server = PluginServer(Path("never-bound"), WELCOME, heard)
    says_hello = b'"hello"' in data[:40]
    reader = stream(data if says_hello else HELLO_LINE + data, 2**20)
    loop().run_until_complete(server._serve(reader, Writer()))  # type: ignore[arg-type]
    assert (heard.workers, server._held.total, server._tasks, server._writers) == ([], 0, set(), {})
    if heard.refused:
        raise Refused(heard.refused[0])
    if not heard.heard:
        raise Refused("ended early")


# ---- the worker's side


class Told(AgentConnection):
    """What it counts is kept with its exception."""

    def _note(self, reason: str, exc: Exception) -> None:
        self.faults[reason] += 1
        self.last = exc


def listen(data: bytes) -> None:
    """What an agent sends a worker: a welcome and commands, until it hangs up."""
    steering = SimpleNamespace(refusal=None, waits_for=None, operators=dict, execute=_nothing)
    collector = SimpleNamespace(skip=lambda: None)
    link = Told(app=APP, worker=W1, socket=Path("s"), executor=steering, status=steering, collector=collector)  # type: ignore[arg-type]
    loop().run_until_complete(link._serve(stream(data, 2**20), Writer()))  # type: ignore[arg-type]
    assert sum(link.faults.values()) > 0, "the end of the connection was not seen"
    assert not link.faults["fault of the link"], repr(link.last)
    reasons = [reason.removeprefix("bad frame from the agent: ") for reason in link.faults]
    if len(reasons) > 1 or not isinstance(link.last, EOFError):
        raise Refused(str(link.last.fault) if isinstance(link.last, BadMessage) else reasons[0])
    if not data.endswith(b"\n"):
        raise Refused("cut")


async def _nothing(*_: Any) -> None:
    pass


# ---- the metrics


def scraped() -> Callable[[bytes], None]:
    """What is sent to the port of the metrics; now and then somebody else asks, and must be answered."""
    registry, numbers = CollectorRegistry(), count()
    Gauge("answer", "All there is.", registry=registry).set(42)
    server = MetricsServer(Listen(address="127.0.0.1", port=0), registry, {"cluster": "c"})
    server.server_close()  # requests are handed to it here

    def ask(request: bytes) -> bytes:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.sendall(request[:MOST_UNREAD])
            ours.shutdown(socket.SHUT_WR)
            server.finish_request(theirs, ("127.0.0.1", 9))
            theirs.shutdown(socket.SHUT_WR)
            return ours.recv(100_000)

    def decode(data: bytes) -> None:
        answer = ask(data)
        if next(numbers) % 1_000 == 0:
            assert b'answer{cluster="c"} 42.0' in ask(SCRAPE)
        if not answer.startswith(b"HTTP/1.0 200 "):
            raise Refused(answer[9:12].decode("latin-1") if answer.startswith(b"HTTP/") else "hung up")

    return decode


MOST_UNREAD = 100_000
"""So much fits into a socket that nobody reads yet."""
SCRAPE = b"GET /metrics HTTP/1.1\r\nHost: h0\r\nAccept: text/plain\r\n\r\n"

DECODERS = (
    Decoder(
        name="agent: socket", refusals=(Refused,), decode=serve,
        samples=(
            HELLO_LINE + encode_frame(STATISTICS) + encode_frame(TOOK),
            encode_frame(STATISTICS) + encode_frame(STATISTICS),
            encode_frame(TOOK),
        ),
    ),
    Decoder(
        name="worker: agent's lines", refusals=(Refused,), decode=listen,
        samples=(encode_frame(WELCOME) + encode_frame(PREPARE) + encode_frame(RELEASE), encode_frame(WELCOME)),
    ),
    Decoder(
        name="metrics port", form=Form.OTHER, refusals=(Refused,), decode=scraped(),
        samples=(SCRAPE, b"GET /metrics?name[]=answer HTTP/1.1\r\nAccept-Encoding: gzip\r\n\r\n"),
    ),
)  # fmt: skip
