"""Spark queries from Kafka records to sums per window; built-in SQL functions only, so they run on any cluster."""

from collections.abc import Collection, Mapping

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from trimtab_controller.stream import validation
from trimtab_controller.stream.measures import (
    ABSENCE_AT,
    ABSENCES,
    COPIES_AT,
    KNOWN_COLUMNS,
    LEVEL_COLUMNS,
    LEVELS,
    REASON_AT,
    SUM_COLUMNS,
    SUMS,
    THING,
    Kind,
    code,
    slots,
)
from trimtab_protocol.messages.decode import MAX_NAME, Fault
from trimtab_protocol.messages.report import MAX_REPORT_BYTES
from trimtab_protocol.signing.envelope import HEADER
from trimtab_protocol.signing.hosts import MAX_HEADER_BYTES

MAX_REPORTS_S, MAX_BYTES_S = 10, 1024 * 1024
"""The most that one host may send per second on average over a window, plus one report of maximum size."""
STRANGERS = 1_000
"""Records of one batch in which hosts are looked for that nobody expects."""
NOTHING = "array(CAST(NULL AS LONG))"
DECLARED = (
    f"concat({NOTHING}, coalesce(x.oc, array()), nvl2(x.sby, array(x.sby), array()), nvl2(x.unk, {NOTHING}, array()), "
    f"nvl2(x.why, {NOTHING}, array()), nvl2(coalesce(x.off, x.dap), array({code('x.off', ABSENCES)}), array()), "
    "coalesce(x.cpp, array()))"
)
"""One row for the worker itself, then one for each of its declarations."""
KEY_BYTES = f"substring(key, 1, {MAX_NAME + 1})"
"""A record's key, cut where it is longer than any name; a topic takes keys of megabytes."""
KEY = f"coalesce(hex({KEY_BYTES}), '')"
"""The same in hex: as a text, all bytes that are not UTF-8 would look the same."""


def records(
    spark: SparkSession, client: Mapping[str, str], *, topic: str, from_ms: int, headers: bool = False
) -> DataFrame:
    """The stream of Kafka records with timestamps from `from_ms` (epoch milliseconds) on.

    `client`: the settings with which Kafka's Java client reaches the brokers; `headers`: read the signatures, too.
    """
    return (
        spark.readStream.format("kafka")
        .options(**{f"kafka.{key}": value for key, value in client.items()})
        .option("subscribe", topic)
        .option("includeHeaders", str(headers).lower())
        .option("startingTimestamp", str(from_ms))
        # If no record is that new yet, begin with the next one.
        .option("startingOffsetsByTimestampStrategy", "latest")
        # Retention may delete records while the stream is stopped; that shows as coverage below 1.
        .option("failOnDataLoss", "false")
        .load()
        # By default Spark runs a task per partition, however few cores there are; tasks cost more than their rows.
        .coalesce(spark.sparkContext.defaultParallelism)
    )


def most_bytes_of(window_ms: int) -> int:
    """The most bytes that one host may send in a window."""
    return MAX_REPORT_BYTES + MAX_BYTES_S * window_ms // 1000


def left_out(raw: DataFrame, *, window_ms: int, hosts: Collection[str] | None) -> DataFrame:
    """The records refused before parsing, by host and window of arrival.

    These come from hosts that send too much, and from hosts that are not among `hosts` (None: all are).  Columns:
    `host`, `fault`, `start_ms`, `reports`, `last_ms`, `key` (as KEY).  Counting costs a small part of parsing, so a
    flood does not delay other hosts.  All unknown hosts share one row per window without a name.
    """
    arrival = "unix_millis(timestamp)"
    flooding = f"reports > {MAX_REPORTS_S} * {window_ms} / 1000 OR bytes > {most_bytes_of(window_ms)}"
    sent = raw.groupBy(
        (F.expr(KEY) if hosts is None else F.when(_is_of(hosts), F.expr(KEY))).alias("key"),
        F.expr(f"{arrival} - pmod({arrival}, {window_ms})").alias("start_ms"),
    ).agg(
        F.count(F.lit(1)).alias("reports"),
        F.sum(_size(raw)).alias("bytes"),
        F.expr(f"max({arrival})").alias("last_ms"),
    )
    unknown = F.col("key").isNull() if hosts is not None else F.lit(False)
    fault = F.when(unknown, Fault.UNKNOWN_HOST).when(F.expr(flooding), Fault.FLOODING)
    host = F.expr("CAST(unhex(key) AS STRING)").alias("host")
    return sent.select(host, fault.alias("fault"), "start_ms", "reports", "last_ms", "key").where("fault IS NOT NULL")


def strangers(raw: DataFrame, hosts: Collection[str]) -> DataFrame:
    """Some records of hosts that are not among `hosts`, to name them: `key`, `arrival_ms`.  Reads until it has them."""
    return (
        raw.where(~_is_of(hosts))
        .select(F.expr(KEY_BYTES).alias("key"), F.expr("unix_millis(timestamp)").alias("arrival_ms"))
        .limit(STRANGERS)
    )


def small(raw: DataFrame, *, most: int, most_bytes: int) -> DataFrame:
    """The records of a small batch, with what is judged before they are parsed; at most `most`.

    Columns: `key`, `arrival_ms`, `size` in bytes, `partition`, `offset`; `value`, NULL if it is larger than
    `most_bytes`; and those of `signatures` if `raw` has headers.  One task reads them: several cost more than they do.
    """
    value = F.expr(f"if(octet_length(value) <= {most_bytes}, value, NULL)").alias("value")
    judged = _signed(raw) if "headers" in raw.columns else _arrived(raw)
    return raw.coalesce(1).select(*judged, value).limit(most)


def signatures(raw: DataFrame) -> DataFrame:
    """What the check of signatures needs of each record, read with its headers: see `signatures.SignatureCheck`.

    Columns: `key`, `arrival_ms`, `size` in bytes, `partition`, `offset`, `digest` (SHA-256 of the value in hex, NULL if
    the value is too large to be read), `signatures` (the beginnings of the first two).
    """
    return raw.select(*_signed(raw))


def _signed(raw: DataFrame) -> list[Column]:
    found = f"filter(headers, h -> h.key = '{HEADER}')"
    return [
        *_arrived(raw),
        F.expr(f"if(octet_length(value) <= {MAX_REPORT_BYTES}, sha2(value, 256), NULL)").alias("digest"),
        F.expr(
            f"coalesce(transform(slice({found}, 1, 2), h -> coalesce(substring(h.value, 1, {MAX_HEADER_BYTES + 1}), "
            "X'')), array())"
        ).alias("signatures"),
    ]


def _arrived(raw: DataFrame) -> list[Column]:
    return [
        F.expr(KEY_BYTES).alias("key"),
        F.expr("unix_millis(timestamp)").alias("arrival_ms"),
        _size(raw).alias("size"),
        F.col("partition"),
        F.col("offset"),
    ]


def kept(
    raw: DataFrame,
    *,
    hosts: Collection[str] | None,
    flooding: Collection[str],
    dropped: Collection[tuple[int, int]] = (),
    good: Collection[tuple[int, int]] = (),
) -> DataFrame:
    """The records that are parsed: of `hosts` (None: of all), and none with a key that is `flooding`.

    `dropped`: partitions and offsets of records whose signatures do not count, `good`: of all others.
    """
    if hosts is not None:
        raw = raw.where(_is_of(hosts))
    if dropped:
        # By the shorter list: whoever floods a topic must not make the query long.
        raw = raw.where(~_is_at(dropped) if len(dropped) <= len(good) else _is_at(good))
    return raw.where(~_has(flooding)) if flooding else raw


def samples(raw: DataFrame, *, cluster: str, max_ahead_ms: int) -> DataFrame:
    """One row per sample of a good report, one per bad report; `at_ms` = the middle of the interval.

    A bad report has no `host`, since nothing in it counts; as `worker` it has the host in whose name it came.

    `raw` has Kafka's columns `key`, `value` and `timestamp`.  A report dated after its arrival gets the time of its
    arrival; one dated more than `max_ahead_ms` after it is refused.  Otherwise one fast clock would make all other
    hosts late.
    """
    parsed = raw.select(
        F.expr("CAST(key AS STRING)").alias("key"),  # its report must say the same
        "value",
        F.expr("unix_millis(timestamp)").alias("arrival_ms"),
        F.from_json(
            F.expr(validation.parsable("value")),
            validation.REPORT_SCHEMA,
            dict(validation.PARSING),
        ).alias("r"),
    )
    fault = validation.fault(
        cluster=cluster, key="key", value="value", report="r", ahead_ms="r.t - arrival_ms", max_ahead_ms=max_ahead_ms
    )
    judged = parsed.select("arrival_ms", "r", "key", F.expr(fault).alias("fault"))
    # The leading NULL stands for the report itself: its host, or its fault.
    itself = f"array(CAST(NULL AS {validation.PART_TYPE}))"
    parts = judged.select(
        "fault",
        F.expr("if(fault IS NULL, r.h, NULL)").alias("host"),
        F.expr("if(fault IS NULL, r.i, 0D)").alias("interval_s"),
        F.expr("if(fault IS NULL, CAST(least(r.t, arrival_ms) - r.i * 500 AS LONG), arrival_ms)").alias("at_ms"),
        F.expr("r.n").alias("n"),
        # In whose name a refused report came: its host is not known by that.
        F.expr(f"if(fault IS NULL OR {validation.no_name('key')}, NULL, key)").alias("claimed"),
        F.explode(F.expr(f"if(fault IS NULL, concat({itself}, r.w, r.k, r.e), {itself})")).alias("x"),
    )
    # A part that is no block has one sample, at index 0 of columns that it does not have.
    partitions = F.expr(f"coalesce(x.p, x.fp, if(x.s IS NULL, {NOTHING}, {DECLARED}))")
    exploded = parts.select("*", F.posexplode(partitions).alias("i", "partition"))
    kinds = {"fault IS NOT NULL": Kind.REJECTED, "x IS NULL": Kind.HOST, "x.s IS NULL AND x.o IS NULL": Kind.PAIR}
    kinds |= {"x.s IS NULL": Kind.KEY_GROUP, "i = 0": Kind.WORKER}
    kinds |= {f"i >= {COPIES_AT}": Kind.COPY, f"i = {ABSENCE_AT}": Kind.ABSENCE}
    kinds[f"i = {REASON_AT}"] = Kind.REASON
    kinds |= {"partition IS NULL": Kind.UNKNOWN, "i <= array_size(x.oc)": Kind.OPERATOR, "true": Kind.STANDBYS}
    which = "CASE " + " ".join(f"WHEN {test} THEN {value.value}" for test, value in kinds.items()) + " END"
    texts = {Kind.HOST: "n.typ", Kind.OPERATOR: "get(x.os, i - 1)"}
    texts |= {Kind.UNKNOWN: "x.unk", Kind.REASON: "x.why", Kind.ABSENCE: "x.dap"}
    texts[Kind.COPY] = f"get(x.cpo, CAST(i - ({COPIES_AT}) AS INT))"
    declared = f"CASE kind {' '.join(f'WHEN {kind.value} THEN {text}' for kind, text in texts.items())} END"
    return exploded.withColumn("kind", F.expr(which)).select(
        "at_ms",
        "interval_s",
        "kind",
        "host",
        F.expr("coalesce(x.w, x.tpc, claimed)").alias("worker"),
        F.expr("x.a").alias("app"),
        F.expr(f"coalesce(fault, x.o, x.fo, {declared})").alias("operator"),
        "partition",
        F.expr(f"if(kind = {Kind.HOST.value}, n.zon, x.to)").alias("target_operator"),
        F.expr("x.tp[i]").alias("target_partition"),
        *(_of_its_kind(sql).alias(name) for name, sql in zip(SUM_COLUMNS, slots(SUMS), strict=True)),
        *(_of_its_kind(sql).alias(name) for name, sql in zip(LEVEL_COLUMNS, slots(LEVELS), strict=True)),
    )


def windows(sampled: DataFrame, *, window_ms: int) -> DataFrame:
    """Sums of the samples of one batch by window and thing: the fields of `Row`, with its lists as columns.

    Spark keeps no state between batches; the assembler adds them up.  So a window costs one row per thing and batch.
    Spark's state would cost a stored row per thing and window, written and read in each batch.
    """
    return (
        sampled.withColumn("start_ms", F.expr(f"at_ms - pmod(at_ms, {window_ms})"))
        .groupBy("start_ms", *THING)
        .agg(
            F.count(F.lit(1)).alias("samples"),
            F.max("at_ms").alias("last_ms"),
            F.sum("interval_s").alias("covered_s"),
            *(F.sum(name).alias(name) for name in SUM_COLUMNS),
            *(
                F.sum(F.expr(f"if({name} IS NULL, 0D, interval_s)")).alias(known)
                for name, known in zip(SUM_COLUMNS, KNOWN_COLUMNS, strict=True)
            ),
            *(F.max_by(name, "at_ms").alias(name) for name in LEVEL_COLUMNS),
        )
    )


def _of_its_kind(sql: Mapping[Kind, str]) -> Column:
    cases = " ".join(f"WHEN {kind.value} THEN CAST({text} AS DOUBLE)" for kind, text in sql.items())
    return F.expr(f"CASE kind {cases} END")


def _size(raw: DataFrame) -> Column:
    """The bytes of a record, with its key and its headers."""
    headers = "aggregate(headers, 0, (n, h) -> n + octet_length(h.key) + coalesce(octet_length(h.value), 0))"
    parts = ["octet_length(value)", "octet_length(key)", *([headers] if "headers" in raw.columns else [])]
    return F.expr(" + ".join(f"coalesce({part}, 0)" for part in parts))


def _is_at(places: Collection[tuple[int, int]]) -> Column:
    """Whether a record is at one of the places (partition, offset)."""
    listed = ", ".join(f"'{partition}:{offset}'" for partition, offset in places) or "''"
    return F.expr(f"concat(partition, ':', offset) IN ({listed})")


def _is_of(hosts: Collection[str]) -> Column:
    """Whether a record comes from one of the hosts."""
    return _has([host.encode().hex().upper() for host in hosts])


def _has(keys: Collection[str]) -> Column:
    """Whether a record has one of the keys; they form one text, since Spark takes a millisecond per literal."""
    return F.expr(f"{KEY} IN ({', '.join(map(repr, keys))})")
