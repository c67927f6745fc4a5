"""Print the lines of requirements.lock that some extras need, hashes included: `locked.py EXTRA,EXTRA [PACKAGE...]`.

A named package is printed without what it requires.
"""

import re
import sys
import tomllib
from pathlib import Path

OURSELVES = "trimtab"


def main() -> int:
    """Print them; the exit code."""
    extras, *further = sys.argv[1:]
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    blocks = read_lock(Path("requirements.lock").read_text(encoding="utf-8"))
    wanted = closure(direct(project["optional-dependencies"], [each for each in extras.split(",") if each]), blocks)
    sys.stdout.writelines(text for name, text in blocks.items() if name in wanted | set(further))
    if missing := (wanted | set(further)) - blocks.keys():
        print(f"requirements.lock lacks {', '.join(sorted(missing))}: run `make lock`", file=sys.stderr)
    return 1 if missing else 0


def read_lock(text: str) -> dict[str, str]:
    """Name of a package -> its lines."""
    blocks = re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE)
    return {block.partition("==")[0]: block for block in blocks if "==" in block}


def direct(optional: dict[str, list[str]], extras: list[str]) -> set[str]:
    """The packages that these extras name."""
    found: set[str] = set()
    for extra in extras:
        for requirement in optional[extra]:
            name, _, own = re.match(r"([A-Za-z0-9._-]+)(\[(.*)\])?", requirement).groups()  # type: ignore[union-attr]
            found |= direct(optional, own.split(",")) if name == OURSELVES else {name.lower()}
    return found


def parents(blocks: dict[str, str]) -> dict[str, set[str]]:
    """Name of a package -> the packages that require it."""
    return {name: set(re.findall(r"^    #(?: via|  ) +([a-z0-9._-]+)", text, re.M)) for name, text in blocks.items()}


def closure(names: set[str], blocks: dict[str, str]) -> set[str]:
    """These packages and all that they require; the comments in the lock say who requires what."""
    found = set(names)
    while new := {name for name, by in parents(blocks).items() if by & found} - found:
        found |= new
    return found


if __name__ == "__main__":
    sys.exit(main())
