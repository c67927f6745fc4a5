"""What scenarios show, as a table at the end of a run: planned and measured values beside each other."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

PROPERTY = "shown"
"""The name under which a test's report has what it shows; reports also come from other processes."""

Show = Callable[[str, str, str], None]
"""Called with what it is, what was planned or promised, and what was measured."""

Row = tuple[str, str, str]


def rows_of(properties: Iterable[tuple[str, Any]]) -> list[Row]:
    """The rows in the properties of a report."""
    return [(str(what), str(planned), str(measured)) for name, (what, planned, measured) in _shown(properties)]


def _shown(properties: Iterable[tuple[str, Any]]) -> Iterable[tuple[str, Any]]:
    return (each for each in properties if each[0] == PROPERTY)


def table(found: Sequence[tuple[str, Sequence[Row]]]) -> str:
    """The rows of tests by name; empty if no test shows anything."""
    lines: list[Row] = []
    for test, rows in found:
        lines += [(f"{test}", "", "")] if rows else []
        lines += [(f"  {what}", planned, measured) for what, planned, measured in rows]
    if not lines:
        return ""
    lines = [("", "planned or promised", "measured"), *lines]
    widths = [max(len(line[column]) for line in lines if line[1] or line[2]) for column in (0, 1)]
    return "\n".join(f"{a:{widths[0]}}  {b:{widths[1]}}  {c}".rstrip() for a, b, c in lines)
