"""What must hold before a release is built."""

import re
import subprocess
import tomllib
from pathlib import Path

UNRELEASED = "unreleased"


class Refused(Exception):
    """No release can be made of this; the message says why."""


def check(root: Path, *, draft: bool) -> str:
    """The version of a checkout that can be released.  Raises Refused."""
    version = project_version(root)
    date = release_date((root / "CHANGELOG.md").read_text(encoding="utf-8"), version)
    if date == UNRELEASED and not draft:
        raise Refused(f"CHANGELOG.md: {version} is {UNRELEASED}: write its date there and commit, or use --draft")
    if changes := changed_files(root):
        raise Refused(f"the tree has changes that are not committed, the first is {changes[0]!r}")
    return version


def project_version(root: Path) -> str:
    """The one place that says the version."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["version"])


def release_date(changelog: str, version: str) -> str:
    """The date of the version's section, or `unreleased`.  Raises Refused unless it is the first one, with content."""
    sections = re.split(r"^## ", changelog, flags=re.MULTILINE)[1:]
    head, _, body = sections[0].partition("\n") if sections else ("nothing", "", "")
    found = re.fullmatch(r"(\S+) - (\d{4}-\d\d-\d\d|unreleased)", head)
    if found is None or found[1] != version:
        raise Refused(f"CHANGELOG.md: the first section is {head!r}, expected '{version} - DATE'")
    if not re.search(r"^- ", body, re.MULTILINE):
        raise Refused(f"CHANGELOG.md: the section {version} is empty")
    return found[2]


def changed_files(root: Path) -> list[str]:
    """Files that differ from the last commit, new ones included, as git names them."""
    command = ["git", "status", "--porcelain"]
    told = subprocess.run(command, cwd=root, check=True, stdout=subprocess.PIPE, text=True).stdout
    return [line[3:] for line in told.splitlines()]
