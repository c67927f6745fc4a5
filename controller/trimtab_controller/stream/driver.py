"""The loop that runs the query, hands its rows to the assembler and publishes what that returns."""

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import Row as SparkRow
from pyspark.sql.streaming import StreamingQuery

from trimtab_controller.kafka.collecting import collector_paused
from trimtab_controller.stream import pipeline
from trimtab_controller.stream.assemble import Assembler
from trimtab_controller.stream.configuration import Configuration, StreamSettings
from trimtab_controller.stream.outlet import Outlet, Turns, first_ms
from trimtab_controller.stream.publisher import NotPublished, Publisher
from trimtab_controller.stream.rows import SCHEMA, left_out_row, table_of
from trimtab_controller.stream.session import fresh_checkpoint, open_session, prefer_plain_files
from trimtab_process.backoff import Backoff
from trimtab_protocol.messages.decode import Fault, shorten
from trimtab_protocol.messages.names import Topics
from trimtab_protocol.settings.kafka import KafkaSettings, for_java, for_librdkafka

PROBE_LIMIT_S = 5.0
"""How long the broker may take to answer."""
TOPICS = Backoff((0.5, 1.0, 2.0, 5.0, 10.0))
"""Waits until Kafka answers and has the topics."""
QUERY_RESTART_S = 1.0
POLL_S = 0.5
NAMED = 3

log = logging.getLogger(__name__)

Stopping = Callable[[], bool]


def run(configuration: Configuration, turns: Turns, stopping: Stopping) -> None:
    """Turn reports into snapshots until `stopping()`, and publish them at this stream's turn.

    A failed query is restarted.
    """
    topics = Topics(configuration.cluster)
    spark = None
    try:
        # Before Kafka has the topics, which the controller may be about to create: the session takes seconds.
        spark = open_session(f"trimtab-stream-{configuration.cluster}", configuration.stream.spark)
        log.info("Spark's session is open")
        outlet = Outlet(Publisher(configuration.kafka, configuration.cluster), turns)
        while wait_for_topics(configuration.kafka, (topics.reports, topics.snapshots), stopping):
            try:
                _run_query(spark, configuration, topics, outlet, stopping)
            except (StreamingQueryException, KafkaException, NotPublished) as error:
                log.error("the Spark query failed, restarting it: %s", _first_line(error))
                time.sleep(QUERY_RESTART_S)
    finally:
        if spark is not None:
            spark.stop()


def wait_for_topics(kafka: KafkaSettings, topics: tuple[str, ...], stopping: Stopping) -> bool:
    """Wait until Kafka answers and has the topics; False when stopped.  Spark itself would wait without a log line."""
    admin = AdminClient({**for_librdkafka(kafka), "log_level": 0})
    failures = 0
    while not stopping():
        try:
            found = admin.list_topics(timeout=PROBE_LIMIT_S).topics
            missing = [topic for topic in topics if topic not in found]
            if not missing:
                return True
            reason = f"no topic {', '.join(missing)}"
        except KafkaException as error:
            reason = _first_line(error)
        failures += 1
        pause_s = TOPICS.after(failures)
        log.warning("Kafka at %s: %s; next try in %g s", kafka.bootstrap_servers, reason, pause_s)
        _pause(pause_s, stopping)
    return False


class Batches:
    """The function that foreachBatch calls."""

    def __init__(self, cluster: str, settings: StreamSettings, assembler: Assembler, outlet: Outlet) -> None:
        self.query: StreamingQuery | None = None
        self._cluster = cluster
        self._settings = settings
        self._assembler = assembler
        self._outlet = outlet
        self._working = threading.Lock()
        self._closing = threading.Event()
        self._beside = ThreadPoolExecutor(1, "planning")

    def __call__(self, records: DataFrame, _batch_id: int) -> None:
        """Add the sums of a batch, publish the ready windows, and wait until the next batch can complete a window.

        A batch costs about the same for one report as for thousands, and a row per key group whatever its length.  So
        one batch per window costs a fraction of one per report, in a sandbox as in a fleet.
        """
        with self._working, collector_paused():
            for snapshot in self._assembler.on_rows(self._rows(records), now_ms=_now_ms()):
                self._outlet.add(_now_ms(), snapshot)
        now_ms = _now_ms()
        look_ms = self._assembler.next_look_ms(now_ms, patience_ms=self._settings.patience_ms)
        self._closing.wait((look_ms - now_ms) / 1000)

    def _rows(self, records: DataFrame) -> pa.Table:
        """The sums of a batch.  Spark plans the query for them while it counts what is left out, mostly nothing."""
        window_ms = self._settings.window_ms
        planned = self._beside.submit(self._sums, records, ())
        left_out = pipeline.left_out(records, window_ms=window_ms, hosts=self._settings.expected_hosts).collect()
        _tell(left_out)
        flooding = {row.key for row in left_out if row.fault == Fault.FLOODING}
        sums = planned.result()
        if flooding:
            sums = self._sums(records, flooding)
        found = sums.toArrow()
        refused = table_of(left_out_row(*row[:-1]) for row in left_out)
        return pa.concat_tables([refused, found.select(SCHEMA.names).cast(SCHEMA)])

    def _sums(self, records: DataFrame, flooding: Collection[str]) -> DataFrame:
        """The query for the sums, planned but not run."""
        records = pipeline.kept(records, hosts=self._settings.expected_hosts, flooding=flooding)
        samples = pipeline.samples(records, cluster=self._cluster, max_ahead_ms=self._settings.window_ms)
        sums = pipeline.windows(samples, window_ms=self._settings.window_ms)
        cast(Any, sums)._jdf.queryExecution().executedPlan()  # Spark keeps it for the query's run
        return sums

    def flush(self) -> None:
        """Publish what is held, between two batches.  Raises NotPublished, KafkaException."""
        with self._working:
            self._outlet.flush(_now_ms())

    def stop(self) -> None:
        """Stop the query between two batches."""
        self._closing.set()
        with self._working:
            if self.query:
                self.query.stop()
        self._beside.shutdown()


def _run_query(
    spark: SparkSession, configuration: Configuration, topics: Topics, outlet: Outlet, stopping: Stopping
) -> None:
    settings = configuration.stream
    kafka = configuration.kafka
    now_ms = _now_ms()
    from_ms = first_ms(now_ms, outlet.restart(), settings.window_ms)
    batches = Batches(
        configuration.cluster,
        settings,
        Assembler(
            cluster=configuration.cluster,
            window_ms=settings.window_ms,
            watermark_ms=settings.watermark_ms,
            from_ms=from_ms,
            expected_hosts=settings.expected_hosts,
        ),
        outlet,
    )
    records = pipeline.records(spark, for_java(kafka, Path.read_text), topic=topics.reports, from_ms=from_ms)
    prefer_plain_files(spark, settings.checkpoint_dir)
    # Without a trigger, batches follow each other at once.  `Batches` delays them; this is for times without reports.
    spark.conf.set("spark.sql.streaming.pollingDelay", f"{settings.patience_ms}ms")
    query = (
        records.writeStream.option("checkpointLocation", fresh_checkpoint(spark, settings.checkpoint_dir, str(now_ms)))
        .foreachBatch(batches)
        .start()
    )
    batches.query = query
    log.info("reading %s from_ms=%d", topics.reports, from_ms)
    try:
        while not (stopping() or query.awaitTermination(POLL_S)):
            if outlet.is_due:
                batches.flush()
    finally:
        batches.stop()


def _tell(left_out: Sequence[SparkRow]) -> None:
    for fault in sorted({row.fault for row in left_out}):
        found = [row for row in left_out if row.fault == fault]
        names = ", ".join(shorten(row.host) for row in found[:NAMED])
        log.warning("discarded unread, %s: %d reports of %s", fault, sum(row.reports for row in found), names)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _pause(seconds: float, stopping: Stopping) -> None:
    end = time.monotonic() + seconds
    while not stopping() and time.monotonic() < end:
        time.sleep(0.1)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
