"""A TCP proxy whose cable can be cut: what is on its way is lost, and no connection is closed, as in a real cut."""

import selectors
import socket
import threading
from contextlib import suppress


class Proxy:
    """Forwards connections to its port to the port `behind`, until `cut`."""

    def __init__(self, behind: int) -> None:
        self._behind = behind
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._open: list[socket.socket] = []
        self._whole = threading.Event()
        self._whole.set()
        self._ended = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def cut(self) -> None:
        """From now on nothing passes; new connections get no answer."""
        self._whole.clear()

    def mend(self) -> None:
        """Connections work again; those from before are closed, as a host does that hears of them no more."""
        self._whole.set()

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
            for key, _ in self._selector.select(timeout=0.02):
                if not self._whole.is_set():
                    break
                if key.fileobj is self._listener:
                    self._accept()
                else:
                    self._forward(key.fileobj, key.data)  # type: ignore[arg-type]

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        try:
            server = socket.create_connection(("127.0.0.1", self._behind), timeout=5)
        except OSError:
            client.close()
            return
        for one, other in ((client, server), (server, client)):
            one.settimeout(5)
            self._open.append(one)
            self._selector.register(one, selectors.EVENT_READ, other)

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            data = source.recv(65536)
            if data:
                target.sendall(data)
                return
        self._drop(source, target)

    def _drop(self, *ends: socket.socket) -> None:
        for each in ends:
            if each in self._open:
                self._selector.unregister(each)
                self._open.remove(each)
                each.close()

    def _drop_all(self) -> None:
        self._drop(*self._open)
