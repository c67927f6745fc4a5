"""Files of keys and passwords: who may use them, and that a fault names the file and shows nothing of it."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from trimtab_process.credential_files import load_signing_key, load_trust
from trimtab_process.private_files import read_private, replace_file
from trimtab_protocol.signing.keys import MAX_TRUST_FILE, BadKey, SigningKey, write_trust

KEY = SigningKey.generate()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "credential"
    made.touch(mode=0o600)
    return made


def test_what_is_its_owner_s_alone_is_read(path: Path) -> None:
    path.write_bytes(KEY.pem())

    assert read_private(path) == KEY.pem().decode()
    assert load_signing_key(path).public == KEY.public


@pytest.mark.parametrize("wide", [0o640, 0o604, 0o620, 0o601])
def test_what_others_can_use_is_refused(path: Path, wide: int) -> None:
    path.write_bytes(KEY.pem())
    path.chmod(wide)

    with pytest.raises(BadKey, match=f"^{path}: found mode 0{wide:o}, expected 0600: others can use it$"):
        load_signing_key(path)
    with pytest.raises(PermissionError):
        read_private(path)


def test_a_trust_file_is_everybody_s(path: Path) -> None:
    path.write_text(write_trust([KEY.public]))
    path.chmod(0o644)

    assert load_trust(path).keys == (KEY.public,)
    path.chmod(0o666)
    with pytest.raises(BadKey, match="found mode 0666, expected one with which others cannot write"):
        load_trust(path)


def test_a_file_that_is_replaced_keeps_its_owner_its_links_and_what_others_changed(path: Path) -> None:
    link = path.with_name("link")
    link.symlink_to(path.name)
    path.write_bytes(b"old")
    owner = (65_534, 65_534) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
    os.chown(path, *owner)

    replace_file(link, b"new", 0o644, before=b"old")

    found = path.stat()
    assert (link.is_symlink(), path.read_bytes(), (found.st_uid, found.st_gid)) == (True, b"new", owner)
    assert found.st_mode & 0o777 == 0o600, "no wider than it was"
    with pytest.raises(OSError, match="somebody else has changed it"):
        replace_file(link, b"newer", 0o600, before=b"old")
    assert (path.read_bytes(), sorted(path.parent.iterdir())) == (b"new", [path, link])


@pytest.mark.parametrize("load", [load_signing_key, load_trust])
@pytest.mark.parametrize("content", [None, b"", b"\xff", b"hunter2", b"hunter2\n" * MAX_TRUST_FILE])
def test_a_file_that_cannot_be_used_is_named(path: Path, content: bytes | None, load: Callable[[Path], object]) -> None:
    path.unlink() if content is None else path.write_bytes(content)

    with pytest.raises(BadKey, match=f"^{path}: ") as caught:
        load(path)

    assert "hunter2" not in str(caught.value)
