"""Measures what the check of hosts' signatures costs the stream: `python -m benchmarks.host_signatures [--hosts N]`.

A fleet sends its signed reports of a window to a real broker, round after round.  Two streaming queries read each
window on one core (local[1]) by the stream's own reader of batches, with Spark's settings as the stream has them: one
does not look at signatures, one checks all.  They take turns in who is first, since the JVM becomes faster from round
to round.  The output has the CPU seconds per batch of JVM (all threads) and Python, medians over rounds, and the share
of the check: median and quartiles over the rounds' own shares.  On a busy machine the quartiles are far apart; the CPU
seconds of judging, which are the signatures themselves, are certain then too.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from confluent_kafka import Producer
from pyspark.sql import DataFrame

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
WARM_UP_ROUNDS, ROUNDS = 4, 9
MOST_S = 300.0
"""The longest that a query may take for a window."""


class Fleet:
    """Hosts that sign what they send."""

    def __init__(self, address: str, topics: Topics, options: argparse.Namespace) -> None:
        self.known = KnownHosts(CLUSTER)
        self._producer = Producer({"bootstrap.servers": address, "compression.type": "lz4"})
        self._topic = topics.reports
        self._key_groups, self._interval_s = options.key_groups, options.interval
        self._signers: list[tuple[HostId, HostSigner]] = []
        for number in range(options.hosts):
            key, host = SigningKey.generate(), HostId(f"h{number}")
            self.known.take(HostKeys(cluster=CLUSTER, host=host, keys=(key.public.raw,), at=1.0, by="bench"))
            self._signers.append((host, HostSigner(key, host)))

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
    """The check of all signatures.  `costs_s`: the CPU seconds of Python for each batch's judging."""

    def __init__(self, topics: Topics, known: KnownHosts) -> None:
        self.costs_s: list[float] = []
        self._check = SignatureCheck(
            HostChecking.ENFORCE, known, topic=topics.reports, window_ms=WINDOW_S * 1000,
            remembered_ms=WINDOW_S * 1000, most_reports=10 * WINDOW_S, most_bytes=10**9, expected=None,
        )  # fmt: skip

    def judge(self, records: DataFrame) -> Verdict:
        """The verdict about a batch, in which all signatures are right."""
        found = pipeline.signatures(records).toArrow()
        began = time.process_time()
        verdict = self._check.judge(found)
        self.costs_s.append(time.process_time() - began)
        assert verdict == Verdict(), verdict
        return verdict


def measure(broker: Broker, topics: Topics, folder: Path, options: argparse.Namespace) -> dict[str, object]:
    """CPU seconds per window, medians over rounds."""
    fleet = Fleet(broker.address, topics, options)
    spark = open_session("trimtab-host-signatures", {"spark.master": "local[1]", "spark.driver.memory": "2g"})
    prefer_plain_files(spark, str(folder))
    jvm = psutil.Process(spark.sparkContext._gateway.proc.pid)
    client = {"bootstrap.servers": broker.address}
    checked = CheckedReports(topics, fleet.known)

    def query(name: str, judge: Callable[[DataFrame], Verdict] | None) -> Callable[[], float]:
        settings = StreamSettings(checkpoint_dir=str(folder / name), window_s=WINDOW_S)
        reader, costs_s = BatchReader(CLUSTER, settings, judge), []

        def read(records: DataFrame, _batch_id: int) -> None:
            used = sum(jvm.cpu_times()[:2]) + time.process_time()
            rows = reader.read(records).rows.num_rows
            assert rows > options.hosts * options.key_groups, f"{rows} rows"
            costs_s.append(sum(jvm.cpu_times()[:2]) + time.process_time() - used)

        def read_window() -> float:
            """Read what has come since the last call: its CPU seconds."""
            records = pipeline.records(spark, client, topic=topics.reports, from_ms=0, headers=judge is not None)
            writer = records.writeStream.option("checkpointLocation", settings.checkpoint_dir)
            running = writer.trigger(availableNow=True).foreachBatch(read).start()
            assert running.awaitTermination(round(MOST_S)), "the query did not end"
            return float(costs_s.pop())

        return read_window

    without, with_check = query("unchecked", None), query("checked", checked.judge)
    rounds: list[tuple[float, float]] = []
    for number in range(WARM_UP_ROUNDS + ROUNDS):
        fleet.send_window()
        if number % 2:
            with_s, without_s = with_check(), without()
        else:
            without_s, with_s = without(), with_check()
        rounds.append((without_s, with_s))
    spark.stop()
    counted = rounds[WARM_UP_ROUNDS:]
    without_s, with_s = (statistics.median(column) for column in zip(*counted, strict=True))
    shares = statistics.quantiles(((with_ - without_) / with_ for without_, with_ in counted), n=4)
    judging_s = statistics.median(checked.costs_s[WARM_UP_ROUNDS:])
    return {
        "hosts": options.hosts,
        "reports": options.hosts * (WINDOW_S // options.interval),
        "key_groups_per_report": options.key_groups,
        "unchecked_cpu_s": round(without_s, 3),
        "checked_cpu_s": round(with_s, 3),
        "of_this_judging_cpu_s": round(judging_s, 3),
        "share_of_the_check": round(shares[1], 4),
        "quartiles_of_the_share": [round(shares[0], 4), round(shares[2], 4)],
        "share_of_judging": round(judging_s / with_s, 4),
        "rounds": [[round(each, 2) for each in pair] for pair in rounds],
    }


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=500, help="hosts that report (500)")
    parser.add_argument("--key-groups", type=int, default=100, help="key groups per host (100)")
    parser.add_argument("--interval", type=int, default=10, help="seconds from report to report (10)")
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
