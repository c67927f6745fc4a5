"""Reports on a real broker, through a real Spark, to snapshots: numbers, refused reports, missing hosts."""

import json
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from trimtab_controller.sandbox.broker import Broker, Topic
from trimtab_controller.sandbox.processes import Child, Processes
from trimtab_controller.stream.chunks import Reassembler, read_chunk
from trimtab_models.messages.decode import BadMessage, Fault
from trimtab_models.messages.names import AppId, Epoch, HostId, KeyGroup, OperatorId, Topics, WorkerId
from trimtab_models.messages.report import (
    MAX_REPORT_BYTES,
    Basis,
    HostSample,
    KeyGroupSample,
    Mark,
    PairSample,
    Report,
    WorkerSample,
    WorkerState,
    decode_report,
    encode_report,
)
from trimtab_models.messages.snapshot import Snapshot

LIMIT_S = 240.0
WINDOW_S = 300
INTERVAL_S = 10
FLOOD = 100
UNKNOWN = 1_000
HOSTS = ("h0", "h1", "h2")
APP = AppId("app")


class Rig:
    """The topics of one cluster, a way to write reports and to read snapshots."""

    def __init__(self, broker: Broker, cluster: str, folder: Path, processes: Processes) -> None:
        self.topics = Topics(cluster)
        self.cluster = cluster
        self._broker = broker
        self._folder = folder
        self._processes = processes
        limit = {"max.message.bytes": str(2 * MAX_REPORT_BYTES)}
        broker.create_topics(
            [
                Topic(name=self.topics.reports, partitions=4, settings=limit),
                Topic(name=self.topics.snapshots, partitions=1),
            ]
        )
        self.producer = Producer({"bootstrap.servers": broker.address, "message.max.bytes": 2 * MAX_REPORT_BYTES})
        self._consumer = Consumer(
            {"bootstrap.servers": broker.address, "group.id": cluster, "auto.offset.reset": "earliest"}
        )
        self._consumer.subscribe([self.topics.snapshots])
        self._reassembler = Reassembler(cluster)

    def start(self, **settings: object) -> Child:
        """The stream as a process of its own."""
        keys = {"checkpoint_dir": str(self._folder / "checkpoints"), **settings}
        lines = [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
        file = self._folder / "controller.toml"
        file.write_text(
            f'[controller]\ncluster = "{self.cluster}"\n[kafka]\nbootstrap_servers = "{self._broker.address}"\n'
            + "[stream]\n"
            + "\n".join(lines)
            + '\nspark = { "spark.master" = "local[2]" }\n',
            encoding="utf-8",
        )
        return self._processes.start(
            "stream", [sys.executable, "-m", "trimtab_controller.stream", "--config", str(file)]
        )

    def send(self, report: Report) -> None:
        """A report that Kafka got when it was made."""
        self.send_raw(encode_report(report), report.host, report.at_ms)

    def send_raw(self, payload: bytes | None, key: str, at_ms: int) -> None:
        while True:
            try:
                self.producer.produce(self.topics.reports, payload, key, timestamp=at_ms)
                return
            except BufferError:
                self.producer.poll(0.1)

    def arrived(self, wait_s: float = 0.0) -> list[Snapshot]:
        """The snapshots that came meanwhile."""
        messages = [message for message in self._consumer.consume(100, wait_s) if not message.error()]
        chunks = [read_chunk(message.headers(), message.value()) for message in messages]
        return [snapshot for chunk in chunks if (snapshot := self._reassembler.add(chunk))]

    def snapshots(self, stream: Child, limit_s: float = LIMIT_S) -> Iterator[Snapshot]:
        """Snapshots as they come; fails when the stream ends or the time is over."""
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            yield from self.arrived(0.2)
            if not stream.alive:
                break
        pytest.fail(f"no further snapshot, see the log:\n{stream.log.read_text()[-4000:]}")

    def close(self) -> None:
        self._consumer.close()


@pytest.fixture
def rig(broker: Broker, unique: str, tmp_path: Path) -> Iterator[Rig]:
    with Processes(tmp_path / "logs") as processes:
        found = Rig(broker, unique, tmp_path, processes)
        yield found
        found.close()


def key_group(partition: int) -> KeyGroup:
    return KeyGroup(APP, OperatorId("count"), partition)


def report(cluster: str, host: str, at_ms: int, *, interval_s: float = INTERVAL_S) -> Report:
    """Host hN runs worker wN with key groups 2N and 2N + 1; figures that floats hold exactly."""
    number = int(host[1:])
    worker = WorkerId(f"w{number}")
    return Report(
        cluster=cluster,
        host=HostId(host),
        at_ms=at_ms,
        interval_s=interval_s,
        sequence=at_ms,
        sample=HostSample(cpu_s=2.5, cores=2.0, basis=Basis.CGROUP, received_bytes=5_000, memory_bytes=10**9 + number),
        workers=(
            WorkerSample(
                worker=worker,
                app=APP,
                state=WorkerState.RUNNING,
                capacity=0.25,
                cpu_s=1.25,
                epoch=Epoch(1, 2),
                generation=3,
            ),
        ),
        key_groups=tuple(
            KeyGroupSample(
                key_group=key_group(partition),
                worker=worker,
                cpu_s=0.5 + number,
                tuples_in=70 + partition,
                bytes_out=None,
                state_bytes=2**40 + partition,
                backlog=0,
            )
            for partition in (2 * number, 2 * number + 1)
        ),
        pairs=(PairSample(source=key_group(2 * number), target=key_group(5), tuples=20, bytes=160),),
    )


def window_reports(cluster: str, host: str, start_ms: int, *, count: int = WINDOW_S // INTERVAL_S) -> list[Report]:
    return [report(cluster, host, start_ms + (index + 1) * INTERVAL_S * 1000) for index in range(count)]


def start_of_window() -> int:
    """Of a window that a stream which starts within the next minutes sees from its beginning."""
    return int(time.time()) // WINDOW_S * WINDOW_S * 1000


Change = Callable[[dict[str, Any]], None]


def put(*path: str | int, value: object) -> Change:
    def change(document: dict[str, Any]) -> None:
        place: Any = document
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = value

    return change


REFUSED: Mapping[Fault, Mapping[str, Change]] = {
    Fault.OVERSIZED: {
        "too many workers": lambda document: document.update(w=document["w"] * 1_001),
        "more marks than there are": put("w", 0, "m", value=["partial"] * 4),
    },
    Fault.VERSION: {
        "version": put("v", value=1),
    },
    Fault.MALFORMED: {
        "version of a wrong type": put("v", value="1"),
        "text as CPU time": put("k", 0, "c", 0, value="fast"),
        "number as column": put("k", 0, "c", value=0.5),
        "fraction as tuples": put("k", 0, "ni", 0, value=1.5),
        "object as array": put("k", value={}),
        "huge whole number": put("k", 0, "sb", 0, value=10**30),
    },
    Fault.MISSING: {
        "no version": put("v", value=None),
        "no host": put("h", value=None),
        "no time": put("t", value=None),
        "no workers": put("w", value=None),
        "no basis": put("n", "b", value=None),
        "null among the workers": put("w", 0, value=None),
        "key group without owner": put("k", 0, "w", value=None),
        "key group without partition": put("k", 0, "p", 1, value=None),
        "block without partitions": put("k", 0, "p", value=None),
        "worker without marks": put("w", 0, "m", value=None),
        "pair without tuples": put("e", 0, "n", 0, value=None),
        "pairs without bytes": put("e", 0, "b", value=None),
    },
    Fault.TYPE: {
        "number as operator": put("k", 0, "o", value=5),
        "word as worker": put("w", 0, "w", value=True),
        "number as app of a pair": put("e", 0, "a", value=1.5),
    },
    Fault.UNKNOWN: {
        "block that claims to be a worker": put("k", 0, "s", value="running"),
        "block that claims to be a pair": put("k", 0, "to", value="count"),
        "worker with partitions": put("w", 0, "p", value=[1, 2, 3]),
        "pair that claims to be a key group": put("e", 0, "o", value="count"),
    },
    Fault.RANGE: {
        "epoch beyond the limit": put("w", 0, "ep", value=[1, 2**53 + 1]),
        "NaN": put("k", 0, "c", 1, value=float("nan")),
        "infinite": put("n", "cpu", value=float("inf")),
        "negative CPU time": put("k", 0, "c", 0, value=-0.1),
        "negative CPU time after a block without any": lambda document: document.update(
            k=[{**document["k"][0], "c": None}, {**document["k"][0], "c": [0.1, -0.1]}]
        ),
        "negative tuples": put("k", 0, "ni", 1, value=-1),
        "negative pair": put("e", 0, "b", 0, value=-1),
        "negative time": put("t", value=-1),
        "negative memory": put("n", "mem", value=-1),
        "interval of a day": put("i", value=86_400),
        "no interval": put("i", value=0),
        "name with a slash": put("k", 0, "o", value="a/b"),
        "name with a line feed": put("w", 0, "w", value="w0\n"),
        "empty name": put("h", value=""),
        "partition beyond the limit": put("k", 0, "p", 0, value=100_001),
        "columns of two lengths": put("k", 0, "bl", value=[0]),
        "pairs of two lengths": put("e", 0, "n", value=[1, 2]),
        "block of nothing": put("k", 0, "p", value=[]),
        "unknown state": put("w", 0, "s", value="asleep"),
        "unknown mark": put("w", 0, "m", value=["odd"]),
        "unknown basis": put("n", "b", value="guess"),
        "no capacity": put("w", 0, "cap", value=0),
        "half an epoch": put("w", 0, "ep", value=[1]),
        "negative epoch": put("w", 0, "ep", value=[1, -1]),
    },
}


def changed(good: Report, change: Change) -> bytes:
    document = json.loads(encode_report(good))
    change(document)
    return json.dumps(document).encode()


def bad_payloads(good: Report) -> Iterator[tuple[Fault, bytes | None]]:
    """Payloads that must be refused, with the reason; one fault in each."""
    whole = encode_report(good)
    yield Fault.OVERSIZED, whole + b" " * MAX_REPORT_BYTES
    for broken in (None, b"", b"[]", b"null", b"\xff\xfe", whole[:-5], b'{"v":1,"k":' + b"[" * 5_000):
        yield Fault.MALFORMED, broken
    for fault, changes in REFUSED.items():
        for change in changes.values():
            yield fault, changed(good, change)


@pytest.mark.timeout(600)
def test_every_number_every_refused_report_and_every_missing_host(rig: Rig) -> None:
    start_ms = start_of_window()
    second_ms, third_ms = start_ms + WINDOW_S * 1000, start_ms + 2 * WINDOW_S * 1000
    for host in HOSTS:
        for one in window_reports(rig.cluster, host, start_ms):
            rig.send(one)
    expected = Counter[str]()
    for fault, payload in bad_payloads(report(rig.cluster, "h0", start_ms + 50_000)):
        rig.send_raw(payload, "h0", start_ms + 50_000)
        expected[fault] += 1
        with pytest.raises(BadMessage):  # the decoder is as strict
            decode_report(payload)
    rig.send(report("another", "h0", start_ms + 60_000))
    rig.send_raw(encode_report(report(rig.cluster, "h0", third_ms + 10**7)), "h0", start_ms + 60_000)
    # More CPU time than a host can have passes the decoder, but is no measurement.
    rig.send_raw(
        changed(report(rig.cluster, "h0", start_ms + 70_000), put("k", 0, "c", 0, value=1e9)), "h0", start_ms + 70_000
    )
    rig.send_raw(encode_report(report(rig.cluster, "h1", start_ms + 70_000)), "h0", start_ms + 70_000)
    # Of hosts that nobody expects, whatever they send: it is not even read.
    for number in range(UNKNOWN):
        rig.send_raw(
            encode_report(report(rig.cluster, f"x{number}", start_ms + 80_000)), f"x{number}", start_ms + 80_000
        )
    expected += Counter({Fault.CLUSTER: 1, Fault.FUTURE: 1, Fault.RANGE: 2, Fault.UNKNOWN_HOST: UNKNOWN})
    assert len(expected) == 10
    # In the second window h2 stops half-way, h1 has a fast clock, and key group 2 comes to w0.
    for one in window_reports(rig.cluster, "h2", second_ms, count=15):
        rig.send(one)
    for index, one in enumerate(window_reports(rig.cluster, "h1", second_ms)):
        rig.send_raw(encode_report(replace(one, at_ms=one.at_ms + 100_000)), "h1", one.at_ms)
        moved = replace(one.key_groups[0], worker=WorkerId("w0"), cpu_s=None, tuples_in=1_000)
        other = report(rig.cluster, "h0", one.at_ms)
        marked = replace(other.workers[0], marks=(Mark.PARTIAL,) if index == 7 else (), state=WorkerState.AWAY)
        rig.send(
            replace(
                other, key_groups=(*other.key_groups, moved) if index >= 20 else other.key_groups, workers=(marked,)
            )
        )
    # So much of the third that the watermark passes the end of the second.
    for one in window_reports(rig.cluster, "h0", third_ms, count=2):
        rig.send(one)
    rig.producer.flush(30)

    stream = rig.start(window_s=WINDOW_S, watermark_s=10, expected_hosts=HOSTS)
    found = rig.snapshots(stream)
    first, second = next(found), next(found)

    assert (first.start_ms, first.end_ms, first.hosts_seen, first.hosts_expected) == (start_ms, second_ms, 3, 3)
    assert Counter(first.rejected) == expected
    assert (second.start_ms, second.hosts_seen, second.hosts_expected, second.late_rows) == (second_ms, 2, 3, 0)
    assert [
        (on.host, on.covered_s, on.cpu, on.received_bytes_s, on.sent_bytes_s, on.memory_bytes) for on in first.hosts
    ] == [(f"h{number}", 300.0, 0.25, 500.0, None, 10**9 + number) for number in range(3)]
    assert [(node.worker, node.host, node.cpu, node.epoch, node.complete) for node in first.nodes] == [
        (f"w{number}", f"h{number}", 0.125, (1, 2), True) for number in range(3)
    ]
    groups = {group.key_group: group for group in first.key_groups}
    assert list(groups) == [key_group(partition) for partition in range(6)]
    for partition in range(6):
        group = groups[key_group(partition)]
        assert (group.worker, group.covered_s, group.cpu) == (f"w{partition // 2}", 300.0, (0.5 + partition // 2) / 10)
        assert (group.tuples_in_s, group.tuples_out_s, group.bytes_out_s) == ((70 + partition) / 10, None, None)
        assert (group.state_bytes, group.lag_records, group.backlog) == (2**40 + partition, None, 0)
    assert [(pair.source, pair.tuples_s, pair.bytes_s) for pair in first.pairs] == [
        (key_group(partition), 2.0, 16.0) for partition in (0, 2, 4)
    ]

    assert [on.host for on in second.hosts] == ["h0", "h1"]
    assert [(node.worker, node.state, node.complete) for node in second.nodes] == [
        ("w0", WorkerState.AWAY, False),
        ("w1", WorkerState.RUNNING, True),
    ]
    assert [(group.key_group.partition, group.covered_s) for group in second.key_groups] == [
        (0, 300.0),
        (1, 300.0),
        (2, 400.0),
        (3, 300.0),
    ]
    shared = second.key_groups[2]
    assert (shared.cpu, shared.tuples_in_s) == (1.5 / 10, (72 * 30 + 1_000 * 10) / 400)
    assert stream.stop() == 0


@pytest.mark.timeout(600)
def test_it_goes_on_in_real_time_counts_late_rows_and_repeats_no_window_after_kill(rig: Rig) -> None:
    interval_ms = 500

    def keep_reporting(stream: Child, wanted: Callable[[Snapshot], bool]) -> list[Snapshot]:
        """Two hosts report twice a second until there is a snapshot as wanted; all that came until then."""
        seen = []
        end = time.monotonic() + LIMIT_S
        next_ms = int(time.time() * 1000) // interval_ms * interval_ms
        while time.monotonic() < end and stream.alive:
            next_ms += interval_ms
            time.sleep(max(0.0, next_ms / 1000 - time.time()))
            for host in HOSTS[:2]:
                rig.send(report(rig.cluster, host, next_ms, interval_s=interval_ms / 1000))
            rig.producer.poll(0)
            for snapshot in rig.arrived():
                seen.append(snapshot)
                if wanted(snapshot):
                    return seen
        pytest.fail(f"not seen among {len(seen)} snapshots:\n{stream.log.read_text()[-4000:]}")

    settings = {"window_s": 2, "watermark_s": 1, "patience_s": 0.2}
    stream = rig.start(**settings)
    seen = keep_reporting(stream, lambda snapshot: snapshot.coverage == 1.0 and snapshot.hosts_expected == 2)
    long_ago = seen[-1].end_ms - 60_000
    rig.send_raw(encode_report(report(rig.cluster, "h0", long_ago)), "h0", seen[-1].end_ms)
    seen += keep_reporting(stream, lambda snapshot: snapshot.late_rows > 0)
    assert seen[-1].late_rows == 5  # one host, one worker, two key groups, one pair
    # A host that sends too many bytes: the others' windows stay complete.
    large = encode_report(report(rig.cluster, "h2", seen[-1].end_ms)) + b" " * (MAX_REPORT_BYTES // 2)
    for _ in range(8):
        rig.send_raw(large, "h2", int(time.time() * 1000))
    seen += keep_reporting(stream, lambda snapshot: snapshot.rejected.get(Fault.FLOODING, 0) > 0)
    for _ in range(FLOOD):  # one that sends too many records
        rig.send_raw(b"flood", "h3", int(time.time() * 1000))
    seen += keep_reporting(stream, lambda snapshot: snapshot.rejected[Fault.FLOODING] > 8)
    seen += keep_reporting(stream, lambda snapshot: snapshot.coverage == 1.0)
    stream.kill()
    killed_ms = time.time() * 1000
    stream = rig.start(**settings)
    seen += keep_reporting(stream, lambda snapshot: snapshot.coverage == 1.0 and snapshot.published_ms > killed_ms)
    ends = [snapshot.end_ms for snapshot in seen]
    assert ends == sorted(set(ends))
    stream.send(signal.SIGTERM)
    assert stream.wait(30) == 0
    folders = [path.name for path in (stream.log.parents[1] / "checkpoints").iterdir()]
    assert len(folders) == 1, "earlier checkpoints are deleted"
