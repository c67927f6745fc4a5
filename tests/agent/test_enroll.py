"""`trimtab-agent enroll`: the key is made on the host, stays there, and is never replaced."""

import stat
from pathlib import Path

import pytest

from trimtab_agent.cli import main
from trimtab_process.credential_files import load_signing_key
from trimtab_protocol.signing.keys import read_key

BASE = '[agent]\ncluster = "c"\nhost = "h0"\nstate_dir = "/tmp"\nsocket = "/tmp/a.sock"\n'
KAFKA = '[kafka]\nbootstrap_servers = "127.0.0.1:1"\n'


def agent(folder: Path, command: str, *more: str, signing: bool = True) -> int:
    section = f'[signing]\nkey_file = "{folder / "host.pem"}"\n' if signing else ""
    (folder / "agent.toml").write_text(BASE + KAFKA + section)
    return main([command, "--config", str(folder / "agent.toml"), *more])


def test_the_key_is_made_once_and_only_its_public_half_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert agent(tmp_path, "enroll") == 0
    key = load_signing_key(tmp_path / "host.pem")
    assert agent(tmp_path, "enroll") == 0

    shown = capsys.readouterr().out
    assert stat.S_IMODE((tmp_path / "host.pem").stat().st_mode) == 0o600
    assert load_signing_key(tmp_path / "host.pem").public == key.public
    assert shown.count(f"fingerprint: {key.public.fingerprint}\n") == 2
    command = next(line for line in shown.splitlines() if "trimtab keys approve h0 " in line)
    assert read_key(command.split()[-1]) == key.public
    assert (tmp_path / "host.pem").read_text().splitlines()[1] not in shown


def test_check_says_whether_reports_are_signed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert agent(tmp_path, "check", signing=False) == 0
    assert "reports and acks: not signed (no [signing])" in capsys.readouterr().out
    assert agent(tmp_path, "check") == 2  # there is no key yet
    agent(tmp_path, "enroll")
    assert agent(tmp_path, "check") == 0
    key = load_signing_key(tmp_path / "host.pem").public.id
    assert f"reports and acks: signed by key {key}" in capsys.readouterr().out


def test_what_cannot_be_used_ends_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert agent(tmp_path, "enroll", signing=False) == 2
    (tmp_path / "host.pem").touch(mode=0o644)
    assert agent(tmp_path, "enroll") == 2
    (tmp_path / "token").touch(mode=0o644)
    assert agent(tmp_path, "enroll", "--token-file", str(tmp_path / "token")) == 2

    complaints = capsys.readouterr().err
    assert "found no [signing]" in complaints
    assert complaints.count("found mode 0644, expected 0600") == 2
