"""A snapshot on the topic: zstd-compressed, cut into chunks that fit into Kafka's default message size.

Chunks are keyed by the cluster, so they stay in order.  Their headers name the snapshot and the position in it; a
snapshot is decoded when all its chunks have arrived.
"""

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import zstandard

from trimtab_protocol.messages.codec import decoded
from trimtab_protocol.messages.decode import NAME_PATTERN, BadMessage, Fault
from trimtab_protocol.messages.snapshot import MAX_SNAPSHOT_BYTES, Snapshot, encode_snapshot


@contextmanager
def collector_paused() -> Iterator[None]:
    """Run without Python's cycle collector, which would scan all objects built so far again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


MAX_CHUNK_BYTES = 900_000
"""Maximum size of one chunk; Kafka's default limit for a message is 1 MB with its headers."""
MAX_CHUNKS = 4_096
"""Maximum number of chunks of one snapshot."""
MAX_EXPANSION, SMALL_BYTES = 200, 1024 * 1024
"""How many times its size a snapshot may unpack to; zstd makes them 3 to 15 times smaller."""
LEVEL = 3
END_HEADER = "end_ms"
"""Header with the end of the window; from it a restarted stream knows the last published window."""

Headers = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Part `index` of the `count` parts of one published snapshot."""

    snapshot: str
    end_ms: int
    index: int
    count: int
    payload: bytes

    def __post_init__(self) -> None:
        if not (0 <= self.index < self.count <= MAX_CHUNKS and self.payload):
            raise ValueError(f"chunk {self.index} of {self.count} with {len(self.payload)} bytes")

    @property
    def headers(self) -> list[tuple[str, bytes]]:
        """As Kafka headers."""
        values = {"snapshot": self.snapshot, END_HEADER: self.end_ms, "chunk": self.index, "chunks": self.count}
        return [(name, str(value).encode()) for name, value in values.items()]


def split(snapshot: Snapshot, *, max_chunk_bytes: int = MAX_CHUNK_BYTES) -> list[Chunk]:
    """The chunks of a snapshot, in sending order."""
    packed = zstandard.ZstdCompressor(level=LEVEL).compress(encode_snapshot(snapshot))
    parts = [packed[start : start + max_chunk_bytes] for start in range(0, len(packed), max_chunk_bytes)]
    # A window that is published again after a crash must not mix with the chunks of the first attempt.
    name = f"{snapshot.end_ms}-{snapshot.published_ms}"
    return [
        Chunk(snapshot=name, end_ms=snapshot.end_ms, index=index, count=len(parts), payload=part)
        for index, part in enumerate(parts)
    ]


def read_chunk(headers: Headers | None, value: bytes | None) -> Chunk:
    """Decode a chunk from a Kafka message; raises BadMessage."""
    texts = _texts(headers or ())
    name = texts.get("snapshot", "")
    if not NAME_PATTERN.fullmatch(name):
        raise BadMessage(Fault.MISSING, "headers.snapshot", name, "the name of a snapshot")
    if not value or len(value) > 2 * MAX_CHUNK_BYTES:
        raise BadMessage(Fault.OVERSIZED, "", f"{len(value or b'')} bytes", f"1 to {2 * MAX_CHUNK_BYTES} bytes")
    end_ms, index, count = (_number(texts, key) for key in (END_HEADER, "chunk", "chunks"))
    if not index < count <= MAX_CHUNKS:
        raise BadMessage(Fault.RANGE, "headers.chunk", f"{index} of {count}", f"one of at most {MAX_CHUNKS}")
    return Chunk(snapshot=name, end_ms=end_ms, index=index, count=count, payload=value)


class Reassembler:
    """Reassembles the newest snapshot; an incomplete one is dropped when a newer one begins."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._newest: Chunk | None = None
        self._parts: dict[int, bytes] = {}
        self._done = False

    def add(self, chunk: Chunk) -> Snapshot | None:
        """Add a chunk; return the snapshot that it completes, once.  Raises BadMessage if that cannot be decoded."""
        if self._newest is None or _order(chunk) > _order(self._newest):
            self._newest, self._parts, self._done = chunk, {}, False
        elif chunk.snapshot != self._newest.snapshot or chunk.count != self._newest.count or self._done:
            return None  # part of an older snapshot, or a repetition
        self._parts[chunk.index] = chunk.payload
        if len(self._parts) < chunk.count:
            return None
        packed = b"".join(self._parts[index] for index in range(chunk.count))
        self._parts, self._done = {}, True
        with collector_paused():
            snapshot = decoded(unpack(packed), Snapshot)
        if snapshot.cluster != self._cluster:
            raise BadMessage(Fault.CLUSTER, "cluster", snapshot.cluster, self._cluster)
        return snapshot


def unpack(packed: bytes) -> bytes:
    """The decompressed document; raises BadMessage if it is malformed or would be too large."""
    try:
        parameters = zstandard.get_frame_parameters(packed)
        limit = min(MAX_SNAPSHOT_BYTES, max(SMALL_BYTES, MAX_EXPANSION * len(packed)))
        if parameters.content_size > limit:
            raise BadMessage(Fault.OVERSIZED, "", f"{parameters.content_size} bytes", f"at most {limit}")
        return zstandard.ZstdDecompressor().decompress(packed)
    except zstandard.ZstdError as error:
        raise BadMessage(Fault.MALFORMED, "", packed[:20], "a zstd frame that says its size") from error


def _order(chunk: Chunk) -> tuple[int, str]:
    return (chunk.end_ms, chunk.snapshot)


def _texts(headers: Headers) -> Mapping[str, str]:
    return {name: (value or b"").decode("ascii", errors="replace") for name, value in headers}


def _number(texts: Mapping[str, str], name: str) -> int:
    text = texts.get(name, "")
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise BadMessage(Fault.RANGE, f"headers.{name}", text, "a whole number")
    return int(text)
