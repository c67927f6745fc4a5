"""Reports on a real broker, through a real Spark, to snapshots: numbers, refused reports, missing hosts."""

import json
import shlex
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from tests.e2e.sent_reports import (
    APP,
    WINDOW_S,
    bad_payloads,
    changed,
    key_group,
    put,
    report,
    start_of_window,
    window_reports,
)
from trimtab_controller.kafka.chunks import Reassembler, read_chunk
from trimtab_controller.stream.configuration import LEAD
from trimtab_protocol.messages.codec import decoded, encoded
from trimtab_protocol.messages.decode import BadMessage, Fault
from trimtab_protocol.messages.names import Topics, WorkerId
from trimtab_protocol.messages.report import MAX_REPORT_BYTES, Absence, Mark, Report, WorkerState
from trimtab_protocol.messages.snapshot import Snapshot
from trimtab_sandbox.broker import Broker, Topic
from trimtab_sandbox.processes import Child, Processes

LIMIT_S = 240.0
FLOOD = 100
UNKNOWN = 1_000
HOSTS = ("h0", "h1", "h2")


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

    def start(self, *, sections: str = "", leads: bool = False, **settings: object) -> Child:
        """The stream as a process of its own; `sections` of controller.toml besides its own.

        One that `leads` is told so, and publishes at once, also where another has just published.
        """
        keys = {"checkpoint_dir": str(self._folder / "checkpoints"), **settings}
        lines = [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
        file = self._folder / "controller.toml"
        file.write_text(
            f'[controller]\ncluster = "{self.cluster}"\n[kafka]\nbootstrap_servers = "{self._broker.address}"\n'
            + "[stream]\n"
            + "\n".join(lines)
            + '\nspark = { "spark.master" = "local[2]" }\n'
            + sections,
            encoding="utf-8",
        )
        command = [sys.executable, "-m", "trimtab_controller.stream", "--config", str(file)]
        if leads:
            told = self._folder / "told"
            told.write_bytes(LEAD + b"\n")
            command = ["sh", "-c", f"exec {shlex.join(command)} --told < {shlex.quote(str(told))}"]
        return self._processes.start("stream", command)

    def send(self, report: Report) -> None:
        """A report that Kafka got when it was made."""
        self.send_raw(encoded(report), report.host, report.at_ms)

    def send_raw(
        self, payload: bytes | None, key: str | bytes, at_ms: int, headers: Sequence[tuple[str, bytes]] = ()
    ) -> None:
        while True:
            try:
                self.producer.produce(self.topics.reports, payload, key, timestamp=at_ms, headers=list(headers))
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


def send_refused(rig: Rig, start_ms: int) -> Counter[str]:
    """All that is to be refused in the first window, by reason."""
    expected = Counter[str]()
    for fault, payload in bad_payloads(report(rig.cluster, "h0", start_ms + 50_000)):
        rig.send_raw(payload, "h0", start_ms + 50_000)
        expected[fault] += 1
        if fault is not Fault.UNKNOWN:  # there the decoder passes over what another part's field is
            with pytest.raises(BadMessage):
                decoded(payload, Report)
    rig.send(report("another", "h0", start_ms + 60_000))
    far_ms = start_ms + 2 * WINDOW_S * 1000 + 10**7
    rig.send_raw(encoded(report(rig.cluster, "h0", far_ms)), "h0", start_ms + 60_000)
    # More CPU time than a host can have passes the decoder, but is no measurement.
    at_ms = start_ms + 70_000
    rig.send_raw(changed(report(rig.cluster, "h0", at_ms), put("k", 0, "c", 0, value=1e9)), "h0", at_ms)
    rig.send_raw(encoded(report(rig.cluster, "h1", at_ms)), "h0", at_ms)
    # Of hosts that nobody expects, whatever they send: it is not even read.
    for number in range(UNKNOWN):
        rig.send(report(rig.cluster, f"x{number}", start_ms + 80_000))
    return expected + Counter({Fault.CLUSTER: 1, Fault.FUTURE: 1, Fault.RANGE: 2, Fault.UNKNOWN_HOST: UNKNOWN})


def send_second_window(rig: Rig, start_ms: int) -> None:
    """In it h2 stops half-way, h1 has a fast clock, and key group 2 comes to w0."""
    for one in window_reports(rig.cluster, "h2", start_ms, count=15):
        rig.send(one)
    for index, one in enumerate(window_reports(rig.cluster, "h1", start_ms)):
        rig.send_raw(encoded(replace(one, at_ms=one.at_ms + 100_000)), "h1", one.at_ms)
        moved = replace(one.key_groups[0], worker=WorkerId("w0"), cpu_s=None, tuples_in=1_000)
        other = report(rig.cluster, "h0", one.at_ms)
        marked = replace(
            other.workers[0],
            marks=(Mark.PARTIAL,) if index == 7 else (),
            state=WorkerState.AWAY,
            absence=Absence.STARTING if index < 20 else Absence.CRASHED,
            declared=APP,
            reason="crashed once" if index == 2 else None,
        )
        groups = (*other.key_groups, moved) if index >= 20 else other.key_groups
        rig.send(replace(other, key_groups=groups, workers=(marked,)))


@pytest.mark.timeout(600)
def test_every_number_every_refused_report_and_every_missing_host(rig: Rig) -> None:
    start_ms = start_of_window()
    second_ms, third_ms = start_ms + WINDOW_S * 1000, start_ms + 2 * WINDOW_S * 1000
    for host in HOSTS:
        for one in window_reports(rig.cluster, host, start_ms):
            rig.send(one)
    expected = send_refused(rig, start_ms)
    assert len(expected) == 10
    send_second_window(rig, second_ms)
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
    assert [(on.disk_total_bytes, on.disk_free_bytes) for on in first.hosts] == [
        (10**12, 10**11 + number) for number in range(3)
    ]
    assert [on.zone for on in first.hosts] == ["zone-0", "zone-1", "zone-0"]
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
    assert [(pair.source, pair.tuples_s, pair.bytes_s, pair.direct_s) for pair in first.pairs] == [
        (key_group(partition), 2.0, 16.0, 1.5) for partition in (0, 2, 4)
    ]

    assert [on.host for on in second.hosts] == ["h0", "h1"]
    assert [(node.worker, node.state, node.complete, node.absence, node.declared) for node in second.nodes] == [
        ("w0", WorkerState.AWAY, False, Absence.CRASHED, APP),
        ("w1", WorkerState.RUNNING, True, None, APP),
    ]
    assert second.nodes[0].reason is None
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

    settings = {"window_s": 2, "watermark_s": 1}
    stream = rig.start(**settings)
    seen = keep_reporting(stream, lambda snapshot: snapshot.coverage == 1.0 and snapshot.hosts_expected == 2)
    long_ago = seen[-1].end_ms - 60_000
    rig.send_raw(encoded(report(rig.cluster, "h0", long_ago)), "h0", seen[-1].end_ms)
    seen += keep_reporting(stream, lambda snapshot: snapshot.late_rows > 0)
    assert seen[-1].late_rows == 6  # one host, one worker and the app it is declared for, two key groups, one pair
    # A host that sends too many bytes: the others' windows stay complete.
    large = encoded(report(rig.cluster, "h2", seen[-1].end_ms)) + b" " * (MAX_REPORT_BYTES // 2)
    for _ in range(8):
        rig.send_raw(large, "h2", int(time.time() * 1000))
    seen += keep_reporting(stream, lambda snapshot: snapshot.rejected.get(Fault.FLOODING, 0) > 0)
    for _ in range(FLOOD):  # one that sends too many records, under a key that is no text
        rig.send_raw(b"flood", b"h3\xff", int(time.time() * 1000))
    seen += keep_reporting(stream, lambda snapshot: snapshot.rejected[Fault.FLOODING] > 8)
    seen += keep_reporting(stream, lambda snapshot: snapshot.coverage == 1.0)
    assert Fault.MALFORMED not in seen[-1].rejected, "what floods is not even read"
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
