"""The reports that the stream is sent: good ones, whose figures floats hold exactly, and every kind of bad one."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from trimtab_protocol.messages.codec import encoded
from trimtab_protocol.messages.decode import Fault
from trimtab_protocol.messages.names import AppId, Epoch, HostId, KeyGroup, OperatorId, WorkerId
from trimtab_protocol.messages.report import (
    MAX_REPORT_BYTES,
    Basis,
    HostSample,
    KeyGroupSample,
    PairSample,
    Report,
    WorkerSample,
    WorkerState,
)

WINDOW_S = 300
INTERVAL_S = 10
APP = AppId("app")


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
        sample=HostSample(
            cpu_s=2.5,
            cores=2.0,
            basis=Basis.CGROUP,
            received_bytes=5_000,
            memory_bytes=10**9 + number,
            disk_total_bytes=10**12,
            disk_free_bytes=10**11 + number,
            zone=f"zone-{number % 2}",
        ),
        workers=(
            WorkerSample(
                worker=worker,
                app=APP,
                state=WorkerState.RUNNING,
                capacity=0.25,
                cpu_s=1.25,
                epoch=Epoch(1, 2),
                generation=3,
                declared=APP,
                steering=False,
                marks=(),
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
        pairs=(
            PairSample(
                source=key_group(2 * number), target=key_group(5), tuples=20, bytes=160, direct=15, topic="numbers"
            ),
        ),
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
        "fraction as tuples that skipped the broker": put("e", 0, "dir", 0, value=0.5),
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
        "number as topic of a pair": put("e", 0, "tpc", value=7),
        "number as declared operator": lambda document: document["w"][0].update(os=["sums", 7], oc=[1, 1]),
        "word as reason": put("w", 0, "unk", value=True),
        "number as another reason": put("w", 0, "why", value=7),
        "number as declared app": put("w", 0, "dap", value=7),
        "number as zone": put("n", "zon", value=7),
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
        "negative number that skipped the broker": put("e", 0, "dir", 0, value=-1),
        "numbers that skipped the broker, of two lengths": put("e", 0, "dir", value=[1, None]),
        "negative time": put("t", value=-1),
        "negative memory": put("n", "mem", value=-1),
        "negative free disk": put("n", "dkf", value=-1),
        "zone with a space": put("n", "zon", value="rack 7"),
        "interval of a day": put("i", value=86_400),
        "no interval": put("i", value=0),
        "name with a slash": put("k", 0, "o", value="a/b"),
        "name with a line feed": put("w", 0, "w", value="w0\n"),
        "empty name": put("h", value=""),
        "partition beyond the limit": put("k", 0, "p", 0, value=100_001),
        "columns of two lengths": put("k", 0, "bl", value=[0]),
        "topic of a pair that Kafka would refuse": put("e", 0, "tpc", value="numbers to add"),
        "pairs of two lengths": put("e", 0, "n", value=[1, 2]),
        "block of nothing": put("k", 0, "p", value=[]),
        "unknown state": put("w", 0, "s", value="asleep"),
        "unknown absence": put("w", 0, "off", value="asleep"),
        "declared app with a slash": put("w", 0, "dap", value="a/b"),
        "unknown mark": put("w", 0, "m", value=["odd"]),
        "unknown basis": put("n", "b", value="guess"),
        "no capacity": put("w", 0, "cap", value=0),
        "half an epoch": put("w", 0, "ep", value=[1]),
        "negative epoch": put("w", 0, "ep", value=[1, -1]),
        "operators without counts": put("w", 0, "os", value=["sums"]),
        "counts without operators": put("w", 0, "oc", value=[64]),
        "an operator twice": lambda document: document["w"][0].update(os=["sums", "sums"], oc=[1, 1]),
        "an operator without key groups": lambda document: document["w"][0].update(os=["sums"], oc=[0]),
        "an operator with a slash": lambda document: document["w"][0].update(os=["a/b"], oc=[1]),
        "too many standbys": put("w", 0, "sby", value=1_001),
        "a reason that begins with a digit": put("w", 0, "unk", value="7 s"),
        "another reason that is too long": put("w", 0, "why", value="x" * 201),
    },
}


def changed(good: Report, change: Change) -> bytes:
    document = json.loads(encoded(good))
    change(document)
    return json.dumps(document).encode()


def bad_payloads(good: Report) -> Iterator[tuple[Fault, bytes | None]]:
    """Payloads that must be refused, with the reason; one fault in each."""
    whole = encoded(good)
    yield Fault.OVERSIZED, whole + b" " * MAX_REPORT_BYTES
    for broken in (None, b"", b"[]", b"null", b"\xff\xfe", whole[:-5], b'{"v":1,"k":' + b"[" * 5_000):
        yield Fault.MALFORMED, broken
    for fault, changes in REFUSED.items():
        for change in changes.values():
            yield fault, changed(good, change)
