"""Measures what a window of a fleet costs from Spark's result to the decision, in one process, without Spark and Kafka.

    python -m benchmarks.snapshot_path [--hosts 10000] [--key-groups 100] [--windows 5] [--batches 1]

Synthetic batches of sums, in Spark's form, go through the real assembler, encoder, decoder and decider.  The output is
JSON: CPU seconds per stage (medians over all windows but the first), resident megabytes after each window and at the
peak, and how much of it Arrow and Python's allocator use.
"""

import argparse
import json
import resource
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import psutil
import pyarrow as pa

from trimtab_controller.decider.events import SnapshotArrived
from trimtab_controller.decider.machine import Decider
from trimtab_controller.decider.values.settings import Requirements, Settings
from trimtab_controller.execution.state import Execution
from trimtab_controller.kafka.chunks import Reassembler, collector_paused, split
from trimtab_controller.stream.assemble import Assembler
from trimtab_controller.stream.measures import KNOWN_COLUMNS, LEVEL_COLUMNS, SUM_COLUMNS, Kind
from trimtab_controller.stream.rows import SCHEMA
from trimtab_protocol.messages.names import HostId
from trimtab_protocol.messages.snapshot import Snapshot

CLUSTER = "path"
WINDOW_MS, INTERVAL_S = 60_000, 10.0
FIRST_MS = 1_700_000_040_000
HOSTS_PER_APP = 100
MEGABYTE = 1_000_000
SEED = 3


class Costs:
    """CPU seconds of each stage, one figure per window."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, list[float]] = defaultdict(list)

    @contextmanager
    def of(self, stage: str) -> Iterator[None]:
        """Measure the block as this stage."""
        began = time.process_time()
        yield
        self.seconds[stage].append(time.process_time() - began)


def rows(kind: Kind, hosts: int, each: int, samples: int) -> pa.Table:
    """`each` rows per host, without times."""
    size = hosts * each
    host = np.repeat(np.arange(hosts), each)
    names = {"host": "h", "worker": "w", "app": "app"} if kind is not Kind.HOST else {"host": "h"}
    columns: dict[str, object] = {name: pa.nulls(size, SCHEMA.field(name).type) for name in SCHEMA.names}
    for name, letter in names.items():
        places = host // HOSTS_PER_APP if name == "app" else host
        texts = pa.array([f"{letter}{number}" for number in range(int(places.max()) + 1)])
        columns[name] = texts.take(pa.array(places))
    columns |= {"kind": np.full(size, kind.value, np.int32), "samples": np.full(size, samples)}
    columns |= {"start_ms": np.full(size, FIRST_MS), "last_ms": np.full(size, FIRST_MS)}
    columns |= {name: np.full(size, INTERVAL_S * samples) for name in ("covered_s", *KNOWN_COLUMNS)}
    columns |= {name: np.ones(size) for name in LEVEL_COLUMNS} | {LEVEL_COLUMNS[1]: np.zeros(size)}
    if kind is Kind.KEY_GROUP:
        columns["operator"] = pa.array(["sums"]).take(pa.array(np.zeros(size, np.int64)))
        columns["partition"] = (host % HOSTS_PER_APP) * each + np.tile(np.arange(each), hosts)
    draw = np.random.default_rng(SEED)
    amounts = {name: samples * draw.integers(1, 100_000, size).astype(float) for name in SUM_COLUMNS[1:]}
    columns |= {SUM_COLUMNS[0]: 0.045 * samples * draw.uniform(0.8, 1.2, size)} | amounts
    if kind is Kind.WORKER:
        columns[SUM_COLUMNS[1]] = np.zeros(size)  # none of its samples is marked
    return pa.table(columns, SCHEMA)


def at(table: pa.Table, window: int, last_ms: int) -> pa.Table:
    """The same rows in a window, with other CPU times."""
    start_ms = FIRST_MS + window * WINDOW_MS
    times = {"start_ms": start_ms, "last_ms": start_ms + last_ms}
    columns = dict(zip(table.column_names, table.columns, strict=True))
    columns |= {name: np.full(table.num_rows, value) for name, value in times.items()}
    columns[SUM_COLUMNS[0]] = table[SUM_COLUMNS[0]].to_numpy() * (1.0 + 0.01 * (window % 7))
    return pa.table(columns, SCHEMA)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=10_000)
    parser.add_argument("--key-groups", type=int, default=100, help="per host (100)")
    parser.add_argument("--windows", type=int, default=5)
    parser.add_argument("--batches", type=int, default=1, help="of Spark per window (1)")
    options = parser.parse_args()
    samples = round(WINDOW_MS / 1000 / INTERVAL_S / options.batches)
    sizes = {Kind.HOST: 1, Kind.WORKER: 1, Kind.KEY_GROUP: options.key_groups}
    whole = pa.concat_tables([rows(kind, options.hosts, each, samples) for kind, each in sizes.items()])
    whole = whole.take(pa.array(np.random.default_rng(SEED).permutation(whole.num_rows))).combine_chunks()
    base_mb = psutil.Process().memory_info().rss / MEGABYTE
    assembler = Assembler(
        cluster=CLUSTER,
        window_ms=WINDOW_MS,
        watermark_ms=10_000,
        from_ms=0,
        expected_hosts=frozenset(HostId(f"h{number}") for number in range(options.hosts)),
    )
    reassembler = Reassembler(CLUSTER)
    decider = Decider(Settings(), Requirements(max_age_s=1e9), Execution(generation=1), acting=False)
    costs, resident = Costs(), []
    for window in range(options.windows):
        published: list[Snapshot] = []
        for batch in range(1, options.batches + 1):
            sums = at(whole, window, round(WINDOW_MS * batch / options.batches) - 5_000)
            with costs.of(f"batch {batch} of {options.batches}"), collector_paused():
                published += assembler.on_rows(sums, now_ms=0)
            del sums
        [snapshot] = published
        with costs.of("write"), collector_paused():
            chunks = split(snapshot)
        del snapshot, published
        with costs.of("read"):
            [read] = [found for chunk in chunks if (found := reassembler.add(chunk)) is not None]
        with costs.of("decide"):
            decider.on_event(read.end_ms / 1000.0, SnapshotArrived(snapshot=read))
        resident.append(round(psutil.Process().memory_info().rss / MEGABYTE))
    figures = {
        "key_groups": len(read.key_groups),
        "snapshot_mb": round(sum(len(chunk.payload) for chunk in chunks) / MEGABYTE, 1),
        "cpu_s": {stage: round(statistics.median(found[1:] or found), 2) for stage, found in costs.seconds.items()},
        "resident_mb": {"made-up batch": round(base_mb), "after each window": resident},
        "most_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MEGABYTE),
        "in_use": {"arrow_mb": round(pa.total_allocated_bytes() / MEGABYTE), "objects": sys.getallocatedblocks()},
    }
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
