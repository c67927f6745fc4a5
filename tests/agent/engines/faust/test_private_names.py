"""The self-check finds what is gone."""

import re
from pathlib import Path

import pytest

from trimtab_agent.engines.faust import patches
from trimtab_agent.engines.faust import private_names as privates
from trimtab_agent.engines.faust.patches import Patch
from trimtab_agent.engines.faust.private_names import Private, complaints


class Thing:
    def __init__(self) -> None:
        self._kept = 1

    def _called(self, one: int, two: int = 0) -> int:
        return self._kept + one + two


def test_the_installed_versions_are_as_the_patches_expect_them() -> None:
    assert list(complaints()) == []


@pytest.mark.parametrize(
    ("private", "complaint"),
    [
        (Private(Thing, (), "a test", ("_kept",), (("_called", ("one", "two")),)), None),
        (
            Private(Thing, (Patch.FLUSH, Patch.FENCE), "more", ("_gone",)),
            "Thing._gone is gone, needed for flush-waits-for-all; fence-after-session; more",
        ),
        (
            Private(Thing, (Patch.FLUSH,), "", (), (("_gone", ()),)),
            "Thing._gone is gone, needed for flush-waits-for-all",
        ),
        (
            Private(Thing, (), "a test", (), (("_called", ("two",)),)),
            "found parameters ('one', 'two'), expected ('two',)",
        ),
    ],
)
def test_names_and_parameters(monkeypatch: pytest.MonkeyPatch, private: Private, complaint: str | None) -> None:
    monkeypatch.setattr(privates, "PRIVATES", (private,))

    found = list(complaints())

    assert len(found) == (complaint is not None)
    assert complaint is None or complaint in found[0]


def test_another_version_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(privates, "VERSIONS", {"aiokafka": "0.13.9", "no-such-package": "1"})

    assert list(complaints()) == [
        "aiokafka: found version 0.14.0, expected 0.13.9",
        "no-such-package: found version none, expected 1",
    ]


def test_every_patch_has_its_line_in_the_table_and_its_place_in_the_code() -> None:
    table = re.findall(r"^\| `([a-z-]+)` \|", patches.__doc__ or "", flags=re.MULTILINE)
    sources = Path(patches.__file__).parent.rglob("*.py")
    named = [name for path in sources for name in re.findall(r"\bpatch ([a-z]+(?:-[a-z]+)+)", path.read_text())]

    assert table == list(Patch)
    assert set(named) == set(Patch)
