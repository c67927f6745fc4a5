import dataclasses

import pytest

from tests.fuzz.fuzzed.samples import ACCEPT, DRAIN
from trimtab_protocol.messages import intents
from trimtab_protocol.messages.decode import BadMessage
from trimtab_protocol.messages.names import AppId, KeyGroup, OperatorId, WorkerId


def test_an_intent_stands_under_its_own_key():
    with pytest.raises(BadMessage, match="drain/w1"):
        intents.decode_intent(b"drain/w2", intents.encode_intent(DRAIN))
    with pytest.raises(BadMessage, match="accept-journal"):
        intents.decode_intent(b"pause", intents.encode_intent(ACCEPT))


def test_an_intent_of_a_later_version_is_refused_by_its_key():
    later = intents.encode_intent(DRAIN).replace(b'"worker"', b'"freeze_app"')
    with pytest.raises(BadMessage, match=r"freeze/orders.*expected an intent that this version knows"):
        intents.decode_intent(b"freeze/orders", later)


MOVES = (
    intents.RequestedMove(key_group=KeyGroup(AppId("orders"), OperatorId("sums"), 1), worker=WorkerId("w1")),
    intents.RequestedMove(key_group=KeyGroup(AppId("orders"), OperatorId("sums"), 2), worker=WorkerId("w2")),
)
MOVE = intents.MoveKeyGroups(moves=MOVES, by="ann", at=1.0, reason="profile it")


def test_the_same_moves_have_the_same_key() -> None:
    assert MOVE.key == dataclasses.replace(MOVE, at=2.0, reason="again").key
    assert MOVE.key != dataclasses.replace(MOVE, moves=MOVES[:1]).key


def test_moves_that_do_not_fit_together_are_refused() -> None:
    foreign = intents.RequestedMove(key_group=KeyGroup(AppId("other"), OperatorId("sums"), 1), worker=WorkerId("w1"))
    for moves, expected in (((), "expected 1 to 1000"), ((*MOVES, foreign), "those of one"), (MOVES[:1] * 2, "once")):
        with pytest.raises(ValueError, match=expected):
            dataclasses.replace(MOVE, moves=moves)
    twice = intents.encode_intent(MOVE).replace(b"orders/sums/2", b"orders/sums/1")
    with pytest.raises(BadMessage, match=r"moves: .* each of them once"):
        intents.decode_intent(MOVE.key.encode(), twice)
