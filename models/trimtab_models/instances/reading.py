"""Strict reading of JSON documents.  Every error names the JSON path, what was found and what was expected.

Values check themselves on construction, and name a bad field relative to themselves (`.load`).  The reader of the list
that contains them adds the path in front (`$.key_groups[3]`).  So each rule is written once, for documents and for
values built in code.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

SHOWN_CHARACTERS = 60
MOST_BITS_SHOWN = 1000
T = TypeVar("T")


class BadInstance(ValueError):
    """The document violates the file contract at the JSON path `path`, by what was `found` there."""

    def __init__(self, path: str, found: str, expected: str) -> None:
        super().__init__(path, found, expected)
        self.path = path
        self.found = found
        self.expected = expected

    def __str__(self) -> str:
        return f"{self.path}: found {self.found}, expected {self.expected}"


@contextmanager
def located(prefix: str) -> Iterator[None]:
    """Add `prefix` to the path of a `BadInstance` raised inside."""
    try:
        yield
    except BadInstance as error:
        raise BadInstance(prefix + error.path, error.found, error.expected) from None


def shown(value: object) -> str:
    """`value` as JSON, on one line of limited length."""
    match value:
        case dict():
            return "an object"
        case list():
            return "a list"
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "an infinite number"
        case int() if value.bit_length() > MOST_BITS_SHOWN:  # Python refuses to write very long numbers
            return "a number of many digits"
    text = json.dumps(value, default=repr)
    return text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "..."


def step(key: str) -> str:
    """One step of a JSON path: `.load`, or `["odd name"]`."""
    return f".{key}" if key.isidentifier() else f"[{shown(key)}]"


def check_text(path: str, value: object) -> None:
    """Raises BadInstance for anything but a string."""
    if type(value) is not str:
        raise BadInstance(path, shown(value), "a string")


def check_flag(path: str, value: object) -> None:
    """Raises BadInstance for anything but true and false."""
    if type(value) is not bool:
        raise BadInstance(path, shown(value), "true or false")


def check_number(path: str, value: object, *, positive: bool = False) -> None:
    """Raises BadInstance for anything but a finite number >= 0 (> 0 if `positive`); true and false are not numbers."""
    if (
        (type(value) is float or type(value) is int)
        and (value > 0 or (value == 0 and not positive))
        and is_finite(value)
    ):
        return
    raise BadInstance(path, shown(value), "a finite number > 0" if positive else "a finite number >= 0")


def check_count(path: str, value: object, *, least: int = 0) -> None:
    """Raises BadInstance for anything but a whole number >= `least`."""
    if type(value) is not int or value < least:
        raise BadInstance(path, shown(value), f"a whole number >= {least}")


def check_version(path: str, value: object, version: int) -> None:
    """Raises BadInstance for any version but `version`."""
    if type(value) is not int or value != version:
        raise BadInstance(path, shown(value), str(version))


def is_finite(value: float) -> bool:
    """Whether `value` is a number that a float can hold."""
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer too large for a float
        return False


def check_amounts(path: str, value: object) -> None:
    """Raises BadInstance for anything but an object of names and finite numbers >= 0."""
    if not isinstance(value, dict):
        raise BadInstance(path, shown(value), "an object of names and numbers")
    for name, amount in value.items():
        check_text(path, name)
        check_number(path + step(name), amount)


def check_distinct(path: str, ids: Iterable[str]) -> None:
    """Raises BadInstance for an id that occurs twice in a list at `path`."""
    seen: set[str] = set()
    for position, id_ in enumerate(ids):
        if id_ in seen:
            raise BadInstance(f"{path}[{position}].id", shown(id_), "an id used once in this list")
        seen.add(id_)


def read_object(value: object, required: Collection[str], optional: Collection[str]) -> dict[str, Any]:
    """`value`, if it is an object with all `required` keys and no keys but these and the `optional` ones."""
    if not isinstance(value, dict):
        raise BadInstance("", shown(value), "an object")
    for key in required:
        if key not in value:
            raise BadInstance(step(key), "nothing", "this key")
    if len(value) > len(required):
        for key in value:
            if key not in required and key not in optional:
                raise BadInstance(step(key), "an unknown key", "one of " + ", ".join([*required, *optional]))
    return value


def read_list(value: object) -> list[Any]:
    """`value`, if it is a list."""
    if not isinstance(value, list):
        raise BadInstance("", shown(value), "a list")
    return value


def read_each(value: object, path: str, read: Callable[[object], T]) -> tuple[T, ...]:
    """`read` of every entry of the list `value` at `path`."""
    with located(path):
        entries = read_list(value)
    values: list[T] = []
    try:
        for entry in entries:
            values.append(read(entry))  # noqa: PERF401  (its length tells which entry was refused)
    except BadInstance as error:
        raise BadInstance(f"{path}[{len(values)}]{error.path}", error.found, error.expected) from None
    return tuple(values)


def parse_document(text: str | bytes) -> object:
    """The JSON value in `text` (UTF-8).  Raises BadInstance if it is not JSON, or if an object has a key twice."""
    repeated: list[_Repeated] = []

    def collect(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        collected = dict(pairs)
        if len(collected) < len(pairs):
            marked = _Repeated(pairs)
            repeated.append(marked)
            return marked
        return collected

    try:
        document: object = json.loads(text, object_pairs_hook=collect)
    except RecursionError:
        raise BadInstance("$", "lists or objects nested too deeply", "an instance") from None
    except ValueError as error:  # bad JSON, bad UTF-8, a number with thousands of digits
        raise BadInstance("$", f"no JSON ({' '.join(str(error).split())})", "a JSON document") from None
    if repeated:
        raise BadInstance(*_path_of_repeated(document, "$"), "each key once")
    return document


class _Repeated(dict[str, Any]):
    """An object with a repeated key.  Its path is known only when the document is complete."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.key = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)


def _path_of_repeated(value: object, path: str) -> tuple[str, str]:
    waiting: list[tuple[object, str]] = [(value, path)]
    while waiting:
        value, path = waiting.pop()
        if isinstance(value, _Repeated):
            return path + step(value.key), "the key a second time"
        if isinstance(value, dict):
            waiting.extend((child, path + step(key)) for key, child in value.items())
        elif isinstance(value, list):
            waiting.extend((child, f"{path}[{position}]") for position, child in enumerate(value))
    return "$", "a key a second time"  # inside a value that another repetition replaced
