"""A proxy of Kafka's protocol that plays a broker which is named as the leader of partitions before it is one.

Such a broker refuses what is written first.  A client with several requests on their way has then sent the next one,
which the broker takes.  Between two real requests that is a matter of milliseconds; here it always happens.
"""

import socket
import threading
from contextlib import suppress
from typing import Self

PRODUCE = 0
FLEXIBLE = 9
"""The first version of a Produce request with lengths as varints."""
NOT_LEADER = 6
HOLD_S = 1.0

Partition = tuple[bytes, int]


class Reader:
    """Reads Kafka's types from a request."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, count: int) -> bytes:
        found = self._data[self._at : self._at + count]
        self._at += count
        return found

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), signed=True)

    def length(self) -> int:
        """An unsigned varint: the length + 1; 0 = null."""
        value = shift = 0
        while True:
            [byte] = self.take(1)
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return max(0, value - 1)


def request(frame: bytes) -> tuple[int, int, int, Reader]:
    """Api key, its version, correlation id, and the rest, from the client's id on."""
    reader = Reader(frame)
    return reader.number(2), reader.number(2), reader.number(4), reader


def written_to(version: int, reader: Reader) -> Partition:
    """The one partition that a Produce request of librdkafka writes to."""
    assert version >= FLEXIBLE, version
    reader.take(max(0, reader.number(2)))  # client id
    assert reader.length() == 0  # no tagged fields: a varint of 0
    reader.take(reader.length())  # transactional id
    reader.take(2 + 4)  # acks, timeout
    assert reader.length() == 1, "one topic"
    topic = reader.take(reader.length())
    assert reader.length() == 1, "one partition"
    return topic, reader.number(4)


def refusal(correlation: int, partition: Partition) -> bytes:
    """The frame of an answer that this broker is not the leader."""
    topic, number = partition
    one, none = b"\x02", b"\x00"  # an array of one; no tagged fields, or null
    answer = b"".join(
        (
            correlation.to_bytes(4), none,
            one, bytes([len(topic) + 1]), topic,
            one, number.to_bytes(4), NOT_LEADER.to_bytes(2), 3 * (-1).to_bytes(8, signed=True), b"\x01", none, none,
            none, bytes(4), none,
        )
    )  # fmt: skip
    return len(answer).to_bytes(4) + answer


class LateLeader:
    """Forwards connections to `behind`, but refuses the first request to each partition of topics with this prefix."""

    def __init__(self, behind: int, prefix: str) -> None:
        self._behind = behind
        self._prefix = prefix.encode()
        self.hold_s = HOLD_S
        """How long it waits for a second request before it refuses the first one."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._held: dict[Partition, threading.Timer] = {}
        """The first request to each partition; it is refused when the next one comes or the timer ends."""
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def met(self, topic: str) -> bool:
        """Whether the first request to write to the topic has come; it is or will be refused."""
        return any(name == topic.encode() for name, _ in self._held)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for timer in self._held.values():
            timer.cancel()
        for each in (self._listener, *self._open):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = socket.create_connection(("127.0.0.1", self._behind))
                except ConnectionRefusedError:
                    client.close()
                    continue
                self._open += [client, server]
                for one, other, judged in ((client, server, True), (server, client, False)):
                    threading.Thread(target=self._forward, args=(one, other, judged), daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket, judged: bool) -> None:
        """Frame by frame, so that a refusal can come between two answers."""
        with suppress(OSError):
            while size := _exactly(source, 4):
                frame = _exactly(source, int.from_bytes(size))
                if judged and self._refuses(frame, source):
                    continue
                with self._lock:
                    target.sendall(size + frame)
            target.shutdown(socket.SHUT_RDWR)

    def _refuses(self, frame: bytes, client: socket.socket) -> bool:
        key, version, correlation, rest = request(frame)
        if key != PRODUCE or not (partition := written_to(version, rest))[0].startswith(self._prefix):
            return False
        if (timer := self._held.get(partition)) is not None:
            if not timer.finished.is_set():
                timer.cancel()
                timer.function(*timer.args)
            return False
        timer = threading.Timer(self.hold_s, self._answer, (client, refusal(correlation, partition)))
        self._held[partition] = timer
        timer.start()
        return True

    def _answer(self, client: socket.socket, answer: bytes) -> None:
        with self._lock, suppress(OSError):
            client.sendall(answer)


def _exactly(source: socket.socket, count: int) -> bytes:
    """So many bytes; none when the connection has ended."""
    parts = bytearray()
    while len(parts) < count:
        if not (part := source.recv(count - len(parts))):
            return b""
        parts += part
    return bytes(parts)
