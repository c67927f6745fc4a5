"""What the rows of a history say: the flights job's records and Trimtab's messages, as far as they are judged."""

import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from tests.faults.recorded.groups import Commit, Generation, Place, Unreadable, read_group
from tests.faults.recorded.history import OFFSETS, History, Row
from tests.faults.recorded.signatures import is_signed, read_keys

APP = "flights"
SOURCE, DELAYS, TOTALS, CHANGELOG = "flights", "flights-delays", "flights-totals", "flights-sums-changelog"
INPUT_OF = {"extract": SOURCE, "sums": DELAYS}
"""The topic whose partitions are the key groups of each operator."""
WRITER = "by"
COLUMNS = 19
DEPARTURE_DELAY, ARRIVAL_DELAY = 5, 8
EXAMPLES = 3

T = TypeVar("T")


class Input(NamedTuple):
    """One flight as it was sent."""

    sequence: int
    partition: int
    offset: int
    at: float
    table_key: str
    minutes: int


class Written(NamedTuple):
    """One record of a worker: of DELAYS and TOTALS about flight `sequence`, of CHANGELOG about a key of the table.

    `flights`, `minutes` = what it says the table has, of TOTALS and CHANGELOG.

    `partition`, `offset` = its place in its topic; `process` = `worker:pid`.
    """

    partition: int
    offset: int
    at: float
    process: str
    sequence: int = -1
    table_key: str = ""
    flights: int = 0
    minutes: int = 0

    @property
    def worker(self) -> str:
        """The worker whose process it was."""
        return self.process.partition(":")[0]


class Message(NamedTuple):
    """One JSON message of Trimtab; `offset` in its topic, `signed` = by a key that is trusted."""

    offset: int
    at: float
    body: Mapping[str, Any]
    signed: bool = False

    @property
    def epoch(self) -> tuple[int, int]:
        """Under which it was published."""
        return tuple(self.body["epoch"])


class Document(dict[str, Any]):
    """An object of a message: what is unknown or empty need not be written, and is None here."""

    def __missing__(self, key: str) -> None:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All that is judged, each in the order of its log; `holes` = what could not be read, a sentence each."""

    inputs: tuple[Input, ...]
    extracted: tuple[Written, ...]
    counted: tuple[Written, ...]
    changed: tuple[Written, ...]
    commits: tuple[Commit, ...]
    generations: tuple[Generation, ...]
    placements: tuple[Message, ...]
    commands: tuple[Message, ...]
    acks: tuple[Message, ...]
    handovers: tuple[Message, ...]
    journal: tuple[Message, ...]
    told: tuple[Message, ...]
    """What the controller told operators."""
    journals: Mapping[str, tuple[Mapping[str, Any], ...]]
    """The entries of each agent's journal, by host."""
    planted: frozenset[str] = field(default=frozenset())
    """Ids of commands that the matrix wrote and the controller did not."""
    holes: tuple[str, ...] = ()


def read_facts(history: History) -> Facts:
    """The facts of a history; what cannot be read is a hole, never left out in silence."""
    holes = list(_gaps(history))

    def read(topic: str, decode: Callable[[Row], T]) -> tuple[T, ...]:
        found: list[T] = []
        faults: list[str] = []
        for row in history.of(topic):
            try:
                if not row.planted:
                    found.append(decode(row))
            except (ValueError, KeyError, TypeError, IndexError) as error:
                faults.append(f"{topic} {row.partition}:{row.offset} cannot be read: {error!r}")
        holes.extend(faults[:EXAMPLES])
        return tuple(found)

    def own(part: str, decode: Callable[[Row], T]) -> tuple[T, ...]:
        return read(f"trimtab.{history.cluster}.{part}", decode)

    try:
        commits, generations = read_group(history.of(OFFSETS), APP)
    except Unreadable as error:
        commits, generations = [], []
        holes.append(str(error))
    try:
        keys = read_keys(history.trusted)
    except ValueError as error:
        keys = {}
        holes.append(f"the trusted keys cannot be read: {error}")

    def signed(part: str) -> tuple[Message, ...]:
        topic = f"trimtab.{history.cluster}.{part}"
        return read(topic, lambda row: _message(row)._replace(signed=is_signed(topic, row, keys)))

    commands = signed("commands")
    journals = {host: tuple(_entries(host, text, holes)) for host, text in history.journals.items()}
    published = {command.body["id"] for command in commands}
    return Facts(
        inputs=read(SOURCE, _input),
        extracted=read(DELAYS, _output),
        counted=read(TOTALS, _total),
        changed=read(CHANGELOG, _change),
        commits=tuple(commits),
        generations=tuple(generations),
        placements=signed("placement"),
        commands=commands,
        acks=own("acks", _message),
        handovers=own("handover", _message),
        journal=own("journal", _journal),
        told=own("status", _message),
        journals=journals,
        planted=frozenset(_planted_ids(history) - published),
        holes=tuple(holes),
    )


def owners_of(placement: Message) -> Iterator[tuple[Place, str]]:
    """The first owner of each key group that a placement speaks of."""
    for operator, rows in placement.body["owners"].items():
        for partition, owners in enumerate(rows):
            if owners:
                yield (INPUT_OF[operator], partition), owners[0]


def place_of(key_group: str) -> Place:
    """The source partition of `app/operator/partition`."""
    _, operator, partition = key_group.split("/")
    return INPUT_OF[operator], int(partition)


def _gaps(history: History) -> Iterator[str]:
    """The job's partitions that do not begin at offset 0, or lack offsets: nobody there writes in transactions."""
    for topic in (SOURCE, DELAYS, TOTALS, CHANGELOG):
        expected: dict[int, int] = {}
        for row in history.of(topic):
            if row.offset != expected.get(row.partition, 0):
                yield f"{topic} {row.partition}: offset {row.offset} follows {expected.get(row.partition, 0) - 1}"
            expected[row.partition] = row.offset + 1
        if not expected:
            yield f"{topic}: not one row"


def _input(row: Row) -> Input:
    sequence, *cells = _text(row.value).split(",")
    if len(cells) != COLUMNS:
        raise ValueError(f"{len(cells)} cells")
    late = (cells[place] for place in (ARRIVAL_DELAY, DEPARTURE_DELAY))
    minutes = next((int(cell) for cell in late if cell != "NA"), 0)
    return Input(int(sequence), row.partition, row.offset, row.at, f"{_text(row.key)}/{cells[0]}", minutes)


def _output(row: Row) -> Written:
    sequence = json.loads(_text(row.value))[0]
    return Written(row.partition, row.offset, row.at, _text(row.headers[WRITER]), sequence=int(sequence))


def _total(row: Row) -> Written:
    _, _, flights, minutes = json.loads(_text(row.value))
    return _output(row)._replace(flights=int(flights), minutes=int(minutes))


def _change(row: Row) -> Written:
    flights, minutes = json.loads(_text(row.value))
    return Written(
        row.partition,
        row.offset,
        row.at,
        _text(row.headers[WRITER]),
        table_key=json.loads(_text(row.key)),
        flights=int(flights),
        minutes=int(minutes),
    )


def _message(row: Row) -> Message:
    body = json.loads(_text(row.value), object_hook=Document)
    generation, number = body["epoch"]
    if not (isinstance(generation, int) and isinstance(number, int)):
        raise TypeError(f"epoch {body['epoch']}")
    return Message(row.offset, row.at, body)


def _journal(row: Row) -> Message:
    body = json.loads(_text(row.value), object_hook=Document)
    return Message(row.offset, row.at, Document(body, epoch=[int(body["generation"]), int(body["number"])]))


def _entries(host: str, text: str, holes: list[str]) -> Iterator[Mapping[str, Any]]:
    """The entries of an agent's journal: lines of a checksum, over the one before too, and a JSON object.

    The first line names the journal.
    """
    before = ""
    for number, line in enumerate(text.splitlines(), start=1):
        checksum, _, body = line.partition(" ")
        try:
            if checksum != f"{zlib.crc32((before + body).encode()):08x}":
                raise ValueError("another checksum")
            entry = json.loads(body, object_hook=Document)
            if number > 1:
                yield Document(entry, entry=str(entry["entry"]))
        except (ValueError, KeyError, TypeError) as error:
            holes.append(f"the journal of {host}, line {number}, cannot be read: {error!r}")
        before = checksum


def _planted_ids(history: History) -> set[str]:
    found = set()
    for row in history.own("commands"):
        if row.planted and row.value is not None:
            try:
                found.add(str(json.loads(row.value)["id"]))
            except (ValueError, KeyError, TypeError):
                continue  # torn on purpose: it names no command
    return found


def _text(value: bytes | None) -> str:
    if value is None:
        raise ValueError("empty")
    return value.decode()
