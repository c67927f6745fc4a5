"""`trimtab keys`: files that only their owner can read, and a change of keys without a refused command."""

import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.kafka_record import Record
from trimtab_controller.cli import main
from trimtab_controller.kafka import reader
from trimtab_controller.kafka.placements import placements_signed_by
from trimtab_controller.kafka.reader import Reading
from trimtab_controller.security.keys import KeyFiles
from trimtab_process.credential_files import load_signing_key
from trimtab_protocol.messages.codec import encoded
from trimtab_protocol.messages.names import AppId, Epoch, Topics
from trimtab_protocol.messages.placement import Placement
from trimtab_protocol.signing.envelope import Envelope
from trimtab_protocol.signing.keys import BadKey, SigningKey, TrustedKeys, write_trust


@pytest.fixture
def files(tmp_path: Path) -> KeyFiles:
    return KeyFiles(key=tmp_path / "controller.pem", trust=tmp_path / "trusted.keys")


def keys(files: KeyFiles, *arguments: str) -> int:
    return main(["keys", *arguments, "--key-file", str(files.key), "--trust-file", str(files.trust)])


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_key_is_made_shown_and_never_replaced(files: KeyFiles, capsys: pytest.CaptureFixture[str]) -> None:
    assert keys(files, "init") == 0
    secret = files.key.read_text().splitlines()[1]
    key, trusted = files.load()
    assert (mode(files.key), mode(files.trust), trusted.keys) == (0o600, 0o644, (key.public,))

    assert keys(files, "show") == 0
    assert keys(files, "init") == 1
    shown = capsys.readouterr()
    assert shown.out.count(key.public.id) == 3
    assert f"{files.trust}: found a file, expected none" in shown.err
    assert secret not in shown.out + shown.err
    assert load_signing_key(files.key).public == key.public


@pytest.mark.parametrize("wide", [0o604, 0o640, 0o622])
def test_a_key_that_others_can_use_is_refused(files: KeyFiles, wide: int, capsys: pytest.CaptureFixture[str]) -> None:
    files.create()
    files.key.chmod(wide)

    assert keys(files, "show") == 1
    assert f"found mode 0{wide:o}, expected 0600: others can use it" in capsys.readouterr().err


def test_keys_change_in_three_steps_and_in_no_other_order(files: KeyFiles) -> None:
    old = files.create().public
    for step, code in (("switch", 1), ("begin", 0), ("begin", 0), ("finish", 1)):
        assert keys(files, "rotate", step) == code
    key, trusted = files.load()
    new = load_signing_key(files.next).public
    assert (key.public, trusted.keys, mode(files.next)) == (old, (old, new), 0o600)

    assert keys(files, "rotate", "switch") == 0
    key, trusted = files.load()
    assert (key.public, trusted.keys, files.next.exists(), mode(files.key)) == (new, (old, new), False, 0o600)
    assert keys(files, "rotate", "begin") == 1

    assert keys(files, "rotate", "finish") == 0
    key, trusted = files.load()
    assert (key.public, trusted.keys) == (new, (new,))


def test_the_old_key_is_not_given_up_when_nobody_can_say_what_it_has_signed(
    files: KeyFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    files.create()
    for step in ("begin", "switch"):
        assert keys(files, "rotate", step) == 0
    config = tmp_path / "controller.toml"
    config.write_text(
        '[controller]\ncluster = "c"\n[kafka]\nbootstrap_servers = "127.0.0.1:1"\n[stream]\ncheckpoint_dir = "d"\n'
        f'[signing]\nkey_file = "{files.key}"\ntrust_file = "{files.trust}"\n'
    )
    monkeypatch.setattr(reader, "REQUEST_LIMIT_S", 0.5)
    before = files.trust.read_text()
    assert main(["keys", "rotate", "finish", "--config", str(config)]) == 1
    assert "the placements could not be checked" in capsys.readouterr().err
    assert files.trust.read_text() == before
    assert keys(files, "rotate", "finish") == 0, "without a configuration nothing is looked at"


OLD, NEW, STRANGER = (SigningKey.generate() for _ in range(3))
TOPICS = Topics("c")


def placed(app: str, number: int | None, *signers: SigningKey) -> Record:
    """A placement as it is found on the topic; without a number, it was deleted."""
    value = None
    if number is not None:
        value = encoded(Placement(cluster="c", app=AppId(app), epoch=Epoch(1, number), owners={}))
    covered = Envelope(topic=TOPICS.placement, key=app.encode(), value=value or b"")
    return Record(TOPICS.placement, value, app.encode(), [each.sign(covered) for each in signers])


@pytest.mark.parametrize(
    ("records", "found"),
    [
        ([], {}),
        ([placed("a", 1, OLD), placed("b", 1, OLD), placed("a", 1, NEW)], {"a": NEW, "b": OLD}),
        ([placed("a", 1, NEW), placed("a", 2, STRANGER), placed("a", 3)], {"a": NEW}),
        ([placed("a", 1, STRANGER)], {}),
        ([placed("a", 1, OLD), placed("a", None)], {"a": OLD}),
        ([placed("a", 1, OLD, NEW)], {}),
    ],
    ids=["none", "signed anew", "forged later", "forged", "deleted by somebody", "two signatures"],
)
def test_who_has_signed_the_placements_that_hold(records: list[Any], found: dict[str, SigningKey]) -> None:
    signers = placements_signed_by(Reading(messages=records), TOPICS, TrustedKeys((OLD.public, NEW.public)))
    assert signers == {app: {key.public.id} for app, key in found.items()}


@pytest.mark.parametrize("step", ["init", "begin"])
def test_a_step_that_died_between_its_two_files_is_done_again_with_the_same_key(
    files: KeyFiles, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if step == "begin":
        files.create()
    arguments = ("init",) if step == "init" else ("rotate", step)
    with monkeypatch.context() as crash:
        crash.setattr(KeyFiles, "_trust_only", lambda *_: sys.exit(137))
        with pytest.raises(SystemExit):
            keys(files, *arguments)
    made = load_signing_key(files.key if step == "init" else files.next).public

    if step == "begin":
        assert (keys(files, "rotate", "switch"), keys(files, "rotate", "finish")) == (1, 1)
    assert keys(files, *arguments) == 0
    assert files.load()[1].keys[-1] == made
    if step == "begin":
        assert (keys(files, "rotate", "switch"), keys(files, "rotate", "finish")) == (0, 0)
        assert files.load()[0].public == made


@pytest.mark.parametrize("same", ["key", "key.next", "folder/../key"])
def test_one_file_for_both_is_refused_before_anything_is_written(
    tmp_path: Path, same: str, capsys: pytest.CaptureFixture[str]
) -> None:
    files = ["--key-file", str(tmp_path / "key"), "--trust-file", str(tmp_path / same)]
    (tmp_path / "folder").mkdir()

    assert main(["keys", "init", *files]) == 1
    assert "found the file of a private key, expected another file for public ones" in capsys.readouterr().err
    assert not (tmp_path / "key").exists()


def test_a_key_that_the_hosts_would_not_trust_does_not_sign(files: KeyFiles) -> None:
    files.create()
    files.trust.write_text(write_trust([SigningKey.generate().public]))

    with pytest.raises(BadKey, match=r"expected key \w{16} of .* among them"):
        files.load()
    assert keys(files, "show") == 1


def test_which_keys_is_said_by_options_or_by_the_configuration(
    files: KeyFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files.create()
    config = tmp_path / "controller.toml"
    least = '[controller]\ncluster = "c"\n[kafka]\nbootstrap_servers = "b"\n[stream]\ncheckpoint_dir = "d"\n'
    config.write_text(f'{least}[signing]\nkey_file = "{files.key}"\ntrust_file = "{files.trust}"\n')

    assert main(["keys", "show", "--config", str(config)]) == 0
    config.write_text(least)
    assert main(["keys", "show", "--config", str(config)]) == 2
    assert main(["keys", "show"]) == 2
    assert "expected its key_file and trust_file" in capsys.readouterr().err


def test_a_controller_with_a_key_that_cannot_be_used_does_not_start(
    files: KeyFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files.create()
    files.key.chmod(0o644)
    config = tmp_path / "controller.toml"
    config.write_text(
        '[controller]\ncluster = "c"\n[kafka]\nbootstrap_servers = "127.0.0.1:1"\n[stream]\ncheckpoint_dir = "d"\n'
        f'[signing]\nkey_file = "{files.key}"\ntrust_file = "{files.trust}"\n'
    )

    assert main(["controller", "run", "--act", "--config", str(config)]) == 2
    assert "found mode 0644, expected 0600" in capsys.readouterr().err
