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


def test_an_agent_of_the_first_protocol_is_told_nothing_that_it_refuses():
    later = {"standbys", "unknown", "copies"}
    older = STATISTICS.for_protocol(1)
    assert STATISTICS.for_protocol(2) == STATISTICS
    assert encode_names(older) == encode_names(STATISTICS) - later
    assert [pair.direct for pair in older.pairs] == [None]
    assert encode_names(local.Welcome(cluster="demo", host="h0", interval_s=1.0)) == {
        "v", "frame", "cluster", "host", "interval_s",
    }  # fmt: skip


def encode_names(frame):
    return set(json.loads(local.encode_frame(frame)))


def test_refusals_that_the_agent_does_not_know_are_passed_over():
    line = local.encode_frame(replace(STATISTICS, refused={Fault.UNSIGNED: 2})).replace(
        b'{"unsigned"', b'{"moonless":7,"unsigned"'
    )
    assert dict(local.decode_frame(line).refused) == {Fault.UNSIGNED: 2}


@pytest.mark.parametrize("count", [0, 100_001, True])
def test_an_operator_has_key_groups(count):
    frame = json.loads(local.encode_frame(HELLO)) | {"operators": {"sums": count}}
    with pytest.raises(BadMessage, match=r"operators.sums: .* 1 to 100000 key groups"):
        local.decode_frame(json.dumps(frame).encode())


def test_versions_are_texts():
    frame = json.loads(local.encode_frame(HELLO)) | {"versions": {"f": [[]]}}
    with pytest.raises(BadMessage, match=r"versions.f: found an array"):
        local.decode_frame(json.dumps(frame).encode())
