"""One message of each kind, with its encoder and decoder."""

from collections.abc import Callable
from typing import Any

from trimtab_protocol.messages import commands, handover, intents, local, placement, report, snapshot, taken_back
from trimtab_protocol.messages.commands import Ack, Command, CommandKind, Phase
from trimtab_protocol.messages.names import Epoch, KeyGroup

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
    sample=report.HostSample(
        cpu_s=0.5,
        cores=2.0,
        basis=report.Basis.CGROUP,
        received_bytes=5,
        link_bytes_s=1e9,
        type="m5-x2",
        speed=1.5,
        disk_total_bytes=10**12,
        disk_free_bytes=10**11,
        zone="rack-7",
        ended=True,
    ),
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
    hosts=(
        snapshot.HostWindow(host="h0", covered_s=10.0, cpu=0.5, cores=2.0, basis=report.Basis.HOST),
        snapshot.HostWindow(
            host="h1",
            covered_s=10.0,
            cpu=0.5,
            cores=2.0,
            basis=report.Basis.HOST,
            link_bytes_s=1e9,
            type="m5-x2",
            speed=1.5,
            disk_total_bytes=10**12,
            disk_free_bytes=10**11,
            zone="rack-7",
        ),
    ),
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
    pairs=(snapshot.PairWindow(source=EXTRACT, target=SUMS, tuples_s=1.0, bytes_s=90.0, direct_s=0.4),),
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

Codec = tuple[Any, Callable[[Any], bytes], Callable[[bytes], Any]]
CODECS: dict[str, Codec] = {
    "command": (PREPARE, commands.encode_command, commands.decode_command),
    "ack": (ACK, commands.encode_ack, commands.decode_ack),
    "placement": (PLACEMENT, placement.encode_placement, placement.decode_placement),
    "handover": (RECORD, handover.encode_handover, handover.decode_handover),
    "report": (REPORT, report.encode_report, report.decode_report),
    "snapshot": (SNAPSHOT, snapshot.encode_snapshot, snapshot.decode_snapshot),
    "drain": (DRAIN, intents.encode_intent, lambda payload: intents.decode_intent(b"drain/w3", payload)),
    "taken back": (
        taken_back.TakenBack(by="ann", at=1.0, reason="it is over"),
        lambda word: taken_back.encode_taken_back(word)[1],
        lambda payload: taken_back.taken_back_in([(taken_back.HEADER, payload)]),
    ),
    "hello": (HELLO, local.encode_frame, local.decode_frame),
    "welcome": (local.Welcome(cluster="demo", host="h0", interval_s=1.0), local.encode_frame, local.decode_frame),
    "statistics": (STATISTICS, local.encode_frame, local.decode_frame),
    "command frame": (PREPARE, local.encode_frame, local.decode_frame),
    "ack frame": (ACK, local.encode_frame, local.decode_frame),
}
