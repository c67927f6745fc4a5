"""What a declaration says is read, written and refused; that the messages declare their limits."""

import json
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from enum import StrEnum
from typing import Annotated, Any, ClassVar, NamedTuple, get_args, get_origin

import pytest

from tests.fuzz.fuzzed.samples import REPORT
from tests.fuzz.fuzzed.wire import ENTRIES, sealed_entry
from trimtab_agent.commands.events import ENTRIES as LINES
from trimtab_controller.decider.memory.forecasts import DemandRecord
from trimtab_controller.execution.journal import EntryRecord, decode_entry, encode_entry
from trimtab_protocol.messages import intents, local
from trimtab_protocol.messages.codec import (
    UNKNOWN,
    Columns,
    Distinct,
    Inline,
    Key,
    Lenient,
    Most,
    NotSent,
    Packed,
    Range,
    Text,
    Total,
    Wire,
    WrittenAs,
    decoded,
    document,
    encoded,
    members,
)
from trimtab_protocol.messages.decode import BadMessage, Fault, encode
from trimtab_protocol.messages.events import Event
from trimtab_protocol.messages.handover import HandoverRecord
from trimtab_protocol.messages.host_keys import EnrollmentRequest, HostKeys
from trimtab_protocol.messages.intents import TakenBack
from trimtab_protocol.messages.names import AppId, Epoch
from trimtab_protocol.messages.placement import Placement
from trimtab_protocol.messages.placement_parts import PlacementHead, PlacementPart
from trimtab_protocol.messages.report import Report
from trimtab_protocol.messages.snapshot import Snapshot
from trimtab_protocol.messages.status import AppStatus, Status


class Shade(StrEnum):
    DARK = "dark"
    LIGHT = "light"


class Point(NamedTuple):
    x: Annotated[int, Range(0, 9)]
    y: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    WIRE: ClassVar = Wire(row=True)

    low: int
    high: int

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError("low is above high")


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    points: Annotated[tuple[Point, ...], Columns(("x", "y"), 3, naming=1)] = ()
    place: Annotated[Point | None, Inline(("px", "py"))] = None
    floats: Annotated[array, Most(3), Packed("d", gaps=True)] = field(default_factory=lambda: array("d"))


def from_hex(text: str) -> int:
    if not text.startswith("0x"):
        raise BadMessage(Fault.RANGE, "", text, "a number that begins with 0x")
    return int(text, 16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    WIRE: ClassVar = Wire(version=1, most_bytes=1000, derived=("size",))

    name: Annotated[str, Text(4), Key("n")]
    told: float | None
    inners: Annotated[tuple[Inner, ...], Most(3), Total("points", 4)] = ()
    boxes: Annotated[tuple[Box, ...], Most(2), Distinct(("low",))] = ()
    shade: Annotated[Shade | None, Lenient()] = None
    counts: Annotated[Mapping[str, int], Most(2)] = field(default_factory=dict)
    code: Annotated[int, WrittenAs(str, hex, from_hex)] = 0
    codes: Annotated[tuple[Annotated[int, WrittenAs(str, hex, from_hex)], ...], Most(2)] = ()
    note: Annotated[str, NotSent()] = "-"

    @property
    def size(self) -> int:
        return len(self.inners)


BARE = Message(name="a", told=None)
FULL = Message(
    name="full",
    told=0.5,
    inners=(
        Inner(points=(Point(1, None), Point(2, 7)), place=Point(3, 4), floats=array("d", [1.0, UNKNOWN])),
        Inner(points=(Point(5, None),)),
    ),
    boxes=(Box(low=1, high=2),),
    shade=Shade.DARK,
    counts={"a": 1},
    code=255,
    codes=(1, 2),
)


def test_what_has_its_default_or_is_not_known_is_not_written() -> None:
    assert document(BARE) == {"v": 1, "n": "a", "size": 0}
    assert json.loads(encoded(FULL)) == {
        "v": 1, "n": "full", "told": 0.5, "size": 2, "boxes": [[1, 2]], "shade": "dark", "counts": {"a": 1},
        "code": "0xff", "codes": ["0x1", "0x2"],
        "inners": [{"x": [1, 2], "y": [None, 7], "px": 3, "py": 4, "floats": [1.0, None]}, {"x": [5]}],
    }  # fmt: skip


def test_what_programs_of_users_read_has_all_its_fields() -> None:
    app = AppStatus(app=AppId("orders"), key_groups=None, load_distance=None, mean_load=None, not_ready=None)
    unknown = {"paused": None, "window_end": None, "coverage": None}
    status = Status(cluster="c", at=1.0, acting=False, epoch=Epoch(1, 1), apps=(app,), **unknown)
    written = document(status)
    assert set(written) == {"v", *(key for member in members(Status) for key in member.keys)}
    assert (written["rounds"], written["hold"]) == ([], None)
    assert set(written["apps"][0]) == {key for member in members(AppStatus) for key in member.keys}
    assert decoded(json.dumps(written).encode(), Status) == status


@pytest.mark.parametrize("message", [BARE, FULL])
def test_what_is_written_comes_back(message: Message) -> None:
    assert decoded(encoded(replace(message, note="here only")), Message) == message


@pytest.mark.parametrize(
    ("change", "fault", "path"),
    [
        ({"v": True}, Fault.VERSION, "v"),
        ({"v": 2}, Fault.VERSION, "v"),
        ({"v": "1"}, Fault.VERSION, "v"),
        ({"v": None}, Fault.MISSING, "v"),
        ({"n": None}, Fault.MISSING, "n"),
        ({"n": "a" * 5}, Fault.RANGE, "n"),
        ({"told": True}, Fault.TYPE, "told"),
        ({"told": -1}, Fault.RANGE, "told"),
        ({"inners": [{}] * 4}, Fault.OVERSIZED, "inners"),
        ({"inners": [{"x": [1, 2, 3]}, {"x": [1, 2]}]}, Fault.OVERSIZED, "inners[1].x"),
        ({"inners": [{"x": [1, 1]}]}, Fault.RANGE, "inners[0].x"),
        ({"inners": [{"x": [1, 10]}]}, Fault.RANGE, "inners[0].x[1]"),
        ({"inners": [{"x": [1], "y": [1, 2]}]}, Fault.RANGE, "inners[0].y"),
        ({"inners": [{"y": [1]}]}, Fault.MISSING, "inners[0].x"),
        ({"inners": [{"px": 1}]}, Fault.MISSING, "inners[0].py"),
        ({"inners": [{"floats": [1, "2"]}]}, Fault.TYPE, "inners[0].floats[1]"),
        ({"boxes": [[2, 1]]}, Fault.RANGE, "boxes[0]"),
        ({"boxes": [[1]]}, Fault.TYPE, "boxes[0]"),
        ({"boxes": [[1, 2], [1, 3]]}, Fault.RANGE, "boxes"),
        ({"shade": "a b"}, Fault.RANGE, "shade"),
        ({"counts": {"a/b": 1}}, Fault.RANGE, "counts"),
        ({"counts": {"a": 1.5}}, Fault.TYPE, "counts.a"),
        ({"code": "ff"}, Fault.RANGE, "code"),
        ({"size": 7}, Fault.RANGE, "size"),
        ({"size": None}, Fault.MISSING, "size"),
        ({"codes": ["0x1", "2"]}, Fault.RANGE, "codes[1]"),
    ],
)
def test_what_is_wrong_is_refused_with_its_place(change: dict[str, Any], fault: Fault, path: str) -> None:
    with pytest.raises(BadMessage) as caught:
        decoded(encode({**document(BARE), **change}), Message)
    assert (caught.value.fault, caught.value.path) == (fault, path)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-32"])
def test_only_utf_8_is_read(encoding: str) -> None:
    with pytest.raises(BadMessage) as caught:
        decoded(encoded(REPORT).decode().encode(encoding), Report)
    assert caught.value.fault is Fault.MALFORMED


def test_a_journal_has_one_round_of_each_app_and_commands_of_a_version_that_is_a_number() -> None:
    said = encode_entry(ENTRIES[0])
    for before, after, path in (
        (b'"prepare":{"v":1,', b'"prepare":{"v":true,', "round.handovers[0].prepare.v"),
        (b'"scalings":', b'"rounds":[' + encode(json.loads(said)["round"]) + b'],"scalings":', "rounds"),
    ):
        with pytest.raises(BadMessage) as caught:
            decode_entry(sealed_entry(said.replace(before, after)))
        assert caught.value.path == path


MESSAGES = (
    *(
        Report,
        Snapshot,
        Status,
        Event,
        HandoverRecord,
        HostKeys,
        EnrollmentRequest,
        EntryRecord,
        DemandRecord,
        TakenBack,
    ),
    *(Placement, PlacementHead, PlacementPart),
    *local.FRAMES.values(),
    *LINES.values(),
    *intents.KINDS.values(),
)


def unlimited(kind: Any, rules: tuple[Any, ...], place: str) -> Iterator[str]:
    """The arrays and objects below a type that may have any number of elements."""
    if get_origin(kind) is Annotated:
        yield from unlimited(get_args(kind)[0], (*rules, *kind.__metadata__), place)
        return
    written = next((each for each in rules if isinstance(each, WrittenAs)), None)
    if written is not None:
        yield from unlimited(written.kind, (), place)
    elif is_dataclass(kind):
        for member in members(kind):
            yield from unlimited(member.kind, (), f"{place}.{member.name}")
    elif get_args(kind):
        origin, arguments = get_origin(kind), get_args(kind)
        many = origin in (list, Sequence, Mapping) or arguments[-1] is ...
        if many and not any(isinstance(each, Most | Columns) for each in rules):
            yield place
        for each in arguments:
            if each is not ... and not any(isinstance(rule, Columns) for rule in rules):
                yield from unlimited(each, rules if not many else (), place)
    elif kind is array and not any(isinstance(each, Most) for each in rules):
        yield place


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
def test_all_that_a_message_has_many_of_is_limited(kind: type) -> None:
    assert list(unlimited(kind, (), kind.__name__)) == []


def test_what_has_no_limit_is_found() -> None:
    @dataclass
    class Open:
        rows: tuple[int, ...]
        limited: Annotated[tuple[int, ...], Most(1)] = ()
        maps: Annotated[tuple[Mapping[str, int], ...], Most(1)] = ()

    assert list(unlimited(Open, (), "Open")) == ["Open.rows", "Open.maps"]
