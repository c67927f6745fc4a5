"""How soon the stream answers, also while a host floods: `python -m benchmarks.stream_delay [--windows N]`.

Hosts report every second to a real broker, the stream runs as in a sandbox.  Measured: seconds from a window's end to
its snapshot at a consumer.  Then again while the last host also sends what nobody asked for, in three ways: ordinary
reports by the thousand, records of the largest size, reports of as many invented hosts.  The flood is a process of its
own on the same machine, its cost included.  With each: what came onto the topic, and in how many windows all other
hosts were seen whole.  A host that floods counts as not seen: its windows are waited for until the watermark.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.stream_rate import CLUSTER, report
from trimtab_controller.kafka.chunks import Reassembler, read_chunk
from trimtab_protocol.messages.names import Topics
from trimtab_protocol.messages.report import MAX_REPORT_BYTES
from trimtab_protocol.messages.snapshot import Snapshot
from trimtab_sandbox.broker import Broker, Topic
from trimtab_sandbox.processes import Child, Processes

HOSTS = 5
WINDOW_S = 5.0
FLOODS = {"ordinary reports": 2_000.0, "largest records": 4.0, "invented hosts": 2_000.0}
"""Records per second that a flood brings."""
TICK_S = 0.05


def keep_reporting(broker: Broker, topics: Topics, key_groups: int, done: threading.Event) -> None:
    """All hosts, every second, a few milliseconds after it."""
    producer = Producer({"bootstrap.servers": broker.address})
    second = int(time.time()) + 1
    while not done.wait(max(0.0, second - time.time()) + 0.02):
        for host in range(HOSTS):
            producer.produce(topics.reports, report(host, second * 1000, key_groups), f"h{host}")
        producer.flush()
        second += 1


def flood(address: str, name: str) -> None:
    """Never ends."""
    settings = {"bootstrap.servers": address, "message.max.bytes": 2 * MAX_REPORT_BYTES}
    producer = Producer({**settings, "queue.buffering.max.kbytes": 256 * 1024})
    began, sent = time.monotonic(), 0
    while True:
        own = f"h{HOSTS - 1}"
        one = b"{" * (MAX_REPORT_BYTES - 1) if name == "largest records" else report(HOSTS - 1, now_ms(), 64)
        while sent < FLOODS[name] * (time.monotonic() - began):
            if name == "invented hosts":
                host = f"x{sent}"
                invented = one.replace(f'"h":"{own}"'.encode(), f'"h":"{host}"'.encode(), 1)
                producer.produce(Topics(CLUSTER).reports, invented, host)
            else:
                producer.produce(Topics(CLUSTER).reports, one, own)
            sent += 1
        producer.poll(TICK_S)
        time.sleep(TICK_S)


def now_ms() -> int:
    """Epoch milliseconds."""
    return int(time.time() * 1000)


@contextmanager
def flooded(address: str, name: str) -> Iterator[None]:
    """While a process of its own floods."""
    command = "import sys; from benchmarks.stream_delay import flood; flood(*sys.argv[1:])"
    process = subprocess.Popen([sys.executable, "-c", command, address, name])
    try:
        yield
        if process.poll() is not None:
            raise SystemExit(f"the flood of {name} has ended")
    finally:
        process.kill()
        process.wait()


class Watched:
    """The stream's snapshots as they come."""

    def __init__(self, broker: Broker, topics: Topics, stream: Child) -> None:
        self._stream = stream
        self._topics = topics
        settings = {"bootstrap.servers": broker.address, "group.id": "bench", "auto.offset.reset": "earliest"}
        self._consumer = Consumer(settings)
        self._consumer.subscribe([topics.snapshots])
        self._reassembler = Reassembler(CLUSTER)

    def windows(self, number: int) -> list[tuple[float, Snapshot]]:
        """Seconds from the end of each of the next windows to its snapshot, and the snapshot."""
        found: list[tuple[float, Snapshot]] = []
        limit = time.monotonic() + 120 + 3 * number * WINDOW_S
        while len(found) < number:
            if not self._stream.alive or time.monotonic() > limit:
                raise SystemExit(f"too few snapshots, see {self._stream.log}")
            message = self._consumer.poll(0.1)
            if message is None or message.error():
                continue
            snapshot = self._reassembler.add(read_chunk(message.headers(), message.value()))
            if snapshot is not None:
                found.append((time.time() - snapshot.end_ms / 1000, snapshot))
        return found

    def reports(self) -> int:
        """Records on the topic of reports so far."""
        parts = [TopicPartition(self._topics.reports, number) for number in range(4)]
        return sum(self._consumer.get_watermark_offsets(part, timeout=10)[1] for part in parts)

    def measure(self, windows: int) -> dict[str, Any]:
        """Figures of the next windows."""
        used, began, before = cpu_s(self._stream.pid), time.monotonic(), self.reports()
        found = self.windows(windows)
        seconds = time.monotonic() - began
        delays = sorted(delay for delay, _ in found)
        return {
            "windows": windows,
            "window_end_to_snapshot_s": {"median": round(statistics.median(delays), 2), "max": round(delays[-1], 2)},
            "others_whole": sum(snapshot.hosts_seen >= HOSTS - 1 for _, snapshot in found),
            "records_s": round((self.reports() - before) / seconds),
            "refused_so_far": dict(found[-1][1].rejected),
            "stream_cores": round((cpu_s(self._stream.pid) - used) / seconds, 3),
        }

    def close(self) -> None:
        """Leave."""
        self._consumer.close()


def configuration(broker: Broker, folder: Path) -> Path:
    """The stream's, in a file."""
    file = folder / "controller.toml"
    hosts = json.dumps([f"h{host}" for host in range(HOSTS)])
    file.write_text(
        f'[controller]\ncluster = "{CLUSTER}"\n[kafka]\nbootstrap_servers = "{broker.address}"\n[stream]\n'
        f'window_s = {WINDOW_S}\nexpected_hosts = {hosts}\ncheckpoint_dir = "{folder / "checkpoints"}"\n'
        'spark = { "spark.master" = "local[2]" }\n',
        encoding="utf-8",
    )
    return file


def cpu_s(pid: int) -> float:
    """CPU seconds of a process and its children."""
    process = psutil.Process(pid)
    return sum(sum(each.cpu_times()[:2]) for each in (process, *process.children(recursive=True)))


def main() -> None:
    """Print a JSON line without a flood, and one with each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--windows", type=int, default=12, help="windows of which each delay is taken (12)")
    parser.add_argument("--key-groups", type=int, default=64, help="per host (64)")
    options = parser.parse_args()
    topics = Topics(CLUSTER)
    done = threading.Event()
    with tempfile.TemporaryDirectory() as name, Processes(Path(name) / "logs") as processes:
        folder = Path(name)
        with Broker(folder / "broker", processes) as broker:
            size = {"max.message.bytes": str(2 * MAX_REPORT_BYTES)}
            broker.create_topics(
                [Topic(name=topics.reports, partitions=4, settings=size), Topic(name=topics.snapshots, partitions=1)]
            )
            source = threading.Thread(target=keep_reporting, args=(broker, topics, options.key_groups, done))
            source.start()
            try:
                program = [sys.executable, "-m", "trimtab_controller.stream", "--config"]
                stream = processes.start("stream", [*program, str(configuration(broker, folder))])
                watched = Watched(broker, topics, stream)
                watched.windows(options.windows)  # warm
                for kind in (None, *FLOODS):
                    with flooded(broker.address, kind) if kind else nullcontext():
                        watched.windows(2)
                        print(json.dumps({"flood": kind} | watched.measure(options.windows)), flush=True)
                watched.close()
            finally:
                done.set()
                source.join()


if __name__ == "__main__":
    main()
