"""Reading of instance files.  Every error names the JSON path, what was found and what was expected.

The classes of an instance declare their keys, the types and the limits of what stands there, and the messages' codec
reads them strictly.  Rules of several values stand in `__post_init__`, which names the place relative to the value
(`nodes[1].id`), so that they hold for values that are built in code, too.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Any, TypeVar

from trimtab_protocol.messages.codec import COUNT, FILE, FINITE, Range, converted
from trimtab_protocol.messages.decode import BadMessage, Fault, ShownText, as_json, as_step

T = TypeVar("T")
Positive = Annotated[float, Range(math.ulp(0.0), FINITE.high, "a finite number > 0")]
AtLeastOne = Annotated[int, Range(1, COUNT.high, "a whole number >= 1")]


class BadInstance(BadMessage):
    """The document violates the file contract at the JSON path `path`, by what was `found` there."""

    def __init__(self, path: str, found: str, expected: str) -> None:
        super().__init__(Fault.RANGE, path, ShownText(found), expected)

    def __str__(self) -> str:
        return f"{self.path}: found {self.found}, expected {self.expected}"


def is_finite(value: float) -> bool:
    """Whether `value` is a number that a float can hold."""
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer too large for a float
        return False


def check_distinct(path: str, ids: Iterable[str]) -> None:
    """Raises BadInstance for an id that occurs twice in a list at `path`."""
    seen: set[str] = set()
    for position, id_ in enumerate(ids):
        if id_ in seen:
            raise BadInstance(f"{path}[{position}].id", as_json(id_), "an id used once in this list")
        seen.add(id_)


def parsed_instance(text: str | bytes, kind: type[T]) -> T:
    """The instance in a JSON text (UTF-8).  Raises BadInstance."""
    return instance_in(parse_document(text), kind)


def instance_in(document: object, kind: type[T]) -> T:
    """The instance in a parsed JSON document.  Raises BadInstance."""
    try:
        return converted(document, kind, defaults=FILE)
    except BadMessage as bad:
        path = "$" if not bad.path else f"${bad.path}" if bad.path.startswith("[") else f"$.{bad.path}"
        raise BadInstance(path, bad.found, bad.expected) from None


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
            return path + as_step(value.key), "the key a second time"
        if isinstance(value, dict):
            waiting.extend((child, path + as_step(key)) for key, child in value.items())
        elif isinstance(value, list):
            waiting.extend((child, f"{path}[{position}]") for position, child in enumerate(value))
    return "$", "a key a second time"  # inside a value that another repetition replaced
