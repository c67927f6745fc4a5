"""Every message survives its own wire form, and no mutation of one gets past a decoder as anything but a value."""

import json
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from trimtab_protocol.messages import commands, handover, intents, local, placement, report, snapshot
from trimtab_protocol.messages.commands import Ack, Command, CommandKind, Phase, Refusal
from trimtab_protocol.messages.decode import BadMessage, Fault
from trimtab_protocol.messages.names import Epoch, KeyGroup, Topics, parse_key_group, topic_settings

SUMS = KeyGroup("flights", "sums", 17)
EXTRACT = KeyGroup("flights", "extract", 3)
EPOCH = Epoch(2, 9)

PREPARE = Command(
    cluster="demo",
    kind=CommandKind.PREPARE,
    epoch=EPOCH,
    host="h1",
    worker="w1",
    app="flights",
    issued_at=100.0,
    deadline=160.0,
    handover="2.9-0",
    key_groups=(SUMS,),
    source="w0",
    target="w1",
)
ACK = Ack(
    cluster="demo",
    command_id=PREPARE.id,
    epoch=EPOCH,
    kind=CommandKind.PREPARE,
    host="h1",
    worker="w1",
    phase=Phase.TOOK,
    at=101.0,
    handover="2.9-0",
    generation=4,
    lag_records=0,
    state_bytes=1024,
    pause_s=0.12,
)
PLACEMENT = placement.Placement(
    cluster="demo", app="flights", epoch=EPOCH, owners={"sums": (("w0",), ("w1", "w0"), ()), "extract": ()}
)
RECORD = handover.HandoverRecord(
    kind=handover.HandoverKind.RELEASED,
    cluster="demo",
    app="flights",
    handover="2.9-0",
    epoch=EPOCH,
    generation=4,
    source="w0",
    target="w1",
    key_groups=(SUMS,),
    offsets=(("delays", 17, 120),),
    ends=(("flights-sums-changelog", 17, 300),),
)
KEY_GROUP_SAMPLE = report.KeyGroupSample(key_group=SUMS, worker="w0", cpu_s=0.02, tuples_in=10, state_bytes=None)
PAIR_SAMPLE = report.PairSample(source=EXTRACT, target=SUMS, tuples=10, bytes=900)
REPORT = report.Report(
    cluster="demo",
    host="h0",
    at_ms=1_000,
    interval_s=1.0,
    sequence=5,
    sample=report.HostSample(cpu_s=0.5, cores=2.0, basis=report.Basis.CGROUP, received_bytes=5),
    workers=(
        report.WorkerSample(
            worker="w0",
            app="flights",
            state=report.WorkerState.RUNNING,
            capacity=0.25,
            cpu_s=0.1,
            steering=True,
            epoch=EPOCH,
            generation=4,
            marks=(report.Mark.CLAMPED,),
        ),
    ),
    key_groups=(KEY_GROUP_SAMPLE,),
    pairs=(PAIR_SAMPLE,),
)
SNAPSHOT = snapshot.Snapshot(
    cluster="demo",
    start_ms=0,
    end_ms=10_000,
    published_ms=10_900,
    hosts_seen=1,
    hosts_expected=2,
    watermark_ms=9_000,
    late_rows=3,
    rejected={"malformed": 2},
    hosts=(snapshot.HostWindow(host="h0", covered_s=10.0, cpu=0.5, cores=2.0, basis=report.Basis.HOST),),
    nodes=(
        snapshot.NodeWindow(
            worker="w0",
            host="h0",
            app="flights",
            state=report.WorkerState.RUNNING,
            capacity=0.25,
            covered_s=10.0,
            cpu=0.1,
            complete=True,
            steering=True,
            epoch=EPOCH,
            generation=4,
        ),
    ),
    key_groups=(snapshot.KeyGroupWindow(key_group=SUMS, worker="w0", covered_s=10.0, cpu=None, tuples_in_s=1.5),),
    pairs=(snapshot.PairWindow(source=EXTRACT, target=SUMS, tuples_s=1.0, bytes_s=90.0),),
)
DRAIN = intents.Drain(worker="w3", by="ann", at=5.0, reason="kernel update")
HELLO = local.Hello(
    app="flights", worker="w0", pid=77, steering=False, reason="old Faust", operators={"sums": 64}, versions={"f": "1"}
)
STATISTICS = local.Statistics(
    at_ms=1_000,
    interval_s=1.0,
    state=report.WorkerState.RUNNING,
    cpu_s=None,
    epoch=EPOCH,
    generation=None,
    complete=True,
    key_groups=(KEY_GROUP_SAMPLE,),
    pairs=(PAIR_SAMPLE,),
)

COLUMNS = {"partition", "worker", "covered_s", "tuples_in_s"}
"""Of the snapshot's one key group, those that are known."""

Codec = tuple[Any, Callable[[Any], bytes], Callable[[bytes], Any]]
CODECS: dict[str, Codec] = {
    "command": (PREPARE, commands.encode_command, commands.decode_command),
    "ack": (ACK, commands.encode_ack, commands.decode_ack),
    "placement": (PLACEMENT, placement.encode_placement, placement.decode_placement),
    "handover": (RECORD, handover.encode_handover, handover.decode_handover),
    "report": (REPORT, report.encode_report, report.decode_report),
    "snapshot": (SNAPSHOT, snapshot.encode_snapshot, snapshot.decode_snapshot),
    "drain": (DRAIN, intents.encode_intent, lambda payload: intents.decode_intent(b"drain/w3", payload)),
    "hello": (HELLO, local.encode_frame, local.decode_frame),
    "welcome": (local.Welcome(cluster="demo", host="h0", interval_s=1.0), local.encode_frame, local.decode_frame),
    "statistics": (STATISTICS, local.encode_frame, local.decode_frame),
    "command frame": (PREPARE, local.encode_frame, local.decode_frame),
    "ack frame": (ACK, local.encode_frame, local.decode_frame),
}


@pytest.mark.parametrize("name", CODECS)
def test_a_message_comes_back_as_it_was(name):
    value, encode, decode = CODECS[name]
    assert decode(encode(value)) == value


@pytest.mark.parametrize("name", CODECS)
def test_what_a_newer_sender_says_besides_is_passed_over_wherever_it_stands(name):
    value, encode, decode = CODECS[name]
    maps = ("owners", "operators", "versions", "refused", "rejected")  # their keys are names, not fields

    def and_more(part):
        match part:
            case dict():
                return {key: each if key in maps else and_more(each) for key, each in part.items()} | {"surprise": [1]}
            case list():
                return [and_more(each) for each in part]
        return part

    assert decode(json.dumps(and_more(json.loads(encode(value)))).encode()) == value


@pytest.mark.parametrize(
    ("versions", "protocol"),
    [({}, 1), ({"trimtab-protocol": "2"}, 2), ({"trimtab-protocol": "17"}, 17), ({"trimtab-protocol": "two"}, 1)],
)
def test_the_protocol_of_a_plug_in_is_what_its_versions_say(versions, protocol):
    assert replace(HELLO, versions=versions).protocol == protocol


def test_an_agent_of_the_first_protocol_is_told_nothing_that_it_refuses():
    told = replace(STATISTICS, standbys=2, unknown="no base yet")
    assert told.for_protocol(2) == told
    assert told.for_protocol(1) == STATISTICS
    assert encode_names(STATISTICS) == encode_names(told) - {"standbys", "unknown"}
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
    assert report.check_reason(kept, "unk") == kept
    assert replace(STATISTICS, unknown=kept).unknown == kept


@pytest.mark.parametrize(
    ("change", "fault", "path"),
    [
        ({"os": ["sums"], "oc": [1, 2]}, Fault.RANGE, "w[0].oc"),
        ({"os": ["sums", "sums"], "oc": [1, 2]}, Fault.RANGE, "w[0].os"),
        ({"os": ["a/b"], "oc": [1]}, Fault.RANGE, "w[0].os[0]"),
        ({"os": ["sums"], "oc": [0]}, Fault.RANGE, "w[0].oc"),
        ({"os": ["sums"]}, Fault.MISSING, "w[0].oc[0]"),
        ({"oc": [1]}, Fault.MISSING, "w[0].os"),
        ({"sby": -1}, Fault.RANGE, "w[0].sby"),
        ({"unk": "7 s"}, Fault.RANGE, "w[0].unk"),
        ({"unk": 7}, Fault.TYPE, "w[0].unk"),
        ({"why": "x" * 201}, Fault.RANGE, "w[0].why"),
        ({"why": "a\nb"}, Fault.RANGE, "w[0].why"),
        ({"why": True}, Fault.TYPE, "w[0].why"),
    ],
)
def test_what_a_worker_declares_is_checked(change, fault, path):
    document = json.loads(report.encode_report(REPORT))
    document["w"][0].update(change)
    with pytest.raises(BadMessage) as caught:
        report.decode_report(json.dumps(document).encode())
    assert (caught.value.fault, caught.value.path) == (fault, path)


def test_what_a_worker_declares_comes_back():
    said = {"operators": {"sums": 64, "x": 2}, "unknown": "no base yet", "reason": "workers differ"}
    workers = (replace(REPORT.workers[0], **said, standbys=1),)
    assert report.decode_report(report.encode_report(replace(REPORT, workers=workers))).workers == workers
    nodes = (replace(SNAPSHOT.nodes[0], **said, standbys=0),)
    assert snapshot.decode_snapshot(snapshot.encode_snapshot(replace(SNAPSHOT, nodes=nodes))).nodes == nodes


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("seed", [1, 2])
def test_mutated_bytes_are_refused_or_read_but_never_crash(name, seed):
    value, encode, decode = CODECS[name]
    good, source = encode(value), random.Random(seed)
    refused = 0
    for _ in range(1500):
        mutant = bytearray(good)
        for _ in range(source.randint(1, 4)):
            at = source.randrange(len(mutant))
            mutant[at : at + source.randint(0, 3)] = source.choice(
                (b"", b"-", b"9", b"null", b"[]", b'"', b"\x00", b"{")
            )
        try:
            decode(bytes(mutant))
        except BadMessage:
            refused += 1
    assert refused > 500


def test_a_command_that_was_tampered_with_does_not_match_its_id():
    document = PREPARE.document() | {"target": "w9"}
    with pytest.raises(BadMessage, match="hash of the content"):
        commands.decode_command(json.dumps(document).encode())


def test_the_same_step_has_the_same_id_and_another_epoch_another():
    later = Command(**{name: getattr(PREPARE, name) for name in PREPARE.__slots__} | {"issued_at": 101.0})
    assert later.id == PREPARE.id
    newer = Command(**{name: getattr(PREPARE, name) for name in PREPARE.__slots__} | {"epoch": Epoch(2, 10)})
    assert newer.id != PREPARE.id


def test_the_stops_of_two_workers_in_one_publication_are_two_commands():
    first, second = (
        Command(
            cluster="demo", kind=CommandKind.STOP, epoch=EPOCH, host="h1", worker=worker, app=None, issued_at=1.0,
            deadline=2.0,
        )
        for worker in ("w1", "w2")
    )  # fmt: skip
    assert first.id != second.id


@pytest.mark.parametrize(
    "change",
    [
        {"key_groups": ()},
        {"source": None},
        {"generation": 4},
        {"deadline": 100.0},
        {"key_groups": (KeyGroup("other", "sums", 1),)},
        {"kind": CommandKind.STOP},
    ],
)
def test_a_command_that_makes_no_sense_cannot_exist(change):
    with pytest.raises(BadMessage):
        Command(**{name: getattr(PREPARE, name) for name in PREPARE.__slots__} | change)


def test_a_refusal_has_a_reason_and_nothing_else_has_one():
    values = {name: getattr(ACK, name) for name in ACK.__slots__}
    with pytest.raises(BadMessage):
        Ack(**values | {"phase": Phase.REFUSED})
    with pytest.raises(BadMessage):
        Ack(**values | {"refusal": Refusal.GUARD})


def test_an_ack_is_short():
    payload = commands.encode_ack(ACK)
    assert commands.decode_ack(payload + b" " * (commands.MAX_ACK_BYTES - len(payload))) == ACK
    with pytest.raises(BadMessage) as caught:
        commands.decode_ack(payload + b" " * (commands.MAX_ACK_BYTES + 1 - len(payload)))
    assert caught.value.fault is Fault.OVERSIZED


def test_an_intent_stands_under_its_own_key():
    with pytest.raises(BadMessage, match="drain/w3"):
        intents.decode_intent(b"drain/w2", intents.encode_intent(DRAIN))
    pause = intents.Pause(by="ann", at=1.0, reason="release day")
    assert intents.decode_intent(b"pause", intents.encode_intent(pause)) == pause
    accepted = intents.AcceptJournal(hold="0123456789abcdef", by="ann", at=1.0, reason="nothing is in flight")
    assert intents.decode_intent(b"accept-journal", intents.encode_intent(accepted)) == accepted
    with pytest.raises(BadMessage, match="accept-journal"):
        intents.decode_intent(b"pause", intents.encode_intent(accepted))


def test_a_placement_names_each_worker_once_per_key_group():
    document = PLACEMENT.document() | {"owners": {"sums": [["w0", "w0"]]}}
    with pytest.raises(BadMessage, match=r"owners.sums\[0\]"):
        placement.decode_placement(json.dumps(document).encode())


@pytest.mark.parametrize(
    ("owners", "path"),
    [({"sums": [["w0"]] * 4}, "owners.sums"), ({"sums": [[f"w{number}" for number in range(10)]]}, "owners.sums[0]")],
    ids=["key groups", "standbys"],
)
def test_a_placement_has_its_limits(owners, path, monkeypatch):
    monkeypatch.setattr(placement, "MAX_PARTITIONS", 3)
    with pytest.raises(BadMessage) as caught:
        placement.decode_placement(json.dumps(PLACEMENT.document() | {"owners": owners}).encode())
    assert (caught.value.fault, caught.value.path) == (Fault.TYPE, path)


def test_nobody_hands_over_to_itself():
    with pytest.raises(BadMessage, match="another worker than source"):
        handover.decode_handover(json.dumps(RECORD.document() | {"target": "w0"}).encode())


def test_a_placement_is_silent_about_what_it_does_not_know():
    assert [PLACEMENT.of("sums", 1), PLACEMENT.of("sums", 2), PLACEMENT.of("sums", 3), PLACEMENT.of("else", 0)] == [
        ("w1", "w0"),
        (),
        (),
        (),
    ]


def test_key_groups_are_named_app_operator_partition():
    assert parse_key_group(str(SUMS)) == SUMS
    arabic, endless = "a/b/\u0663", "a/b/" + "9" * 5000
    for text in ("flights/sums", "flights/sums/x", "flights/sums/-1", "flights/su ms/1", "a/b/999999", arabic, endless):
        with pytest.raises(BadMessage):
            parse_key_group(text)


def test_an_offset_is_that_of_a_topic_with_a_name():
    document = RECORD.document() | {"offsets": [["\ud800", 0, 0]]}
    with pytest.raises(BadMessage, match=r"offsets\[0\]\[0\].*the name of a topic"):
        handover.decode_handover(json.dumps(document).encode())


@pytest.mark.parametrize("count", [0, 100_001, True])
def test_an_operator_has_key_groups(count):
    frame = json.loads(local.encode_frame(HELLO)) | {"operators": {"sums": count}}
    with pytest.raises(BadMessage, match=r"operators.sums: .* 1 to 100000 key groups"):
        local.decode_frame(json.dumps(frame).encode())


def test_versions_are_texts():
    frame = json.loads(local.encode_frame(HELLO)) | {"versions": {"f": [[]]}}
    with pytest.raises(BadMessage, match=r"versions.f: found an array"):
        local.decode_frame(json.dumps(frame).encode())


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("hosts", lambda rows: rows * 2),
        ("nodes", lambda rows: rows * 2),
        ("key_groups", lambda blocks: blocks * 2),
        (
            "key_groups[0].partition",
            lambda blocks: [blocks[0] | {k: v * 2 for k, v in blocks[0].items() if k in COLUMNS}],
        ),
    ],
)
def test_nothing_is_in_a_snapshot_twice(field, change):
    document = json.loads(snapshot.encode_snapshot(SNAPSHOT))
    name = field.partition("[")[0]
    with pytest.raises(BadMessage) as caught:
        snapshot.decode_snapshot(json.dumps(document | {name: change(document[name])}).encode())
    assert (caught.value.fault, caught.value.path) == (Fault.RANGE, field)


def test_coverage_is_hosts_seen_of_expected():
    assert SNAPSHOT.coverage == 0.5
    nobody = json.loads(snapshot.encode_snapshot(SNAPSHOT)) | {"hosts_seen": 0, "hosts_expected": 0}
    assert snapshot.decode_snapshot(json.dumps(nobody).encode()).coverage == 0.0


@pytest.mark.parametrize("capacity", [0, 0.0009, 10_000.1])
def test_a_worker_has_a_share_of_a_core_that_loads_can_be_divided_by(capacity):
    document = json.loads(report.encode_report(REPORT))
    document["w"][0]["cap"] = capacity
    with pytest.raises(BadMessage) as caught:
        report.decode_report(json.dumps(document).encode())
    assert (caught.value.fault, caught.value.path) == (Fault.RANGE, "w[0].cap")


@pytest.mark.parametrize("epoch", [[-1, 0], [1, -1], [1], [1, 2, 3], [1, 2**53 + 1], [1, 2.0], "1.2"])
def test_an_epoch_is_two_counts(epoch):
    with pytest.raises(BadMessage, match=r"^epoch: "):
        placement.decode_placement(json.dumps(PLACEMENT.document() | {"epoch": epoch}).encode())


def test_every_topic_of_a_cluster_is_created_with_its_settings():
    topics = Topics("demo")
    names = {settings.name for settings in topic_settings(topics)}
    assert names == {getattr(topics, name) for name in dir(Topics) if isinstance(getattr(Topics, name), property)}
    with pytest.raises(ValueError, match="cluster name"):
        Topics("a b")


def test_compacted_topics_are_compacted_often_so_that_a_start_reads_little():
    found = {settings.name: settings.configuration for settings in topic_settings(Topics("demo"))}
    compacted = {name for name, keys in found.items() if keys.get("cleanup.policy") == "compact"}
    assert compacted == {f"trimtab.demo.{name}" for name in ("placement", "journal", "intents", "status")}
    segments = {name: int(keys["segment.bytes"]) for name, keys in found.items() if "segment.bytes" in keys}
    assert segments == dict.fromkeys(compacted, 16 * 1024 * 1024)
