"""Measures what the check of hosts' signatures costs the stream: `python -m benchmarks.host_signatures [--hosts N]`.

One window of a fleet lies on a real broker: each host has sent a signed report for each interval.  The batch is read,
checked, parsed and summed as by the stream, on one core (local[1]): without a look at signatures, and with all checked.
Both are done in each round, in alternating order, since the JVM becomes faster from round to round.  The output has the
CPU seconds of JVM (all threads) and Python for each, medians over rounds, and the share of the check: median and
quartiles over the rounds' own shares.  With a busy machine the quartiles are far apart; the CPU seconds of judging,
which are the signatures themselves, are certain then too.
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
from pyspark.sql import DataFrame, SparkSession

from benchmarks.stream_rate import CLUSTER, report
from trimtab_controller.stream import pipeline
from trimtab_controller.stream.session import open_session
from trimtab_controller.stream.signatures import SignatureCheck, Verdict
from trimtab_protocol.messages.host_keys import HostKeys
from trimtab_protocol.messages.names import HostId, Topics
from trimtab_protocol.signing.hosts import HostChecking, HostSigner
from trimtab_protocol.signing.keys import SigningKey
from trimtab_protocol.signing.known_hosts import KnownHosts
from trimtab_sandbox.broker import Broker, Topic
from trimtab_sandbox.processes import Processes

WINDOW_S = 60
WARM_UP_ROUNDS, ROUNDS = 4, 8


def send(broker: Broker, topics: Topics, hosts: int, key_groups: int, interval_s: int) -> KnownHosts:
    """Send a window of signed reports; the keys of the hosts."""
    producer = Producer({"bootstrap.servers": broker.address, "compression.type": "lz4"})
    known = KnownHosts(CLUSTER)
    now_ms = time.time_ns() // 1_000_000
    for number in range(hosts):
        key, host = SigningKey.generate(), HostId(f"h{number}")
        known.take(HostKeys(cluster=CLUSTER, host=host, keys=(key.public.raw,), at=1.0, by="bench"))
        signer = HostSigner(key, host)
        for index in range(WINDOW_S // interval_s):
            value = report(number, now_ms - 1000 * interval_s * index, key_groups)
            producer.produce(topics.reports, value, host, headers=[signer.sign(topics.reports, value)])
            producer.poll(0)
    producer.flush()
    return known


class Window:
    """The window, and the two ways to read it."""

    def __init__(self, spark: SparkSession, broker: Broker, topics: Topics, known: KnownHosts) -> None:
        self._spark, self._broker, self._topics, self._known = spark, broker, topics, known
        self.checked_s: list[float] = []

    def unchecked(self) -> None:
        """What is left out, then the sums."""
        records = self._records(headers=False)
        assert not pipeline.left_out(records, window_ms=WINDOW_S * 1000, hosts=None).collect()
        self._sum(records)

    def checked(self) -> None:
        """The signatures, then the sums."""
        records = self._records(headers=True)
        check = SignatureCheck(
            HostChecking.ENFORCE, self._known, topic=self._topics.reports, window_ms=WINDOW_S * 1000,
            remembered_ms=WINDOW_S * 1000, most_reports=10 * WINDOW_S, most_bytes=10**9, expected=None,
        )  # fmt: skip
        found = pipeline.signatures(records).toArrow()
        began = time.process_time()
        assert check.judge(found) == Verdict()
        self.checked_s.append(time.process_time() - began)
        self._sum(records)

    def _records(self, *, headers: bool) -> DataFrame:
        source = self._spark.read.format("kafka").option("kafka.bootstrap.servers", self._broker.address)
        source = source.option("subscribe", self._topics.reports).option("includeHeaders", str(headers).lower())
        return source.load().coalesce(1)

    def _sum(self, records: DataFrame) -> None:
        kept = pipeline.kept(records, hosts=None, flooding=())
        sampled = pipeline.samples(kept, cluster=CLUSTER, max_ahead_ms=WINDOW_S * 1000)
        pipeline.windows(sampled, window_ms=WINDOW_S * 1000).toArrow()


def measure(broker: Broker, topics: Topics, options: argparse.Namespace) -> dict[str, float]:
    """CPU seconds per window, medians over rounds."""
    known = send(broker, topics, options.hosts, options.key_groups, options.interval)
    keys = {"spark.master": "local[1]", "spark.driver.extraJavaOptions": "-Xss16m -XX:+UseSerialGC"}
    others = set(psutil.Process().children(recursive=True))
    spark = open_session("trimtab-host-signatures", {**keys, "spark.driver.memory": "2g"})
    jvm = max(set(psutil.Process().children(recursive=True)) - others, key=lambda each: each.memory_info().rss)
    window = Window(spark, broker, topics, known)

    def cost_s(act: Callable[[], None]) -> float:
        used = sum(jvm.cpu_times()[:2]) + time.process_time()
        act()
        return float(sum(jvm.cpu_times()[:2]) + time.process_time() - used)

    rounds: list[tuple[float, float]] = []
    for number in range(WARM_UP_ROUNDS + ROUNDS):
        if number % 2:
            checked_s, unchecked_s = cost_s(window.checked), cost_s(window.unchecked)
        else:
            unchecked_s, checked_s = cost_s(window.unchecked), cost_s(window.checked)
        rounds.append((unchecked_s, checked_s))
    counted = rounds[WARM_UP_ROUNDS:]
    without_s, with_s = (statistics.median(column) for column in zip(*counted, strict=True))
    shares = statistics.quantiles(((with_ - without) / with_ for without, with_ in counted), n=4)
    in_python_s = statistics.median(window.checked_s[WARM_UP_ROUNDS:])
    spark.stop()
    return {
        "hosts": options.hosts,
        "reports": options.hosts * (WINDOW_S // options.interval),
        "key_groups_per_report": options.key_groups,
        "unchecked_cpu_s": round(without_s, 3),
        "checked_cpu_s": round(with_s, 3),
        "of_this_judging_cpu_s": round(in_python_s, 3),
        "share_of_the_check": round(shares[1], 4),
        "quartiles_of_the_share": [round(shares[0], 4), round(shares[2], 4)],
        "share_of_judging": round(in_python_s / with_s, 4),
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
        print(json.dumps(measure(broker, topics, options)))


if __name__ == "__main__":
    main()
