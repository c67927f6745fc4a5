"""The keys of a host, and the request to be enrolled, on the wire."""

import json
from dataclasses import replace
from typing import Any

import pytest

from trimtab_protocol.messages.codec import encoded
from trimtab_protocol.messages.decode import BadMessage, Fault
from trimtab_protocol.messages.host_keys import EnrollmentRequest, HostKeys, decode_host_keys, proof_of
from trimtab_protocol.messages.names import HostId

H0 = HostId("h0")
KEYS = HostKeys(cluster="c", host=H0, keys=(b"k" * 32, b"o" * 32), at=1.5, by="ops@host")
TOKEN = "token"
REQUEST = EnrollmentRequest(cluster="c", host=H0, key=b"k" * 32, proof=proof_of(TOKEN, "c", H0, b"k" * 32))


def test_a_host_may_have_no_key() -> None:
    assert decode_host_keys(b"h0", encoded(replace(KEYS, keys=()))).keys == ()


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"v": 2}, Fault.VERSION),
        ({"host": "h1"}, Fault.RANGE),
        ({"keys": None}, Fault.MISSING),
        ({"keys": ["AAAA"]}, Fault.RANGE),
        ({"keys": ["no base64"]}, Fault.RANGE),
        ({"keys": [7]}, Fault.TYPE),
        ({"keys": json.loads(encoded(KEYS))["keys"][:1] * 2}, Fault.RANGE),
        ({"keys": ["a", "b", "c"]}, Fault.OVERSIZED),
        ({"by": "x" * 201}, Fault.RANGE),
    ],
)
def test_what_is_refused(changes: dict[str, Any], fault: Fault) -> None:
    document = json.loads(encoded(KEYS)) | changes

    with pytest.raises(BadMessage) as refused:
        decode_host_keys(b"h0", json.dumps(document).encode())
    assert refused.value.fault is fault


def test_a_request_is_proven_by_its_token_for_its_host_and_key_alone() -> None:
    assert REQUEST.is_proven_by(TOKEN)
    assert not REQUEST.is_proven_by("another")
    assert not replace(REQUEST, key=b"x" * 32).is_proven_by(TOKEN)
    assert not replace(REQUEST, host=HostId("h1")).is_proven_by(TOKEN)
    assert not replace(REQUEST, cluster="d").is_proven_by(TOKEN)
    assert TOKEN.encode() not in encoded(REQUEST)
