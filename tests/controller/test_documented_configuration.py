"""The sample files and the code know the same configuration keys, and the samples state the presets."""

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

COMMENTED = re.compile(r'^# (?=\[|"?[\w.]+"? = )', re.MULTILINE)
REFUSED = {"password"}
"""Asked for only to say where it belongs."""


AGENT = (ROOT / "agent" / "agent.sample.toml").read_text()
CONTROLLER = (ROOT / "controller" / "controller.sample.toml").read_text()


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


@pytest.mark.parametrize(
    ("read", "text"), [(read_configuration, AGENT), (decode, CONTROLLER)], ids=["agent", "controller"]
)
def test_every_key_that_is_documented_is_read_and_every_key_that_is_read_is_documented(
    read: Callable[[Mapping[str, Any]], object], text: str, tmp_path: Path
) -> None:
    names = asked(read, whole(text, tmp_path))  # a key that the code does not know would be refused
    words = set(re.findall(r"\w+", text + AGENT))  # "tls, sasl, client as in agent.toml"
    assert {name for name in names if name.rpartition(".")[2] not in words | REFUSED} == set()


def test_the_files_in_the_readme_are_accepted_as_they_stand() -> None:
    blocks = re.findall(r"^ *```toml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    agent, controller = (tomllib.loads(block) for block in blocks)
    assert read_configuration(agent).cluster == decode(controller).cluster == "prod"


def test_what_is_shown_is_the_preset(tmp_path: Path) -> None:
    document = whole(CONTROLLER, tmp_path)
    needed = {name: document[name] for name in ("controller", "kafka")}
    preset = decode({**needed, "stream": {"checkpoint_dir": document["stream"]["checkpoint_dir"]}})
    stated = decode(document)
    assert stated.balance.remote_tuple_cpu_s == 1e-4  # has no preset: nobody knows it before it is measured
    assert replace(stated.balance, remote_tuple_cpu_s=None) == preset.balance
    for part in ("needs", "solver_time_limit_s", "execution", "lease_s"):
        assert getattr(stated, part) == getattr(preset, part)
    for part in ("window_s", "watermark_s", "patience_s", "embedded"):
        assert getattr(stated.stream, part) == getattr(preset.stream, part)
