"""A TCP proxy whose cable can be cut: what is on its way is lost, and no connection is closed, as in a real cut.

The cable may be long, and thin: what is sent arrives later.
"""

import selectors
import socket
import threading
import time
from collections import deque
from contextlib import suppress


class Proxy:
    """Forwards connections to its port to the port `behind`, until `cut`.

    `delay_s`: seconds that what is sent is on its way, in each direction.  `bytes_s`: what all connections together can
    carry in each direction; None = no limit.
    """

    def __init__(self, behind: int, *, delay_s: float = 0.0, bytes_s: float | None = None) -> None:
        self._behind = behind
        self._delay_s = delay_s
        self._bytes_s = bytes_s
        self._free_at = {True: 0.0, False: 0.0}
        """When the cable has room again: towards the port `behind`, and back."""
        self._on_the_way: deque[tuple[float, socket.socket, socket.socket, bytes]] = deque()
        """When it arrives, from where, to where, and what; nothing = the end of the connection."""
        self._upward: set[socket.socket] = set()
        """The ends of clients."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._open: list[socket.socket] = []
        self._whole = threading.Event()
        self._whole.set()
        self._forgets = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def cut(self) -> None:
        """From now on nothing passes; new connections get no answer."""
        self._whole.clear()

    def mend(self) -> None:
        """Connections work again; those from before are closed, as a host does that hears of them no more."""
        self._whole.set()

    def forget(self) -> None:
        """On the connections so far nothing passes any more, and nobody hears of it; new ones work."""
        self._forgets.set()
        while self._forgets.is_set():
            time.sleep(0.001)

    def close(self) -> None:
        """End it."""
        self._ended = True
        self._whole.set()
        self._thread.join(10)
        for each in (self._listener, *self._open):
            each.close()

    def _run(self) -> None:
        while not self._ended:
            if not self._whole.is_set():
                self._whole.wait()
                self._drop_all()
            if self._forgets.is_set():
                self._on_the_way.clear()
                for each in set(self._open) & {key.fileobj for key in self._selector.get_map().values()}:
                    self._selector.unregister(each)
                self._forgets.clear()
            for key, _ in self._selector.select(timeout=self._until_due()):
                if not self._whole.is_set():
                    break
                if key.fileobj is self._listener:
                    self._accept()
                else:
                    self._forward(key.fileobj, key.data)  # type: ignore[arg-type]
            if self._whole.is_set():
                self._deliver()

    def _until_due(self) -> float:
        """How long nothing has to be delivered."""
        first = min((due for due, *_ in self._on_the_way), default=float("inf"))
        return min(0.02, max(0.0, first - time.monotonic()))

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        try:
            server = socket.create_connection(("127.0.0.1", self._behind), timeout=5)
        except OSError:
            client.close()
            return
        self._upward.add(client)
        for one, other in ((client, server), (server, client)):
            one.settimeout(5)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._open.append(one)
            self._selector.register(one, selectors.EVENT_READ, other)

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        data = b""
        with suppress(OSError):
            data = source.recv(65536)
        up = source in self._upward
        now = time.monotonic()
        if self._bytes_s is not None:
            self._free_at[up] = now = max(now, self._free_at[up]) + len(data) / self._bytes_s
        self._on_the_way.append((now + self._delay_s, source, target, data))
        if not data:
            self._selector.unregister(source)

    def _deliver(self) -> None:
        """Hand over what has arrived."""
        now = time.monotonic()
        arrived = [each for each in self._on_the_way if each[0] <= now]
        if arrived:
            self._on_the_way = deque(each for each in self._on_the_way if each[0] > now)
        for _, source, target, data in arrived:
            try:
                if not data:
                    raise ConnectionError("its other end has ended")
                target.sendall(data)
            except OSError:
                self._drop(source, target)

    def _drop(self, *ends: socket.socket) -> None:
        for each in ends:
            if each in self._open:
                with suppress(KeyError):  # one that has ended by itself
                    self._selector.unregister(each)
                self._open.remove(each)
                self._upward.discard(each)
                each.close()

    def _drop_all(self) -> None:
        self._on_the_way.clear()
        self._drop(*self._open)
