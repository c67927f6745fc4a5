"""The trust file is followed, and a bad one does not take the keys away."""

import logging
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from trimtab_process.trust_file import TrustFile
from trimtab_protocol.signing.keys import BadKey, SigningKey, write_trust

OLD, NEW = SigningKey.generate().public, SigningKey.generate().public


def test_a_change_of_the_file_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "trusted.keys"
    path.write_text(write_trust([OLD]))
    trust = TrustFile(path)
    assert list(trust.keys) == [OLD.id]

    path.write_text(write_trust([OLD, NEW]))
    assert list(trust.keys) == [OLD.id, NEW.id]

    fresh = tmp_path / "fresh"
    fresh.write_text(write_trust([NEW]))
    fresh.replace(path)
    assert list(trust.keys) == [NEW.id]


@pytest.mark.parametrize("content", ["nonsense\n", "", None, "# too long" * 1000 + "\n" + write_trust([NEW])])
def test_a_file_that_goes_bad_is_said_once_and_the_keys_hold(
    tmp_path: Path, content: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "trusted.keys"
    path.write_text(write_trust([OLD]))
    trust = TrustFile(path)

    path.unlink()
    if content is not None:
        path.write_text(content)
        os.utime(path, ns=(1, 1))
    with caplog.at_level(logging.ERROR):
        assert [list(trust.keys) for _ in range(3)] == [[OLD.id]] * 3
    assert [str(path) in record.message for record in caplog.records] == [True]
    assert "nonsense" not in caplog.text
    assert not trust.usable

    path.write_text(write_trust([NEW]))
    assert trust.usable
    assert list(trust.keys) == [NEW.id]


def test_a_file_that_cannot_be_used_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(BadKey, match="No such file"):
        TrustFile(tmp_path / "none")


def test_a_lack_of_descriptors_hides_no_change(
    tmp_path: Path, no_descriptor: Callable[[], AbstractContextManager[None]], caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "trusted.keys"
    path.write_text(write_trust([OLD]))
    trust = TrustFile(path)

    path.write_text(write_trust([NEW]))
    with no_descriptor(), caplog.at_level(logging.INFO):
        assert [list(trust.keys) for _ in range(3)] == [[OLD.id]] * 3
        assert not trust.usable

    assert list(trust.keys) == [NEW.id]
    assert trust.usable
    assert [record.levelname for record in caplog.records] == ["ERROR"]
