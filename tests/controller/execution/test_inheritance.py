"""What a successor believes of a journal, and what ends in a hold."""

import pytest

from trimtab_controller.execution.journal import (
    Flaw,
    Hold,
    JournalEntry,
    JournalRecord,
    decode_entry,
    encode_entry,
    inherit,
    read_record,
)
from trimtab_controller.execution.state import Execution, ScalingPhase, WorkerScaling
from trimtab_protocol.messages.commands import Command, CommandKind
from trimtab_protocol.messages.decode import BadMessage, Fault
from trimtab_protocol.messages.names import NO_EPOCH, Epoch, HostId, WorkerId

FIRST, SECOND, THIRD = (
    JournalEntry(execution=Execution(generation=generation, number=number), acks_read={0: 17})
    for generation, number in ((1, 7), (1, 8), (2, 1))
)


def journal(*values: JournalEntry | bytes | None) -> list[JournalRecord]:
    """Records at the even offsets, as transactions leave them."""
    payloads = [encode_entry(value) if isinstance(value, JournalEntry) else value for value in values]
    return [read_record(2 * index, payload) for index, payload in enumerate(payloads)]


@pytest.mark.parametrize(
    ("records", "published", "expected"),
    [
        (journal(), NO_EPOCH, JournalEntry(execution=Execution(generation=0))),
        (journal(FIRST), NO_EPOCH, FIRST),
        (journal(FIRST, SECOND, THIRD), Epoch(2, 1), THIRD),
        (journal(FIRST, THIRD), Epoch(1, 8), THIRD),  # compacted: what is older does not matter
        (journal(b"not readable", THIRD), Epoch(1, 8), THIRD),  # superseded by a whole state
    ],
)
def test_the_last_entry_is_believed_when_nothing_newer_is_known(
    records: list[JournalRecord], published: Epoch, expected: JournalEntry
) -> None:
    assert inherit(records, published) == expected


@pytest.mark.parametrize(
    ("records", "published", "flaw", "newest"),
    [
        (journal(), Epoch(3, 4), Flaw.MISSING, Epoch(3, 4)),
        (journal(FIRST, None), NO_EPOCH, Flaw.MISSING, Epoch(1, 7)),
        (journal(FIRST, encode_entry(SECOND)[:-20]), NO_EPOCH, Flaw.CORRUPTED, Epoch(1, 7)),
        (journal(FIRST, b""), Epoch(1, 9), Flaw.CORRUPTED, Epoch(1, 9)),
        (journal(encode_entry(SECOND).replace(b"17", b"18")), NO_EPOCH, Flaw.CORRUPTED, NO_EPOCH),
        (journal(FIRST), Epoch(1, 8), Flaw.TRUNCATED, Epoch(1, 8)),
        (journal(FIRST, SECOND), Epoch(2, 1), Flaw.TRUNCATED, Epoch(2, 1)),
        (journal(THIRD, SECOND), Epoch(1, 8), Flaw.DISORDERED, Epoch(2, 1)),
    ],
)
def test_what_cannot_be_the_end_of_the_journal_is_a_hold(
    records: list[JournalRecord], published: Epoch, flaw: Flaw, newest: Epoch
) -> None:
    found = inherit(records, published)

    assert isinstance(found, Hold)
    assert (found.flaw, found.newest) == (flaw, newest)
    assert str(flaw) in found.reason


def test_an_accepted_hold_accepts_no_other() -> None:
    holds = [
        inherit(journal(FIRST, b"{"), NO_EPOCH),
        inherit(journal(FIRST, SECOND, b"{"), NO_EPOCH),
        inherit(journal(FIRST, b"["), NO_EPOCH),
        inherit(journal(), Epoch(1, 7)),
        inherit(journal(), Epoch(1, 8)),
    ]
    assert len({hold.id for hold in holds if isinstance(hold, Hold)}) == len(holds)
    assert inherit(journal(), Epoch(1, 7)) == holds[3]


def test_every_single_changed_byte_of_an_entry_is_found() -> None:
    payload = encode_entry(THIRD)
    for index in range(len(payload)):
        for flip in (0x01, 0x10):
            changed = payload[:index] + bytes([payload[index] ^ flip]) + payload[index + 1 :]
            with pytest.raises(BadMessage):
                decode_entry(changed)
    for size in range(len(payload)):
        with pytest.raises(BadMessage):
            decode_entry(payload[:size])
    assert decode_entry(payload) == THIRD


def test_stops_and_what_was_read_of_every_partition_come_back_whole() -> None:
    stop = Command(
        cluster="c", kind=CommandKind.STOP, epoch=Epoch(1, 2), host=HostId("h0"), worker=WorkerId("w0"), app=None,
        issued_at=1.0, deadline=2.0,
    )  # fmt: skip
    failed = WorkerScaling(command=stop, phase=ScalingPhase.FAILED, at=3.0, detail="no answer in time")
    execution = Execution(generation=1, number=2, scalings={stop.worker: failed})
    entry = JournalEntry(execution=execution, acks_read={0: 17, 1: 0, 2: 5})

    assert decode_entry(encode_entry(entry)) == entry


def test_an_entry_of_an_earlier_version_is_called_so() -> None:
    with pytest.raises(BadMessage) as caught:
        decode_entry(b'{"v":1,"generation":1,"number":1,"acks_read":[],"round":null,"scalings":[]}')
    assert caught.value.fault is Fault.VERSION
