"""Every relative link of every Markdown file leads to a file, and to a heading of it, as GitHub shows them."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ELSEWHERE = {"out", "build", "dist", "node_modules"}
FENCE = re.compile(r"^( *)(```+|~~~+).*?^\1\2[ \t]*$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"(`+)(?:(?!\1).)+?\1", re.DOTALL)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
LINK = re.compile(r"!?\[[^\[\]]*\]\(\s*<?([^()\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
DEFINITION = re.compile(r"^ {0,3}\[[^\]]+\]:\s*<?([^\s>]+)", re.MULTILINE)
HTML = re.compile(r"<(?:a|img)\b[^>]*?\b(?:href|src)=\"([^\"]+)\"")
HEADING = re.compile(r"^ {0,3}#{1,6}[ \t]+(.*?)[ \t#]*$", re.MULTILINE)
ANCHOR = re.compile(r"<a\b[^>]*?\b(?:id|name)=\"([^\"]+)\"")


def documents(root: Path) -> Iterator[Path]:
    """Our Markdown files: not those of environments, tools and earlier runs."""
    for path in sorted(root.iterdir()):
        if path.is_dir() and not path.name.startswith(".") and path.name not in ELSEWHERE:
            yield from documents(path)
        elif path.suffix == ".md":
            yield path


def targets(text: str) -> list[str]:
    """Where the links of a text lead; what is code or a comment is no link."""
    text = COMMENT.sub("", FENCE.sub("", text))
    # The text of a link may be code, its target is none: code is emptied, not taken away.
    text = CODE.sub("`code`", text)
    found = [*DEFINITION.findall(text), *HTML.findall(text)]
    while links := LINK.findall(text):  # a picture may be the text of a link: what is inside goes first
        found += links
        text = LINK.sub("text", text)
    return found


def anchors(text: str) -> set[str]:
    """The headings as GitHub names them: `two-words`, the second one of the same name `two-words-1`."""
    found: dict[str, int] = {}
    names = set(ANCHOR.findall(text))
    for heading in HEADING.findall(FENCE.sub("", text)):
        shown = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
        count = found[name] = found.get(name, -1) + 1
        names.add(f"{name}-{count}" if count else name)
    return names


def broken(path: Path, root: Path) -> list[str]:
    """The relative links of a file that lead nowhere."""
    found = []
    for target in targets(path.read_text(encoding="utf-8")):
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            continue
        place, _, anchor = target.partition("#")
        there = (path.parent / place).resolve() if place else path
        inside = there.is_relative_to(root) and there.exists() and not place.startswith("/")
        if not inside or (anchor and there.suffix == ".md" and anchor not in anchors(there.read_text("utf-8"))):
            found.append(target)
    return found


@pytest.mark.parametrize("path", list(documents(ROOT)), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    assert broken(path, ROOT) == []


def test_what_leads_nowhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "other.md").write_text(
        "# Two words\n\n```\n# no heading\n```\n\n## `code` & [more](x.md)\n\n## Two words\n"
    )
    page = tmp_path / "page.md"
    page.write_text(
        """# Page
[good](other.md), [good](other.md#two-words), [good](other.md#two-words-1), [good](other.md#code--more), [good](#page)
[good](sub), [good](https://elsewhere.example/x#y), `[code](no.md)`, [`code`](other.md), ![good](other.md "title")
[gone](gone.md), [`gone`](gone/), [gone](other.md#no-heading), [gone](#nothing), [outside](../), [rooted](/other.md)
[![gone](gone.png)](other.md), [used][below], <img src="gone.svg">

[below]: gone-too.md

```
[code](no.md)
```
"""
    )
    assert sorted(broken(page, tmp_path)) == [
        "#nothing",
        "../",
        "/other.md",
        "gone-too.md",
        "gone.md",
        "gone.png",
        "gone.svg",
        "gone/",
        "other.md#no-heading",
    ]
