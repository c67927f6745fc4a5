"""The Unix socket that the engine plug-ins of this host connect to.

There is one connection per worker process: hello, welcome, then statistics and acks from the worker, and commands to
it.  docs/reference/engine-plugins.md describes the protocol.

A bad frame is counted and dropped.  A connection is closed if it sends too many bad frames, too much data, or an
endless line.  Reconnecting does not reset a worker's limits.  The memory for unfinished lines is bounded over all
connections together, so no worker can harm the others.
"""

import asyncio
import os
import socket
import stat
import struct
import time
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from trimtab_protocol.messages.commands import Ack, Command
from trimtab_protocol.messages.decode import BadMessage, Fault
from trimtab_protocol.messages.local import (
    MAX_FRAME_BYTES,
    Hello,
    Statistics,
    Welcome,
    decode_frame,
    encode_frame,
)
from trimtab_protocol.messages.names import WorkerId
from trimtab_protocol.messages.rate_limit import RateLimit, RateLimits
from trimtab_protocol.messages.report import MAX_CORES, MAX_COUNT

HELLO_LIMIT_S = 10.0
"""How long a new connection may take to send its hello."""
MAX_CONNECTIONS = 1_000
"""Largest number of connected plug-ins, and of new connections at once."""
ARRIVALS_PER_S = 50
"""Largest number of new connections per second."""
BYTES_PER_S = MAX_FRAME_BYTES // 4
"""How much one worker may send.  The worst frame of 8 MiB takes more than a second to parse, and no worker may keep the
agent busy.
"""
MAX_HELLO_BYTES = 1024 * 1024
"""Largest size of a hello."""
MAX_HELD_BYTES = 64 * 1024 * 1024
"""Largest size of unfinished lines on all connections together."""
READ_BYTES = 256 * 1024
MAX_UNSENT_BYTES = 4 * 1024 * 1024
"""Largest size of commands that a worker has not read; beyond it the connection is closed."""
CLOCK_LIMIT_MS = 60_000
"""How far statistics may be dated ahead of this host's clock."""


class SocketTakenError(OSError):
    """The socket's path cannot be used; the message says why."""


class Listener(Protocol):
    """Receives what the plug-ins send."""

    def worker_connected(self, hello: Hello, pid: int | None) -> None:
        """A worker has connected; `pid` comes from the kernel, None if the process is not visible to the agent."""

    def worker_reported(self, worker: WorkerId, statistics: Statistics) -> None:
        """A worker sent its measurements."""

    def worker_acked(self, worker: WorkerId, ack: Ack) -> None:
        """A worker answered a command.  Raises BadMessage if there is no such command."""

    def worker_gone(self, worker: WorkerId) -> None:
        """A worker's connection has ended."""

    def frame_refused(self, worker: WorkerId | None, reason: str, detail: str) -> None:
        """A frame was dropped."""


class _ClosedError(Exception):
    """A connection must be closed, for the given reason."""

    def __init__(self, reason: str, detail: str) -> None:
        self.reason = reason
        super().__init__(detail)


@dataclass(slots=True)
class _Held:
    """Bytes of unfinished lines, on all connections together."""

    total: int = 0

    def add(self, size: int) -> None:
        self.total += size
        if self.total > MAX_HELD_BYTES:
            raise _ClosedError("held", f"more than {MAX_HELD_BYTES} bytes of lines without an end on all connections")


class _Lines:
    """The lines of one connection."""

    def __init__(self, reader: asyncio.StreamReader, held: _Held) -> None:
        self._reader = reader
        self._held = held
        self._waiting = bytearray()

    async def next(self, limit: int) -> bytes:
        """The next line of at most `limit` bytes; empty at the end of the connection, even after a partial line."""
        searched = 0
        while (end := self._waiting.find(b"\n", searched)) < 0:
            searched = len(self._waiting)
            if searched > limit or not (read := await self._reader.read(READ_BYTES)):
                break
            self._waiting += read
            self._held.add(len(read))
        if max(end, searched) > limit:
            raise BadMessage(Fault.OVERSIZED, "", "an endless line", f"at most {limit} bytes")
        line = bytes(self._waiting[: end + 1])
        self._drop(len(line))
        return line

    def close(self) -> None:
        """Release the held bytes."""
        self._drop(len(self._waiting))

    def _drop(self, size: int) -> None:
        del self._waiting[:size]
        self._held.total -= size


class PluginServer:
    """Listens on the socket and keeps one connection per worker."""

    def __init__(self, path: Path, welcome: Welcome, listener: Listener, admitted: Container[WorkerId] = ()) -> None:
        """`admitted` = the workers of this host; empty: it is not said, and any name is admitted."""
        self._path = path
        self._admitted = admitted
        self._welcome = encode_frame(welcome)
        self._listener = listener
        self._server: asyncio.Server | None = None
        self._writers: dict[WorkerId, asyncio.StreamWriter] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._held = _Held()
        self._arrivals = RateLimit(rate=ARRIVALS_PER_S, burst=MAX_CONNECTIONS)
        # Limits are per worker, not per connection, so reconnecting does not reset them.
        self._frames = RateLimits(rate=200, burst=2_000, most=MAX_CONNECTIONS)
        self._volume = RateLimits(rate=BYTES_PER_S, burst=4 * MAX_FRAME_BYTES, most=MAX_CONNECTIONS)
        self._faults = RateLimits(rate=1, burst=100, most=MAX_CONNECTIONS)

    async def start(self) -> None:
        """Start to listen.  Raises SocketTakenError."""
        self._server = await asyncio.start_unix_server(self._serve, sock=bind_socket(self._path), limit=READ_BYTES)

    async def stop(self) -> None:
        """Close all connections and remove the socket."""
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._path.unlink(missing_ok=True)

    def tell(self, worker: WorkerId, command: Command) -> None:
        """Send a command.  Does nothing if the worker is away: the command is sent again when the worker is back."""
        writer = self._writers.get(worker)
        if writer is None:
            return
        writer.write(encode_frame(command))
        if writer.transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
            self._listener.frame_refused(worker, "unread", "the worker does not read its commands")
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        worker: WorkerId | None = None
        lines = _Lines(reader, self._held)
        try:
            if len(self._tasks) > MAX_CONNECTIONS or not self._arrivals.spend(time.monotonic()):
                raise _ClosedError("connections", f"more than {MAX_CONNECTIONS}, or {ARRIVALS_PER_S} more per second")
            async with asyncio.timeout(HELLO_LIMIT_S):
                line = await lines.next(MAX_HELLO_BYTES)
            if line:
                hello = _expect_hello(line)
                self._admit(hello, writer)
                worker = hello.worker
                self._listener.worker_connected(hello, _peer_pid(writer))
                await self._read_frames(worker, lines)
        except TimeoutError:
            self._listener.frame_refused(None, "no_hello", f"connection closed: no hello in {HELLO_LIMIT_S:g} s")
        except _ClosedError as exc:
            self._listener.frame_refused(worker, exc.reason, f"connection closed: {exc}")
        except BadMessage as exc:
            self._listener.frame_refused(worker, exc.fault, f"connection closed: {exc}")
        except (OSError, asyncio.CancelledError):
            pass  # the other side has disconnected, or the agent is stopping
        finally:
            self._tasks.discard(task)
            lines.close()
            writer.transport.abort()
            if worker is not None:
                del self._writers[worker]
                self._listener.worker_gone(worker)

    def _admit(self, hello: Hello, writer: asyncio.StreamWriter) -> None:
        if self._admitted and hello.worker not in self._admitted:
            raise _ClosedError("unknown_worker", f"{hello.worker} is not among the [workers] of agent.toml")
        if hello.worker in self._writers:
            raise _ClosedError("duplicate_worker", f"another process is connected as {hello.worker}")
        self._writers[hello.worker] = writer
        writer.write(self._welcome)

    async def _read_frames(self, worker: WorkerId, lines: _Lines) -> None:
        while line := await lines.next(MAX_FRAME_BYTES):
            now = time.monotonic()
            if not (self._frames.spend(worker, now) and self._volume.spend(worker, now, len(line))):
                raise _ClosedError("flood", "more frames or bytes per second than allowed")
            try:
                self._take(worker, line)
            except BadMessage as exc:
                self._listener.frame_refused(worker, exc.fault, str(exc))
                if not self._faults.spend(worker, now):
                    raise _ClosedError("flood", "too many bad frames") from exc

    def _take(self, worker: WorkerId, line: bytes) -> None:
        frame = decode_frame(line)
        match frame:
            case Statistics():
                check_statistics(worker, frame, time.time())
                self._listener.worker_reported(worker, frame)
            case Ack():
                self._listener.worker_acked(worker, frame)
            case _:
                raise BadMessage(Fault.RANGE, "frame", type(frame).__name__.lower(), "statistics or ack")


def _expect_hello(line: bytes) -> Hello:
    frame = decode_frame(line)
    if not isinstance(frame, Hello):
        raise BadMessage(Fault.RANGE, "frame", type(frame).__name__.lower(), "hello first")
    return frame


def check_statistics(worker: WorkerId, statistics: Statistics, now: float) -> None:
    """Raises BadMessage for impossible statistics.

    Refused are key groups of other workers or of several apps, duplicate key groups, times in the future, and more than
    any machine has.
    The stream refuses a report as a whole, so bad statistics of one worker would discard the other workers' samples.
    """
    ahead_ms = statistics.at_ms - now * 1000
    if ahead_ms > CLOCK_LIMIT_MS:
        raise BadMessage(Fault.FUTURE, "at_ms", statistics.at_ms, f"at most {CLOCK_LIMIT_MS} ms ahead")
    for sample in statistics.key_groups:
        if sample.worker != worker:
            raise BadMessage(Fault.RANGE, "key_groups", sample.worker, f"key groups of {worker}")
    ends = (end for pair in statistics.pairs for end in (pair.source, pair.target))
    apps = {each.app for each in (*(sample.key_group for sample in statistics.key_groups), *ends)}
    if len(apps) > 1:
        raise BadMessage(Fault.RANGE, "key_groups", f"those of {len(apps)} apps", "those of one app")
    if len({sample.key_group for sample in statistics.key_groups}) != len(statistics.key_groups):
        raise BadMessage(Fault.RANGE, "key_groups", "a key group twice", "each key group once")
    _check_amounts(statistics)


def _check_amounts(statistics: Statistics) -> None:
    most_s = MAX_CORES * statistics.interval_s
    for cpu_s in (statistics.cpu_s, *(sample.cpu_s for sample in statistics.key_groups)):
        if cpu_s is not None and cpu_s > most_s:
            raise BadMessage(Fault.RANGE, "cpu_s", cpu_s, f"at most {most_s:g} in {statistics.interval_s:g} s")
    counts: list[int | None] = [count for pair in statistics.pairs for count in (pair.tuples, pair.bytes)]
    for sample in statistics.key_groups:
        counts += (sample.tuples_in, sample.tuples_out, sample.bytes_in, sample.bytes_out, sample.state_bytes)
        counts += (sample.lag_records, sample.backlog)
    for pair in statistics.pairs:
        if pair.direct is not None and pair.direct > pair.tuples:
            raise BadMessage(Fault.RANGE, "pairs", f"{pair.direct} direct tuples", f"at most all {pair.tuples}")
    largest = max((count for count in counts if count is not None), default=0)
    if largest > MAX_COUNT:
        raise BadMessage(Fault.RANGE, "key_groups", largest, f"counts of at most {MAX_COUNT}")


def bind_socket(path: Path) -> socket.socket:
    """A socket at `path` that only this user may use.  Replaces the socket of an agent that died."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    _remove_stale(path)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    os.fchmod(server.fileno(), 0o600)  # before the bind: Linux gives this mode to the path, so it is never wider
    try:
        server.bind(str(path))
    except OSError as exc:
        server.close()
        raise SocketTakenError(f"{path}: {exc.strerror}") from exc
    return server


def _remove_stale(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise SocketTakenError(f"{path}: found a file that is not a socket, expected nothing or an old socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
    raise SocketTakenError(f"{path}: another agent listens there")


def _peer_pid(writer: asyncio.StreamWriter) -> int | None:
    """The pid at the other end, from the kernel, so it cannot be forged; None if the process is not visible."""
    credentials = writer.get_extra_info("socket").getsockopt(
        socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")
    )
    pid: int = struct.unpack("3i", credentials)[0]
    return pid or None
