"""The trust file is followed, and a bad one does not take the keys away."""

import logging
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from trimtab_process.backoff import Backoff
from trimtab_process.credential_files import load_signing_key, load_trust
from trimtab_process.kafka_errors import error_text, error_word, is_transient
from trimtab_process.private_files import read_private, replace_file
from trimtab_process.topic_identity import TopicIds
from trimtab_process.trust_file import TrustFile
from trimtab_protocol.signing.keys import MAX_TRUST_FILE, BadKey, SigningKey, write_trust

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


# ---- files of keys and passwords: who may use them, and that a fault names the file and shows nothing of it


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


# ---- what agent and controller know of Kafka: which errors pass, how long to wait, when a topic is another one


FIRST, SECOND = SimpleNamespace(topic_id="id-1"), SimpleNamespace(topic_id="id-2")


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (KafkaError(KafkaError._TRANSPORT), True),
        (KafkaError(KafkaError.NOT_COORDINATOR), True),
        (KafkaError(KafkaError._FAIL, "retriable by its own word", retriable=True), True),
        (KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), False),
        (KafkaError(KafkaError._FENCED), False),
    ],
)
def test_errors_that_pass_are_told_from_those_that_stay(error: KafkaError, passes: bool) -> None:
    assert is_transient(error) is passes


def test_an_error_is_told_in_its_own_words_and_counted_by_one() -> None:
    error = KafkaError(KafkaError._MSG_TIMED_OUT, "waited too long")

    assert error_text(KafkaException(error)) == "waited too long"
    assert error_text(KafkaException("no error object")) == "no error object"
    assert error_word(error) == "msg_timed_out"


def test_the_last_step_of_a_backoff_repeats() -> None:
    backoff = Backoff((0.5, 1.0, 3.0))

    assert [backoff.after(failures) for failures in (1, 2, 3, 4, 100)] == [0.5, 1.0, 3.0, 3.0, 3.0]
    assert backoff.longest_s == 3.0


@pytest.mark.parametrize("steps_s", [(), (1.0, -0.1), (float("nan"),)])
def test_a_backoff_without_usable_steps_is_refused(steps_s: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="steps_s: found"):
        Backoff(steps_s)


def test_there_is_no_wait_before_the_first_failure() -> None:
    with pytest.raises(ValueError, match="failures: found 0, expected 1 or more"):
        Backoff((1.0,)).after(0)


def test_a_topic_is_another_one_until_the_new_one_is_read() -> None:
    ids = TopicIds()

    assert not ids.is_recreated("t", FIRST)
    assert not ids.is_recreated("t", FIRST)
    assert [ids.is_recreated("t", SECOND) for _ in range(2)] == [True, True]
    assert not ids.is_recreated("other", SECOND)
    ids.note("t", SECOND)
    assert not ids.is_recreated("t", SECOND)
    assert ids["t"] == "id-2"
