"""The example of the guide, as it stands there, against a real console."""

import re
from pathlib import Path

import pytest

from tests.console.setup import FLEET, SECRETS, Setup, certificate, serving
from tests.paths import ROOT
from trimtab_protocol.messages.intents import Drain

GUIDE = (ROOT / "docs/guides/client.md").read_text()


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    setup, files = Setup(tmp_path), certificate(tmp_path, "own")
    token = tmp_path / "token"
    token.write_text(SECRETS["ann"])
    token.chmod(0o600)
    (example,) = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    with serving(setup.client.app, files) as address:
        monkeypatch.setenv("TRIMTAB_CONSOLE", address)
        monkeypatch.setenv("TRIMTAB_CONSOLE_TOKEN_FILE", str(token))
        monkeypatch.setenv("TRIMTAB_CONSOLE_CA", str(files.certificate))
        exec(compile(example, "client.md", "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    hottest = FLEET.worker(1)
    assert printed[:2] == ["acting ann", f"{hottest} host-0001 108.0"]
    assert printed[2].startswith(f"{hottest} will be drained")
    assert printed[3] == "True"
    assert re.fullmatch(r"\d+ 16", printed[4])
    ((key, drain),) = setup.topic.written
    assert isinstance(drain, Drain)
    assert (key, drain.by, drain.reason) == (f"drain/{hottest}", "ann", "kernel update")


def test_the_variables_of_the_guide_are_those_of_the_client() -> None:
    source = (ROOT / "client/trimtab_client/access.py").read_text()
    named = set(re.findall(r"^\| `(TRIMTAB_\w+)`", GUIDE, re.MULTILINE))
    assert named == set(re.findall(r'^    "(TRIMTAB_\w+)",', source, re.MULTILINE))
