"""The stream's decoder of reports, which is SQL (`stream/pipeline.py`): whole batches, held against `decode_report`."""

import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from itertools import chain, islice
from random import Random
from typing import Any

import psutil
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.fuzz.fuzzed.decoder import Decoder
from tests.fuzz.fuzzed.mutants import Mutants, giants
from tests.fuzz.fuzzed.run import Tally, forget_peak, peak_bytes, told
from tests.fuzz.fuzzed.samples import CLUSTER, REPORT
from trimtab_controller.stream import pipeline
from trimtab_controller.stream.arrivals import strangers_of, too_many
from trimtab_controller.stream.claims import claims_of
from trimtab_controller.stream.measures import (
    ABSENCES,
    BASES,
    ENDED,
    FRESH,
    LEVEL_COLUMNS,
    LEVELS,
    STATES,
    STEERS,
    SUM_COLUMNS,
    SUMS,
    Kind,
)
from trimtab_controller.stream.session import open_session, plan_for
from trimtab_controller.stream.signatures import Refused, flood_claims
from trimtab_protocol.messages.decode import BadMessage, Fault, encode
from trimtab_protocol.messages.report import (
    MAX_CORES,
    HostSample,
    KeyGroupSample,
    PairSample,
    Report,
    WorkerSample,
    decode_report,
    encode_report,
)

NAME = "stream: report"
BATCH, GIANTS = 50_000, 4
"""Of records that go through Spark together; more giants than that would need a larger JVM than the stream's."""
MAX_AHEAD_MS = 60_000
WINDOW_MS = 1_000
ARRIVAL_MS = 1_000_000
"""Of the first record of a batch; each further one is a millisecond later, so that a refused one is known by it."""
SHOWN_ROWS = 3
LONG_KEY = b"k" * 5_000_000
"""Of a record without a value; two of them in a window are a flood."""

Row = tuple[Any, ...]

PLANTED = Decoder(name=NAME, samples=(encode_report(REPORT),), decode=decode_report)


def fuzz_stream(*, records: int, seed: int, large: bool = False) -> Tally:
    """As `run.fuzz`: so many mutants through a local Spark, `large`: before them the giants."""
    spark = open_session("fuzz", {"spark.master": "local[1]", "spark.jars": ""}, small=True)
    try:
        tally, began, grown = Tally(name=NAME), time.process_time(), forget_peak()
        large_ones = iter(giants(PLANTED) if large else ())
        mutants = islice(chain(PLANTED.samples, Mutants(PLANTED, seed)), records)
        most = max(1, min(BATCH, records // 2))
        for number, batch in enumerate(chain(batches(large_ones, GIANTS), batches(mutants, most))):
            plan_for(spark, small=number % 2 == 1)  # interpreted and compiled in turn
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
            raw = spark.createDataFrame(table).withColumn("timestamp", F.expr("timestamp_millis(arrival_ms)"))
            hosts = frozenset({"h0", "h1"}) if number % 2 else None
            rows = pipeline.left_out(raw, window_ms=WINDOW_MS, hosts=hosts).collect()
            ours = too_many(
                pipeline.arrivals(raw).toArrow(),
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
    raw = spark.createDataFrame(table).withColumn("timestamp", F.expr("timestamp_millis(arrival_ms)"))
    found = pipeline.samples(raw, cluster=CLUSTER, max_ahead_ms=MAX_AHEAD_MS).toArrow()
    return list(zip(*(column.to_pylist() for column in found.columns), strict=True))


def judge(batch: tuple[bytes, ...], rows: list[Row], tally: Tally) -> None:
    """Each record is refused with a reason, or its rows are exactly what `decode_report` reads in it."""
    refused = {at_ms: fault for at_ms, _, kind, _, _, _, fault, *_ in rows if kind == Kind.REJECTED}
    found = Counter(row for row in rows if row[2] != Kind.REJECTED)
    expected: dict[Row, bytes] = {}
    counts: Counter[Row] = Counter()
    for arrival_ms, record in enumerate(batch, start=ARRIVAL_MS):
        if (reason := refused.pop(arrival_ms, None)) is not None:
            tally.refused[reason] += 1
            if not is_refused(record) and not is_stricter(record, Fault(reason), arrival_ms):
                tally.faults.setdefault(f"refused ({reason}), though decode_report accepts it", record)
        elif isinstance(report := read_leniently(record), Fault):
            tally.accepted += 1
            tally.faults.setdefault(f"accepted, though decode_report refuses it: {report}", record)
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
    """Whether `decode_report` refuses it."""
    try:
        decode_report(record)
    except BadMessage:
        return True
    return False


def is_stricter(record: bytes, reason: Fault, arrival_ms: int) -> bool:
    """Whether the stream refuses, and may, what can be read: see `stream/validation.py`."""
    report = decode_report(record)
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
    """As `decode_report`, but passing over what the stream does: see `stream/validation.py`."""
    try:
        document, _ = json.JSONDecoder().raw_decode(record.decode("utf-8", "replace").lstrip(" \t\r\n"))
        known = {**document, **{name: _known(document.get(name), fields) for name, fields in KNOWN.items()}}
        return decode_report(encode({name: value for name, value in known.items() if name in TOP}))
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
    at_ms = int(min(report.at_ms, arrival_ms) - report.interval_s * 500)
    for sample in (report.sample, *report.workers, *report.key_groups, *report.pairs):
        if isinstance(sample, WorkerSample):
            unused = [None] * (len(SUM_COLUMNS) + len(LEVEL_COLUMNS))
            for kind, *label in _declared(sample):
                yield (
                    at_ms,
                    report.interval_s,
                    kind,
                    report.host,
                    sample.worker,
                    sample.app,
                    *label,
                    None,
                    None,
                    *unused,
                )
            for copy in sample.copies:
                label = [copy.operator, copy.partition, None, None]
                measured = [float(copy.records) if n == len(SUM_COLUMNS) else None for n in range(len(unused))]
                yield (at_ms, report.interval_s, Kind.COPY, report.host, sample.worker, sample.app, *label, *measured)
        kind, *place = _place(sample)
        values = [_padded(sample, kind, measures) for measures in (SUMS, LEVELS)]
        yield (at_ms, report.interval_s, kind, report.host, *place, *chain(*values))


def _declared(sample: WorkerSample) -> Iterator[Row]:
    yield from ((Kind.OPERATOR, *declared) for declared in (sample.operators or {}).items())
    if sample.standbys is not None:
        yield (Kind.STANDBYS, None, sample.standbys)
    if sample.unknown is not None:
        yield (Kind.UNKNOWN, sample.unknown, None)
    if sample.reason is not None:
        yield (Kind.REASON, sample.reason, None)
    if sample.absence is not None or sample.declared is not None:
        why = None if sample.absence is None else ABSENCES.index(sample.absence)
        yield (Kind.ABSENCE, sample.declared, why)


def _place(sample: HostSample | WorkerSample | KeyGroupSample | PairSample) -> Row:
    match sample:
        case HostSample():
            return (Kind.HOST, None, None, sample.type, None, sample.zone, None)
        case WorkerSample():
            return (Kind.WORKER, sample.worker, sample.app, *[None] * 4)
        case KeyGroupSample(key_group=group):
            return (Kind.KEY_GROUP, sample.worker, group.app, group.operator, group.partition, None, None)
        case PairSample(source=source, target=target):
            ends = (source.app, source.operator, source.partition, target.operator, target.partition)
            return (Kind.PAIR, None, *ends)


def _padded(sample: Any, kind: Kind, measures: Any) -> list[float | None]:
    values = [_value(sample, name) for name in measures.get(kind, ())]
    width = max(map(len, measures.values()))
    return [*values, *[None] * (width - len(values))]


def _value(sample: Any, name: str) -> float | None:
    match name:
        case "marked":
            found = len(sample.marks) > 0
        case "epoch_generation" | "epoch_number":
            found = sample.epoch and sample.epoch[name == "epoch_number"]
        case "abilities":
            found = STEERS * sample.steering + FRESH * sample.fresh  # type: ignore[assignment]
        case "state":
            found = STATES.index(sample.state)  # type: ignore[assignment]
        case "basis":
            found = BASES.index(sample.basis) + ENDED * sample.ended  # type: ignore[assignment]
        case _:
            found = getattr(sample, name)
    return None if found is None else float(found)
