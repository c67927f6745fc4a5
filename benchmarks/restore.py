"""How long a worker with an empty disk restores a table: stock Faust and the plug-in in turn, on one broker.

    python -m benchmarks.restore [--sizes 10x100 100x1000] [--rounds 3] [--kinds stock,plugin]

A size is megabytes of values x bytes of a value; each key is written once.  The seconds are from the moment when the
worker gets its partitions to the first event that it processes.  `--sizes 1000x1000` has a gigabyte.
"""

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka import Producer

from trimtab_protocol.messages.names import Topics, topic_settings
from trimtab_sandbox.broker import Broker, Topic
from trimtab_sandbox.processes import Processes

CLUSTER, APP, TABLE, INPUTS = "restore", "restored", "state", "inputs"
KINDS = ("stock", "plugin")
PARTITIONS = 2
LIMIT_S = 1800.0


def changelog(size: str) -> tuple[str, int, int]:
    """The app's name, how many records its changelog has, and the bytes of a value, of `10x100`.  Raises ValueError."""
    megabytes, value_bytes = map(int, size.split("x"))
    return f"{APP}-{size}", megabytes * 1_000_000 // value_bytes, value_bytes


def fill(broker: Broker, size: str) -> int:
    """Write a changelog, and one event for each partition; how many records it has."""
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
    for partition in range(PARTITIONS):
        producer.produce(f"{app}-{INPUTS}", b'"x"', b'"k0"', partition)
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
    child.kill()
    return seconds, cpu_s


def main() -> None:
    """Print a row for each size and kind."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=["10x100", "10x1000", "100x1000"], metavar="MBxBYTES")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kinds", default=",".join(KINDS))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        with Processes(folder / "logs") as processes, Broker(folder / "broker", processes) as broker:
            broker.create_topics(
                [Topic(name=row.name, partitions=row.partitions) for row in topic_settings(Topics(CLUSTER))]
            )
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
