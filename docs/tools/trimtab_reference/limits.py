"""docs/reference/limits.md: every limit that the code names, with its number and what it is for."""

import re
from collections.abc import Iterable
from pathlib import Path

from trimtab_reference import ROOT
from trimtab_reference.markdown import amount, code, link, table
from trimtab_reference.source import Constant, Undocumented, numbers

IS_LIMIT = re.compile(r"MAX_\w+|\w+_LIMIT(_M?S)?|(?!IDLE)\w+_PER_S|\w+_AT_ONCE")
SECTIONS = (
    ("Messages, keys and settings", "shared"),
    ("Agent and Faust plug-in", "agent"),
    ("Controller and stream", "controller"),
)


def render() -> str:
    """The page."""
    parts = [
        "# Limits",
        "Sizes, counts and times that are built in. [The failure model](../failure-model.md) says what happens beyond "
        "them. Limits that you can set are in [configuration](configuration.md), each with its range.",
    ]
    for title, folder in SECTIONS:
        parts += [f"## {title}", table(("limit", "value", "meaning", "where"), _rows(ROOT / folder))]
    return "\n\n".join(parts)


def _rows(folder: Path) -> Iterable[tuple[str, str, str, str]]:
    for path in sorted(folder.rglob("*.py")):
        for limit in numbers(path):
            if IS_LIMIT.fullmatch(limit.name):
                yield (
                    code(limit.name),
                    amount(limit.value, limit.name),
                    meaning(limit),
                    link(code(limit.path.name), limit.path),
                )


def meaning(limit: Constant) -> str:
    """What the source says about a limit; raises Undocumented."""
    if not limit.text:
        where = limit.path.relative_to(ROOT)
        raise Undocumented(f'{where}: {limit.name} is a limit without a text: put a """docstring""" below it')
    return limit.text
