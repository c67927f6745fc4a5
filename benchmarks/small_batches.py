"""What a small batch costs the stream: compiled and interpreted, in turn, in one Spark session.

    python -m benchmarks.small_batches [--rounds 12]

A batch has 20 reports of 4 hosts, as in `benchmarks.first_decision`.  *Compiled* is what Spark does for large batches:
it counts what each host sends in a query of its own, and generates code for both queries.  *Interpreted* is what
`session.plan_for(small=True)` and `stream/arrivals.py` do.  Medians of the second half of the rounds, in seconds of the
clock and of the JVM's CPU; the latter changes less on a busy machine.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable

import psutil
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from benchmarks.first_decision import CLUSTER, HOSTS, report
from trimtab_controller.stream import pipeline
from trimtab_controller.stream.arrivals import too_many
from trimtab_controller.stream.session import open_session, plan_for

WINDOW_MS = 5_000
EXPECTED = frozenset(f"h{host}" for host in range(HOSTS))


def batch(spark: SparkSession, number: int) -> DataFrame:
    """A window of reports, as Spark reads them from Kafka."""
    first_ms = 1_700_000_000_000 + number * WINDOW_MS
    sent = [(host, first_ms + 1000 * second + 1000 * host // HOSTS) for second in range(5) for host in range(HOSTS)]
    table = pa.table(
        {
            "key": [f"h{host}".encode() for host, _ in sent],
            "value": [report(host, at_ms, skewed=True) for host, at_ms in sent],
            "at_ms": [at_ms for _, at_ms in sent],
        }
    )
    return spark.createDataFrame(table).select("key", "value", F.expr("timestamp_millis(at_ms)").alias("timestamp"))


def compiled(records: DataFrame) -> None:
    """Look for floods, as for a large batch."""
    assert not pipeline.left_out(records, window_ms=WINDOW_MS, hosts=EXPECTED).collect()


def interpreted(records: DataFrame) -> None:
    """Look for floods, as for a small batch."""
    verdict = too_many(
        pipeline.arrivals(records).toArrow(),
        window_ms=WINDOW_MS,
        most_reports=pipeline.MAX_REPORTS_S * WINDOW_MS / 1000,
        most_bytes=pipeline.most_bytes_of(WINDOW_MS),
        expected=EXPECTED,
    )
    assert not verdict.refused


KINDS: dict[str, Callable[[DataFrame], None]] = {"compiled": compiled, "interpreted": interpreted}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=12, help="batches of each kind (12)")
    options = parser.parse_args()
    spark = open_session("small-batches", {"spark.master": "local[2]"})
    [jvm] = [each for each in psutil.Process().children(recursive=True) if "java" in each.name()]
    found: dict[str, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
    counted: set[int] = set()
    for number in range(options.rounds):
        for kind, look in KINDS.items():
            plan_for(spark, small=kind == "interpreted")
            records = batch(spark, number)
            began, before = time.monotonic(), sum(jvm.cpu_times()[:2])
            look(records)
            kept = pipeline.kept(records, hosts=EXPECTED, flooding=())
            samples = pipeline.samples(kept, cluster=CLUSTER, max_ahead_ms=WINDOW_MS)
            counted.add(pipeline.windows(samples, window_ms=WINDOW_MS).toArrow().num_rows)
            found[kind].append((time.monotonic() - began, sum(jvm.cpu_times()[:2]) - before))
            print(f"batch {number}, {kind}: {found[kind][-1][0]:.2f} s, {found[kind][-1][1]:.2f} CPU s", flush=True)
    assert len(counted) == 1, f"the kinds differ: {counted} rows"
    for kind, rows in found.items():
        clock, cpu = (statistics.median(column) for column in zip(*rows[options.rounds // 2 :], strict=True))
        print(f"{kind:12} {clock:6.2f} s, {cpu:6.2f} CPU s")
    print(f"load average {os.getloadavg()[1]:.0f} on {os.cpu_count()} cores")
    spark.stop()


if __name__ == "__main__":
    main()
