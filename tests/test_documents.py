"""The documents hang together: links and anchors lead somewhere, lists are complete, lines are short."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.glob("**/*.md")), *sorted((ROOT / "runbooks").glob("*.md"))]
OF_OUR_OWN = 9
"""Words that no reader knows from elsewhere."""


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def without_code(text: str) -> str:
    return re.sub(r"^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE)


def anchors(path: Path) -> set[str]:
    """As GitHub makes them of headings."""
    headings = re.findall(r"^#+ (.*)", without_code(path.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_links_and_anchors_lead_somewhere(path: Path) -> None:
    dead = []
    for link in re.findall(r"\]\((?!https?://)([^)\s]+)\)", without_code(path.read_text())):
        file, _, anchor = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        if target.is_relative_to(REFERENCE) and not REFERENCE.exists():
            continue  # generated
        if not target.exists() or (anchor and anchor not in anchors(target)):
            dead.append(link)
    assert dead == []


def test_the_index_of_decisions_is_complete() -> None:
    records = sorted(path.name for path in (DOCS / "decisions").glob("0*.md"))
    assert re.findall(r"\]\((0[^)]+)\)", (DOCS / "decisions" / "README.md").read_text()) == records
    for number, record in enumerate(records, 1):
        text = (DOCS / "decisions" / record).read_text()
        assert text.startswith(f"# {number}. "), record
        assert re.findall(r"^## (.*)", text, re.MULTILINE) == ["Context", "Decision", "Consequences"], record


def test_each_word_of_our_own_has_a_formula_or_an_example() -> None:
    own, of_the_field = (DOCS / "concepts" / "glossary.md").read_text().split("\n## Terms of the field")
    words = own.split("\n## ")[1:]
    assert len(words) <= OF_OUR_OWN
    assert [word.splitlines()[0] for word in words if "```" not in word and "*Example:*" not in word] == []
    assert "| worker |" in of_the_field


WRITTEN = [path for path in DOCUMENTS if path.is_relative_to(DOCS) and not path.is_relative_to(REFERENCE)]


@pytest.mark.parametrize("path", WRITTEN, ids=name)
def test_lines_are_short_or_one_sentence(path: Path) -> None:
    def is_short(line: str) -> bool:
        return len(line) <= 120 or line.startswith(("|", "#")) or len(re.findall(r"[.:;] ", line)) == 0

    assert [line for line in path.read_text().splitlines() if not is_short(line)] == []
