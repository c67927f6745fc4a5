"""Small pieces of Markdown."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from trimtab_reference import REFERENCE, ROOT

NONE = "–"
ENDLESS = 1e15
"""Larger numbers only keep others finite; their digits say nothing."""
SIZES = ((1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB"))


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; a line break or a bar in a cell does not end it."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(cell(text) for text in row) + " |" for row in rows]
    return "\n".join(lines)


def cell(text: str) -> str:
    """A text as the cell of a table."""
    return escaped(text).replace("|", "\\|") or NONE


def entries(rows: Iterable[tuple[str, str]]) -> str:
    """A list of names, which are code already, with what they mean."""
    return "\n".join(f"- {name}: {escaped(text)}" for name, text in rows)


def escaped(text: str) -> str:
    """A text in one line: outside of code no word is taken for HTML or emphasis."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    return "".join(part if part.startswith("`") else re.sub(r"[<*]", r"\\\g<0>", part) for part in parts)


def code(text: str) -> str:
    """A text in the typewriter face; nothing for an empty one."""
    return f"`{text}`" if text else ""


def codes(texts: Iterable[str]) -> str:
    """Several of them, separated by commas."""
    return ", ".join(map(code, texts))


def link(text: str, path: Path) -> str:
    """A link from a page of the reference to a file of the repository."""
    up = "/".join([".."] * len(REFERENCE.relative_to(ROOT).parts))
    return f"[{text}]({up}/{path.relative_to(ROOT).as_posix()})"


def source_link(path: Path) -> str:
    """A link to a file of the repository; a module is named as Python finds it."""
    parts = path.relative_to(ROOT).parts
    return link(code("/".join(parts[1:] if len(parts) > 2 and parts[1].startswith("trimtab_") else parts)), path)


def plain(text: str) -> str:
    """The paragraphs of a docstring; each in one line, `::` blocks and indents are not kept."""
    return "\n\n".join(" ".join(part.split()) for part in re.split(r"\n\s*\n", text.strip()))


def without_article(text: str) -> str:
    """A description without the `a` or `an` before it."""
    return re.sub(r"^an? ", "", text)


def first_paragraph(text: str) -> str:
    """The first paragraph of a docstring in one line."""
    return plain(text).split("\n\n", 1)[0]


def first_sentence(text: str) -> str:
    """The first sentence of a docstring in one line."""
    return re.split(r"(?<=[.;]) ", first_paragraph(text), maxsplit=1)[0].replace(";", ".")


def amount(value: float, name: str = "") -> str:
    """A number with the unit that the end of its name states."""
    if name.endswith("BYTES_S") or (name.endswith("_PER_S") and "BYTES" in name):
        return f"{_size(value)} per s"
    if name.endswith("_PER_S") or re.search(r"(REPORTS|ARRIVALS)_S$", name):
        return f"{_number(value)} per s"
    for suffix, unit in (("_MS", "ms"), ("_S", "s")):
        if name.endswith(suffix):
            return f"{_number(value)} {unit}"
    return _size(value) if "BYTES" in name else _number(value)


def _size(value: float) -> str:
    for size, unit in SIZES:
        if value >= size and value % size == 0:
            return f"{_number(value // size)} {unit}"
    return f"{_number(value)} bytes"


def _number(value: float) -> str:
    if value != int(value) or value >= ENDLESS:
        return f"{value:g}"
    return f"{int(value):,}"
