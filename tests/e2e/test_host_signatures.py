"""The stream on a real broker and a real Spark: nobody speaks for another host, and an upgrade loses no report."""

import base64
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.e2e.sent_reports import report
from tests.e2e.test_stream import Rig
from trimtab_controller.kafka.publisher import Record, headers_of
from trimtab_controller.security.keys import KeyFiles
from trimtab_protocol.messages.host_keys import HostKeys, encode_host_keys
from trimtab_protocol.messages.names import HostId
from trimtab_protocol.messages.report import Report, encode_report
from trimtab_protocol.messages.snapshot import Snapshot
from trimtab_protocol.signing.hosts import HostSigner
from trimtab_protocol.signing.keys import SigningKey
from trimtab_sandbox.broker import Broker, Topic
from trimtab_sandbox.processes import Child, Processes

WINDOW_S, INTERVAL_S = 60, 6
REPORTS = WINDOW_S // INTERVAL_S
HOSTS = ("h0", "h1")
FORGED_CPU_S = 100.0


class Signing(Rig):
    """Hosts with keys, a controller that has signed these, and somebody who has the key of h1.

    h1 trusts the controller's key, and so adds codes for it.
    """

    def __init__(self, broker: Broker, cluster: str, folder: Path, processes: Processes) -> None:
        super().__init__(broker, cluster, folder, processes)
        self.files = KeyFiles(key=folder / "controller.pem", trust=folder / "trusted.keys")
        self.files.create()
        self.host_keys = {host: SigningKey.generate() for host in HOSTS}
        public = self.files.load()[0].public
        self.signers = {
            "h0": HostSigner(self.host_keys["h0"], HostId("h0")),
            "h1": HostSigner(self.host_keys["h1"], HostId("h1"), lambda: [public]),
        }
        self.start_ms = (int(time.time()) - 90) // WINDOW_S * WINDOW_S * 1000
        broker.create_topics([Topic(name=self.topics.keys, partitions=1)])

    def approve(self, host: str, *keys: SigningKey) -> None:
        """Write the keys of a host, as `trimtab keys` does."""
        raw = tuple(key.public.raw for key in keys)
        value = encode_host_keys(HostKeys(cluster=self.cluster, host=HostId(host), keys=raw, at=time.time(), by="ops"))
        record = Record(topic=self.topics.keys, key=host.encode(), value=value, signed=True)
        headers = headers_of(record, self.files.load()[0])
        self.producer.produce(record.topic, record.value, record.key, headers=headers)
        assert self.producer.flush(30) == 0

    def reports(self, host: str, window: int, count: int = REPORTS) -> list[Report]:
        begin_ms = self.start_ms + window * WINDOW_S * 1000
        step_ms = INTERVAL_S * 1000
        return [
            report(self.cluster, host, begin_ms + (index + 1) * step_ms, interval_s=INTERVAL_S)
            for index in range(count)
        ]

    def say(self, one: Report, *, by: str | None, code_only: bool = False) -> tuple[bytes, list[tuple[str, bytes]]]:
        """Send a report, signed by the key of `by`; the record.  `code_only`: zeros stand for the signature."""
        value = encode_report(one)
        signer = None if by is None else self.signers[by]
        if by is not None and by != one.host:
            signer = HostSigner(self.host_keys[by], one.host)
        headers = [] if signer is None else [signer.sign(self.topics.reports, value)]
        if by == one.host and code_only:
            headers = [(name, without_signature(header)) for name, header in headers]
        self.send_raw(value, one.host, one.at_ms, headers)
        return value, headers

    def stream(self, checking: str) -> Child:
        self.producer.flush(30)
        files = f'key_file = "{self.files.key}"\ntrust_file = "{self.files.trust}"\n'
        trust = f'[signing]\n{files}host_signatures = "{checking}"\n'
        return self.start(sections=trust, leads=True, window_s=WINDOW_S, watermark_s=1, expected_hosts=HOSTS)

    def window(self, stream: Child, window: int) -> Snapshot:
        """The snapshot of a window, the first of which has number 0."""
        begin_ms = self.start_ms + window * WINDOW_S * 1000
        return next(found for found in self.snapshots(stream) if found.start_ms == begin_ms)


@pytest.fixture
def rig(broker: Broker, unique: str, tmp_path: Path) -> Iterator[Signing]:
    with Processes(tmp_path / "logs") as processes:
        found = Signing(broker, unique, tmp_path, processes)
        yield found
        found.close()


def without_signature(header: bytes) -> bytes:
    """The header with zeros for the signature."""
    name, _, *rest = header.split(b":")
    return b":".join((name, base64.b64encode(bytes(64)), *rest))


def measured(snapshot: Snapshot) -> dict[str, tuple[float, float | None]]:
    return {row.host: (row.covered_s, row.cpu) for row in snapshot.hosts}


WHOLE = {host: (float(WINDOW_S), 2.5 / INTERVAL_S) for host in HOSTS}


@pytest.mark.scenario
@pytest.mark.timeout(600)
def test_from_off_to_enforce_without_a_lost_report_and_then_nobody_speaks_for_another_host(rig: Signing) -> None:
    # Off: nobody has a key.
    for host in HOSTS:
        for one in rig.reports(host, 0):
            rig.say(one, by=None)
    stream = rig.stream("off")
    first = rig.window(stream, 0)
    assert (measured(first), dict(first.rejected), dict(first.doubted)) == (WHOLE, {}, {})
    assert stream.stop() == 0

    # Warn: h1 signs already, h0 does not.
    rig.approve("h1", rig.host_keys["h1"])
    for host, by in (("h0", None), ("h1", "h1")):
        for one in rig.reports(host, 1):
            rig.say(one, by=by)
    stream = rig.stream("warn")
    second = rig.window(stream, 1)
    assert (measured(second), dict(second.rejected)) == (WHOLE, {})
    # A stream that starts reads the last published window once more: in that one nobody had signed.
    assert dict(second.unsigned) == {"unsigned": 3 * REPORTS}
    assert dict(second.doubted) == dict.fromkeys(HOSTS, "unsigned")

    # While it runs, h0 gets its key.
    rig.approve("h0", rig.host_keys["h0"])
    for host in HOSTS:
        for one in rig.reports(host, 2):
            rig.say(one, by=host)
    rig.producer.flush(30)
    third = rig.window(stream, 2)
    assert (measured(third), dict(third.rejected), dict(third.doubted)) == (WHOLE, {}, {})
    assert stream.stop() == 0

    # Enforce: with the credentials and the key of h1, somebody speaks for h0, and repeats what it has said.  For h1 its
    # codes suffice, since the stream has the controller's key.
    for host in HOSTS:
        said = [rig.say(one, by=host, code_only=host == "h1") for one in rig.reports(host, 3)]
    for index, one in enumerate(rig.reports("h0", 3)):
        forged = replace(one, sample=replace(one.sample, cpu_s=FORGED_CPU_S))
        rig.say(forged, by="h1" if index % 2 else None)
    for value, headers in said:
        rig.send_raw(value, "h1", rig.reports("h1", 3)[-1].at_ms, headers)
    stream = rig.stream("enforce")
    fourth = rig.window(stream, 3)
    assert measured(fourth) == WHOLE
    # The last unsigned report of h0 arrived as the window began that the stream reads once more.
    unsigned = REPORTS // 2 + 1
    assert dict(fourth.rejected) == {"unknown_key": REPORTS // 2, "unsigned": unsigned, "repeated_id": REPORTS}
    assert (dict(fourth.unsigned), dict(fourth.doubted)) == ({}, {"h0": "unknown_key"})
    named = {(row.host, row.fault): row.messages for row in fourth.refused.worst}
    told = {("h0", "unknown_key"): REPORTS // 2, ("h0", "unsigned"): unsigned, ("h1", "repeated_id"): REPORTS}
    assert (named, fourth.refused.more) == (told, 0)

    # Revoked while the stream runs: h1 says nothing any more.
    rig.approve("h1")
    for host in HOSTS:
        for one in rig.reports(host, 4):
            rig.say(one, by=host)
    for one in rig.reports("h0", 5, count=2):  # so that the watermark passes the end of the window
        rig.say(one, by="h0")
    rig.producer.flush(30)
    fifth = rig.window(stream, 4)
    assert measured(fifth) == {"h0": WHOLE["h0"]}
    assert (fifth.rejected["unknown_key"], fifth.hosts_expected) == (REPORTS // 2 + REPORTS, 2)
    assert stream.stop() == 0
