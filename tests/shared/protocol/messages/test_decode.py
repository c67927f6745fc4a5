from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import pytest

from trimtab_client.link import decoded as answer_of
from trimtab_protocol.console_documents import Problem
from trimtab_protocol.messages.codec import CONFIGURATION, Most, Name, Range, converted, decoded, encoded
from trimtab_protocol.messages.commands import Ack, CommandKind, Phase, Refusal
from trimtab_protocol.messages.decode import (
    MAX_MESSAGE_BYTES,
    BadMessage,
    Fault,
    check_name,
    check_text,
    encode,
    parsed,
)
from trimtab_protocol.messages.intents import Pause, decode_intent
from trimtab_protocol.messages.names import CommandId, Epoch, HostId, WorkerId


@dataclass
class Nothing:
    """A file without any key."""


@pytest.mark.parametrize(
    ("payload", "fault"),
    [
        (b"", Fault.MALFORMED),
        (b"{", Fault.MALFORMED),
        (b"\xff\xfe\xfa", Fault.MALFORMED),
        (b"[" * 100_000, Fault.MALFORMED),
        (b'{"v":1,"a":1,"a":2}', Fault.MALFORMED),
        (b'{"v":' + b"9" * 5000 + b"}", Fault.MALFORMED),
        (b'{"v":1,"x":NaN}', Fault.RANGE),
        (b'{"v":1,"x":-Infinity}', Fault.RANGE),
        # 200,000 members, the last one twice: to be found without looking at each of them for each
        (b'{"v":1,' + b",".join(b'"%d":0' % i for i in range(200_000)) + b',"0":0}', Fault.MALFORMED),
    ],
)
def test_a_message_that_cannot_be_read_says_why(payload, fault):
    with pytest.raises(BadMessage) as caught:
        parsed(payload, MAX_MESSAGE_BYTES)
    assert caught.value.fault is fault


def test_an_oversized_message_is_not_parsed():
    with pytest.raises(BadMessage) as caught:
        parsed(b'{"v":1}' + b" " * 20, 20)
    assert (caught.value.fault, caught.value.path) == (Fault.OVERSIZED, "")


def test_no_payload_is_malformed():
    with pytest.raises(BadMessage, match="found None"):
        parsed(None, MAX_MESSAGE_BYTES)


@pytest.mark.parametrize(
    ("found", "kind", "fault"),
    [
        ("1e999", float, Fault.RANGE),
        ("9" * 400, float, Fault.RANGE),
        ("9" * 400, int, Fault.RANGE),
        ("-1", float, Fault.RANGE),
        ("true", float, Fault.TYPE),
        ("1.0", int, Fault.TYPE),
        ("-1", int, Fault.RANGE),
        ('""', str, Fault.RANGE),
        (r'"\ud800"', str, Fault.RANGE),
        ('"a/b"', Name, Fault.RANGE),
        ('"other"', Fault, Fault.RANGE),
        ("0", bool, Fault.TYPE),
        ("{}", Annotated[tuple[int, ...], Most(1)], Fault.TYPE),
        ("[1,2]", Annotated[tuple[int, ...], Most(1)], Fault.OVERSIZED),
        ("[1]", Annotated[tuple[Nothing, ...], Most(1)], Fault.TYPE),
        ('{"a/b":1}', Annotated[Mapping[str, int], Most(1)], Fault.RANGE),
    ],
)
def test_a_value_outside_its_limits_names_its_path(found, kind, fault):
    with pytest.raises(BadMessage) as caught:
        converted(parsed(found.encode(), MAX_MESSAGE_BYTES), kind, "x")
    assert caught.value.fault is fault
    assert caught.value.path.startswith("x")


def test_not_a_number_is_none_also_where_it_does_not_come_as_json():
    with pytest.raises(BadMessage, match="expected a finite number, 0 to 1") as caught:
        converted(float("nan"), Annotated[float, Range(0.0, 1.0)])
    assert caught.value.fault is Fault.RANGE


def test_we_never_write_what_others_must_refuse():
    with pytest.raises(ValueError, match="Out of range"):
        encode({"v": float("nan")})


def test_what_was_found_is_told_in_few_words_whatever_it_is():
    strange = "\ud800\n" * 1000
    deep: object = []
    for _ in range(5000):
        deep = [deep]
    for found in ({strange: deep}, deep, [deep] * 1000, strange, strange.encode("utf-8", "surrogatepass"), 1 << 99_999):
        told = str(BadMessage(Fault.TYPE, "x", found, "another"))
        assert len(told) < 120
        assert told.isprintable()


def test_a_field_that_nobody_knows_cannot_write_into_the_log():
    with pytest.raises(BadMessage) as caught:
        converted({"a\nts=1 level=error " + "x" * 5000: 1}, Nothing, defaults=CONFIGURATION)
    assert caught.value.fault is Fault.UNKNOWN
    assert len(str(caught.value)) < 200
    assert str(caught.value).isprintable()


EVIL = "a\n2026-11-28 WARNING b\x1b]52;c;x\x07\x9b2J\u202e\u2028c\x85é"
SEEN = "a 2026-11-28 WARNING b_]52;c;x__2J_ c é"


def test_a_text_is_one_printable_line_in_every_message_and_keeps_its_length():
    assert (check_text(EVIL, "at", 100), len(SEEN)) == (SEEN, len(EVIL))
    with pytest.raises(BadMessage):
        check_name("a\x1b", "at")  # a name is not altered: it would be that of somebody else
    pause = Pause(by=EVIL, at=1.0, reason=EVIL)
    assert decode_intent(pause.key.encode(), encoded(pause)) == Pause(by=SEEN, at=1.0, reason=SEEN)
    ack = Ack(
        cluster="c", command_id=CommandId("a" * 32), epoch=Epoch(1, 1), kind=CommandKind.PREPARE, host=HostId("h"),
        worker=WorkerId("w"), phase=Phase.REFUSED, at=1.0, refusal=Refusal.FAILED, detail=EVIL,
    )  # fmt: skip
    assert decoded(encoded(ack), Ack).detail == SEEN
    assert answer_of({"type": "x", "title": EVIL, "status": 1, "detail": ""}, Problem).title == SEEN
