"""Events survive the wire, and their limits hold."""

from dataclasses import replace

import pytest

from trimtab_protocol.messages.decode import BadMessage, encode
from trimtab_protocol.messages.events import (
    MAX_EVENT_BYTES,
    Event,
    EventKind,
    EventLoad,
    EventMove,
    EventNext,
    decode_event,
    encode_event,
    event_document,
)
from trimtab_protocol.messages.names import AppId, KeyGroup, OperatorId, WorkerId

W0, W1 = WorkerId("w0"), WorkerId("w1")
KEY_GROUP = KeyGroup(AppId("orders"), OperatorId("sums"), 17)
PLAN = Event(
    id="4-1000.000-1",
    cluster="c",
    at=1000.0,
    kind=EventKind.PLAN,
    phase="begun",
    text="orders: 1 move",
    reason="load_distance",
    app=AppId("orders"),
    plan="4.112",
    before=12.5,
    planned=1.0,
    lower_bound=0.5,
    mean_load=50.0,
    moves=(EventMove(key_group=KEY_GROUP, source=W0, target=W1, why="over_mean", warm="standby", load_pct=12.125),),
    moves_total=1,
    loads=(EventLoad(worker=W0, before=62.5, planned=50.5), EventLoad(worker=W1, before=40.0, planned=51.0)),
    next=EventNext(key_group=KEY_GROUP, source=W0, target=W1, load_distance=0.75),
)
BARE = Event(id="1", cluster="c", at=1.0, kind="decision", phase="skip", text="nothing: calm")


@pytest.mark.parametrize("event", [PLAN, BARE, replace(PLAN, kind="of_tomorrow", worker=W0, by="ann", measured=2.0)])
def test_an_event_survives_the_wire(event: Event) -> None:
    assert decode_event(encode_event(event)) == event


def test_what_is_empty_is_not_sent() -> None:
    assert event_document(BARE).keys() == {"id", "cluster", "at", "kind", "phase", "text"}


def test_an_event_that_is_too_large_goes_without_its_moves() -> None:
    long = replace(PLAN.moves[0], key_group=KeyGroup(AppId("a" * 200), OperatorId("o" * 200), 1), source=W0)
    large = replace(PLAN, moves=(long,) * 3000)
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
        decode_event(encode({"v": 1, **event_document(BARE), **wrong}))
    assert found.value.path == path
