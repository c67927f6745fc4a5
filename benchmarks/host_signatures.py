"""Measures what the check of hosts' signatures costs the stream: `python -m benchmarks.host_signatures [--hosts N]`.

A fleet sends its signed reports of a window to a real broker, round after round.  Two streaming queries read each
window on one core (local[1]) by the stream's own reader of batches, with Spark's settings as the stream has them: one
does not look at signatures, one checks all, by the hosts' codes for the controller, or without them (`--no-codes`).
They take turns in who is first, since the JVM becomes faster from round to round.  All figures are CPU seconds of JVM
(all threads) and Python, medians over rounds.

The sums are the same with and without the check, and vary more from batch to batch than the check costs.  So after each
batch the look at it is repeated and measured by itself: at signatures, or at who sends too much, which the check finds
out too.  `share_of_the_check` = the difference of the looks, as a share of the checked batch.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyarrow as pa
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

from benchmarks.stream_rate import CLUSTER, report
from trimtab_controller.stream import pipeline
from trimtab_controller.stream.batches import BatchReader
from trimtab_controller.stream.configuration import StreamSettings
from trimtab_controller.stream.session import open_session, prefer_plain_files
from trimtab_controller.stream.signatures import SignatureCheck, Verdict
from trimtab_protocol.messages.host_keys import HostKeys
from trimtab_protocol.messages.names import HostId, Topics
from trimtab_protocol.signing.hosts import HostChecking, HostSigner
from trimtab_protocol.signing.keys import SigningKey
from trimtab_protocol.signing.known_hosts import KnownHosts
from trimtab_sandbox.broker import Broker, Topic
from trimtab_sandbox.processes import Processes

WINDOW_S = 60
WARM_UP_ROUNDS, ROUNDS = 10, 15
"""The JVM compiles for some minutes, on the one core that the batches have too."""
MOST_S = 300.0
"""The longest that a query may take for a window."""


class Fleet:
    """Hosts that sign what they send."""

    def __init__(self, address: str, topics: Topics, options: argparse.Namespace) -> None:
        controller = SigningKey.generate()
        self.known = KnownHosts(CLUSTER, None if options.no_codes else controller)
        self._producer = Producer({"bootstrap.servers": address, "compression.type": "lz4"})
        self._topic = topics.reports
        self._key_groups, self._interval_s = options.key_groups, options.interval
        self._signers: list[tuple[HostId, HostSigner]] = []
        for number in range(options.hosts):
            key, host = SigningKey.generate(), HostId(f"h{number}")
            self.known.take(HostKeys(cluster=CLUSTER, host=host, keys=(key.public.raw,), at=1.0, by="bench"))
            self._signers.append((host, HostSigner(key, host, lambda: [controller.public])))

    def send_window(self) -> None:
        """Send the reports of a window, which ends now."""
        now_ms = time.time_ns() // 1_000_000
        for number, (host, signer) in enumerate(self._signers):
            for index in range(WINDOW_S // self._interval_s):
                value = report(number, now_ms - 1000 * self._interval_s * index, self._key_groups)
                self._producer.produce(self._topic, value, host, headers=[signer.sign(self._topic, value)])
                self._producer.poll(0)
        self._producer.flush()


class CheckedReports:
    """The check of all signatures or codes.  `costs_s`: the CPU seconds of Python for each batch's judging."""

    def __init__(self, topics: Topics, known: KnownHosts) -> None:
        self.costs_s: list[float] = []
        self._check = SignatureCheck(
            HostChecking.ENFORCE, known, topic=topics.reports, window_ms=WINDOW_S * 1000,
            remembered_ms=WINDOW_S * 1000, most_reports=10 * WINDOW_S, most_bytes=10**9, expected=None,
        )  # fmt: skip

    def judge(self, found: pa.Table) -> Verdict:
        """The verdict about a batch, in which all signatures are right."""
        began = time.process_time()
        verdict = self._check.judge(found)
        self.costs_s.append(time.process_time() - began)
        assert verdict == Verdict(), verdict
        return verdict


def too_many(records: DataFrame) -> None:
    """The look at a batch of a stream that does not check signatures."""
    assert not pipeline.left_out(records, window_ms=WINDOW_S * 1000, hosts=None).collect()


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU seconds of a whole batch, and of the look at its records before they are parsed."""

    whole_s: float
    look_s: float


class Query:
    """A streaming query that reads a window at a time.  `judge`: None = it does not look at signatures."""

    def __init__(
        self,
        spark: SparkSession,
        address: str,
        topics: Topics,
        folder: Path,
        judge: Callable[[pa.Table], Verdict] | None,
        look: Callable[[DataFrame], object],
    ) -> None:
        self._spark, self._client, self._topic = spark, {"bootstrap.servers": address}, topics.reports
        self._jvm = psutil.Process(spark.sparkContext._gateway.proc.pid)
        self._settings = StreamSettings(checkpoint_dir=str(folder), window_s=WINDOW_S)
        self._reader, self._headers, self._look = BatchReader(CLUSTER, self._settings, judge), judge is not None, look
        self._costs: list[Cost] = []
        self.rows = 0

    def read_window(self) -> Cost:
        """Read what has come since the last call."""
        records = pipeline.records(self._spark, self._client, topic=self._topic, from_ms=0, headers=self._headers)
        writer = records.writeStream.option("checkpointLocation", self._settings.checkpoint_dir)
        running = writer.trigger(availableNow=True).foreachBatch(self._read).start()
        assert running.awaitTermination(round(MOST_S)), "the query did not end"
        (cost,) = self._costs
        self._costs.clear()
        return cost

    def _read(self, records: DataFrame, _batch_id: int) -> None:
        began = self._used_s()
        self.rows = self._reader.read(records).rows.num_rows
        read = self._used_s()
        self._look(records)
        self._costs.append(Cost(read - began, self._used_s() - read))

    def _used_s(self) -> float:
        return float(sum(self._jvm.cpu_times()[:2]) + time.process_time())


def measure(broker: Broker, topics: Topics, folder: Path, options: argparse.Namespace) -> dict[str, object]:
    """CPU seconds per window, medians over rounds."""
    fleet = Fleet(broker.address, topics, options)
    spark = open_session("trimtab-host-signatures", {"spark.master": "local[1]", "spark.driver.memory": "2g"})
    prefer_plain_files(spark, str(folder))
    checked, again = CheckedReports(topics, fleet.known), CheckedReports(topics, fleet.known)
    without = Query(spark, broker.address, topics, folder / "unchecked", None, too_many)
    with_check = Query(spark, broker.address, topics, folder / "checked", checked.judge, again.judge)
    rounds: list[tuple[Cost, Cost]] = []
    for number in range(WARM_UP_ROUNDS + ROUNDS):
        fleet.send_window()
        found = {
            query: query.read_window() for query in ((with_check, without) if number % 2 else (without, with_check))
        }
        for query in found:
            assert query.rows > options.hosts * options.key_groups, f"{query.rows} rows"
        rounds.append((found[without], found[with_check]))
    spark.stop()
    return figures(rounds[WARM_UP_ROUNDS:], checked.costs_s[WARM_UP_ROUNDS:], options)


def figures(rounds: list[tuple[Cost, Cost]], judging_s: list[float], options: argparse.Namespace) -> dict[str, object]:
    """What is printed of the rounds: the costs without and with the check."""
    with_s = statistics.median(checked.whole_s for _, checked in rounds)
    shares = [(checked.look_s - unchecked.look_s) / checked.whole_s for unchecked, checked in rounds]
    low, middle, high = statistics.quantiles(shares, n=4)
    return {
        "hosts": options.hosts,
        "reports": options.hosts * (WINDOW_S // options.interval),
        "key_groups_per_report": options.key_groups,
        "unchecked_cpu_s": round(statistics.median(unchecked.whole_s for unchecked, _ in rounds), 3),
        "checked_cpu_s": round(with_s, 3),
        "look_unchecked_cpu_s": round(statistics.median(unchecked.look_s for unchecked, _ in rounds), 3),
        "look_checked_cpu_s": round(statistics.median(checked.look_s for _, checked in rounds), 3),
        "of_this_judging_cpu_s": round(statistics.median(judging_s), 3),
        "share_of_the_check": round(middle, 4),
        "quartiles_of_the_share": [round(low, 4), round(high, 4)],
        "share_of_judging": round(statistics.median(judging_s) / with_s, 4),
    }


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=500, help="hosts that report (500)")
    parser.add_argument("--key-groups", type=int, default=100, help="key groups per host (100)")
    parser.add_argument("--interval", type=int, default=10, help="seconds from report to report (10)")
    parser.add_argument("--no-codes", action="store_true", help="check signatures, as who lacks the controller's key")
    options = parser.parse_args()
    topics = Topics(CLUSTER)
    with (
        tempfile.TemporaryDirectory() as name,
        Processes(Path(name) / "logs") as processes,
        Broker(Path(name) / "broker", processes) as broker,
    ):
        broker.create_topics([Topic(name=topics.reports, partitions=4)])
        print(json.dumps(measure(broker, topics, Path(name), options)))


if __name__ == "__main__":
    main()
