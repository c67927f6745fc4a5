"""Files of keys and passwords: who may use them, and that a fault names the file and shows nothing of it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from trimtab_process.credential_files import load_signing_key, load_trust
from trimtab_process.private_files import read_private
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


@pytest.mark.parametrize("load", [load_signing_key, load_trust])
@pytest.mark.parametrize("content", [None, b"", b"\xff", b"hunter2", b"hunter2\n" * MAX_TRUST_FILE])
def test_a_file_that_cannot_be_used_is_named(path: Path, content: bytes | None, load: Callable[[Path], object]) -> None:
    path.unlink() if content is None else path.write_bytes(content)

    with pytest.raises(BadKey, match=f"^{path}: ") as caught:
        load(path)

    assert "hunter2" not in str(caught.value)
