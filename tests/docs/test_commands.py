"""Every call of `trimtab` and `trimtab-agent` in a Markdown file is one that they accept."""

import argparse
import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pytest

from tests.docs.test_links import FENCE, documents
from tests.paths import ROOT
from trimtab_agent.cli import agent_parser
from trimtab_controller.cli import parser_for
from trimtab_controller.cli.shipped import SAMPLES

GENERATED = ROOT / "docs" / "reference"
"""Its pages are written from the parsers, with brackets around what may be left out."""
BEFORE = r"(?:^|\$|;|&&|\||--|sudo(?: -u \S+)?|(?:docker compose )?(?:exec|run)(?: --rm)? \S+|\w+=\S+)"
IN_SHELL = re.compile(rf"{BEFORE} *(?:[\w.~-]*/)*(trimtab(?:-agent)?) ([^|;&>]*)")
INLINE = re.compile(r"`(trimtab(?:-agent)?) ([^`|>]*)[^`]*`")
NAMED = {
    "runbook": {path.stem for path in (ROOT / "runbooks").glob("*.md")},
    "sample": set(SAMPLES),
}
PLACEHOLDERS = {
    "TIMES": "2",
    "METHOD": "milp",
    "COMMAND": "status",
    "[APP]": "app",
    "[--pause]": "--pause",
    "NAME": "x",
}


def calls(text: str) -> Iterator[tuple[list[str], bool]]:
    """The words of each call, and whether it is a whole one: what stands in a sentence may lack what it needs."""
    for fence in FENCE.finditer(text):
        if fence[0].lstrip().splitlines()[0].lstrip("`~") in ("", "sh", "bash", "shell", "console"):
            for line in fence[0].replace("\\\n", " ").splitlines():
                for program, rest in IN_SHELL.findall(line.split(" # ")[0].strip()):
                    yield words(program, re.sub(r"\$\([^)]*\)", "x", rest)), True
    for program, rest in INLINE.findall(FENCE.sub("", text)):
        yield words(program, rest), False


def words(program: str, rest: str) -> list[str]:
    return [program, *(PLACEHOLDERS.get(word, word) for word in shlex.split(rest))]


@lru_cache(maxsize=100)
def parser_of(program: str, command: str | None) -> argparse.ArgumentParser:
    return parser_for(command) if program == "trimtab" else agent_parser()


def refusal(call: list[str], *, whole: bool) -> str:
    """Why a call is refused; empty if it is not."""
    program, *arguments = call
    name = next((word for word in arguments if not word.startswith("-")), None)
    parser = parser_of(program, name)
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
        try:
            parser.parse_args(arguments)
        except SystemExit as end:
            told = errors.getvalue().strip().splitlines()[-1:] if end.code else []
            return "" if not told or (not whole and re.search(r"required|expected", told[0])) else told[0]
    if name in NAMED and arguments[1:] and arguments[1] not in {*NAMED[name], "x"}:
        return f"there is no {name} {arguments[1]}"
    return ""


def refused(text: str) -> list[str]:
    found = [(" ".join(call), refusal(call, whole=whole)) for call, whole in calls(text)]
    return [f"{call}: {why}" for call, why in found if why]


PATHS = [path for path in documents(ROOT) if not path.is_relative_to(GENERATED)]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: str(path.relative_to(ROOT)))
def test_calls_are_accepted(path: Path) -> None:
    assert refused(path.read_text(encoding="utf-8")) == []


def test_calls_are_found() -> None:
    texts = [path.read_text(encoding="utf-8") for path in PATHS]
    assert sum(whole for text in texts for _, whole in calls(text)) > 40
    assert sum(not whole for text in texts for _, whole in calls(text)) > 300


def test_what_would_be_refused_is_found() -> None:
    text = """
Call `trimtab drain`, or `trimtab drian w0`, or `trimtab status --every`, or `trimtab runbook no_such`.

```
docker compose exec controller trimtab pause --why late    # an option that there is not
sudo -u trimtab /opt/trimtab/bin/trimtab-agent start --config agent.toml
trimtab drain
trimtab status --config controller.toml
```
"""
    found = [line.partition(":")[0] for line in refused(text)]
    assert found == [
        "trimtab pause --why late", "trimtab-agent start --config agent.toml", "trimtab drain", "trimtab drian w0",
        "trimtab status --every", "trimtab runbook no_such",
    ]  # fmt: skip
