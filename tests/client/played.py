"""A server that gives answers in the order in which a test lists them, and keeps the requests."""

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field


@dataclass
class Played:
    """`address` of the server; `requests` as they came, with their bodies."""

    address: str
    requests: list[str] = field(default_factory=list)

    def header(self, name: str) -> list[str | None]:
        """The header of each request."""
        found = []
        for request in self.requests:
            rows = dict(line.split(": ", 1) for line in request.partition("\r\n\r\n")[0].split("\r\n")[1:])
            found.append(rows.get(name))
        return found


def answer(status: int, body: str, *headers: str, kind: str = "application/json") -> bytes:
    lines = [f"HTTP/1.1 {status} Text", f"content-type: {kind}", f"content-length: {len(body)}", "connection: close"]
    return "\r\n".join([*lines, *headers, "", body]).encode()


def problem(status: int, detail: str, *headers: str) -> bytes:
    body = f'{{"type": "about:blank", "title": "Title", "status": {status}, "detail": "{detail}", "further": 1}}'
    return answer(status, body, *headers, kind="application/problem+json")


@contextmanager
def playing(*answers: bytes | None) -> Iterator[Played]:
    """The server; b"" closes the connection without an answer, None says nothing and keeps it open."""
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        played = Played(address=f"http://127.0.0.1:{listening.getsockname()[1]}")

        def run() -> None:
            with ExitStack() as silent:
                for each in answers:
                    connection, _ = listening.accept()
                    if ended.is_set():
                        connection.close()
                        return
                    played.requests.append(_request(connection))
                    if each is None:
                        silent.enter_context(connection)
                    else:
                        with connection:
                            connection.sendall(each)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield played
        finally:
            ended.set()
            while thread.is_alive():  # it may still wait for a request that did not come
                with socket.create_connection(listening.getsockname()):
                    thread.join(0.1)


def _request(connection: socket.socket) -> str:
    received = b""
    while b"\r\n\r\n" not in received:
        received += connection.recv(65_536)
    head, _, body = received.partition(b"\r\n\r\n")
    lengths = [int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    while len(body) < sum(lengths):
        body += connection.recv(65_536)
    return (head + b"\r\n\r\n" + body).decode()
