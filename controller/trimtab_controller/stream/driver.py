"""The loop that runs the query, hands its rows to the assembler and publishes what that returns."""

import logging
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from trimtab_controller.kafka.chunks import collector_paused
from trimtab_controller.kafka.connection import Connection, Stopping, pause
from trimtab_controller.kafka.host_keys import HostKeysFollower
from trimtab_controller.kafka.reader import ReadError
from trimtab_controller.stream import pipeline
from trimtab_controller.stream.arrivals import SMALL_HOSTS, is_small
from trimtab_controller.stream.assemble import Assembler
from trimtab_controller.stream.batches import BatchReader
from trimtab_controller.stream.configuration import StreamConfiguration
from trimtab_controller.stream.outlet import Outlet, Turns, first_ms
from trimtab_controller.stream.publisher import NotPublished, SnapshotPublisher
from trimtab_controller.stream.reporting import reporting_hosts
from trimtab_controller.stream.session import fresh_checkpoint, open_session, prefer_plain_files
from trimtab_controller.stream.signatures import SignatureCheck, Verdict
from trimtab_process.backoff import Backoff
from trimtab_process.credential_files import load_signing_key
from trimtab_process.trust_file import TrustFile
from trimtab_protocol.messages.decode import shorten
from trimtab_protocol.messages.names import Topics
from trimtab_protocol.settings.kafka import KafkaSettings, for_java, for_librdkafka
from trimtab_protocol.signing.hosts import HostChecking
from trimtab_protocol.signing.keys import BadKey, SigningKey
from trimtab_protocol.wording import local_time

PROBE_LIMIT_S = 5.0
"""How long the broker may take to answer."""
TOPICS = Backoff((0.5, 1.0, 2.0, 5.0, 10.0))
"""Waits until Kafka answers and has the topics."""
QUERY_RESTART_S = 1.0
POLL_S = 0.5
NAMED = 3
MEMORY_WINDOWS = 4
"""For so many windows of arrival the stream recognises a report that comes again; by then its window is published."""

log = logging.getLogger(__name__)


def run(configuration: StreamConfiguration, turns: Turns, stopping: Stopping) -> None:
    """Turn reports into snapshots until `stopping()`, and publish them at this stream's turn.

    A failed query is restarted.
    """
    topics = Topics(configuration.cluster)
    spark = None
    try:
        small = _is_small(configuration, topics)
        # Before Kafka has the topics, which the controller may be about to create: the session takes seconds.
        spark = open_session(f"trimtab-stream-{configuration.cluster}", configuration.stream.spark, small=small)
        log.info("Spark's session is open")
        outlet = Outlet(SnapshotPublisher(configuration.kafka, configuration.cluster), turns)
        needed = [topics.reports, topics.snapshots]
        if configuration.host_signatures is not HostChecking.OFF:
            needed.append(topics.keys)
        while wait_for_topics(configuration.kafka, needed, stopping):
            try:
                _run_query(spark, configuration, topics, outlet, stopping, small=small)
            except (StreamingQueryException, KafkaException, NotPublished, ReadError, BadKey) as error:
                log.error("the Spark query failed, restarting it: %s", _first_line(error))
                time.sleep(QUERY_RESTART_S)
    finally:
        if spark is not None:
            spark.stop()


def _is_small(configuration: StreamConfiguration, topics: Topics) -> bool:
    """Whether the fleet is small: by its expected hosts, or by those that have reported within the last window."""
    if configuration.stream.expected_hosts is not None:
        return is_small(configuration.stream.expected_hosts)
    connection = Connection(kafka=configuration.kafka)
    from_s = time.time() - configuration.stream.window_s
    hosts = reporting_hosts(connection, topics.reports, from_s, most=SMALL_HOSTS + 1)
    if hosts is not None:
        log.info("%s hosts report", len(hosts) if len(hosts) <= SMALL_HOSTS else f"more than {SMALL_HOSTS}")
    return is_small(hosts)


def wait_for_topics(kafka: KafkaSettings, topics: Sequence[str], stopping: Stopping) -> bool:
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
        pause(pause_s, stopping)
    return False


class Signatures:
    """The check of the hosts' signatures, with the keys as they are now.  Raises ReadError, KafkaException, BadKey."""

    def __init__(self, configuration: StreamConfiguration, topics: Topics) -> None:
        settings = configuration.stream
        assert configuration.trust is not None, "checking needs [signing]"
        connection = Connection(kafka=configuration.kafka)
        self._keys = HostKeysFollower(connection, topics, TrustFile(configuration.trust), _own_key(configuration))
        self._check = SignatureCheck(
            configuration.host_signatures,
            self._keys.known,
            topic=topics.reports,
            window_ms=settings.window_ms,
            remembered_ms=MEMORY_WINDOWS * settings.window_ms + settings.watermark_ms,
            most_reports=pipeline.MAX_REPORTS_S * settings.window_s,
            most_bytes=pipeline.most_bytes_of(settings.window_ms),
            expected=settings.expected_hosts,
        )

    def judge(self, batch: pa.Table) -> Verdict:
        """The verdict about a batch, as `SignatureCheck.judge`."""
        self._keys.refresh()
        return self._check.judge(batch)

    def close(self) -> None:
        """Stop following the keys."""
        self._keys.close()


class Batches:
    """The function that foreachBatch calls."""

    def __init__(
        self,
        reader: BatchReader,
        assembler: Assembler,
        outlet: Outlet,
        patience_ms: int,
    ) -> None:
        self.query: StreamingQuery | None = None
        self._reader = reader
        self._assembler = assembler
        self._outlet = outlet
        self._patience_ms = patience_ms
        self._working = threading.Lock()
        self._closing = threading.Event()

    def __call__(self, records: DataFrame, _batch_id: int) -> None:
        """Add the sums of a batch, publish the ready windows, and wait until the next batch can complete a window.

        A batch costs about the same for one report as for thousands, and a row per key group whatever its length.  So
        one batch per window costs a fraction of one per report, in a sandbox as in a fleet.
        """
        with self._working, collector_paused():
            batch = self._reader.read(records)
            _tell(batch.verdict)
            self._assembler.doubt(batch.verdict.unsigned, batch.verdict.doubted)
            self._assembler.refuse(batch.verdict.claims)
            for snapshot in self._assembler.on_rows(batch.rows, now_ms=_now_ms()):
                self._outlet.add(_now_ms(), snapshot)
        now_ms = _now_ms()
        look_ms = self._assembler.next_look_ms(now_ms, patience_ms=self._patience_ms)
        self._closing.wait((look_ms - now_ms) / 1000)

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
        self._reader.close()


def _run_query(
    spark: SparkSession,
    configuration: StreamConfiguration,
    topics: Topics,
    outlet: Outlet,
    stopping: Stopping,
    *,
    small: bool,
) -> None:
    settings = configuration.stream
    kafka = configuration.kafka
    signatures = None if configuration.host_signatures is HostChecking.OFF else Signatures(configuration, topics)
    now_ms = _now_ms()
    from_ms = first_ms(now_ms, outlet.restart(), settings.window_ms)
    judge = None if signatures is None else signatures.judge
    batches = Batches(
        BatchReader(configuration.cluster, settings, judge, small=small),
        Assembler(
            cluster=configuration.cluster,
            window_ms=settings.window_ms,
            watermark_ms=settings.watermark_ms,
            from_ms=from_ms,
            expected_hosts=settings.expected_hosts,
        ),
        outlet,
        settings.patience_ms,
    )
    client, headers = for_java(kafka, Path.read_text), signatures is not None
    records = pipeline.records(spark, client, topic=topics.reports, from_ms=from_ms, headers=headers)
    prefer_plain_files(spark, settings.checkpoint_dir)
    # Without a trigger, batches follow each other at once.  `Batches` delays them; this is for times without reports.
    spark.conf.set("spark.sql.streaming.pollingDelay", f"{settings.patience_ms}ms")
    query = (
        records.writeStream.option("checkpointLocation", fresh_checkpoint(spark, settings.checkpoint_dir, str(now_ms)))
        .foreachBatch(batches)
        .start()
    )
    batches.query = query
    log.info("reading %s from %s on", topics.reports, local_time(from_ms / 1000))
    try:
        watch(query, batches, outlet, stopping, settings.window_ms)
    finally:
        batches.stop()
        if signatures is not None:
            signatures.close()


def watch(query: StreamingQuery, batches: Batches, outlet: Outlet, stopping: Stopping, window_ms: int) -> None:
    """Wait until the query ends, or `stopping()`, or this host's clock is set back, as it often is after a boot.

    The query has begun with windows of the future then, and would drop all until these have come.
    """
    latest_ms = _now_ms()
    while not (stopping() or query.awaitTermination(POLL_S)):
        if (now_ms := _now_ms()) < latest_ms - window_ms:
            log.warning("this host's clock was set back by %d s: beginning again", (latest_ms - now_ms) // 1000)
            return
        latest_ms = max(latest_ms, now_ms)
        if outlet.is_due:
            batches.flush()


def _own_key(configuration: StreamConfiguration) -> SigningKey | None:
    """The controller's private key.  A stream that runs on another host has none, and needs none."""
    if configuration.key is None:
        return None
    try:
        key = load_signing_key(configuration.key)
    except BadKey as error:
        log.info("the controller's key cannot be read, so checking the signatures of hosts takes longer: %s", error)
        return None
    log.info("the signatures of hosts are checked by codes made with key %s", key.public.id)
    return key


def _tell(verdict: Verdict) -> None:
    for fault in sorted({row.fault for row in verdict.refused}):
        found = [row for row in verdict.refused if row.fault == fault]
        names = [*dict.fromkeys(shorten(row.host) for row in found if row.host is not None)][:NAMED]
        of = f" of {', '.join(names)}" if names else ""  # without a signature it is not known whose they are
        log.warning("discarded unread, %s: %d reports%s", fault, sum(row.reports for row in found), of)
    if verdict.doubted:
        named = ", ".join(f"{host} ({fault})" for host, fault in [*verdict.doubted.items()][:NAMED])
        log.warning("without a signature of their host: reports in the name of %s", named)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
