"""The reference pages in docs/reference, written from the code.

`python -m trimtab_reference` (in this folder's parent; `make docs-reference`) writes them, `--check` only compares.
Texts come from the code that owns them: docstrings, help texts, sample files, runbooks. A page fails to render when the
code says nothing about something that it lists, and the error names the place where the text belongs.
"""

import re
import textwrap
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
REFERENCE = ROOT / "docs" / "reference"
COMMAND = "make docs-reference"

PAGES: Mapping[str, str] = {
    "cli": "trimtab_reference.cli",
    "configuration": "trimtab_reference.configuration",
    "files": "trimtab_reference.files",
    "limits": "trimtab_reference.limits",
    "methods": "trimtab_reference.methods",
    "metrics": "trimtab_reference.metrics",
    "reasons": "trimtab_reference.reasons",
    "topics": "trimtab_reference.topics",
}
"""Page -> module with `render() -> str`. A module is imported only when its page is rendered."""

WIDTH = 120
NOTICE = f"<!-- Written by `{COMMAND}` from the code. Do not edit. -->"


def path_of(page: str) -> Path:
    """The file of a page."""
    return REFERENCE / f"{page}.md"


def render(page: str) -> str:
    """The text that the page should have."""
    text: str = import_module(PAGES[page]).render()
    title, _, body = text.strip().partition("\n")
    return f"{title}\n\n{NOTICE}\n{wrapped(body)}\n"


def wrapped(text: str) -> str:
    """The text in lines of at most WIDTH characters.  Tables, headings and code fences stay as they are."""
    lines, fenced = [], False
    for line in text.split("\n"):
        fenced ^= line.startswith("```")
        if fenced or line.startswith(("|", "#", "```")):
            lines.append(line)
        else:
            found = re.match(r"\s*(- |\d+\. )?", line)
            indent = " " * len(found[0]) if found else ""
            lines += textwrap.wrap(
                line, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
            ) or [""]
    return "\n".join(lines)


def is_stale(page: str) -> bool:
    """Whether the file says something else than the code."""
    path = path_of(page)
    return not path.exists() or path.read_text(encoding="utf-8") != render(page)


def write(page: str) -> bool:
    """Write the page if it is stale; whether it was."""
    if not is_stale(page):
        return False
    REFERENCE.mkdir(parents=True, exist_ok=True)
    path_of(page).write_text(render(page), encoding="utf-8")
    return True
