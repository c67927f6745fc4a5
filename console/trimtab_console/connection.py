"""One connection of a browser: limits for clients that send nothing, send slowly, do not read, or send no HTTP.

Uvicorn has a limit for idle connections between two requests only; hypercorn and granian would be further dependencies.
"""

import asyncio
import contextlib
import logging
import os
import socket
import time
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from trimtab_protocol.messages.rate_limit import RateLimit

RECEIVE_LIMIT_S = 15.0
"""How long a client may take for its handshake, and then for a request with its body."""
READ_LIMIT_S = 30.0
"""How long an answer may wait for a client that does not read."""
MAX_CONNECTIONS, MAX_PER_ADDRESS = 200, 100
"""Connections at the same time, of all clients and of one address.

One more ends the one that has waited longest for a whole request.  So who sends nothing keeps nobody out.  The same
holds for those that have not finished their handshake.
"""
FAULTS_PER_S, FAULTS_AT_ONCE = 1.0, 10.0
"""Lines of the log about requests that are not HTTP."""


class BrowserConnection(H11Protocol):
    """HTTP/1.1 as uvicorn speaks it, within these limits."""

    _receiving: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None
    _since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to count the time, and make room if there are too many."""
        super().connection_made(transport)
        if isinstance(self.loop, Loop):
            self.loop.handshakes.done(transport.get_extra_info("peername"))
        self._since = self.loop.time()
        self._receiving = self.loop.call_later(RECEIVE_LIMIT_S, transport.abort)
        everybody = [each for each in self.connections if isinstance(each, BrowserConnection)]
        of_address = [each for each in everybody if _address(each) == _address(self)]
        for group, most in ((of_address, MAX_PER_ADDRESS), (everybody, MAX_CONNECTIONS)):
            waiting = [each for each in group if each.waits and each in self.connections]
            if len(group) > most and waiting:
                ended = min(waiting, key=lambda each: each._since)
                self.connections.discard(ended)
                ended.transport.abort()
                return

    @property
    def waits(self) -> bool:
        """Whether no whole request is being answered."""
        return self.cycle is None or self.cycle.response_complete or self.conn.their_state is h11.SEND_BODY

    def data_received(self, data: bytes) -> None:
        """Take what arrived; the time counts from the first byte of a request to the last."""
        if self._receiving is None:
            self._receiving = self.loop.call_later(RECEIVE_LIMIT_S, self.transport.abort)
        super().data_received(data)
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._receiving.cancel()
            self._receiving = None

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._since = self.loop.time()
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY:  # the head of the next request came with this one
            self._receiving = self.loop.call_later(RECEIVE_LIMIT_S, self.transport.abort)

    def pause_writing(self) -> None:
        """The client does not read."""
        super().pause_writing()
        self._unread = self._unread or self.loop.call_later(READ_LIMIT_S, self.transport.abort)

    def resume_writing(self) -> None:
        """It reads."""
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clocks."""
        for timer in (self._receiving, self._unread):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)


class Handshakes:
    """The connections without a finished handshake: uvicorn hears of none before that."""

    def __init__(self) -> None:
        self._begun: dict[Any, socket.socket] = {}

    def begin(self, link: socket.socket, address: Any) -> None:
        """Note one more, and make room if there are too many."""
        self._begun = {each: of for each, of in self._begun.items() if of.fileno() >= 0}
        for group, most in (
            ([each for each in self._begun if each[0] == address[0]], MAX_PER_ADDRESS),
            (list(self._begun), MAX_CONNECTIONS),
        ):
            if len(group) >= most:
                with contextlib.suppress(OSError):  # the client has gone
                    self._begun.pop(group[0]).shutdown(socket.SHUT_RDWR)
                break
        self._begun[address] = link

    def done(self, address: Any) -> None:
        """The handshake of this client is over."""
        self._begun.pop(address, None)


class TlsSocket(socket.socket):
    """A listening socket that says whom it accepts."""

    def __init__(self, host: str, port: int, handshakes: Handshakes) -> None:
        """Raises OSError."""
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        super().__init__(family, kind, protocol)
        self._handshakes = handshakes
        try:
            self.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family is socket.AF_INET6:
                self.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            self.bind(address)
        except OSError as error:
            self.close()
            raise OSError(
                error.errno, f"cannot listen on {host}, port {port}: {os.strerror(error.errno or 0)}"
            ) from error

    def accept(self) -> tuple[socket.socket, Any]:
        """A new connection."""
        link, address = super().accept()
        self._handshakes.begin(link, address)
        return link, address


class Loop(asyncio.SelectorEventLoop):
    """An event loop whose servers wait for a handshake as long as for a request, and for so many at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.handshakes = Handshakes()

    async def create_server(self, *args: Any, **settings: Any) -> Any:
        """A server."""
        if settings.get("ssl") is not None:
            settings["ssl_handshake_timeout"] = RECEIVE_LIMIT_S
            settings["sock"] = TlsSocket(settings.pop("host"), settings.pop("port"), self.handshakes)
        return await super().create_server(*args, **settings)


class FewFaults(logging.Filter):
    """Lets few lines pass about what strangers send: each connection could cause one."""

    def __init__(self) -> None:
        super().__init__()
        self._limit = RateLimit(rate=FAULTS_PER_S, burst=FAULTS_AT_ONCE)

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether this line is written."""
        return record.levelno != logging.WARNING or self._limit.spend(time.monotonic())


def _address(connection: BrowserConnection) -> str:
    return connection.client[0] if connection.client else ""
