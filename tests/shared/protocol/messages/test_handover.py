import json

import pytest

from tests.fuzz.fuzzed.samples import RELEASED
from trimtab_protocol.messages import handover
from trimtab_protocol.messages.codec import document
from trimtab_protocol.messages.decode import BadMessage


def test_nobody_hands_over_to_itself():
    with pytest.raises(BadMessage, match="another worker than source"):
        handover.decode_handover(json.dumps(document(RELEASED) | {"target": "w0"}).encode())


def test_an_offset_is_that_of_a_topic_with_a_name():
    message = document(RELEASED) | {"offsets": [["\ud800", 0, 0]]}
    with pytest.raises(BadMessage, match=r"offsets\[0\]\[0\].*the name of a topic"):
        handover.decode_handover(json.dumps(message).encode())
