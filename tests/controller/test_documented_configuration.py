"""The documents and the code know the same configuration keys, and the samples state the presets."""

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.paths import ROOT
from trimtab_agent.configuration import read_configuration
from trimtab_controller.configuration import decode
from trimtab_protocol.messages.decode import Fields

ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text()
COMMENTED = re.compile(r'^# (?=\[|"?[\w.]+"? = )', re.MULTILINE)
REFUSED = {"password"}
"""Asked for only to say where it belongs."""


def block(name: str) -> str:
    """The TOML below a heading of ARCHITECTURE.md."""
    found = re.search(rf"### {re.escape(name)}\n```toml\n(.*?)```", ARCHITECTURE, re.DOTALL)
    assert found is not None
    return found[1]


AGENT = {"sample": (ROOT / "agent" / "agent.sample.toml").read_text(), "architecture": block("agent.toml")}
CONTROLLER = {
    "sample": (ROOT / "controller" / "controller.sample.toml").read_text(),
    "architecture": block("controller.toml"),
}


def whole(text: str, folder: Path) -> dict[str, Any]:
    """The document with everything that is commented out, and a password file that is there."""
    secret = folder / "password"
    secret.touch(mode=0o600)
    secret.write_text("secret")
    document = tomllib.loads(COMMENTED.sub("", text))
    if sasl := document["kafka"].get("sasl"):
        sasl["password_file"] = str(secret)
    return document


def asked(read: Callable[[Mapping[str, Any]], object], document: Mapping[str, Any]) -> set[str]:
    """The keys that the code asks for when it reads a document."""
    names: set[str] = set()
    with pytest.MonkeyPatch.context() as patch:
        for method in ("take", "has"):
            original = getattr(Fields, method)

            def noting(fields: Fields, name: str, original: Callable[[Fields, str], Any] = original) -> Any:
                names.add(fields.at(name))
                return original(fields, name)

            patch.setattr(Fields, method, noting)
        read(document)
    return names


@pytest.mark.parametrize("where", ["sample", "architecture"])
@pytest.mark.parametrize(
    ("read", "texts"), [(read_configuration, AGENT), (decode, CONTROLLER)], ids=["agent", "controller"]
)
def test_every_key_that_is_documented_is_read_and_every_key_that_is_read_is_documented(
    read: Callable[[Mapping[str, Any]], object], texts: Mapping[str, str], where: str, tmp_path: Path
) -> None:
    names = asked(read, whole(texts[where], tmp_path))  # a key that the code does not know would be refused
    text = texts[where] + AGENT[where]  # "tls, sasl, client as in agent.toml"
    words = set(re.findall(r"\w+", text))
    assert {name for name in names if name.rpartition(".")[2] not in words | REFUSED} == set()


@pytest.mark.parametrize("where", ["sample", "architecture"])
def test_what_is_shown_is_the_preset(where: str, tmp_path: Path) -> None:
    document = whole(CONTROLLER[where], tmp_path)
    needed = {name: document[name] for name in ("controller", "kafka")}
    preset = decode({**needed, "stream": {"checkpoint_dir": document["stream"]["checkpoint_dir"]}})
    stated = decode(document)
    assert stated.balance.remote_tuple_cpu_s == 1e-4  # has no preset: nobody knows it before it is measured
    assert replace(stated.balance, remote_tuple_cpu_s=None) == preset.balance
    for part in ("needs", "solver_time_limit_s", "execution", "lease_s"):
        assert getattr(stated, part) == getattr(preset, part)
    for part in ("window_s", "watermark_s", "patience_s", "embedded"):
        assert getattr(stated.stream, part) == getattr(preset.stream, part)
