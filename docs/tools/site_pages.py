"""Hook of mkdocs: the site has the pages at their places in the repository, so that their relative links hold.

mkdocs collects `docs_dir` only; pages of this repository stand beside it too (README, runbooks). A link to
a file that people read as it is (a sample, a picture) takes the file into the site. Of a link to source code or to a
folder only the text stays, because the site does not have the code.
"""

import posixpath
import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("*.md", "docs/**/*.md", "runbooks/*.md", "tests/README.md")
SHOWN = {"", ".css", ".gif", ".jpg", ".json", ".png", ".service", ".svg", ".toml", ".yml"}
"""Endings of files that a page may take along."""
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
ITEM = re.compile(r"([-*+]|\d+[.)]) ")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Write out the patterns of the navigation."""
    pages = list(_pages())
    named = {entry for entry in _entries(config.nav) if "*" not in entry}
    config.nav = list(_resolved(config.nav or [], pages, named))
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Replace what mkdocs found in `docs_dir` by the pages of the repository and what they take along."""
    theme = [file for file in files if file.src_dir != config.docs_dir]
    pages = list(_pages())
    taken = {target for page in pages for target in _targets(page) if _is_taken(target)}
    sources = [*pages, *sorted(taken), *config.extra_css]
    return Files([*theme, *(File.generated(config, each, abs_src_path=str(ROOT / each)) for each in sources)])


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Keep only the text of links to what the site does not have; a folder with a README is that page."""
    folder = posixpath.dirname(page.file.src_uri)

    def relinked(link: re.Match[str]) -> str:
        target = _resolve(folder, link[3])
        if target is None or files.get_file_from_path(target) is not None:
            return link[0]
        readme = posixpath.join(target, "README.md")
        if files.get_file_from_path(readme) is not None:
            return f"{link[1]}[{link[2]}]({posixpath.relpath(readme, folder or '.')})"
        return link[2] if (ROOT / target).exists() else link[0]  # mkdocs reports the broken one

    parts = _split(markdown)
    return "".join(part if part.startswith("```") else _spaced(LINK.sub(relinked, part)) for part in parts)


def _spaced(text: str) -> str:
    """The text with an empty line before each list and table: Python's Markdown needs what GitHub's does not."""
    lines: list[str] = []
    block = ""  # what the lines since the last empty one began with
    for line in text.split("\n"):
        kind = "list" if ITEM.match(line) else "table" if line.startswith("|") else "text"
        if block == "text" and kind != "text":
            lines.append("")
        block = "" if not line.strip() or line.startswith("#") else kind if not block or kind != "text" else block
        lines.append(line)
    return "\n".join(lines)


def _split(markdown: str) -> Iterator[str]:
    """The text with blocks of code apart; code within a line may be the text of a link and stays."""
    yield from re.split(r"(^```.*?^```$)", markdown, flags=re.MULTILINE | re.DOTALL)


def _pages() -> Iterator[str]:
    found = {path for pattern in PAGES for path in ROOT.glob(pattern)}
    yield from sorted(path.relative_to(ROOT).as_posix() for path in found)


def _targets(page: str) -> Iterator[str]:
    for part in _split((ROOT / page).read_text(encoding="utf-8")):
        for link in LINK.finditer(part):
            if target := _resolve(posixpath.dirname(page), link[3]):
                yield target


def _resolve(folder: str, link: str) -> str | None:
    """The place in the repository that a link names; None: an address, or a place on the same page."""
    path = link.partition("#")[0]
    if not path or re.match(r"[a-z]+:|/", path):
        return None
    return posixpath.normpath(posixpath.join(folder, path))


def _is_taken(target: str) -> bool:
    path = ROOT / target
    return path.is_file() and path.suffix in SHOWN


def _entries(nav: Any) -> Iterator[str]:
    match nav:
        case str():
            yield nav
        case dict():
            for part in nav.values():
                yield from _entries(part)
        case _:
            for part in nav:
                yield from _entries(part)


def _resolved(nav: Iterable[Any], pages: list[str], named: set[str]) -> Iterator[Any]:
    for entry in nav:
        match entry:
            case str() if "*" in entry:
                fitting = (page for page in pages if fnmatch(page, entry) and page not in named)
                yield from (page for page in fitting if posixpath.dirname(page) == posixpath.dirname(entry))
            case str():
                yield from (page for page in pages if page == entry)
            case _:
                [(title, inner)] = entry.items()
                if below := list(_resolved(inner, pages, named)):
                    yield {title: below}
