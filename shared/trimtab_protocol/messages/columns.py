"""Many samples in one JSON object, with one array per quantity instead of one object per sample.

This takes a third of the bytes, and both sides work on whole arrays.  All arrays of an object have the same length.  A
quantity that is unknown in all samples is null or absent.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

from trimtab_protocol.messages.decode import (
    MAX_NUMBER,
    BadMessage,
    Fault,
    Fields,
    check_integer,
    check_name,
    check_number,
)

Check = Callable[[object, str, Any, Any], object]

UNKNOWN = -1
"""Marks an unknown value in an array.  All known values are at least 0."""


def columns_of(rows: Iterable[object], names: Mapping[str, str]) -> dict[str, list[Any] | None]:
    """The columns of these rows by wire key; `names` = wire key -> attribute of a row.  None = unknown in all rows."""
    listed = list(rows)
    columns = {key: list(map(attrgetter(attribute), listed)) for key, attribute in names.items()}
    return {key: None if column.count(None) == len(listed) else column for key, column in columns.items()}


def known_columns(rows: Iterable[object], names: Mapping[str, str]) -> dict[str, list[Any]]:
    """Those of `columns_of` that are known in any row: readers of before know no others."""
    return {key: column for key, column in columns_of(rows, names).items() if column is not None}


def read_size(fields: Fields, name: str, *, limit: int) -> int:
    """The number of samples, 1 to `limit`: the length of the column `name`, which must be present."""
    column = fields.peek(name)
    if not isinstance(column, list):
        fault = Fault.MISSING if column is None else Fault.TYPE
        raise BadMessage(fault, fields.at(name), column, "an array")
    if not column:
        raise BadMessage(Fault.RANGE, fields.at(name), column, "an array that is not empty")
    if len(column) > limit:
        raise BadMessage(Fault.OVERSIZED, fields.at(name), f"{len(column)} elements", f"at most {limit}")
    return len(column)


def read_integers(fields: Fields, name: str, size: int, *, high: int = 2**63 - 1) -> list[int]:
    """A column of whole numbers within [0, high], all of them known."""
    column = read_known_integers(fields, name, size, high=high)
    return [value for value in _whole(fields, name, column) if value is not None]


def read_known_integers(fields: Fields, name: str, size: int, *, high: int = 2**63 - 1) -> list[int | None]:
    """A column of whole numbers within [0, high], None where unknown."""
    return _integers(fields, name, size, high)


def read_numbers(fields: Fields, name: str, size: int) -> list[float]:
    """A column of finite numbers of at least 0, all of them known."""
    column = read_known_numbers(fields, name, size)
    return [value for value in _whole(fields, name, column) if value is not None]


def read_known_numbers(fields: Fields, name: str, size: int) -> list[float | None]:
    """A column of finite numbers of at least 0, None where unknown."""
    return [None if value is None else float(value) for value in _numbers(fields, name, size)]


def read_integer_column(
    fields: Fields, name: str, size: int, *, high: int = 2**63 - 1, whole: bool = False
) -> array[int]:
    """A column of whole numbers within [0, high], UNKNOWN where unknown; `whole`: all of them are known."""
    return _packed("q", read_integers(fields, name, size, high=high) if whole else _integers(fields, name, size, high))


def read_number_column(fields: Fields, name: str, size: int, *, whole: bool = False) -> array[float]:
    """A column of finite numbers of at least 0, UNKNOWN where unknown; `whole`: all of them are known."""
    values = _numbers(fields, name, size)
    return _packed("d", _whole(fields, name, values) if whole else values)


def known_list(column: array[Any]) -> list[Any] | None:
    """A column in its JSON form: None for each unknown value, or one None for all when every value is unknown."""
    values = column.tolist()
    if min(values) != UNKNOWN:
        return values
    return None if max(values) == UNKNOWN else [None if value == UNKNOWN else value for value in values]


def read_names(fields: Fields, name: str, *, limit: int) -> list[str]:
    """An array of names."""
    return [check_name(value, path) for path, value in fields.items(name, limit=limit)]


def check_once(path: str, names: Sequence[object]) -> None:
    """Raises BadMessage when a name occurs twice."""
    if len(set(names)) != len(names):
        raise BadMessage(Fault.RANGE, path, f"{len(names)} of {len(set(names))} names", "each of them once")


def _packed(kind: str, values: list[Any]) -> array[Any]:
    return array(kind, [UNKNOWN if value is None else value for value in values] if None in values else values)


def _integers(fields: Fields, name: str, size: int, high: int) -> list[Any]:
    return _read(fields, name, size, (frozenset({int}), check_integer, 0, high))


def _numbers(fields: Fields, name: str, size: int) -> list[Any]:
    return _read(fields, name, size, (frozenset({int, float}), check_number, 0.0, MAX_NUMBER))


def _whole(fields: Fields, name: str, column: list[Any]) -> list[Any]:
    if None in column:
        raise BadMessage(Fault.MISSING, f"{fields.at(name)}[{column.index(None)}]", "nothing", "a number")
    return column


def _read(fields: Fields, name: str, size: int, rule: tuple[frozenset[type], Check, float, float]) -> list[Any]:
    values = fields.take(name)
    if values is None:
        return [None] * size
    if not isinstance(values, list):
        raise BadMessage(Fault.TYPE, fields.at(name), values, "an array")
    if len(values) != size:
        raise BadMessage(Fault.RANGE, fields.at(name), f"{len(values)} elements", f"{size}, as many as the others")
    types, check, low, high = rule
    known = [value for value in values if value is not None] if None in values else values
    if not set(map(type, known)) <= types or (known and not (low <= min(known) and max(known) <= high)):
        for index, value in enumerate(values):  # find the wrong one, to name it
            if value is not None:
                check(value, f"{fields.at(name)}[{index}]", low, high)
    return values
