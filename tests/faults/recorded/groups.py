"""What the broker wrote down of a consumer group: commits and generations, from the bytes of `__consumer_offsets`.

The layout is that of Kafka's OffsetCommitKey/Value (versions 0-4, all begin with the offset) and GroupMetadataKey/Value
(versions 0-3), and of the client's ConsumerProtocolSubscription/Assignment inside them.
"""

import json
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tests.faults.recorded.history import Row

COMMIT_KEYS = (0, 1)
GENERATION_KEY = 2
NEWEST = {False: 4, True: 3}
"""Known version of the value of a commit, and of a generation."""

Place = tuple[str, int]
"""Topic and partition."""


class Unreadable(Exception):
    """A row is not what is described above."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """The group's next offset of a place from `at` on."""

    at: float
    place: Place
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """A generation of the group, from `at` on; `owners` = the worker that the group's leader gave each place."""

    at: float
    number: int
    owners: Mapping[Place, str]

    def __post_init__(self) -> None:
        object.__setattr__(self, "owners", MappingProxyType(dict(self.owners)))


class _Bytes:
    def __init__(self, content: bytes) -> None:
        self._content = content
        self._place = 0

    def take(self, size: int) -> bytes:
        part = self._content[self._place : self._place + size]
        if len(part) != size:
            raise Unreadable(f"ends after {len(self._content)} bytes")
        self._place += size
        return part

    def number(self, form: str) -> int:
        return int(struct.unpack(f">{form}", self.take(struct.calcsize(form)))[0])

    def text(self) -> str:
        size = self.number("h")
        return self.take(size).decode() if size >= 0 else ""

    def blob(self) -> bytes:
        size = self.number("i")
        return self.take(size) if size >= 0 else b""


def read_group(rows: Iterable[Row], group: str) -> tuple[list[Commit], list[Generation]]:
    """The commits and the generations of one group, each in the order of the log.  Raises Unreadable.

    A generation without members, or whose leader has not decided yet, has no owners.
    """
    commits: list[Commit] = []
    generations: list[Generation] = []
    for row in rows:
        about, place = place_of_commit(row)
        if about != group or row.value is None:
            continue
        value = _Bytes(row.value)
        if (version := value.number("h")) > NEWEST[place is None]:
            raise Unreadable(f"{group}: a value of version {version}, known are 0-{NEWEST[place is None]}")
        if place is None:
            generations.append(_generation(value, version, row.at))
        else:
            commits.append(Commit(at=row.at, place=place, offset=value.number("q")))
    return commits, generations


def place_of_commit(row: Row) -> tuple[str, Place | None]:
    """The group that a row is about, and the place of its commit; None: a generation.  No group: something else."""
    key = _Bytes(row.key or b"")
    version = key.number("h")
    if version in COMMIT_KEYS:
        return key.text(), (key.text(), key.number("i"))
    return (key.text(), None) if version == GENERATION_KEY else ("", None)


def _generation(value: _Bytes, version: int, at: float) -> Generation:
    value.text()  # protocol type
    number = value.number("i")
    value.text()  # protocol
    value.text()  # leader
    if version >= 2:
        value.number("q")  # time of the present state
    owners: dict[Place, str] = {}
    for _ in range(value.number("i")):
        worker, places = _member(value, version)
        owners.update(dict.fromkeys(places, worker))
    return Generation(at=at, number=number, owners=owners)


def _member(value: _Bytes, version: int) -> tuple[str, list[Place]]:
    value.text()  # member id
    if version >= 3:
        value.text()  # instance id
    value.text()  # client id
    value.text()  # host
    if version >= 1:
        value.number("i")  # rebalance time-out
    value.number("i")  # session time-out
    subscription, assignment = value.blob(), value.blob()
    return _worker(subscription), list(_places(assignment))


def _worker(subscription: bytes) -> str:
    """Its name, from what the worker said of itself when it joined."""
    content = _Bytes(subscription)
    content.number("h")
    for _ in range(content.number("i")):
        content.text()
    try:
        return str(json.loads(content.blob())["worker"])
    except (ValueError, KeyError, TypeError) as error:
        raise Unreadable(f"a member does not say which worker it is: {error}") from error


def _places(assignment: bytes) -> Iterator[Place]:
    if not assignment:
        return
    content = _Bytes(assignment)
    content.number("h")
    for _ in range(content.number("i")):
        topic = content.text()
        for _ in range(content.number("i")):
            yield topic, content.number("i")
