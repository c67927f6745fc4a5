"""Sockets of a producer that send no byte of a request while the fence is closed.

The producer looks at the fence before it sends a request.  Between that look and the system call the request is
encoded, and whatever the socket's buffer cannot take waits in the process.  A worker that was stopped there would send
it when it goes on, long after another worker has taken over (patch fence-after-session).
"""

from collections.abc import Callable
from typing import Any

from aiokafka.conn import AIOKafkaConnection


class GuardedSocket:
    """A socket that looks at the fence directly before each system call that sends."""

    def __init__(self, socket: Any, closed: Callable[[], bool]) -> None:
        self._socket, self._closed = socket, closed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)

    def send(self, *arguments: Any) -> int:
        """Like `socket.send`.  Raises ConnectionAbortedError while the fence is closed."""
        self._look()
        sent: int = self._socket.send(*arguments)
        return sent

    def sendmsg(self, *arguments: Any) -> int:
        """Like `socket.sendmsg`.  Raises ConnectionAbortedError while the fence is closed."""
        self._look()
        sent: int = self._socket.sendmsg(*arguments)
        return sent

    def _look(self) -> None:
        if self._closed():
            raise ConnectionAbortedError("the session of this worker's group is over")


def guard(connection: AIOKafkaConnection, closed: Callable[[], bool]) -> None:
    """Make a connection end instead of sending while the fence is closed.

    An event loop that does not use Python's sockets (uvloop) cannot be guarded; the producer's own look remains.
    """
    transport: Any = connection._writer.transport if connection._writer is not None else None
    if (tls := getattr(transport, "_ssl_protocol", None)) is not None:
        transport = tls._transport
    socket = getattr(transport, "_sock", None)
    if socket is not None and not isinstance(socket, GuardedSocket):
        transport._sock = GuardedSocket(socket, closed)
