import pytest

from tests.shared.protocol.messages.message_samples import DRAIN
from trimtab_protocol.messages import intents
from trimtab_protocol.messages.decode import BadMessage


def test_an_intent_stands_under_its_own_key():
    with pytest.raises(BadMessage, match="drain/w3"):
        intents.decode_intent(b"drain/w2", intents.encode_intent(DRAIN))
    pause = intents.Pause(by="ann", at=1.0, reason="release day")
    assert intents.decode_intent(b"pause", intents.encode_intent(pause)) == pause
    accepted = intents.AcceptJournal(hold="0123456789abcdef", by="ann", at=1.0, reason="nothing is in flight")
    assert intents.decode_intent(b"accept-journal", intents.encode_intent(accepted)) == accepted
    with pytest.raises(BadMessage, match="accept-journal"):
        intents.decode_intent(b"pause", intents.encode_intent(accepted))
