"""The journal on disk: what was written is read back, a torn end is cut, damage is told."""

import os
from pathlib import Path

import pytest

from tests.fuzz.fuzzed.samples import RELEASE, W0
from trimtab_agent.commands import journal as journal_module
from trimtab_agent.commands.events import (
    Acked,
    Admitted,
    Damaged,
    Delivered,
    Entry,
    EpochSeen,
    KeptNoted,
    KeptWorker,
    Position,
    ProcessId,
    ProcessNoted,
)
from trimtab_agent.commands.journal import MAX_FAULTS, Journal, decode_line, encode_line
from trimtab_protocol.messages.commands import Ack, Phase
from trimtab_protocol.messages.decode import BadMessage
from trimtab_protocol.messages.names import Epoch

COMMAND = RELEASE
ACK = Ack.to(COMMAND, Phase.ACCEPTED, at=1.5)
ENTRIES: list[Entry] = [
    EpochSeen(epoch=Epoch(1, 5)),
    Damaged(at=3.5),
    ProcessNoted(worker=W0, process=ProcessId(pid=7, created=1.25)),
    Admitted(command=COMMAND, ack=ACK),
    Acked(ack=ACK),
    Delivered(command_id=COMMAND.id, phase=Phase.ACCEPTED),
    ProcessNoted(worker=W0, process=None),
    KeptNoted(worker=W0, kept=KeptWorker(at=4.5, crashes=2, detail="exit code 1", given_up=True)),
    KeptNoted(worker=W0, kept=KeptWorker(at=4.5)),
    KeptNoted(worker=W0, kept=None),
    Position(topic_id="abc-_1", partition=0, offset=12),
]


def filled(path: Path, entries: list[Entry]) -> Path:
    journal = Journal(path)
    journal.recover()
    for entry in entries:
        journal.append(entry)
    journal.close()
    return path


@pytest.mark.parametrize("position", [0, 8, 9, 40, -2])
def test_any_changed_byte_is_noticed(position: int) -> None:
    line = bytearray(encode_line(ENTRIES[3]).rstrip(b"\n"))
    line[position] ^= 1

    with pytest.raises(BadMessage):
        decode_line(bytes(line))


def test_no_line_can_be_missing_doubled_or_in_another_place(tmp_path: Path) -> None:
    path = filled(tmp_path / "journal", ENTRIES)
    lines = path.read_bytes().splitlines(keepends=True)
    for at, line in enumerate(lines):
        before, after = lines[:at], lines[at + 1 :]
        missing, displaced = [*before, *after], [*before, *after[:1], line, *after[1:]]
        for content in ([*before, line, line, *after], *([missing, displaced] if after else [])):
            path.write_bytes(b"".join(content))
            assert Journal(path).recover().faults, f"line {at + 1}"


def test_reading_ends_where_nothing_can_be_believed(tmp_path: Path) -> None:
    path = filled(tmp_path / "journal", ENTRIES)
    path.write_bytes(path.read_bytes() + b"\n" * 5_000)

    recovered = Journal(path).recover()

    assert list(recovered.entries) == ENTRIES
    assert len(recovered.faults) == MAX_FAULTS + 1
    assert (
        recovered.faults[-1] == f"line {len(ENTRIES) + MAX_FAULTS + 2}: found 1000 broken lines, the rest is not read"
    )


def test_a_line_of_another_journal_is_damage(tmp_path: Path) -> None:
    path, other = (filled(tmp_path / name, ENTRIES[:2]) for name in ("journal", "other"))
    path.write_bytes(path.read_bytes() + other.read_bytes().splitlines(keepends=True)[-1])

    assert len(Journal(path).recover().faults) == 1


@pytest.mark.parametrize("entries", [[], ENTRIES], ids=["begun", "filled"])
@pytest.mark.parametrize("left", [None, b"", b"half of a li"])
def test_a_journal_of_which_nothing_is_left_is_damage(tmp_path: Path, left: bytes | None, entries: list[Entry]) -> None:
    path = filled(tmp_path / "journal", entries)
    if left is None:
        path.unlink()
    else:
        path.write_bytes(left)

    recovered = Journal(path).recover()

    assert (recovered.entries, recovered.faults) == ((), ("there was a journal here, and nothing is left of it",))


@pytest.mark.parametrize("cut", [1, 5, 60])
def test_a_torn_end_is_cut_off_and_the_next_entry_follows_well(tmp_path: Path, cut: int) -> None:
    path = filled(tmp_path / "journal", ENTRIES)
    os.truncate(path, path.stat().st_size - cut)

    journal = Journal(path)
    recovered = journal.recover()
    journal.append(ENTRIES[0])
    journal.close()

    assert (list(recovered.entries), recovered.faults) == (ENTRIES[:-1], ())
    assert list(Journal(path).recover().entries) == [*ENTRIES[:-1], ENTRIES[0]]


def test_damage_in_the_middle_is_told_kept_aside_and_the_rest_is_read(tmp_path: Path) -> None:
    path = filled(tmp_path / "journal", ENTRIES)
    content = bytearray(path.read_bytes())
    content[content.index(b"pid")] ^= 1
    path.write_bytes(bytes(content))

    recovered = Journal(path).recover()

    assert list(recovered.entries) == ENTRIES[:2] + ENTRIES[3:]
    assert len(recovered.faults) == 1
    assert recovered.faults[0].startswith("line 4: ")
    assert (tmp_path / "journal.damaged").read_bytes() == bytes(content)


@pytest.mark.parametrize("position", [-3, -1])
def test_a_last_line_that_is_whole_but_wrong_is_damage(tmp_path: Path, position: int) -> None:
    path = filled(tmp_path / "journal", ENTRIES)
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(bytes(content))

    assert len(Journal(path).recover().faults) == 1


def test_rewriting_replaces_the_content_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "COMPACT_AT_BYTES", 100)
    journal = Journal(tmp_path / "journal")
    journal.recover()
    journal.append(ENTRIES[3])
    assert journal.is_large

    journal.rewrite(ENTRIES[:2])
    journal.append(ENTRIES[2])
    journal.close()

    assert not (tmp_path / "journal.new").exists()
    assert list(Journal(tmp_path / "journal").recover().entries) == ENTRIES[:3]


def test_a_large_journal_is_written_anew_when_it_has_grown_by_as_much_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "COMPACT_AT_BYTES", 100)
    journal = Journal(tmp_path / "journal")
    journal.recover()
    journal.rewrite(ENTRIES)
    grown = []
    for entry in ENTRIES:
        grown.append(journal.is_large)
        journal.append(entry)
    journal.close()

    assert grown == [False] * len(ENTRIES)


def test_what_must_last_is_on_disk_before_anything_else_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    for name in ("fdatasync", "fsync"):
        monkeypatch.setattr(journal_module.os, name, lambda descriptor, name=name: done.append(name))  # type: ignore[attr-defined]
    journal = Journal(tmp_path / "journal")
    journal.recover()
    done.clear()

    journal.append(ENTRIES[0], durable=False)
    assert done == []
    journal.append(ENTRIES[0])
    assert done == ["fdatasync"]
    monkeypatch.setattr(Path, "replace", lambda fresh, path: done.append("replace"))
    journal.rewrite(ENTRIES)
    assert done == ["fdatasync", "fsync", "replace", "fsync"], "the file, then its name"
    journal.close()


def test_a_full_disk_is_an_error() -> None:
    journal = Journal(Path("/dev/full"))

    with pytest.raises(OSError, match="No space left"):
        journal.append(ENTRIES[0])


def test_only_its_owner_can_read_it_whatever_becomes_of_it(tmp_path: Path) -> None:
    path = filled(tmp_path / "journal", ENTRIES)
    path.write_bytes(b"damage\n" + path.read_bytes())
    path.chmod(0o644)
    journal = Journal(path)
    journal.recover()
    assert path.stat().st_mode & 0o777 == 0o600
    journal.rewrite(ENTRIES)
    journal.close()

    assert {entry.name: entry.stat().st_mode & 0o777 for entry in tmp_path.iterdir()} == {
        "journal": 0o600,
        "journal.begun": 0o600,
        "journal.damaged": 0o600,
    }
