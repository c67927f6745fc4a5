"""Tests whether the CPU figures of key groups predict what their worker saves without them.

    PYTHONPATH=examples python -m benchmarks.share_prediction [--rates 60 200] [--turns 4] [--seconds 8]

A quarter of a worker's key groups falls silent, in turns.  Predicted: the CPU reported for these key groups while they
have traffic.  Measured: how much less the process uses while they have none.  The first two seconds of each span do not
count.
"""

import argparse
import time
from dataclasses import dataclass
from statistics import mean, stdev

from confluent_kafka import Consumer, TopicPartition

from benchmarks.plugin_overhead import KEY_GROUPS, one_worker
from flights.dataset import read_flights
from flights.producer import FlightProducer
from trimtab_protocol.messages.codec import decoded
from trimtab_protocol.messages.names import topic_settings
from trimtab_protocol.messages.report import Report
from trimtab_sandbox.cluster import SandboxCluster

SETTLE_S = 2.0
WORK = 60
SILENT = range(KEY_GROUPS // 4)
SILENCE = 1e-6
"""A speed so low that no flight becomes due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A time span with constant traffic (epoch seconds)."""

    rate: float
    silent: bool
    start: float
    end: float


def alternate(producer: FlightProducer, rate: float, *, turns: int, seconds: float) -> list[Span]:
    """Alternate traffic with and without the silent key groups; returns the spans."""
    spans = []
    producer.set_rate(rate)
    for _ in range(turns):
        for silent in (False, True):
            producer.set_speed(SILENT, SILENCE if silent else 1.0)
            start = time.time()
            time.sleep(seconds)
            spans.append(Span(rate=rate, silent=silent, start=start + SETTLE_S, end=time.time()))
    return spans


def read_reports(cluster: SandboxCluster) -> list[Report]:
    """All reports so far."""
    now_ms = time.time() * 1000
    topic = cluster.topics.reports
    consumer = Consumer({"bootstrap.servers": cluster.broker.address, "group.id": "share", "enable.auto.commit": False})
    count = next(settings.partitions for settings in topic_settings(cluster.topics) if settings.name == topic)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(count)])
    reports: list[Report] = []
    while not any(report.at_ms > now_ms for report in reports):
        messages = consumer.consume(1000, timeout=3.0)
        reports += [decoded(message.value(), Report) for message in messages if not message.error()]
    consumer.close()
    return reports


def cores(reports: list[Report], span: Span) -> tuple[float, float]:
    """(cores of the process, cores reported for the silent key groups) in a span."""
    inside = [report for report in reports if span.start < report.at_ms / 1000 - report.interval_s < span.end]
    seconds = sum(report.interval_s for report in inside)
    process_s = sum(worker.cpu_s or 0.0 for report in inside for worker in report.workers)
    samples = (sample for report in inside for sample in report.key_groups)
    reported_s = sum(sample.cpu_s or 0.0 for sample in samples if sample.key_group.partition in SILENT)
    return process_s / seconds, reported_s / seconds


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", type=float, nargs="+", default=[60.0, 200.0], help="flights per second")
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each span")
    given = parser.parse_args()
    flights = list(read_flights())
    spans: list[Span] = []
    with one_worker(plugin=True, work=WORK) as cluster:
        with FlightProducer(cluster.broker.address, flights, key_groups=KEY_GROUPS, rate=1.0) as producer:
            for rate in given.rates:
                spans += alternate(producer, rate, turns=given.turns, seconds=given.seconds)
            producer.stop()
        reports = read_reports(cluster)
    print("flights/s   process, cores   promised    measured")
    for rate in given.rates:
        busy, quiet = (
            [cores(reports, span) for span in spans if span.rate == rate and span.silent is silent]
            for silent in (False, True)
        )
        drops = [before - after for (before, _), (after, _) in zip(busy, quiet, strict=True)]
        error = stdev(drops) / len(drops) ** 0.5 if len(drops) > 1 else float("nan")
        print(
            f"{rate:9.0f} {mean(process for process, _ in busy):16.4f} {mean(part for _, part in busy):10.4f} "
            f"{mean(drops):11.4f} +- {error:.4f}"
        )


if __name__ == "__main__":
    main()
