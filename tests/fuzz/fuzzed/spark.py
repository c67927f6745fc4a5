"""The stream's decoder of reports, which is SQL (`stream/pipeline.py`): whole batches, held against the codec."""

import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from random import Random
from typing import Any

import psutil
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.fuzz.fuzzed.decoder import Decoder
from tests.fuzz.fuzzed.mutants import Mutants, giants
from tests.fuzz.fuzzed.run import Tally, forget_peak, peak_bytes, told
from tests.fuzz.fuzzed.samples import CLUSTER, REPORT
from trimtab_controller.stream import pipeline, small
from trimtab_controller.stream.arrivals import strangers_of, too_many
from trimtab_controller.stream.claims import claims_of
from trimtab_controller.stream.measures import LEVEL_COLUMNS, SUM_COLUMNS, Kind
from trimtab_controller.stream.rows import SCHEMA
from trimtab_controller.stream.session import open_session
from trimtab_controller.stream.signatures import Refused, Verdict, flood_claims
from trimtab_protocol.messages.codec import decoded, encoded
from trimtab_protocol.messages.decode import BadMessage, Fault, encode
from trimtab_protocol.messages.names import HostId
from trimtab_protocol.messages.report import MAX_CORES, Report

NAME = "stream: report"
BATCH, GIANTS = 50_000, 4
"""Of records that go through Spark together; more giants than that would need a larger JVM than the stream's."""
MAX_AHEAD_MS = 60_000
WINDOW_MS = 1_000
ARRIVAL_MS = 1_000_000
"""Of the first record of a batch; each further one is a millisecond later, so that a refused one is known by it."""
SHOWN_ROWS, REPORTS = 3, 12
LONG_KEY = b"k" * 5_000_000
"""Of a record without a value; two of them in a window are a flood."""

Row = tuple[Any, ...]

PLANTED = Decoder(name=NAME, samples=(encoded(REPORT),), decode=partial(decoded, kind=Report))


def fuzz_stream(*, records: int, seed: int, large: bool = False) -> Tally:
    """As `run.fuzz`: so many mutants through a local Spark, `large`: before them the giants."""
    spark = open_session("fuzz", {"spark.master": "local[1]", "spark.jars": ""}, small=True)
    try:
        tally, began, grown = Tally(name=NAME), time.process_time(), forget_peak()
        large_ones = iter(giants(PLANTED) if large else ())
        mutants = islice(chain(PLANTED.samples, Mutants(PLANTED, seed)), records)
        most = max(1, min(BATCH, records // 2))
        for batch in chain(batches(large_ones, GIANTS), batches(mutants, most)):
            give_batch(spark, batch, tally)
        tally.growth_bytes = peak_bytes() - grown
        spent = [process.cpu_times() for process in psutil.Process().children(recursive=True)]
        tally.cpu_s = time.process_time() - began + sum(times.user + times.system for times in spent)
    finally:
        spark.stop()
    return tally


def left_out_alike(*, batches: int, seed: int) -> tuple[int, list[str]]:
    """How many rows of refused records Spark finds in random batches, and in which it finds others than `too_many`."""
    chance, found, wrong = Random(seed), 0, []
    spark = open_session("left-out", {"spark.master": "local[1]", "spark.jars": ""}, small=True)
    try:
        for number in range(batches):
            table = arrivals(chance)
            raw = as_read(spark, table)
            hosts = frozenset({HostId("h0"), HostId("h1")}) if number % 2 else None
            rows = pipeline.left_out(raw, window_ms=WINDOW_MS, hosts=hosts).collect()
            ours = too_many(
                pipeline.small(raw, most=len(table) + 1, most_bytes=0).toArrow(),
                window_ms=WINDOW_MS,
                most_reports=pipeline.MAX_REPORTS_S * WINDOW_MS / 1000,
                most_bytes=pipeline.most_bytes_of(WINDOW_MS),
                expected=hosts,
            )
            theirs = {Refused(**{**row.asDict(), "fault": Fault(row.fault)}) for row in rows}
            found += len(theirs)
            times = Counter((row["arrival_ms"] // WINDOW_MS) for row in table.to_pylist() if row["key"] == LONG_KEY)
            long = [row for row in theirs if row.key == LONG_KEY[:201].hex().upper()]
            if hosts is None and len(long) != sum(count > 1 for count in times.values()):
                wrong.append(f"batch {number}: {times} and {len(long)} floods by their keys' bytes")
            if theirs != set(ours.refused):
                wrong.append(f"batch {number}: {theirs ^ set(ours.refused)}")
            unknown = strangers_of(pipeline.strangers(raw, hosts).toArrow()) if hosts is not None else ()
            claims = claims_of((*unknown, *flood_claims(theirs)))
            if claims != ours.claims:
                wrong.append(f"batch {number}: {claims} and {ours.claims}")
    finally:
        spark.stop()
    return found, wrong


def summed_alike(*, batches: int, seed: int) -> list[str]:
    """In which random batches of good reports Spark's sums are others than those of `small.sums_of`."""
    chance, wrong = Random(seed), []
    spark = open_session("summed", {"spark.master": "local[1]", "spark.jars": ""}, small=True)
    try:
        for number in range(batches):
            raw = as_read(spark, reports(chance))
            sampled = pipeline.samples(raw, cluster=CLUSTER, max_ahead_ms=WINDOW_MS)
            theirs = pipeline.windows(sampled, window_ms=WINDOW_MS).toArrow().select(SCHEMA.names).cast(SCHEMA)
            read = pipeline.small(raw, most=REPORTS, most_bytes=len(PLANTED.samples[0]) + 100).toArrow()
            ours = small.sums_of(small.kept(read, Verdict(), None), cluster=CLUSTER, window_ms=WINDOW_MS)
            if ours is None or Counter(map(str, ours.to_pylist())) != Counter(map(str, theirs.to_pylist())):
                wrong.append(f"batch {number}: {ours and ours.to_pylist()} and {theirs.to_pylist()}")
    finally:
        spark.stop()
    return wrong


def reports(chance: Random) -> pa.Table:
    """Reports of two hosts with figures that floats hold exactly, some of them unknown; no host sends two at a time."""
    table = []
    for number in range(REPORTS):
        host = HostId(f"h{number % 2}")
        arrival_ms = ARRIVAL_MS + number // 2 * 300
        at_ms = arrival_ms + chance.choice([-20, -20, 0, WINDOW_MS])
        cpu_s = chance.choice([None, 0.0, 0.25, 1.5])
        one = replace(
            REPORT,
            host=host,
            at_ms=at_ms,
            interval_s=chance.choice([0.25, 0.5]),
            sample=replace(
                REPORT.sample, cpu_s=cpu_s, type=chance.choice([None, "t", "u"]), ended=chance.random() < 0.1
            ),
            workers=tuple(
                replace(each, cpu_s=cpu_s, following_s=0.25, reason=chance.choice([None, "odd"]))
                for each in REPORT.workers
            ),
            key_groups=tuple(
                replace(each, cpu_s=chance.choice([None, 0.5]), state_bytes=chance.choice([None, 7, 2**50]))
                for each in REPORT.key_groups
            ),
        )
        table.append({"key": host.encode(), "value": encoded(one), "arrival_ms": arrival_ms})
    return pa.Table.from_pylist(table)


def as_read(spark: SparkSession, table: pa.Table) -> DataFrame:
    """Records with `key`, `value` and `arrival_ms` as Spark reads them from Kafka."""
    columns = {"timestamp": F.expr("timestamp_millis(arrival_ms)"), "partition": F.lit(0), "offset": F.lit(0)}
    return spark.createDataFrame(table).withColumns(columns)


def arrivals(chance: Random) -> pa.Table:
    """Records of some hosts in two windows, some of them too many."""
    keys = chance.choices([b"h0", b"h1", b"h2", b"\xff", LONG_KEY, b"", None], [9, 3, 3, 1, 1, 1, 1], k=30)
    return pa.table(
        {
            "key": pa.array(keys, pa.binary()),
            "value": pa.array([chance.choice([b"", b"x" * 9, None]) for _ in keys], pa.binary()),
            "arrival_ms": pa.array([ARRIVAL_MS + chance.randrange(2 * WINDOW_MS) for _ in keys], pa.int64()),
        }
    )


def batches(records: Iterator[bytes], size: int) -> Iterator[tuple[bytes, ...]]:
    """The records, so many at once."""
    return iter(lambda: tuple(islice(records, size)), ())


def give_batch(spark: SparkSession, batch: tuple[bytes, ...], tally: Tally) -> None:
    """A batch; when it fails its halves, so that the record is found."""
    try:
        rows = through(spark, batch)
    except Exception as fault:  # the fault that is looked for
        if len(batch) == 1:
            tally.records += 1
            tally.faults.setdefault(told(fault), batch[0])
            return
        give_batch(spark, batch[: len(batch) // 2], tally)
        give_batch(spark, batch[len(batch) // 2 :], tally)
    else:
        tally.records += len(batch)
        judge(batch, rows, tally)


def through(spark: SparkSession, batch: tuple[bytes, ...]) -> list[Row]:
    """The rows that the stream makes of records; each has the key that an honest host would give it."""
    table = pa.table(
        {
            "key": pa.array([host_of(record) for record in batch], pa.binary()),
            "value": pa.array(batch, pa.binary()),
            "arrival_ms": pa.array(range(ARRIVAL_MS, ARRIVAL_MS + len(batch)), pa.int64()),
        }
    )
    found = pipeline.samples(as_read(spark, table), cluster=CLUSTER, max_ahead_ms=MAX_AHEAD_MS).toArrow()
    return list(zip(*(column.to_pylist() for column in found.columns), strict=True))


def judge(batch: tuple[bytes, ...], rows: list[Row], tally: Tally) -> None:
    """Each record is refused with a reason, or its rows are exactly what the codec reads in it."""
    refused = {at_ms: fault for at_ms, _, kind, _, _, _, fault, *_ in rows if kind == Kind.REJECTED}
    found = Counter(row for row in rows if row[2] != Kind.REJECTED)
    expected: dict[Row, bytes] = {}
    counts: Counter[Row] = Counter()
    for arrival_ms, record in enumerate(batch, start=ARRIVAL_MS):
        if (reason := refused.pop(arrival_ms, None)) is not None:
            tally.refused[reason] += 1
            if not is_refused(record) and not is_stricter(record, Fault(reason), arrival_ms):
                tally.faults.setdefault(f"refused ({reason}), though the codec accepts it", record)
        elif isinstance(report := read_leniently(record), Fault):
            tally.accepted += 1
            tally.faults.setdefault(f"accepted, though the codec refuses it: {report}", record)
        else:
            tally.accepted += 1
            made = list(rows_of(report, arrival_ms))
            counts.update(made)
            expected.update(dict.fromkeys(made, record))
    if refused:
        tally.faults.setdefault(f"refused, but not given: {list(refused.items())[:SHOWN_ROWS]}", b"")
    for row in islice(counts - found, SHOWN_ROWS):
        tally.faults.setdefault(f"read as another value, expected {row}", expected[row])
    for row in islice(found - counts, SHOWN_ROWS):
        tally.faults.setdefault(f"nobody sent {row}", b"")


def is_refused(record: bytes) -> bool:
    """Whether the codec refuses it."""
    try:
        decoded(record, Report)
    except BadMessage:
        return True
    return False


def is_stricter(record: bytes, reason: Fault, arrival_ms: int) -> bool:
    """Whether the stream refuses, and may, what can be read: see `stream/validation.py`."""
    report = decoded(record, Report)
    spent = [report.sample.cpu_s, *(each.cpu_s for each in (*report.workers, *report.key_groups))]  # type: ignore[attr-defined]
    spent += [each.following_s for each in report.workers]
    return {
        Fault.UNKNOWN: has_foreign_fields(record),
        Fault.MALFORMED: has_others_names(record)
        or re.search(rb"[0-9]{900}|^\xff\xfe|^\xfe\xff|^\xef\xbb\xbf", record) is not None,
        Fault.CLUSTER: report.cluster != CLUSTER,
        Fault.FUTURE: report.at_ms - arrival_ms > MAX_AHEAD_MS,
        Fault.RANGE: max(cpu_s or 0.0 for cpu_s in spent) > MAX_CORES * report.interval_s,
    }.get(reason, False)


def has_foreign_fields(record: bytes) -> bool:
    """Whether a worker, or a block, has a field that tells another kind of them."""
    document = json.loads(record)
    return any(
        part.get(name) is not None
        for kind, names in {"w": "o p fo to fp tp", "k": "s fo to fp tp", "e": "w s o p"}.items()
        for part in document[kind]
        for name in names.split()
    )


def has_others_names(record: bytes) -> bool:
    """Whether a worker, or a block, has a field of another part's name: its value may be of another type there."""
    document, names = json.loads(record), set().union(*(KNOWN[kind] for kind in "wke"))
    return any(part.keys() & (names - KNOWN[kind]) for kind in "wke" for part in document[kind])


# ---- what is meant by a record


KNOWN = {
    name: set(chain(*part) if isinstance(part, list) else part)
    for name, part in json.loads(PLANTED.samples[0]).items()
    if isinstance(part, (dict, list))
}


def read_leniently(record: bytes) -> Report | Fault:
    """As the codec, but passing over what the stream does: see `stream/validation.py`."""
    try:
        document, _ = json.JSONDecoder().raw_decode(record.decode("utf-8", "replace").lstrip(" \t\r\n"))
        known = {**document, **{name: _known(document.get(name), fields) for name, fields in KNOWN.items()}}
        return decoded(encode({name: value for name, value in known.items() if name in TOP}), Report)
    except BadMessage as refusal:
        return refusal.fault
    except (ValueError, TypeError, RecursionError):
        return Fault.MALFORMED


TOP = set(json.loads(PLANTED.samples[0]))


def _known(part: Any, fields: set[str]) -> Any:
    match part:
        case dict():
            return {name: value for name, value in part.items() if name in fields}
        case list():
            return [_known(each, fields) if isinstance(each, dict) else each for each in part]
    return part


def host_of(record: bytes) -> bytes:
    """The host that a record names; where it names none, any."""
    report = read_leniently(record)
    return b"h0" if isinstance(report, Fault) else report.host.encode()


# ---- what the stream must make of it


def rows_of(report: Report, arrival_ms: int) -> Iterator[Row]:
    """The rows of a report, in the order of the columns of `pipeline.samples`."""
    for row in small.rows_of(report, arrival_ms=arrival_ms, window_ms=WINDOW_MS):
        sums, levels = (
            [*found, *[None] * (len(names) - len(found))]
            for found, names in ((row.sums, SUM_COLUMNS), (row.levels, LEVEL_COLUMNS))
        )
        yield (row.last_ms, row.covered_s, row.kind, row.host, *row.thing[2:], *sums, *levels)
