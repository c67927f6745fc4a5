"""Events of few words and of later versions survive the wire, and their limits hold."""

from dataclasses import replace

import pytest

from tests.fuzz.fuzzed.samples import EVENT, W0
from trimtab_protocol.messages.codec import document
from trimtab_protocol.messages.decode import BadMessage, encode
from trimtab_protocol.messages.events import (
    MAX_EVENT_BYTES,
    Event,
    decode_event,
    encode_event,
)
from trimtab_protocol.messages.names import AppId, KeyGroup, OperatorId

BARE = Event(id="1", cluster="c", at=1.0, kind="decision", phase="skip", text="nothing: calm")


@pytest.mark.parametrize("event", [BARE, replace(EVENT, kind="of_tomorrow")])
def test_an_event_survives_the_wire(event: Event) -> None:
    assert decode_event(encode_event(event)) == event


def test_what_is_empty_is_not_sent() -> None:
    assert document(BARE).keys() == {"v", "id", "cluster", "at", "kind", "phase", "text"}


def test_an_event_that_is_too_large_goes_without_its_moves() -> None:
    long = replace(EVENT.moves[0], key_group=KeyGroup(AppId("a" * 200), OperatorId("o" * 200), 1), source=W0)
    large = replace(EVENT, moves=(long,) * 3000)
    payload = encode_event(large)
    assert len(payload) <= MAX_EVENT_BYTES
    assert decode_event(payload) == replace(large, moves=(), loads=())


@pytest.mark.parametrize(
    ("wrong", "path"),
    [
        ({"kind": "a b"}, "kind"),
        ({"at": -1}, "at"),
        ({"moves": [{"key_group": "orders/17", "source": "w0", "target": "w1"}]}, "moves[0].key_group"),
        ({"moves": [{"key_group": "a/b/1"}] * 1001}, "moves"),
        ({"loads": [{}]}, "loads[0].worker"),
    ],
)
def test_a_wrong_field_is_named(wrong: dict[str, object], path: str) -> None:
    with pytest.raises(BadMessage) as found:
        decode_event(encode(document(BARE) | wrong))
    assert found.value.path == path
