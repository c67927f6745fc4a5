import json
from dataclasses import replace

import pytest

from tests.fuzz.fuzzed.samples import PREPARE, STOP, STOP_OWNING, TOOK
from trimtab_protocol.messages import commands
from trimtab_protocol.messages.codec import document
from trimtab_protocol.messages.commands import Ack, Command, CommandKind, Phase, Refusal
from trimtab_protocol.messages.decode import BadMessage, Fault
from trimtab_protocol.messages.names import Epoch, KeyGroup


def test_a_command_that_was_tampered_with_does_not_match_its_id():
    message = document(PREPARE) | {"target": "w9"}
    with pytest.raises(BadMessage, match="by its content"):
        commands.decode_command(json.dumps(message).encode())


def test_the_same_step_has_the_same_id_and_another_epoch_another():
    later = Command(**{name: getattr(PREPARE, name) for name in PREPARE.__slots__} | {"issued_at": 1001.0})
    assert later.id == PREPARE.id
    newer = Command(**{name: getattr(PREPARE, name) for name in PREPARE.__slots__} | {"epoch": Epoch(2, 10)})
    assert newer.id != PREPARE.id


def test_the_stops_of_two_workers_in_one_publication_are_two_commands():
    assert STOP.id != replace(STOP, worker="w1").id


@pytest.mark.parametrize(
    "change",
    [
        {"key_groups": ()},
        {"source": None},
        {"generation": 4},
        {"deadline": 1000.0},
        {"key_groups": (KeyGroup("other", "sums", 1),)},
        {"kind": CommandKind.STOP},
        {"owning": True},
    ],
)
def test_a_command_that_makes_no_sense_cannot_exist(change):
    with pytest.raises(BadMessage):
        Command(**{name: getattr(PREPARE, name) for name in PREPARE.__slots__} | change)


def test_a_stop_of_a_worker_with_key_groups_says_so_and_all_other_commands_are_as_before():
    assert "owning" not in document(STOP)
    assert document(STOP_OWNING) == document(STOP) | {"owning": True}


def test_a_refusal_has_a_reason_and_nothing_else_has_one():
    values = {name: getattr(TOOK, name) for name in TOOK.__slots__}
    with pytest.raises(BadMessage):
        Ack(**values | {"phase": Phase.REFUSED})
    with pytest.raises(BadMessage):
        Ack(**values | {"refusal": Refusal.GUARD})


def test_an_ack_is_short():
    payload = commands.encode_ack(TOOK)
    assert commands.decode_ack(payload + b" " * (commands.MAX_ACK_BYTES - len(payload))) == TOOK
    with pytest.raises(BadMessage) as caught:
        commands.decode_ack(payload + b" " * (commands.MAX_ACK_BYTES + 1 - len(payload)))
    assert caught.value.fault is Fault.OVERSIZED
