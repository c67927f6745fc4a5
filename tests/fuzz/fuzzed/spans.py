"""Where the values and members of a sample stand, so that a mutant can be cut together without parsing it again."""

import re
from typing import NamedTuple


class Span(NamedTuple):
    """`data[start:end]` is a value, or a whole member (`"key":value`, or a line of TOML)."""

    start: int
    end: int
    is_member: bool


def spans_of_json(data: bytes) -> tuple[Span, ...]:
    """All values and members of a compact JSON text; nothing for any other text."""
    spans: list[Span] = []
    try:
        _value(data, data.index(b"{"), spans)
    except (IndexError, ValueError, RecursionError):
        return ()
    return tuple(spans)


def _value(data: bytes, at: int, spans: list[Span]) -> int:
    start, first = at, data[at]
    if first in b"{[":
        end = b"}"[0] if first == b"{"[0] else b"]"[0]
        at += 1
        while data[at] != end:
            member = at
            if first == b"{"[0]:
                at = _text(data, at) + 1  # the colon
                at = _value(data, at, spans)
                spans.append(Span(member, at, True))
            else:
                at = _value(data, at, spans)
            at += data[at] == b","[0]
        at += 1
    elif first == b'"'[0]:
        at = _text(data, at)
    else:
        while at < len(data) and data[at] not in b",]}":
            at += 1
        if at == start:
            raise ValueError(f"no value at {at}")
    spans.append(Span(start, at, False))
    return at


def _text(data: bytes, at: int) -> int:
    at += 1
    while data[at] != b'"'[0]:
        at += 2 if data[at] == b"\\"[0] else 1
    return at + 1


def spans_of_toml(data: bytes) -> tuple[Span, ...]:
    """Each line, and what stands behind its first equals sign."""
    lines = [Span(*match.span(), True) for match in re.finditer(rb"[^\n]+\n", data)]
    values = [Span(*match.span(1), False) for match in re.finditer(rb"(?m)=[ ]*([^\n]+)$", data)]
    return (*lines, *values)
