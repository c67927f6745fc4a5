"""How long a worker with an empty disk restores a table: stock Faust and the plug-in in turn, on one broker.

    python -m benchmarks.restore [--sizes 10x100 100x1000] [--rounds 3] [--kinds stock,plugin] [--beside 100x100]

A size is megabytes of values x bytes of a value; each key is written once.  The seconds are from the moment when the
worker gets its partitions to the end of its recovery.  `--sizes 1000x1000` has a gigabyte.

`--beside`: what a standby that is restored costs the events of its worker.  200 events/s read and write a table of
their own; the milliseconds are from when an event is due to when it is done.  *calm* restores nothing, *records* lets
the reader of changelogs apply all of them, *files* is what the plug-in does.
"""

import argparse
import asyncio
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import faust
from confluent_kafka import Producer
from faust.types import TP

from trimtab_agent.engines.faust.steering.side_services import SideLoop
from trimtab_agent.engines.faust.tables.bulk_restore import BulkRestore
from trimtab_agent.engines.faust.tables.changelog_reader import ChangelogReader
from trimtab_protocol.messages.names import Topics, topic_settings
from trimtab_sandbox.broker import Broker, Topic
from trimtab_sandbox.processes import Processes

CLUSTER, APP, TABLE, INPUTS = "restore", "restored", "state", "inputs"
KINDS = ("stock", "plugin")
PARTITIONS = 2
LIMIT_S = 1800.0
EVENTS_S, CALM_S = 200.0, 10.0
"""Events per second beside a restore, and for how long they are measured at least."""


def changelog(size: str) -> tuple[str, int, int]:
    """The app's name, how many records its changelog has, and the bytes of a value, of `10x100`.  Raises ValueError."""
    megabytes, value_bytes = map(int, size.split("x"))
    return f"{APP}-{size}", megabytes * 1_000_000 // value_bytes, value_bytes


def fill(broker: Broker, size: str) -> int:
    """Write a changelog; how many records it has."""
    app, records, value_bytes = changelog(size)
    topic = f"{app}-{TABLE}-changelog"
    compacted = {"cleanup.policy": "compact"}
    broker.create_topics(
        [
            Topic(name=topic, partitions=PARTITIONS, settings=compacted),
            Topic(name=f"{app}-{INPUTS}", partitions=PARTITIONS),
        ]
    )
    producer = Producer({"bootstrap.servers": broker.address, "queue.buffering.max.messages": 1_000_000})
    value = json.dumps("x" * (value_bytes - 2)).encode()
    for number in range(records):
        producer.produce(topic, value, json.dumps(f"k{number}").encode(), number % PARTITIONS)
        if number % 1000 == 0:
            producer.poll(0)
    if producer.flush(300.0):
        raise RuntimeError("not all records were written")
    return records


def restore(broker: Broker, processes: Processes, size: str, kind: str, folder: Path) -> tuple[float, float]:
    """Seconds that it took, and the worker's CPU seconds."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    setup = {"bootstrap": broker.address, "folder": str(folder), "size": size, "plugin": kind == "plugin"}
    environment = {"RESTORE_SETUP": json.dumps(setup), "TRIMTAB_CLUSTER": CLUSTER, "TRIMTAB_WORKER": "w0"}
    command = [sys.executable, "-m", "benchmarks.restore_app", "worker", "-l", "info", "--without-web"]
    child = processes.start(f"{kind}-{size}", command, environment=environment, folder=Path.cwd())
    deadline = time.monotonic() + LIMIT_S
    said = folder / "said"
    while not said.exists():
        if not child.alive or time.monotonic() > deadline:
            raise RuntimeError(f"the worker has not restored its table, see {child.log}")
        time.sleep(0.1)
    seconds, cpu_s = json.loads(said.read_text())
    child.stop()  # it leaves the group: the next one need not wait for its session
    return seconds, cpu_s


class Beside:
    """A worker's event loop with events that are due at a constant rate, and a standby that is restored meanwhile."""

    def __init__(self, broker: Broker, size: str, folder: Path) -> None:
        name, records, _ = changelog(size)
        self._connection = {"bootstrap_servers": broker.address}
        self.changelogs = {
            TP(f"{name}-{TABLE}-changelog", partition): (records + PARTITIONS - 1 - partition) // PARTITIONS
            for partition in range(PARTITIONS)
        }
        app = faust.App(name, store="rocksdb://", datadir=folder, web_enabled=False)
        self.table, self._own = app.Table(TABLE, partitions=PARTITIONS), app.Table("own", partitions=1)
        for table, partitions in ((self.table, PARTITIONS), (self._own, 1)):
            for partition in range(partitions):
                table.data._dbs[partition] = table.data._open_for_partition(partition)

    def run(self, kind: str) -> tuple[list[float], float]:
        """Sorted milliseconds of the events, and the seconds that the restore took (0 if there is none)."""
        return asyncio.run(self._run(kind))

    async def _run(self, kind: str) -> tuple[list[float], float]:
        side, reader = SideLoop("restore"), ChangelogReader(self._connection, BulkRestore(self._connection))
        began, events = time.monotonic(), asyncio.ensure_future(self._events())
        if kind != "calm":
            side.submit(reader.run())
            for tp, end in self.changelogs.items():
                reader.follow(tp, self.table, -1, end if kind == "files" else 0)
            while any((reader.applied(tp) or 0) < end - 1 for tp, end in self.changelogs.items()):
                await asyncio.sleep(0.01)
        seconds = time.monotonic() - began
        await asyncio.sleep(max(0.0, CALM_S - seconds))
        events.cancel()
        await side.close()
        return sorted(self._late), 0.0 if kind == "calm" else seconds

    async def _events(self) -> None:
        self._late: list[float] = []
        database, due = self._own.data._dbs[0], time.monotonic()
        while True:
            due += 1.0 / EVENTS_S
            await asyncio.sleep(due - time.monotonic())
            key = b"k%d" % (len(self._late) % 1000)
            row = json.loads(database.get(key) or b"{}")
            database.put(key, json.dumps({"count": row.get("count", 0) + 1}).encode())
            self._late.append(1000.0 * (time.monotonic() - due))


def beside(broker: Broker, size: str, rounds: int, folder: Path) -> None:
    """Print a row for each kind."""
    fill(broker, size)
    rows: dict[str, list[tuple[float, float, float, float]]] = {kind: [] for kind in ("calm", "records", "files")}
    for number in range(rounds):
        for kind, found in rows.items():
            late, seconds = Beside(broker, size, folder / f"{kind}-{number}").run(kind)
            found.append((late[len(late) // 2], late[len(late) * 99 // 100], late[-1], seconds))
    for kind, found in rows.items():
        half, most, longest, seconds = map(statistics.median, zip(*found, strict=True))
        print(
            f"{size:>10} {kind:8} p50 {half:6.1f} ms, p99 {most:6.1f} ms, longest {longest:6.1f} ms, {seconds:6.2f} s",
            flush=True,
        )


def main() -> None:
    """Print a row for each size and kind."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=["10x100", "10x1000", "100x1000"], metavar="MBxBYTES")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--beside", metavar="MBxBYTES")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        with Processes(folder / "logs") as processes, Broker(folder / "broker", processes) as broker:
            broker.create_topics(
                [Topic(name=row.name, partitions=row.partitions) for row in topic_settings(Topics(CLUSTER))]
            )
            if given.beside:
                beside(broker, given.beside, given.rounds, folder)
                return
            for size in given.sizes:
                records = fill(broker, size)
                found: dict[str, list[tuple[float, float]]] = {kind: [] for kind in given.kinds.split(",")}
                for _ in range(given.rounds):
                    for kind, rows in found.items():
                        rows.append(restore(broker, processes, size, kind, folder / "data"))
                for kind, rows in found.items():
                    seconds = sorted(row[0] for row in rows)
                    middle = statistics.median(seconds)
                    cpu_s = statistics.median(row[1] for row in rows)
                    print(
                        f"{size:>10} {kind:8} {middle:8.2f} s ({seconds[0]:.2f} to {seconds[-1]:.2f}), "
                        f"{records / middle:10,.0f} records/s, {float(size.split('x')[0]) / middle:7.1f} MB/s, "
                        f"{cpu_s:6.1f} CPU s",
                        flush=True,
                    )


if __name__ == "__main__":
    os.environ.setdefault("PYTHONPATH", str(Path.cwd()))
    main()
