import json
from dataclasses import replace

import pytest

from tests.fuzz.fuzzed.samples import HELLO, STATISTICS
from trimtab_protocol.messages import local
from trimtab_protocol.messages.decode import BadMessage, Fault


@pytest.mark.parametrize(
    ("versions", "protocol"),
    [({}, 1), ({"trimtab-protocol": "2"}, 2), ({"trimtab-protocol": "17"}, 17), ({"trimtab-protocol": "two"}, 1)],
)
def test_the_protocol_of_a_plug_in_is_what_its_versions_say(versions, protocol):
    assert replace(HELLO, versions=versions).protocol == protocol


def test_refusals_that_the_agent_does_not_know_are_passed_over():
    line = local.encode_frame(replace(STATISTICS, refused={Fault.UNSIGNED: 2})).replace(
        b'{"unsigned"', b'{"moonless":7,"unsigned"'
    )
    assert dict(local.decode_frame(line).refused) == {Fault.UNSIGNED: 2}


@pytest.mark.parametrize("count", [0, 100_001, True])
def test_an_operator_has_key_groups(count):
    frame = json.loads(local.encode_frame(HELLO)) | {"operators": {"sums": count}}
    with pytest.raises(BadMessage, match=r"operators.sums: .* (1 to 100000|a whole number)"):
        local.decode_frame(json.dumps(frame).encode())


def test_versions_are_texts():
    frame = json.loads(local.encode_frame(HELLO)) | {"versions": {"f": [[]]}}
    with pytest.raises(BadMessage, match=r"versions.f: found an array"):
        local.decode_frame(json.dumps(frame).encode())
