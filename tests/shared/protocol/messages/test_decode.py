import pytest

from trimtab_client.link import decoded as answer_of
from trimtab_protocol.console_documents import Problem
from trimtab_protocol.messages.codec import decoded, encoded
from trimtab_protocol.messages.commands import Ack, CommandKind, Phase, Refusal
from trimtab_protocol.messages.decode import (
    MAX_MESSAGE_BYTES,
    BadMessage,
    Fault,
    Fields,
    check_name,
    check_text,
    encode,
    parsed,
)
from trimtab_protocol.messages.intents import Pause, decode_intent
from trimtab_protocol.messages.names import CommandId, Epoch, HostId, WorkerId


def fields_in(payload: bytes | None, limit: int = MAX_MESSAGE_BYTES) -> Fields:
    return Fields(parsed(payload, limit), "")


def fault_of(payload: bytes, read=lambda fields: fields.done(), **limits) -> tuple[Fault, str]:
    with pytest.raises(BadMessage) as caught:
        read(fields_in(payload, **limits))
    return caught.value.fault, caught.value.path


@pytest.mark.parametrize(
    ("payload", "fault"),
    [
        (b"", Fault.MALFORMED),
        (b"{", Fault.MALFORMED),
        (b"\xff\xfe\xfa", Fault.MALFORMED),
        (b"[" * 100_000, Fault.MALFORMED),
        (b'{"v":1,"a":1,"a":2}', Fault.MALFORMED),
        (b'{"v":' + b"9" * 5000 + b"}", Fault.MALFORMED),
        (b"[]", Fault.TYPE),
        (b'{"v":1,"x":NaN}', Fault.RANGE),
        (b'{"v":1,"x":-Infinity}', Fault.RANGE),
        (b'{"v":1,"x":3}', Fault.UNKNOWN),
        # 200,000 members, the last one twice: to be found without looking at each of them for each
        (b'{"v":1,' + b",".join(b'"%d":0' % i for i in range(200_000)) + b',"0":0}', Fault.MALFORMED),
    ],
)
def test_a_message_that_cannot_be_read_says_why(payload, fault):
    assert fault_of(payload)[0] is fault


def test_an_oversized_message_is_not_parsed():
    assert fault_of(b'{"v":1}' + b" " * 20, limit=20) == (Fault.OVERSIZED, "")


def test_no_payload_is_malformed():
    with pytest.raises(BadMessage, match="found None"):
        fields_in(None)


@pytest.mark.parametrize(
    ("member", "read", "fault"),
    [
        ("1e999", lambda f: f.number("x"), Fault.RANGE),
        ("9" * 400, lambda f: f.number("x"), Fault.RANGE),
        ("9" * 400, lambda f: f.integer("x"), Fault.RANGE),
        ("-1", lambda f: f.number("x"), Fault.RANGE),
        ("true", lambda f: f.number("x"), Fault.TYPE),
        ("1.0", lambda f: f.integer("x"), Fault.TYPE),
        ("-1", lambda f: f.integer("x"), Fault.RANGE),
        ("null", lambda f: f.integer("x"), Fault.MISSING),
        ('""', lambda f: f.text("x"), Fault.RANGE),
        (r'"\ud800"', lambda f: f.text("x"), Fault.RANGE),
        ('"a/b"', lambda f: f.name("x"), Fault.RANGE),
        ('"other"', lambda f: f.choice("x", Fault), Fault.RANGE),
        ("0", lambda f: f.flag("x"), Fault.TYPE),
        ("{}", lambda f: list(f.items("x", limit=1)), Fault.TYPE),
        ("[1,2]", lambda f: list(f.items("x", limit=1)), Fault.OVERSIZED),
        ("[1]", lambda f: list(f.objects("x", limit=1)), Fault.TYPE),
        ('{"a/b":1}', lambda f: list(f.members("x", limit=1)), Fault.RANGE),
    ],
)
def test_a_field_outside_its_limits_names_its_path(member, read, fault):
    found, path = fault_of(f'{{"v":1,"x":{member}}}'.encode(), read)
    assert found is fault
    assert path.startswith("x")


def test_not_a_number_is_none_also_where_it_does_not_come_as_json():
    with pytest.raises(BadMessage, match="expected a finite number, 0 to 1") as caught:
        Fields({"x": float("nan")}, "").number("x", high=1.0)
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
    payload = encode({"v": 1, "a\nts=1 level=error " + "x" * 5000: 1})
    with pytest.raises(BadMessage) as caught:
        fields_in(payload).done()
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
