"""A class name stands in one module of the product."""

import ast
from collections import defaultdict
from pathlib import Path

from tests.paths import ROOT

PACKAGES = ("agent", "client", "console", "controller", "models", "sandbox", "shared")
STILL_TWICE = frozenset(
    {
        "BadConfiguration",
        "Configuration",
        "Connection",
        "Fault",
        "Flows",
        "Placing",
        "Plan",
        "Publisher",
        "Refusal",
        "Refused",
        "Role",
        "Rule",
        "Signatures",
        "Tls",
    }
)
"""Of the console and the controller.  Take out what is renamed."""


def modules_by_class() -> dict[str, set[Path]]:
    found: defaultdict[str, set[Path]] = defaultdict(set)
    for path in (path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                found[node.name].add(path.relative_to(ROOT))
    return found


def test_a_class_name_stands_in_one_module() -> None:
    found = modules_by_class()
    assert len(found) > 500
    twice = {name: sorted(map(str, paths)) for name, paths in found.items() if len(paths) > 1}
    assert {name: paths for name, paths in twice.items() if name not in STILL_TWICE} == {}
