"""Reading and writing by declaration: the annotated fields of a dataclass are a message's wire form and its limits.

The type of a field says what JSON has for it.  `Annotated` adds its wire key (`Key`) and its limits (`Range`, `Text`,
`Most`, `Distinct`, `Total`), or another wire form (`Columns`, `WrittenAs`, `Lenient`, `NotSent`).  Without them an
`int` or a `float` is at least 0, a `str` has at most 1000 characters, and a `NewType` of `str` is a name.

null is the same as absent.  A field with a default may be absent, and is written only where it differs from it, so the
default of a field never changes.  Unknown fields are passed over: a newer sender may have more.  Rules of several
fields stand in `__post_init__`, which raises BadMessage with the field as path, or ValueError.

A file that people write is read in the same way, but an unknown key is an error there.  `CONFIGURATION` is for the
configurations, whose sections are the tables of the file (`Table`).  `FILE` is for instances: null is an error there
too, except in a field that is `Needed` and may be None, and texts and numbers stay as they are written.

The path of an error is put together while the error rises, so that a good message does not pay for it.
"""

import re
import sys
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from enum import StrEnum
from functools import cache
from math import inf
from operator import attrgetter
from types import NoneType, UnionType
from typing import Annotated, Any, NewType, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from trimtab_protocol.messages.decode import (
    MAX_MESSAGE_BYTES,
    MAX_NAME,
    MAX_NUMBER,
    NAME_PATTERN,
    NOTHING,
    BadMessage,
    Fault,
    ShownText,
    as_json,
    as_step,
    encode,
    parsed,
    printable,
    step,
)

T = TypeVar("T")
Decode = Callable[[Any], Any]
Encode = Callable[[Any], Any]
MAX_INTEGER = 2**63 - 1
"""Largest whole number in a message, unless its field has a limit of its own."""
UNKNOWN = -1
"""Marks an unknown value in a packed column.  All known values are at least 0."""


@dataclass(frozen=True, slots=True)
class Key:
    """The wire key of a field, where it is not the field's name."""

    name: str


@dataclass(frozen=True, slots=True)
class Range:
    """The limits of a number, or of each number in an array or a column."""

    low: float
    high: float
    what: str = ""
    """The same in words, where they are not to say both limits."""

    def __str__(self) -> str:
        if self.what:
            return self.what
        floats = isinstance(self.low, float) or isinstance(self.high, float)
        return f"a finite number, {self.low:g} to {self.high:g}" if floats else f"{self.low} to {self.high}"


@dataclass(frozen=True, slots=True)
class Text:
    """At most so many characters, or just those that `pattern` matches; `what` says the latter in words."""

    most: int
    pattern: re.Pattern[str] | None = None
    what: str = "a string"
    least: int = 1


@dataclass(frozen=True, slots=True)
class Most:
    """How many elements an array, or members an object, may have."""

    count: int
    least: int = 0


@dataclass(frozen=True, slots=True)
class Distinct:
    """No element of the array comes twice; of objects, no two have the same in these `fields`."""

    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Total:
    """At most so many elements in the fields `field` of all objects of the array together."""

    field: str
    most: int


@dataclass(frozen=True, slots=True)
class Columns:
    """Rows (tuples, or the members of a mapping) are written as one array per quantity, each under its own key.

    This takes a third of the bytes, and both sides work on whole arrays.  All have the same length, 1 to `most`.  The
    first one must be there; a quantity that is unknown in all rows is absent.
    """

    keys: tuple[str, ...]
    most: int
    naming: int = 0
    """The first so many quantities name a row; no name comes twice."""


@dataclass(frozen=True, slots=True)
class Inline:
    """The members of the value stand in the object itself: of a named tuple under `keys`, of a dataclass as there."""

    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Table:
    """The field stands in this table of a configuration, beside others that say the same.

    One that is `Needed` and has a default must be there if the table is.
    """

    name: str


@dataclass(frozen=True, slots=True)
class Packed:
    """The array becomes an `array` of this type code; with `gaps` a value may be null, which becomes UNKNOWN."""

    code: str
    gaps: bool = False


@dataclass(frozen=True, slots=True)
class WrittenAs:
    """The wire has a value of another type, `kind`: `write` makes it; `read`, the inverse, may raise BadMessage."""

    kind: Any
    write: Encode
    read: Decode


@dataclass(frozen=True, slots=True)
class Lenient:
    """A name that the enumeration does not have is None, or left out of a mapping: a later version may know it."""


@dataclass(frozen=True, slots=True)
class NotSent:
    """The field is no part of the message."""


@dataclass(frozen=True, slots=True)
class Needed:
    """The field must be there, though it has a default, or may be None: then there is null."""


@dataclass(frozen=True, slots=True)
class Wire:
    """What holds for a whole class, as its attribute `WIRE`.

    `version` = the member `version_key` of its object.  `derived` = properties that are written, and compared when they
    are read; None is not written.  `row`: it is no object, but the array of its fields in their order.  `whole`: all
    fields are written, also those of what is nested in it, with null for None: programs of users read it.  `part`: it
    is only a part of a configuration, so unknown keys are passed over.
    """

    version: int | None = None
    version_key: str = "v"
    most_bytes: int = MAX_MESSAGE_BYTES
    derived: tuple[str, ...] = ()
    row: bool = False
    whole: bool = False
    part: bool = False


NAME = Text(MAX_NAME, NAME_PATTERN, "a name of letters, digits, '.', '_', '-'")
Name = Annotated[str, NAME]


@dataclass(frozen=True, slots=True)
class DefaultLimits:
    """The limits of what has none of its own; `most` None: an array or an object must have one."""

    name: Text = NAME
    text: Text = Text(1000)
    integer: Range = Range(0, MAX_INTEGER)
    number: Range = Range(0.0, MAX_NUMBER)
    most: Most | None = None
    closed: bool = False
    """An unknown key is an error."""
    strict: bool = False


MESSAGE = DefaultLimits()
CONFIGURATION = DefaultLimits(closed=True)
"""For agent.toml, controller.toml, console.toml and the file of tokens."""
_ANY_TEXT = Text(sys.maxsize, least=0)
ANSWER = DefaultLimits(_ANY_TEXT, _ANY_TEXT, Range(-inf, inf), Range(-inf, inf), Most(sys.maxsize))
"""For answers of a server whose size has been limited as a whole."""
COUNT = Range(0, inf, "a whole number >= 0")
FINITE = Range(0.0, 2**1024 - 2**970 - 1, "a finite number >= 0")
"""All numbers that a float can hold; an integer beyond the largest float is rounded to it."""
FILE = DefaultLimits(_ANY_TEXT, _ANY_TEXT, COUNT, FINITE, Most(sys.maxsize), strict=True)
"""For files that people write."""


class _Refusal(Exception):
    """A fault on its way up; `steps` = the path to it, from the inside."""

    def __init__(self, fault: Fault, found: object, expected: str, *steps: str) -> None:
        self.fault, self.found, self.expected, self.steps = fault, found, expected, list(steps)

    def as_bad_message(self, *, strict: bool = False) -> BadMessage:
        found = ShownText(as_json(self.found)) if strict and not isinstance(self.found, ShownText) else self.found
        return BadMessage(self.fault, "".join(reversed(self.steps)).removeprefix("."), found, self.expected)


def decoded(payload: bytes | None, kind: type[T]) -> T:
    """The message in these bytes; raises BadMessage."""
    return converted(versioned(payload, kind), kind)


def versioned(payload: bytes | None, kind: Any, most_bytes: int | None = None) -> dict[str, Any]:
    """The JSON object in these bytes, of the version that the class has; raises BadMessage."""
    found = parsed(payload, most_bytes or kind.WIRE.most_bytes)
    if not isinstance(found, dict):
        raise BadMessage(Fault.TYPE, "", found, "an object")
    try:
        _check_version(found.get(kind.WIRE.version_key), kind.WIRE)
    except _Refusal as refusal:
        raise refusal.as_bad_message() from None
    return found


def chosen(payload: bytes | None, tag: str, kinds: Mapping[str, type[T]], most_bytes: int | None = None) -> T:
    """The message in these bytes, of the class that its member `tag` names; raises BadMessage."""
    found = versioned(payload, next(iter(kinds.values())), most_bytes)
    name = found.get(tag)
    if not isinstance(name, str) or name not in kinds:
        raise BadMessage(Fault.RANGE, tag, name, f"one of {', '.join(kinds)}")
    return converted(found, kinds[name])


def tagged(value: T, tag: str, kinds: Mapping[str, type[T]]) -> bytes:
    """What `chosen` reads."""
    return encode({**document(value), tag: next(name for name, kind in kinds.items() if type(value) is kind)})


def converted(document: object, kind: type[T], path: str = "", defaults: DefaultLimits = MESSAGE) -> T:
    """These JSON types as a value of this class; raises BadMessage."""
    try:
        return cast(T, _decoder(cast(Any, kind), (), defaults)(document))
    except _Refusal as refusal:
        if path:
            refusal.steps.append(path)
        raise refusal.as_bad_message(strict=defaults.strict) from None


def encoded(value: object) -> bytes:
    """The message as compact JSON."""
    return encode(document(value))


def document(value: object) -> dict[str, Any]:
    """The message as JSON types."""
    return cast(dict[str, Any], _encoder(cast(Any, type(value)))(value))


def copied(kind: type[T], value: object, /, **further: object) -> T:
    """A value of this dataclass: `further`, and in its other fields what `value` has in those of the same names."""
    return kind(
        **{**{name: getattr(value, name) for name in _shared_names(cast(Any, kind), cast(Any, type(value)))}, **further}
    )


@cache
def _shared_names(one: Any, other: Any) -> tuple[str, ...]:
    names = {each.name for each in fields(other)}
    return tuple(each.name for each in fields(one) if each.name in names)


def given(kind: type, found: object) -> dict[str, Any]:
    """The fields of this class whose keys are there, from a table of a configuration; raises BadMessage."""
    try:
        return cast(
            dict[str, Any], _table_reader([replace(each, default=None) for each in members(kind)], CONFIGURATION)(found)
        )
    except _Refusal as refusal:
        raise refusal.as_bad_message() from None


def _may_be_none(kind: Any) -> bool:
    if get_origin(kind) is Annotated:
        return _may_be_none(get_args(kind)[0])
    return get_origin(kind) in (Union, UnionType) and NoneType in get_args(kind)


@dataclass(frozen=True, slots=True)
class WireField:
    """A field as it is sent; `default` is MISSING where it must be there.  What may be None need not."""

    name: str
    keys: tuple[str, ...]
    kind: Any
    spread: Columns | Inline | None
    default: Any
    table: str = ""
    opens_table: bool = False
    """Its table must be there."""

    def of(self, arguments: tuple[Any, ...]) -> "WireField":
        """The same, where the class is generic and has these arguments."""
        generic = arguments and getattr(self.kind, "__parameters__", ())
        return replace(self, kind=self.kind[arguments]) if generic else self


@cache
def members(kind: Any) -> tuple[WireField, ...]:
    """The fields of a message that are sent."""
    hints = get_type_hints(kind, include_extras=True)
    found = []
    for each in fields(kind):
        hint = hints[each.name]
        rule = {type(of): of for of in getattr(hint, "__metadata__", ())}
        if NotSent in rule:
            continue
        spread = rule.get(Columns) or rule.get(Inline)
        if spread is None:
            keys: tuple[str, ...] = (rule[Key].name if Key in rule else each.name,)
        else:
            keys = spread.keys or tuple(key for of in members(_bare(hint)) for key in of.keys)
        default = each.default_factory() if each.default_factory is not MISSING else each.default
        if Needed in rule:
            default = MISSING
        elif default is MISSING and _may_be_none(hint):
            default = None
        table = rule[Table].name if Table in rule else ""
        opens_table = bool(table) and each.default is MISSING and each.default_factory is MISSING
        found.append(WireField(each.name, keys, hint, spread, default, table, opens_table))
    return tuple(found)


# --- reading


@cache
def _decoder(kind: Any, rules: tuple[Any, ...], defaults: DefaultLimits) -> Decode:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _decoder(arguments[0], (*rules, *kind.__metadata__), defaults)
    rule = {type(each): each for each in rules}
    if WrittenAs in rule:
        return _written(rule[WrittenAs], defaults)
    if origin in (Union, UnionType):
        inner = _decoder(_known(arguments), rules, defaults)
        return lambda found: None if found is None else inner(found)
    if isinstance(kind, NewType):
        return _decoder(kind.__supertype__, (defaults.name, *rules), defaults)
    if kind is array:
        return _array(float if rule[Packed].code == "d" else int, rule, defaults)
    if origin is tuple and arguments[-1] is not ...:
        return _row(_tuple, (), arguments, defaults)
    if origin in (tuple, list, Sequence):
        return _array(arguments[0], rule, defaults)
    if origin in (dict, Mapping):
        return _object(arguments, rule, defaults)
    if kind is Any:
        return lambda found: found
    if is_dataclass(origin or kind):
        return _value(origin or kind, defaults, arguments)
    if issubclass(kind, tuple):
        return _row(kind, kind._fields, _hints(kind), defaults)
    if issubclass(kind, StrEnum):
        return _choice(kind, lenient=Lenient in rule)
    if kind is bool:
        return _flag
    strict = defaults.strict
    if kind is str:
        return _text(rule.get(Text, defaults.text), strict)
    return _number(kind, _range(kind, rule, defaults), strict)


def _hints(kind: Any) -> tuple[Any, ...]:
    return tuple(get_type_hints(kind, include_extras=True).values())


def _known(arguments: tuple[Any, ...]) -> Any:
    (known,) = (each for each in arguments if each is not NoneType)
    return known


def _range(kind: Any, rule: Mapping[type, Any], defaults: DefaultLimits) -> Range:
    return rule.get(Range) or (defaults.integer if kind is int else defaults.number)


def _flag(found: Any) -> Any:
    if found is not True and found is not False:
        raise _Refusal(Fault.TYPE, found, "true or false")
    return found


def _text(rule: Text, strict: bool = False) -> Decode:
    least, most, matches, what = rule.least, rule.most, rule.pattern and rule.pattern.fullmatch, rule.what

    def decode(found: Any) -> str:
        if type(found) is not str:
            raise _Refusal(Fault.TYPE, found, what if strict else "a string")
        if not least <= len(found) <= most:
            raise _Refusal(Fault.RANGE, f"{len(found)} characters", f"{least} to {most} characters")
        if matches is not None:
            if not matches(found):
                raise _Refusal(Fault.RANGE, found, what)
            return found
        if strict:
            return found
        if not found.isascii() and any("\ud800" <= each <= "\udfff" for each in found):
            raise _Refusal(Fault.RANGE, found, "text without lone surrogates")
        return printable(found)

    return decode


def _number(kind: type, rule: Range, strict: bool) -> Decode:
    accepted, what = ((int,), "a whole number") if kind is int else ((int, float), "a number")
    what = rule.what or what
    low, high = rule.low, rule.high

    def decode(found: Any) -> Any:
        if type(found) not in accepted:
            raise _Refusal(Fault.TYPE, found, what)
        if not low <= found <= high:  # NaN fails this too
            raise _Refusal(Fault.RANGE, found, str(rule))
        return found if strict else kind(found)

    return decode


def _choice(kind: type[StrEnum], *, lenient: bool) -> Decode:
    members = {str(each): each for each in kind}

    def decode(found: Any) -> Any:
        if type(found) is not str:
            raise _Refusal(Fault.TYPE, found, "a string")
        if found not in members and not (lenient and NAME_PATTERN.fullmatch(found)):
            raise _Refusal(Fault.RANGE, found, f"one of {', '.join(members)}")
        return members.get(found)

    return decode


def _written(rule: WrittenAs, defaults: DefaultLimits) -> Decode:
    inner, read = _decoder(rule.kind, (), defaults), rule.read

    def decode(found: Any) -> Any:
        value = inner(found)
        try:
            return read(value)
        except BadMessage as bad:
            steps = (bad.path if bad.path.startswith("[") else f".{bad.path}",) if bad.path else ()
            raise _Refusal(bad.fault, bad.found, bad.expected, *steps) from None

    return decode


def _array(kind: Any, rule: Mapping[type, Any], defaults: DefaultLimits) -> Decode:
    """Numbers are checked all at once; only where that fails, or for other elements, one by one."""
    most, total, packed = defaults.most or rule[Most], rule.get(Total), rule.get(Packed)
    once = rule.get(Distinct)
    name_of = attrgetter(*once.fields) if once is not None and once.fields else None
    read = _elements(kind | None if packed is not None and packed.gaps else kind, rule, defaults)

    def decode(found: Any) -> Any:
        if type(found) is not list:
            raise _Refusal(Fault.TYPE, found, "an array")
        if not most.least <= len(found) <= most.count:
            fault = Fault.RANGE if len(found) < most.least else Fault.OVERSIZED
            at_least = f"at least {most.least}, " if most.least else ""
            raise _Refusal(fault, f"{len(found)} elements", f"{at_least}at most {most.count}")
        values = read(found)
        if once is not None:
            names = len(set(values if name_of is None else map(name_of, values)))
            if names != len(values):
                raise _Refusal(Fault.RANGE, f"{len(values)} of {names} names", "each of them once")
        if total is not None:
            _check_total(values, total)
        if packed is None:
            return tuple(values)
        return array(packed.code, [UNKNOWN if each is None else each for each in values] if None in values else values)

    return decode


def _check_total(values: Sequence[Any], total: Total) -> None:
    elements = 0
    for place, each in enumerate(values):
        elements += len(getattr(each, total.field))
        if elements > total.most:
            key = next(member.keys[0] for member in members(cast(Any, type(each))) if member.name == total.field)
            raise _Refusal(
                Fault.OVERSIZED, f"{elements} elements", f"at most {total.most} in all", f".{key}", f"[{place}]"
            )


def _elements(kind: Any, rule: Mapping[type, Any], defaults: DefaultLimits) -> Callable[[list[Any]], Sequence[Any]]:
    inner = _decoder(kind, tuple(each for of, each in rule.items() if of in (Range, Text, Lenient)), defaults)
    while get_origin(kind) is Annotated:
        rule = {**rule, **{type(each): each for each in kind.__metadata__}}
        kind = get_args(kind)[0]
    gaps = _may_be_none(kind)
    bare = _known(get_args(kind)) if gaps else kind
    types = cast(set[type], {int: {int}, float: {int, float}}.get(bare, set()) if WrittenAs not in rule else set())
    limits = _range(bare, rule, defaults)

    def each_of(found: list[Any]) -> list[Any]:
        values: list[Any] = []
        try:
            for each in found:
                if each is None and not gaps and not defaults.strict:
                    raise _Refusal(Fault.MISSING, NOTHING, "a value")
                values.append(inner(each))
        except _Refusal as refusal:
            refusal.steps.append(f"[{len(values)}]")
            raise
        return values

    def numbers(found: list[Any]) -> list[Any]:
        known = [each for each in found if each is not None] if gaps and None in found else found
        if not set(map(type, known)) <= types or (known and not limits.low <= min(known) <= max(known) <= limits.high):
            return each_of(found)  # names the wrong one
        if bare is int:
            return found
        return [None if each is None else float(each) for each in found] if gaps else list(map(float, found))

    return numbers if types else each_of


def _object(arguments: tuple[Any, ...], rule: Mapping[type, Any], defaults: DefaultLimits) -> Decode:
    most: Most = defaults.most or rule[Most]
    named, inner = _decoder(arguments[0], tuple(rule.values()), defaults), _decoder(arguments[1], (), defaults)
    check_key = _text(defaults.name, defaults.strict)
    step_to = as_step if defaults.strict else lambda name: f".{step(name)}"
    what = "an object of names and numbers" if defaults.strict and arguments[1] is float else "an object"

    def decode(found: Any) -> Any:
        if type(found) is not dict:
            raise _Refusal(Fault.TYPE, found, what)
        if len(found) > most.count:
            raise _Refusal(Fault.OVERSIZED, f"{len(found)} members", f"at most {most.count}")
        values = {}
        for name, each in found.items():
            check_key(name)
            try:
                if each is None and not defaults.strict:
                    raise _Refusal(Fault.MISSING, NOTHING, "a value")
                values[named(name)] = inner(each)
            except _Refusal as refusal:
                refusal.steps.append(step_to(name))
                raise
        values.pop(None, None)
        return values

    return decode


def _tuple(*values: Any) -> tuple[Any, ...]:
    return values


def _row(make: Callable[..., Any], names: tuple[str, ...], hints: tuple[Any, ...], defaults: DefaultLimits) -> Decode:
    inner = [_decoder(hint, (), defaults) for hint in hints]
    expected = f"[{', '.join(names)}]" if names else f"{len(inner)} values"

    def decode(found: Any) -> Any:
        if type(found) is not list or len(found) != len(inner):
            raise _Refusal(Fault.TYPE, found, expected)
        values: list[Any] = []
        try:
            for each, read in zip(found, inner, strict=True):
                values.append(read(each))
        except _Refusal as refusal:
            refusal.steps.append(f"[{len(values)}]")
            raise
        try:
            return make(*values)
        except BadMessage as bad:
            raise _Refusal(bad.fault, bad.found, bad.expected) from None
        except ValueError as error:
            raise _Refusal(Fault.RANGE, "an array", str(error)) from None

    return decode


def _inline(member: WireField, defaults: DefaultLimits) -> Decode:
    """Reads a value from the object in which its members stand."""
    make = _bare(member.kind)
    if is_dataclass(make):
        return _value(make, defaults, inline=True)
    readers = [(key, _decoder(hint, (), defaults)) for key, hint in zip(member.keys, _hints(make), strict=True)]

    def decode(found: dict[str, Any]) -> Any:
        values, key = [], ""
        try:
            for key, read in readers:
                if (each := found.get(key)) is None:
                    raise _Refusal(Fault.MISSING, NOTHING, "a value")
                values.append(read(each))
        except _Refusal as refusal:
            refusal.steps.append(f".{key}")
            raise
        return make(*values)

    return decode


def _columns(member: WireField, defaults: DefaultLimits) -> Decode:
    """Reads the rows from the object in which their columns stand."""
    rule, kind = cast(Columns, member.spread), _bare(member.kind)
    mapping, row = get_origin(kind) is Mapping, get_args(kind)[0]
    plain = get_origin(row) is tuple
    hints = get_args(kind) if mapping else get_args(row) if plain else _hints(row)
    readers = [(key, _elements(hint, {}, defaults)) for key, hint in zip(rule.keys, hints, strict=True)]
    naming = 1 if mapping else rule.naming

    def decode(found: dict[str, Any]) -> Any:
        size, columns, key = -1, [], ""
        try:
            for key, read in readers:
                column = found.get(key)
                if column is None and size >= 0:
                    column = [None] * size
                if type(column) is not list:
                    raise _Refusal(*((Fault.MISSING, NOTHING) if column is None else (Fault.TYPE, column)), "an array")
                if size < 0:
                    size = len(column)
                    if not size:
                        raise _Refusal(Fault.RANGE, column, "an array that is not empty")
                    if size > rule.most:
                        raise _Refusal(Fault.OVERSIZED, f"{size} elements", f"at most {rule.most}")
                if len(column) != size:
                    raise _Refusal(Fault.RANGE, f"{len(column)} elements", f"{size}, as many as the others")
                columns.append(read(column))
            key = rule.keys[0]
            if naming and (names := len(set(zip(*columns[:naming], strict=True)))) != size:
                raise _Refusal(Fault.RANGE, f"{size} of {names} names", "each of them once")
        except _Refusal as refusal:
            refusal.steps.append(f".{key}")
            raise
        if mapping:
            return dict(zip(*columns, strict=True))
        return tuple(zip(*columns, strict=True)) if plain else tuple(map(row, *columns))

    return decode


def _bare(kind: Any) -> Any:
    """The type itself, without its rules and without None."""
    if get_origin(kind) is Annotated:
        return _bare(get_args(kind)[0])
    return _bare(_known(get_args(kind))) if get_origin(kind) in (Union, UnionType) else kind


def _value(kind: Any, defaults: DefaultLimits, arguments: tuple[Any, ...] = (), *, inline: bool = False) -> Decode:
    wire: Wire = getattr(kind, "WIRE", Wire())
    found_members = [each.of(arguments) for each in members(kind)]
    if wire.row:
        names = tuple(each.name for each in found_members)
        hints = tuple(each.kind for each in found_members)
        return _row(lambda *values: kind(**dict(zip(names, values, strict=True))), names, hints, defaults)
    strict = defaults.strict
    keys = {each.name: f"{each.table}.{each.keys[0]}".removeprefix(".") for each in found_members}
    absent = {each.name: None for each in found_members if each.default is None}
    needed = [each.keys[0] for each in found_members if each.default is MISSING]
    known = [key for each in found_members for key in each.keys]
    if wire.version is not None:
        needed, known = [wire.version_key, *needed], [wire.version_key, *known]
    read = _members_reader(found_members, defaults, closed=defaults.closed and not wire.part and not inline)

    def decode(found: Any) -> Any:
        if type(found) is not dict:
            raise _Refusal(Fault.TYPE, found, "an object")
        if strict:
            _check_keys(found, needed, known)
        if wire.version is not None:
            _check_version(found.get(wire.version_key), wire, strict)
        values = {**absent, **read(found)}
        try:
            value = kind(**values)
        except BadMessage as bad:
            steps = (f".{keys.get(bad.path, bad.path)}",) if bad.path else ()
            raise _Refusal(bad.fault, bad.found, bad.expected, *steps) from None
        except ValueError as error:
            raise _Refusal(Fault.RANGE, "an object", str(error)) from None
        for name in wire.derived:
            if (said := found.get(name)) != (made := getattr(value, name)):
                wrong = (Fault.MISSING, NOTHING) if said is None else (Fault.RANGE, said)
                raise _Refusal(*wrong, f"{made}, by its content", f".{name}")
        return value

    return decode


def _members_reader(of: Sequence[WireField], defaults: DefaultLimits, *, closed: bool) -> Decode:
    """Reads the fields that are there from the object in which they stand; `closed`: it has no others."""
    own = [each for each in of if not each.table]
    tables: dict[str, list[WireField]] = {}
    for each in of:
        if each.table:
            tables.setdefault(each.table, []).append(replace(each, table=""))
    strict = defaults.strict
    rows = [
        (f"[{name}]", name, _table_reader(inner, defaults, closed=closed), any(each.opens_table for each in inner))
        for name, inner in tables.items()
    ]
    rows += [
        (each.name, each.keys[0], _field(each, defaults), each.default is MISSING) for each in own if not each.spread
    ]
    spread = [
        (each, _columns(each, defaults) if isinstance(each.spread, Columns) else _inline(each, defaults))
        for each in own
        if each.spread
    ]
    known = {*tables, *(key for each in own for key in each.keys)}

    def decode(found: dict[str, Any]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        key = ""
        try:
            for name, key, inner, must in rows:
                each = found.get(key)
                if each is not None or (strict and key in found):
                    values[name] = inner(each)
                elif must:
                    raise _Refusal(Fault.MISSING, NOTHING, _expected_by(inner) if defaults.closed else "a value")
        except _Refusal as refusal:
            refusal.steps.append(f".{key}")
            raise
        for member, inner in spread:
            if member.default is MISSING or any(found.get(key) is not None for key in member.keys):
                values[member.name] = inner(found)
        if closed and (unknown := next((key for key in found if key not in known), None)) is not None:
            raise _Refusal(Fault.UNKNOWN, found[unknown], "no such field", f".{step(unknown)}")
        for name in tables:
            values |= values.pop(f"[{name}]", {})
        return values

    return decode


def _expected_by(read: Decode) -> str:
    """What is expected where a value is missing: the type of it."""
    try:
        read(None)
    except _Refusal as refusal:
        return refusal.expected
    return "a value"


def _table_reader(of: Sequence[WireField], defaults: DefaultLimits, *, closed: bool = True) -> Decode:
    """Reads the fields that are there from a table of a configuration."""
    read = _members_reader(of, defaults, closed=closed)

    def decode(found: Any) -> Any:
        if type(found) is not dict:
            raise _Refusal(Fault.TYPE, found, "an object")
        return read(found)

    return decode


def _field(member: WireField, defaults: DefaultLimits) -> Decode:
    kind, rules = member.kind, ()
    if (defaults.closed or (defaults.strict and member.default is None)) and _may_be_none(kind):  # absent, not null
        if get_origin(kind) is Annotated:
            kind, rules = get_args(kind)[0], kind.__metadata__
        kind = _known(get_args(kind))
    return _decoder(kind, rules, defaults)


def _check_keys(found: dict[str, Any], needed: Sequence[str], known: Sequence[str]) -> None:
    for key in needed:
        if key not in found:
            raise _Refusal(Fault.MISSING, ShownText(NOTHING), "this key", f".{key}")
    for key in found:
        if key not in known:
            raise _Refusal(Fault.UNKNOWN, ShownText("an unknown key"), f"one of {', '.join(known)}", as_step(key))


def _check_version(found: object, wire: Wire, strict: bool = False) -> None:
    if found is None and not strict:
        raise _Refusal(Fault.MISSING, NOTHING, str(wire.version), f".{wire.version_key}")
    if type(found) is not int or found != wire.version:
        raise _Refusal(Fault.VERSION, found, str(wire.version), f".{wire.version_key}")


# --- writing


@cache
def _encoder(kind: Any, whole: bool = False) -> Encode:
    wire: Wire = getattr(kind, "WIRE", Wire())
    whole = whole or wire.whole
    if wire.row:
        names = [each.name for each in members(kind)]
        write_row = _row_writer(tuple(each.kind for each in members(kind)), whole) or list
        return lambda value: write_row([getattr(value, name) for name in names])
    head = {} if wire.version is None else {wire.version_key: wire.version}
    single = [each for each in members(kind) if each.spread is None]
    rows = [(each.name, each.keys[0], _writer(each.kind, whole), each.default, _is_rewritten(each)) for each in single]
    spread = [(each.name, _spread_writer(each, whole)) for each in members(kind) if each.spread is not None]

    def write(value: Any) -> dict[str, Any]:
        found: dict[str, Any] = dict(head)
        for name, key, inner, default, rewritten in rows:
            each = getattr(value, name)
            if each is not None and (default is MISSING or each != default or (whole and not rewritten)):
                found[key] = each if inner is None else inner(each)
            elif whole or default is MISSING:
                found[key] = None
        for name, parts in spread:
            if each := getattr(value, name):
                found |= parts(each)
        for name in wire.derived:
            if (each := getattr(value, name)) is not None:
                found[name] = each
        return found

    return write


def _is_rewritten(member: WireField) -> bool:
    """Whether it has a wire form of its own, which need not have one for the default."""
    return get_origin(member.kind) is Annotated and any(
        isinstance(each, WrittenAs) for each in member.kind.__metadata__
    )


def _spread_writer(member: WireField, whole: bool) -> Encode:
    """Makes the members for the object in which a value stands."""
    if isinstance(member.spread, Columns):
        return lambda rows: dict(_table(member.keys, rows))
    kind: Any = _bare(member.kind)
    if is_dataclass(kind):
        return _encoder(cast(Any, kind), whole)
    return lambda value: dict(zip(member.keys, value, strict=True))


def _table(keys: tuple[str, ...], rows: Any) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """The columns of these rows, without one that is unknown in all of them."""
    columns = zip(*(rows.items() if isinstance(rows, Mapping) else rows), strict=True)
    for key, column in zip(keys, columns, strict=True):
        if column.count(None) < len(column):
            yield key, column


@cache
def _writer(kind: Any, whole: bool = False) -> Encode | None:
    """None: json writes it as it is, as it does numbers, texts and tuples of them."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        rule = {type(each): each for each in kind.__metadata__}
        if WrittenAs in rule:
            make, write = rule[WrittenAs].write, _writer(rule[WrittenAs].kind, whole)
            return make if write is None else _both(make, write)
        return known_list if Packed in rule else _writer(arguments[0], whole)
    if origin in (Union, UnionType):
        return _writer(_known(arguments), whole)
    if origin is tuple and arguments[-1] is not ...:
        return _row_writer(arguments, whole)
    if origin in (tuple, list, Sequence):
        return None if (inner := _writer(arguments[0], whole)) is None else _each(inner)
    if origin in (dict, Mapping):
        return dict if (inner := _writer(arguments[1], whole)) is None else _each_value(inner)
    if is_dataclass(kind):
        return _encoder(cast(Any, kind), whole)
    if isinstance(kind, type) and issubclass(kind, tuple):
        return _row_writer(_hints(kind), whole)
    return None


def _each(write: Encode) -> Encode:
    return lambda value: [write(each) for each in value]


def _each_value(write: Encode) -> Encode:
    return lambda value: {key: write(each) for key, each in value.items()}


def _both(make: Encode, write: Encode) -> Encode:
    return lambda value: write(make(value))


def _row_writer(hints: tuple[Any, ...], whole: bool) -> Encode | None:
    writers = [_writer(hint, whole) for hint in hints]
    if not any(writers):
        return None

    def write(row: Sequence[Any]) -> list[Any]:
        return [each if inner is None else inner(each) for inner, each in zip(writers, row, strict=True)]

    return write


def known_list(column: "array[Any]") -> list[Any] | None:
    """A packed column in its JSON form: None for each unknown value, or one None for all when all are unknown."""
    values = column.tolist()
    if min(values) != UNKNOWN:
        return values
    return None if max(values) == UNKNOWN else [None if value == UNKNOWN else value for value in values]
