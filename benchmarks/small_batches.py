"""What a batch costs the stream, read by Spark and by Python in turn, in one Spark session, by its size.

    python -m benchmarks.small_batches [--rounds 12] [--sizes HOSTSxREPORTSxKEY_GROUPS ...]

A batch has so many reports of each host, with so many key groups each; the first size is that of
`benchmarks.first_decision`.  *Spark* counts what each host sends, and adds up the samples, each in a query.  *Python*
gets the records from a simpler query, and does the rest itself (`stream/small.py`).  Medians of the second half of the
rounds, in seconds of the clock and of CPU, of the JVM and of this process; the latter change less on a busy machine.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import psutil
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from benchmarks.stream_rate import CLUSTER, report
from trimtab_controller.stream import pipeline
from trimtab_controller.stream.arrivals import too_many
from trimtab_controller.stream.session import open_session
from trimtab_controller.stream.small import kept, sums_of
from trimtab_protocol.messages.names import HostId

SIZES = ("4x5x16", "4x5x48", "4x5x100", "4x5x500", "20x5x200", "4x60x50")


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """`reports` of each host, with `key_groups` each."""

    hosts: int
    reports: int
    key_groups: int

    @classmethod
    def of(cls, text: str) -> "Size":
        """Of `4x5x16`.  Raises ValueError."""
        hosts, reports, key_groups = map(int, text.split("x"))
        return cls(hosts=hosts, reports=reports, key_groups=key_groups)

    @property
    def expected(self) -> frozenset[HostId]:
        """The hosts."""
        return frozenset(HostId(f"h{host}") for host in range(self.hosts))

    @property
    def window_ms(self) -> int:
        """A report per second."""
        return 1000 * self.reports

    def __str__(self) -> str:
        return f"{self.hosts} hosts, {self.reports} reports, {self.key_groups} key groups each"


def as_read(spark: SparkSession, records: pa.Table) -> DataFrame:
    """The records as `foreachBatch` gets them: of an RDD, whose rows the planner does not see."""
    frame = spark.createDataFrame(records).withColumns(
        {"timestamp": F.expr("timestamp_millis(at_ms)"), "partition": F.lit(0), "offset": F.lit(0)}
    )
    plan = frame._jdf
    return DataFrame(
        spark._jsparkSession.internalCreateDataFrame(plan.queryExecution().toRdd(), plan.schema(), False), spark
    )


def batch(size: Size, number: int) -> pa.Table:
    """A window of reports."""
    first_ms = 1_700_000_000_000 // size.window_ms * size.window_ms + number * size.window_ms
    sent = [
        (host, first_ms + 1000 * second + 500 + 500 * host // size.hosts)
        for second in range(size.reports)
        for host in range(size.hosts)
    ]
    return pa.table(
        {
            "key": [f"h{host}".encode() for host, _ in sent],
            "value": [report(host, at_ms, size.key_groups) for host, at_ms in sent],
            "at_ms": [at_ms for _, at_ms in sent],
        }
    )


def by_spark(records: DataFrame, window_ms: int, expected: frozenset[HostId]) -> pa.Table:
    """As a large batch."""
    assert not pipeline.left_out(records, window_ms=window_ms, hosts=expected).collect()
    kept_ones = pipeline.kept(records, hosts=expected, flooding=())
    samples = pipeline.samples(kept_ones, cluster=CLUSTER, max_ahead_ms=window_ms)
    return pipeline.windows(samples, window_ms=window_ms).toArrow()


def by_python(records: DataFrame, window_ms: int, expected: frozenset[HostId]) -> pa.Table:
    """As a small batch."""
    batch = pipeline.small(records, most=10**6, most_bytes=10**6).toArrow()
    verdict = too_many(
        batch,
        window_ms=window_ms,
        most_reports=pipeline.MAX_REPORTS_S * window_ms / 1000,
        most_bytes=pipeline.most_bytes_of(window_ms),
        expected=expected,
    )
    assert not verdict.refused
    sums = sums_of(kept(batch, verdict, expected), cluster=CLUSTER, window_ms=window_ms)
    assert sums is not None
    return sums


KINDS: dict[str, Callable[[DataFrame, int, frozenset[HostId]], pa.Table]] = {"Spark": by_spark, "Python": by_python}


def used_s(jvm: psutil.Process) -> float:
    """CPU seconds of Spark and of this process."""
    return float(sum(jvm.cpu_times()[:2])) + time.process_time()


def measure(spark: SparkSession, jvm: psutil.Process, size: Size, rounds: int) -> str:
    """Both kinds in turn; a line of the table."""
    found: dict[str, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
    counted: set[tuple[int, int]] = set()
    for number in range(rounds):
        for kind, look in KINDS.items():
            records = as_read(spark, batch(size, number))
            began, before = time.monotonic(), used_s(jvm)
            sums = look(records, size.window_ms, size.expected)
            counted.add((pc.sum(sums["samples"]).as_py(), sums.num_rows))
            found[kind].append((time.monotonic() - began, used_s(jvm) - before))
    [(samples_read, rows)] = counted  # the same both ways
    cells = []
    for its in found.values():
        clock, cpu = (statistics.median(column) for column in zip(*its[rounds // 2 :], strict=True))
        cells.append(f"{clock:6.2f} s, {cpu:6.2f} CPU s")
    return f"{size!s:48}{samples_read:>9,}{rows:>9,}" + "".join(f"{cell:>24}" for cell in cells)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=12, help="batches of each kind (12)")
    parser.add_argument("--sizes", nargs="+", type=Size.of, default=[*map(Size.of, SIZES)], metavar="SIZE")
    options = parser.parse_args()
    spark = open_session("small-batches", {"spark.master": "local[2]"}, small=True)
    spark.sparkContext.setLogLevel("ERROR")  # it warns of large tasks: the records are not from Kafka here
    [jvm] = [each for each in psutil.Process().children(recursive=True) if "java" in each.name()]
    print(f"{'':48}{'samples':>9}{'sums':>9}" + "".join(f"{kind:>24}" for kind in KINDS), flush=True)
    for size in options.sizes:
        print(measure(spark, jvm, size, options.rounds), flush=True)
    print(f"load average {os.getloadavg()[1]:.0f} on {os.cpu_count()} cores")
    spark.stop()


if __name__ == "__main__":
    main()
