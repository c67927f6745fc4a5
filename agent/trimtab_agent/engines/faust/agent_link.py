"""The worker's connection to the agent of its host: sends statistics and acks, receives commands.

It runs on the app's event loop and never blocks the app.  Without an agent the worker keeps the last placement, and the
link retries until the app stops.  The number of waiting acks is bounded.  A bad frame from the agent is counted, logged
once per reason, and ignored.
"""

import asyncio
import contextlib
import os
import platform
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from mode import Service, get_logger

from trimtab_agent.engines.faust.collect import Collector
from trimtab_agent.engines.faust.steering.command_executor import FaustCommandExecutor
from trimtab_agent.engines.faust.steering.worker_status import FaustWorkerStatus
from trimtab_agent.engines.outcomes import CommandOutcomes
from trimtab_protocol.messages.commands import Ack, Command, Refusal
from trimtab_protocol.messages.decode import BadMessage, Fault
from trimtab_protocol.messages.local import (
    MAX_FRAME_BYTES,
    MAX_REASON,
    PROTOCOL,
    PROTOCOL_KEY,
    Hello,
    Statistics,
    Welcome,
    decode_frame,
    encode_frame,
)
from trimtab_protocol.messages.names import AppId, WorkerId

FIRST_RETRY_S, LAST_RETRY_S = 0.2, 5.0
WELCOME_LIMIT_S = 10.0
"""How long the plug-in waits for the agent's welcome."""
WRITE_LIMIT_S = 10.0
"""How long the agent may take to read a frame; then the plug-in closes the connection and opens another."""
LAST_WORDS_S = 3.0
"""How long a worker that ends to protect its state tries to reach its agent."""
MAX_WAITING_ACKS = 10_000
"""Largest number of acks kept while the agent is away; the oldest are dropped."""
MAX_COMMANDS = 1_000
"""Largest number of commands under way in a worker; further ones are refused."""
PACKAGES = ("trimtab", "faust-streaming", "aiokafka", "mode-streaming", "rocksdict")

logger = get_logger(__name__)


class NotWelcome(Exception):
    """The process behind the socket does not answer like an agent."""


class HelloChanged(Exception):
    """The hello that was sent is out of date: the worker reconnects and sends a new one."""


class AgentConnection(Service):  # type: ignore[misc]
    """The connection as a service of the app: it starts and stops with the app."""

    def __init__(
        self,
        *,
        app: AppId,
        worker: WorkerId,
        socket: Path,
        executor: FaustCommandExecutor,
        status: FaustWorkerStatus,
        collector: Collector,
        clock: Callable[[], float] = time.time,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.faults: Counter[str] = Counter()
        """Number of faults by reason."""
        self._app = app
        self._worker = worker
        self._socket = socket
        self._executor = executor
        self._status = status
        self._collector = collector
        self._clock = clock
        self._waiting: deque[Ack] = deque()
        self._acks_wait = asyncio.Event()
        self._commands: set[asyncio.Task[None]] = set()
        self._last_words: Callable[[], Awaitable[None]] | None = None
        """Sends statistics now; None without a connection."""
        self._can_tell = asyncio.Event()
        self._told = False

    @Service.task  # type: ignore[untyped-decorator]
    async def _keep_connected(self) -> None:
        retry_s = FIRST_RETRY_S
        while not self.should_stop or (self._status.breaches and not self._told):
            try:
                reader, writer = await asyncio.open_unix_connection(str(self._socket), limit=MAX_FRAME_BYTES)
            except OSError as exc:
                self._note("no agent", exc)
            else:
                try:
                    if await self._serve(reader, writer):
                        retry_s = FIRST_RETRY_S
                except HelloChanged:  # without a pause, because the agent counts the worker as away meanwhile
                    logger.info(
                        "the worker's operators, or whether it can be steered, have changed: reconnecting to the agent"
                    )
                    continue
            await (asyncio.sleep(FIRST_RETRY_S) if self.should_stop else self.sleep(retry_s))
            retry_s = min(2 * retry_s, LAST_RETRY_S)

    async def on_stop(self) -> None:
        """Cancel the commands under way, and report a breach of state before the connection ends.

        The connection may just be opened anew: the worker is no longer steered when partitions have been added, and
        breaches a moment later.
        """
        for task in self._commands:
            task.cancel()
        if self._status.breaches:
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(LAST_WORDS_S):
                    while self._last_words is None:
                        self._can_tell.clear()
                        await self._can_tell.wait()
                    await self._last_words()
        self._told = True

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Use one connection until either side ends it; returns whether the agent welcomed it.  Raises HelloChanged."""
        welcomed, descriptor = False, writer.get_extra_info("socket").fileno()
        _connections.add(descriptor)
        try:
            hello = self._hello()
            await self._write(writer, hello)
            async with asyncio.timeout(WELCOME_LIMIT_S):
                welcome = await self._welcome(reader)
            welcomed = True
            logger.info("connected to the agent of host %s", welcome.host)
            await _first_of(
                self._receive(reader),
                self._report(writer, welcome, hello),
                self._acknowledge(writer),
            )
        except HelloChanged:
            raise
        except (OSError, TimeoutError, EOFError, NotWelcome, BadMessage) as exc:
            closed = isinstance(exc, EOFError) and not welcomed
            self._note(
                "the agent refuses this worker (its log says why)" if closed else "connection to the agent ended", exc
            )
        except Exception as exc:  # a bug of the plug-in must not end the app
            logger.exception("the connection to the agent failed because of a bug in the plug-in: reconnecting")
            self._note("fault of the link", exc)
        finally:
            self._last_words = None
            _connections.discard(descriptor)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        return welcomed

    def _hello(self) -> Hello:
        refusal = self._status.refusal
        reason = refusal or self._status.waits_for
        return Hello(
            app=self._app,
            worker=self._worker,
            pid=os.getpid(),
            steering=refusal is None,
            reason=None if reason is None else reason[:MAX_REASON],
            operators=self._status.operators(),
            versions=versions(),
        )

    async def _welcome(self, reader: asyncio.StreamReader) -> Welcome:
        frame = decode_frame(await _line(reader))
        if not isinstance(frame, Welcome):
            raise NotWelcome(f"found a {type(frame).__name__}, expected a welcome")
        return frame

    async def _receive(self, reader: asyncio.StreamReader) -> None:
        while True:
            line = await _line(reader)
            try:
                frame = decode_frame(line)
                if not isinstance(frame, Command):
                    raise BadMessage(Fault.RANGE, "frame", type(frame).__name__.lower(), "a command")
            except BadMessage as exc:
                self._note(f"bad frame from the agent: {exc.fault}", exc)
            else:
                self._begin(frame)

    def _begin(self, command: Command) -> None:
        answer = CommandOutcomes(command, self._put, self._clock)
        if command.worker != self._worker or command.app != self._app:
            answer.refuse(Refusal.UNKNOWN_WORKER, f"this is worker {self._worker} of app {self._app}")
        elif (reason := self._status.refusal) is not None:
            answer.refuse(Refusal.NOT_STEERING, reason)
        elif len(self._commands) >= MAX_COMMANDS:
            answer.refuse(Refusal.FAILED, f"{MAX_COMMANDS} commands are under way")
        else:
            task = asyncio.get_running_loop().create_task(self._execute(command, answer))
            self._commands.add(task)
            task.add_done_callback(self._commands.discard)

    async def _execute(self, command: Command, answer: CommandOutcomes) -> None:
        try:
            await self._executor.execute(command, self._put)
        except Exception as exc:
            logger.exception("command %s (%s) failed", command.id, command.kind)
            answer.refuse(Refusal.FAILED, repr(exc)[:1000])

    def _put(self, answer: Ack) -> None:
        if len(self._waiting) >= MAX_WAITING_ACKS:
            self._waiting.popleft()
            self._note("an ack is dropped", OverflowError(f"{MAX_WAITING_ACKS} wait"))
        self._waiting.append(answer)
        self._acks_wait.set()

    async def _acknowledge(self, writer: asyncio.StreamWriter) -> None:
        while True:
            while self._waiting:
                answer = self._waiting[0]
                await self._write(writer, answer)
                if self._waiting and self._waiting[0] is answer:  # otherwise it was dropped meanwhile
                    self._waiting.popleft()
            self._acks_wait.clear()
            await self._acks_wait.wait()

    async def _report(self, writer: asyncio.StreamWriter, welcome: Welcome, hello: Hello) -> None:
        """Send statistics at every multiple of the interval, so that the intervals of all workers coincide."""
        interval_s = welcome.interval_s
        self._collector.skip()
        began = time.monotonic()

        async def send(at_s: float) -> None:
            nonlocal began
            now = time.monotonic()
            statistics = self._collector.collect(at_ms=round(at_s * 1000), interval_s=max(now - began, 0.001))
            began = now
            await self._write(writer, statistics)

        self._last_words = lambda: send(self._clock())
        self._can_tell.set()
        while True:
            await asyncio.sleep(until_multiple(self._clock(), interval_s))
            if time.monotonic() - began < interval_s / 2:
                continue  # the timer fired early, or the connection was opened just before the multiple
            await send(round(self._clock() / interval_s) * interval_s)
            if self._hello() != hello:  # for example, the operators become known only some time after the start
                raise HelloChanged

    async def _write(self, writer: asyncio.StreamWriter, frame: Hello | Statistics | Ack) -> None:
        line = encode_frame(frame)
        if len(line) > MAX_FRAME_BYTES:
            self._note("frame too large for the agent", ValueError(f"{len(line)} bytes"))
            return
        writer.write(line)
        async with asyncio.timeout(WRITE_LIMIT_S):
            await writer.drain()

    def _note(self, reason: str, exc: Exception) -> None:
        """Count a fault, and log the first one of each reason."""
        self.faults[reason] += 1
        if self.faults[reason] == 1:
            logger.warning("%s: %s: %s", self._socket, reason, str(exc) or type(exc).__name__)


_connections: set[int] = set()
"""Descriptors of connections to agents."""


def _close_in_child() -> None:
    """Let no process that the app forks keep a connection.

    A pool of processes outlives a worker that is killed.  The agent would not see the end of the worker, and take no
    other one with its name.
    """
    for descriptor in _connections:
        with contextlib.suppress(OSError):
            os.close(descriptor)
    _connections.clear()


os.register_at_fork(after_in_child=_close_in_child)


def until_multiple(now: float, interval_s: float) -> float:
    """Seconds from `now` to the next multiple of the interval: above zero, at most the interval."""
    return interval_s - now % interval_s


@cache
def versions() -> Mapping[str, str]:
    """Versions of the protocol, of Python and of the packages that this process uses."""
    found = {PROTOCOL_KEY: str(PROTOCOL), "python": platform.python_version()}
    for package in PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


async def _line(reader: asyncio.StreamReader) -> bytes:
    """Read one frame.  Raises EOFError at the end, and BadMessage if it is too long (the connection is then lost)."""
    try:
        line = await reader.readuntil(b"\n")
    except asyncio.LimitOverrunError as exc:
        raise BadMessage(Fault.OVERSIZED, "", "a longer line", f"at most {MAX_FRAME_BYTES} bytes") from exc
    return line[:-1]


async def _first_of(*works: Any) -> None:
    """Run all until the first one ends, then cancel the others.  Raises the first one's exception."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
