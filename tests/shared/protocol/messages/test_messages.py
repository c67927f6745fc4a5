"""What each message demands of its content."""

import dataclasses
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from tests.fuzz.fuzzed import samples
from tests.fuzz.fuzzed.samples import (
    ACCEPT,
    DRAIN,
    EVENT,
    HELLO,
    PLACEMENT,
    PREPARE,
    SNAPSHOT,
    STATISTICS,
    STOP,
    STOP_OWNING,
    SUMS_1,
    TOOK,
    W0,
)
from tests.fuzz.fuzzed.wire import HOST_KEYS, REQUEST
from trimtab_protocol.messages import (
    events,
    handover,
    host_keys,
    intents,
    local,
    placement,
    placement_parts,
    report,
    snapshot,
    status,
)
from trimtab_protocol.messages.codec import decoded, document, encoded
from trimtab_protocol.messages.commands import Ack, Command, CommandKind, Phase, Refusal
from trimtab_protocol.messages.decode import BadMessage, Fault
from trimtab_protocol.messages.events import MAX_EVENT_BYTES, Event, encode_event
from trimtab_protocol.messages.names import (
    AppId,
    HostId,
    KeyGroup,
    OperatorId,
    Topics,
    WorkerId,
    parse_key_group,
    topic_settings,
)
from trimtab_protocol.messages.rate_limit import RateLimit, RateLimits, is_told
from trimtab_protocol.messages.reason_text import REASON_PATTERN
from trimtab_protocol.messages.refused_hosts import (
    MAX_REFUSED_HOSTS,
    MAX_TALLIED,
    RefusedHost,
    RefusedHosts,
    RefusedTally,
)

INTENTS = (
    samples.DRAIN, samples.PAUSE, samples.STOP_ALL, samples.STOP_APP, samples.ACCEPT, samples.FORGET_APP,
    samples.FORGET_WORKER, samples.SCALE, samples.RESTART, samples.UNDRAIN, samples.ADD_RULE, *samples.ON_PLANS,
)  # fmt: skip
FRAMES = samples.HELLO, samples.WELCOME, samples.STATISTICS, samples.RELEASE, samples.TOOK
Codec = tuple[Any, Callable[[Any], bytes], Callable[[bytes], Any]]
CODECS: dict[str, Codec] = {
    "command": (samples.PREPARE, encoded, partial(decoded, kind=Command)),
    "release": (samples.RELEASE, encoded, partial(decoded, kind=Command)),
    "stop of an owner": (samples.STOP_OWNING, encoded, partial(decoded, kind=Command)),
    "ack": (samples.TOOK, encoded, partial(decoded, kind=Ack)),
    "refusal": (samples.REFUSED, encoded, partial(decoded, kind=Ack)),
    "placement": (samples.PLACEMENT, encoded, partial(decoded, kind=placement.Placement)),
    "head of a placement": (
        samples.HEAD,
        encoded,
        lambda payload: placement_parts.decode_record(samples.APP.encode(), payload),
    ),
    "part of a placement": (
        samples.PART,
        encoded,
        lambda payload: placement_parts.decode_record(samples.PART.key, payload),
    ),
    "handover": (samples.RELEASED, encoded, partial(decoded, kind=handover.HandoverRecord)),
    "report": (samples.REPORT, encoded, partial(decoded, kind=report.Report)),
    "snapshot": (samples.SNAPSHOT, snapshot.encode_snapshot, partial(decoded, kind=snapshot.Snapshot)),
    "status": (samples.STATUS, encoded, partial(decoded, kind=status.Status)),
    "event": (samples.EVENT, events.encode_event, partial(decoded, kind=Event)),
    "host keys": (
        HOST_KEYS,
        encoded,
        lambda payload: host_keys.decode_host_keys(samples.HOST.encode(), payload),
    ),
    "enrollment": (
        REQUEST,
        encoded,
        lambda payload: host_keys.decode_request(samples.HOST.encode(), payload),
    ),
    "taken back": (
        intents.TakenBack(by="ann", at=1.0, reason="it is over"),
        lambda word: intents.encode_taken_back(word)[1],
        lambda payload: intents.taken_back_in([(intents.TAKEN_BACK_HEADER, payload)]),
    ),
    **{each.key: (each, encoded, partial(intents.decode_intent, each.key.encode())) for each in INTENTS},
    **{f"frame {type(frame).__name__}": (frame, local.encode_frame, local.decode_frame) for frame in FRAMES},
}


@pytest.mark.parametrize("name", CODECS)
def test_what_a_newer_sender_says_besides_is_passed_over_wherever_it_stands(name: str) -> None:
    value, encode, decode = CODECS[name]
    maps = ("owners", "operators", "versions", "refused", "rejected", "handovers", "intents", "key_groups")
    # Their keys are names, not fields.

    def and_more(part: Any, name: str = "") -> Any:
        if isinstance(part, list):
            return [and_more(each) for each in part]
        if not isinstance(part, dict) or name in maps:
            return part
        return {key: and_more(each, key) for key, each in part.items()} | {"surprise": [1]}

    assert decode(json.dumps(and_more(json.loads(encode(value)))).encode()) == value


Document = dict[str, Any]


def twice(name: str) -> Callable[[Document], Document]:
    """The rows of a list, each of them twice."""
    return lambda document: document | {name: document[name] * 2}


def partition_twice(document: Document) -> Document:
    (block,) = document["key_groups"]
    known = {"partition", "worker", "covered_s", "tuples_in_s", "backlog"}
    return document | {"key_groups": [block | {name: block[name] * 2 for name in known}]}


def worker(**declared: Any) -> Callable[[Document], Document]:
    """A report whose first worker declares this, and no operators besides."""

    def change(document: Document) -> Document:
        first, *others = document["w"]
        bare = {name: value for name, value in first.items() if name not in ("os", "oc")}
        return document | {"w": [bare | declared, *others]}

    return change


REFUSED: list[tuple[str, Document | Callable[[Document], Document], Fault, str]] = [
    ("handover", {"target": "w0"}, Fault.RANGE, "target"),  # nobody hands over to itself
    ("handover", {"offsets": [["\ud800", 0, 0]]}, Fault.RANGE, "offsets[0][0]"),
    ("frame Hello", {"operators": {"sums": 0}}, Fault.RANGE, "operators.sums"),
    ("frame Hello", {"operators": {"sums": 100_001}}, Fault.RANGE, "operators.sums"),
    ("frame Hello", {"operators": {"sums": True}}, Fault.TYPE, "operators.sums"),
    ("snapshot", twice("hosts"), Fault.RANGE, "hosts"),
    ("snapshot", twice("nodes"), Fault.RANGE, "nodes"),
    ("snapshot", twice("key_groups"), Fault.RANGE, "key_groups"),
    ("snapshot", partition_twice, Fault.RANGE, "key_groups[0].partition"),
    ("placement", {"owners": {"sums": [["w0", "w0"]]}}, Fault.RANGE, "owners.sums[0]"),
    ("placement", {"owners": {"sums": [["w0"]] * 100_001}}, Fault.TYPE, "owners.sums"),
    ("placement", {"owners": {"sums": [[f"w{at}" for at in range(10)]]}}, Fault.TYPE, "owners.sums[0]"),
    ("placement", {"epoch": [-1, 0]}, Fault.RANGE, "epoch[0]"),
    ("placement", {"epoch": [1, -1]}, Fault.RANGE, "epoch[1]"),
    ("placement", {"epoch": [1]}, Fault.TYPE, "epoch"),
    ("placement", {"epoch": [1, 2, 3]}, Fault.TYPE, "epoch"),
    ("placement", {"epoch": [1, 2**53 + 1]}, Fault.RANGE, "epoch[1]"),
    ("placement", {"epoch": [1, 2.0]}, Fault.TYPE, "epoch[1]"),
    ("placement", {"epoch": "1.2"}, Fault.TYPE, "epoch"),
    ("event", {"kind": "a b"}, Fault.RANGE, "kind"),
    ("event", {"at": -1}, Fault.RANGE, "at"),
    (
        "event",
        {"moves": [{"key_group": "orders/17", "source": "w0", "target": "w1"}]},
        Fault.RANGE,
        "moves[0].key_group",
    ),
    ("event", {"moves": [{"key_group": "a/b/1"}] * 1001}, Fault.OVERSIZED, "moves"),
    ("event", {"loads": [{}]}, Fault.MISSING, "loads[0].worker"),
    ("report", worker(os=["sums"], oc=[1, 2]), Fault.RANGE, "w[0].oc"),
    ("report", worker(os=["sums", "sums"], oc=[1, 2]), Fault.RANGE, "w[0].os"),
    ("report", worker(os=["a/b"], oc=[1]), Fault.RANGE, "w[0].os[0]"),
    ("report", worker(os=["sums"], oc=[0]), Fault.RANGE, "w[0].oc[0]"),
    ("report", worker(os=["sums"]), Fault.MISSING, "w[0].oc[0]"),
    ("report", worker(oc=[1]), Fault.MISSING, "w[0].os"),
    ("report", worker(sby=-1), Fault.RANGE, "w[0].sby"),
    ("report", worker(unk="7 s"), Fault.RANGE, "w[0].unk"),
    ("report", worker(unk=7), Fault.TYPE, "w[0].unk"),
    ("report", worker(why="x" * 201), Fault.RANGE, "w[0].why"),
    ("report", worker(why="a\nb"), Fault.RANGE, "w[0].why"),
    ("report", worker(why=True), Fault.TYPE, "w[0].why"),
    ("report", worker(cap=0), Fault.RANGE, "w[0].cap"),  # loads are divided by it
    ("report", worker(cap=0.0009), Fault.RANGE, "w[0].cap"),
    ("report", worker(cap=10_000.1), Fault.RANGE, "w[0].cap"),
    ("command", {"target": "w9"}, Fault.RANGE, "id"),  # it was tampered with
]


@pytest.mark.parametrize(("name", "change", "fault", "path"), REFUSED)
def test_what_a_message_cannot_say_is_refused_with_its_place(
    name: str, change: Document | Callable[[Document], Document], fault: Fault, path: str
) -> None:
    value, encode, decode = CODECS[name]
    good = json.loads(encode(value))
    bad = change(good) if callable(change) else good | change
    with pytest.raises(BadMessage) as caught:
        decode(json.dumps(bad).encode())
    assert (caught.value.fault, caught.value.path) == (fault, path)


# --- names ------------------------------------------------------------------------------------------------------------


def test_key_groups_are_named_app_operator_partition():
    assert parse_key_group(str(SUMS_1)) == SUMS_1
    arabic, endless = "a/b/\u0663", "a/b/" + "9" * 5000
    for text in ("flights/sums", "flights/sums/x", "flights/sums/-1", "flights/su ms/1", "a/b/999999", arabic, endless):
        with pytest.raises(BadMessage):
            parse_key_group(text)


def test_every_topic_of_a_cluster_is_created_with_its_settings():
    topics = Topics("demo")
    names = {settings.name for settings in topic_settings(topics)}
    assert names == {getattr(topics, name) for name in dir(Topics) if isinstance(getattr(Topics, name), property)}
    with pytest.raises(ValueError, match="cluster name"):
        Topics("a b")


def test_compacted_topics_are_compacted_often_so_that_a_start_reads_little():
    found = {settings.name: settings.configuration for settings in topic_settings(Topics("demo"))}
    compacted = {name for name, keys in found.items() if keys.get("cleanup.policy") == "compact"}
    assert compacted == {f"trimtab.demo.{name}" for name in ("placement", "journal", "intents", "status", "keys")}
    segments = {name: int(keys["segment.bytes"]) for name, keys in found.items() if "segment.bytes" in keys}
    assert segments == dict.fromkeys(compacted | {"trimtab.demo.events", "trimtab.demo.snapshots"}, 16 * 1024 * 1024)


def test_what_agents_workers_and_operators_send_is_unpacked_by_the_broker():
    packed = {each.name: each for each in topic_settings(Topics("demo")) if not each.unpacked}
    assert {f"trimtab.demo.{name}" for name in ("acks", "handover", "intents")}.isdisjoint(packed)
    [acks] = (each for each in topic_settings(Topics("demo")) if each.name == "trimtab.demo.acks")
    assert acks.configuration["compression.type"] == "uncompressed"
    said = {found: acks.serves("compression.type", found) for found in ("uncompressed", "producer", "gzip", None)}
    assert said == {"uncompressed": True, "producer": True, "gzip": False, None: False}, "a provider may refuse it"


# --- local ------------------------------------------------------------------------------------------------------------


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


# --- snapshot ---------------------------------------------------------------------------------------------------------


def test_coverage_is_hosts_seen_of_expected():
    assert SNAPSHOT.coverage == 0.5
    nobody = json.loads(snapshot.encode_snapshot(SNAPSHOT)) | {"hosts_seen": 0, "hosts_expected": 0}
    assert partial(decoded, kind=snapshot.Snapshot)(json.dumps(nobody).encode()).coverage == 0.0


# --- intents ----------------------------------------------------------------------------------------------------------


def test_an_intent_stands_under_its_own_key():
    with pytest.raises(BadMessage, match="drain/w1"):
        intents.decode_intent(b"drain/w2", encoded(DRAIN))
    with pytest.raises(BadMessage, match="accept-journal"):
        intents.decode_intent(b"pause", encoded(ACCEPT))


def test_an_intent_of_a_later_version_is_refused_by_its_key():
    later = encoded(DRAIN).replace(b'"worker"', b'"freeze_app"')
    with pytest.raises(BadMessage, match=r"freeze/orders.*expected an intent that this version knows"):
        intents.decode_intent(b"freeze/orders", later)


MOVES = (
    intents.RequestedMove(key_group=KeyGroup(AppId("orders"), OperatorId("sums"), 1), worker=WorkerId("w1")),
    intents.RequestedMove(key_group=KeyGroup(AppId("orders"), OperatorId("sums"), 2), worker=WorkerId("w2")),
)
MOVE = intents.MoveKeyGroups(moves=MOVES, by="ann", at=1.0, reason="profile it")


def test_moves_that_do_not_fit_together_are_refused() -> None:
    foreign = intents.RequestedMove(key_group=KeyGroup(AppId("other"), OperatorId("sums"), 1), worker=WorkerId("w1"))
    for moves, expected in (((), "expected 1 to 1000"), ((*MOVES, foreign), "those of one"), (MOVES[:1] * 2, "once")):
        with pytest.raises(ValueError, match=expected):
            dataclasses.replace(MOVE, moves=moves)
    twice = encoded(MOVE).replace(b"orders/sums/2", b"orders/sums/1")
    with pytest.raises(BadMessage, match=r"moves: .* each of them once"):
        intents.decode_intent(MOVE.key.encode(), twice)


# --- placement --------------------------------------------------------------------------------------------------------


def test_a_placement_is_silent_about_what_it_does_not_know():
    assert [PLACEMENT.of("sums", 1), PLACEMENT.of("sums", 2), PLACEMENT.of("sums", 3), PLACEMENT.of("else", 0)] == [
        ("w1", "w0"),
        (),
        (),
        (),
    ]


# --- events -----------------------------------------------------------------------------------------------------------


BARE = Event(id="1", cluster="c", at=1.0, kind="decision", phase="skip", text="nothing: calm")


@pytest.mark.parametrize("event", [BARE, replace(EVENT, kind="of_tomorrow")])
def test_an_event_survives_the_wire(event: Event) -> None:
    assert decoded(encode_event(event), Event) == event


def test_an_event_that_is_too_large_goes_without_its_moves() -> None:
    long = replace(EVENT.moves[0], key_group=KeyGroup(AppId("a" * 200), OperatorId("o" * 200), 1), source=W0)
    large = replace(EVENT, moves=(long,) * 3000)
    payload = encode_event(large)
    assert len(payload) <= MAX_EVENT_BYTES
    assert decoded(payload, Event) == replace(large, moves=(), loads=())


# --- report -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "fitting"),
    [
        ("the parts do not add up: 0.3 + 0.4 > 0.5 s", "the parts do not add up: 0.3 + 0.4 > 0.5 s"),
        ('a "b" [c] {d} `e` \\ ? \u00e9\n', "a 'b' (c) (d) 'e' _ _ __"),
        ("7 s", "reason 7 s"),
        ("", "reason"),
        ("x" * 300, "x" * 200),
    ],
)
def test_a_reason_is_kept_as_a_report_can_hold_it(text, fitting):
    kept = replace(STATISTICS, unknown=text).unknown
    assert kept == fitting
    assert REASON_PATTERN.fullmatch(kept)
    assert replace(STATISTICS, unknown=kept).unknown == kept


# --- commands ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"key_groups": ()},
        {"source": None},
        {"generation": 4},
        {"deadline": 1000.0},
        {"key_groups": (KeyGroup("other", "sums", 1),)},
        {"kind": CommandKind.STOP},
        {"owning": True},
    ],
)
def test_a_command_that_makes_no_sense_cannot_exist(change):
    with pytest.raises(BadMessage):
        Command(**{name: getattr(PREPARE, name) for name in PREPARE.__slots__} | change)


def test_a_stop_of_a_worker_with_key_groups_says_so_and_all_other_commands_are_as_before():
    assert "owning" not in document(STOP)
    assert document(STOP_OWNING) == document(STOP) | {"owning": True}


def test_a_refusal_has_a_reason_and_nothing_else_has_one():
    values = {name: getattr(TOOK, name) for name in TOOK.__slots__}
    with pytest.raises(BadMessage):
        Ack(**values | {"phase": Phase.REFUSED})
    with pytest.raises(BadMessage):
        Ack(**values | {"refusal": Refusal.GUARD})


# ---- tests/shared/protocol/messages/test_messages.py


def test_an_allowance_refills_with_time() -> None:
    rate_limit = RateLimit(rate=2, burst=3)

    assert [rate_limit.spend(10.0) for _ in range(4)] == [True, True, True, False]
    assert [rate_limit.spend(11.0), rate_limit.spend(11.0), rate_limit.spend(11.0)] == [True, True, False]


def test_who_asks_for_too_much_loses_nothing_by_asking() -> None:
    rate_limit = RateLimit(rate=1, burst=3)

    assert [rate_limit.spend(0.0, 2), *(rate_limit.spend(0.0, 9) for _ in range(100))] == [True] + [False] * 100
    assert rate_limit.spend(0.0)


def test_a_clock_that_is_set_back_shuts_nobody_out() -> None:
    rate_limit = RateLimit(rate=1, burst=2)

    assert [rate_limit.spend(1e9), rate_limit.spend(1.0), rate_limit.spend(1.0)] == [True, True, False]
    assert rate_limit.spend(2.0)


def test_each_sender_has_its_own_and_few_are_remembered() -> None:
    rate_limits = RateLimits(rate=0, burst=1, most=2)

    assert [rate_limits.spend(sender, 0.0) for sender in "aab"] == [True, False, True]
    assert [rate_limits.spend("a", 0.0), rate_limits.spend("c", 0.0), len(rate_limits)] == [False, True, 2]
    assert [rate_limits.spend("a", 0.0), rate_limits.spend("b", 0.0)] == [False, True]  # b was forgotten


def test_few_of_many_faults_are_told() -> None:
    assert [count for count in range(1, 3001) if is_told(count)] == [1, 10, 100, 1000, 2000, 3000]


# ---- in whose name refused messages came: counted, and bounded whatever names a sender invents


def row(host: str, messages: int = 1, at: float = 1.0, fault: str = "unsigned") -> RefusedHost:
    return RefusedHost(topic="t", host=HostId(host), fault=fault, messages=messages, at=at)


def test_messages_of_one_host_and_fault_are_added_up() -> None:
    tally = RefusedTally()
    for each in (row("a", 2, 5.0), row("b", 4), row("a", 3, 4.0), row("a", 1, fault="malformed")):
        tally.add(each)

    assert tally.found == RefusedHosts(worst=(row("a", 5, 5.0), row("b", 4), row("a", 1, fault="malformed")))


def test_the_worst_are_told_and_the_others_counted() -> None:
    tally = RefusedTally()
    for number in range(MAX_REFUSED_HOSTS + 7):
        tally.add(row(f"h{number}", number + 1))

    assert [each.messages for each in tally.found.worst] == list(range(MAX_REFUSED_HOSTS + 7, 7, -1))
    assert tally.found.more == 7
    assert tally.found.joined(RefusedHosts(worst=(row("z", 10**6),), more=2)).more == 10


def test_invented_names_push_out_those_that_are_silent_longest() -> None:
    tally = RefusedTally()
    tally.add(row("real", 5))
    tally.add(row("silent", 5))
    for number in range(MAX_TALLIED):
        tally.add(row(f"x{number}"))
        tally.add(row("real"))

    assert tally.found.worst[0] == row("real", 5 + MAX_TALLIED)
    assert "silent" not in {each.host for each in tally.found.worst}
    assert len(tally.found.worst) + tally.found.more == MAX_TALLIED
