"""Measures the throughput of the stream: `python -m benchmarks.stream_rate [--samples N] [--seconds S]`.

Reports on a real broker are read, parsed, validated, summed and passed to the assembler, like a batch of the stream, on
one core (local[1]).  The output has samples per second, and per CPU second of JVM (all threads) and Python.  The latter
figure is also valid on a busy machine.

The first rounds, in which the JVM still compiles, do not count.  No round begins later than S seconds after the first
one: what has been measured until then is printed.
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import psutil
from confluent_kafka import Producer

from benchmarks.reports import busy_key_groups, host_report, running_worker
from trimtab_controller.stream import pipeline
from trimtab_controller.stream.measures import Kind
from trimtab_controller.stream.rows import of_kind
from trimtab_controller.stream.session import open_session
from trimtab_protocol.messages.names import MAX_PARTITIONS, AppId, Epoch, OperatorId, Topics, WorkerId
from trimtab_sandbox.broker import Broker, Topic
from trimtab_sandbox.processes import Processes

CLUSTER, OPERATOR = "bench", OperatorId("delays")
KEY_GROUPS_PER_REPORT = 1_000
WARM_UP_ROUNDS = 5
ROUNDS = 5
LIMIT_S = 120.0


def report(host: int, at_ms: int, key_groups: int) -> bytes:
    """A report of one worker, with all figures known."""
    worker = WorkerId(f"w{host}")
    # An app has at most so many key groups of an operator.
    app, place = divmod(host, MAX_PARTITIONS // key_groups)
    app_id = AppId(f"app{app}")
    partitions = range(place * key_groups, (place + 1) * key_groups)
    cpu_s = [0.00123 + index / 1e6 for index in range(key_groups)]
    samples = busy_key_groups(app_id, OPERATOR, worker, partitions, cpu_s)
    operators = {OPERATOR: 10 * key_groups}
    running = running_worker(
        worker, app_id, 0.5, epoch=Epoch(1, 1), generation=1, operators=operators, standbys=1, steering=False
    )
    return host_report(CLUSTER, host, at_ms, running, samples, cpu_s=0.5)


def measure_rate(broker: Broker, topics: Topics, samples: int, limit_s: float) -> dict[str, float]:
    """Samples per second on one core, medians over the rounds that count: the last one, if there are no more."""
    reports = samples // KEY_GROUPS_PER_REPORT
    producer = Producer({"bootstrap.servers": broker.address, "compression.type": "lz4"})
    now_ms = int(time.time() * 1000)
    for index in range(reports):
        producer.produce(
            topics.reports, report(index % 10, now_ms - 1000 * (index // 10), KEY_GROUPS_PER_REPORT), f"h{index % 10}"
        )
        producer.poll(0)
    producer.flush()
    others = set(psutil.Process().children(recursive=True))
    spark = open_session("trimtab-stream-rate", {"spark.master": "local[1]", "spark.driver.memory": "2g"})
    jvm = max(set(psutil.Process().children(recursive=True)) - others, key=lambda each: each.memory_info().rss)
    source = spark.read.format("kafka").option("kafka.bootstrap.servers", broker.address)
    records = source.option("subscribe", topics.reports).load().coalesce(1)
    sampled = pipeline.samples(records, cluster=CLUSTER, max_ahead_ms=10_000)
    summed = pipeline.windows(sampled, window_ms=10_000)
    rows = reports * (KEY_GROUPS_PER_REPORT + 2)  # key groups, the host and the worker; without declared operators
    rates: list[float] = []
    cpu_rates: list[float] = []
    first = time.monotonic()
    while not rates or (len(rates) < WARM_UP_ROUNDS + ROUNDS and time.monotonic() < first + limit_s):
        began, used = time.monotonic(), sum(jvm.cpu_times()[:2]) + time.process_time()
        of_kind(summed.toArrow(), Kind.KEY_GROUP)
        rates.append(rows / (time.monotonic() - began))
        cpu_rates.append(rows / (sum(jvm.cpu_times()[:2]) + time.process_time() - used))
    spark.stop()
    warm_up = min(WARM_UP_ROUNDS, len(rates) - 1)
    rates, cpu_rates = rates[warm_up:], cpu_rates[warm_up:]
    return {
        "samples_per_s_one_core": round(statistics.median(rates)),
        "samples_per_cpu_s": round(statistics.median(cpu_rates)),
        "reports_per_s_one_core": round(statistics.median(rates) / (KEY_GROUPS_PER_REPORT + 2), 1),
        "key_groups_per_report": KEY_GROUPS_PER_REPORT,
        "rounds": len(rates),
        "rounds_before": warm_up,
    }


def main() -> None:
    """Print the rates as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=500_000, help="key-group samples per round (500000)")
    parser.add_argument("--seconds", type=float, default=LIMIT_S, help=f"until the last round begins ({LIMIT_S:g})")
    options = parser.parse_args()
    topics = Topics(CLUSTER)
    with (
        tempfile.TemporaryDirectory() as name,
        Processes(Path(name) / "logs") as processes,
        Broker(Path(name) / "broker", processes) as broker,
    ):
        broker.create_topics([Topic(name=topics.reports, partitions=4)])
        print(json.dumps(measure_rate(broker, topics, options.samples, options.seconds)))


if __name__ == "__main__":
    main()
