"""Small batches, read without Spark: what is added up, and which reports are left to Spark.

That Spark adds up the same: `tests/fuzz/test_stream_decoder.py`.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from tests.fuzz.fuzzed.samples import CLUSTER, KEY_GROUP_SAMPLE, REPORT
from trimtab_controller.stream.measures import KNOWN_COLUMNS, LEVEL_COLUMNS, SUM_COLUMNS, Kind
from trimtab_controller.stream.signatures import Refused, Verdict
from trimtab_controller.stream.small import kept, sums_of
from trimtab_protocol.messages.codec import encoded
from trimtab_protocol.messages.decode import Fault
from trimtab_protocol.messages.report import MAX_CORES, Report

WINDOW_MS = 1_000


def batch(*records: tuple[bytes | None, bytes | None, int]) -> pa.Table:
    keys, values, times = zip(*records, strict=True) if records else ((), (), ())
    return pa.table(
        {
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "arrival_ms": pa.array(times, pa.int64()),
            "partition": pa.array([0] * len(keys), pa.int32()),
            "offset": pa.array(range(len(keys)), pa.int64()),
        }
    )


def record(report: Report, arrival_ms: int | None = None) -> tuple[bytes, bytes, int]:
    return report.host.encode(), encoded(report), report.at_ms if arrival_ms is None else arrival_ms


def summed(*records: tuple[bytes | None, bytes | None, int]) -> list[dict[str, Any]] | None:
    table = sums_of(batch(*records), cluster=CLUSTER, window_ms=WINDOW_MS)
    return None if table is None else table.to_pylist()


def of_kind(kind: Kind, rows: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    assert rows is not None
    return [row for row in rows if row["kind"] == kind]


def test_the_samples_of_a_thing_are_added_up_and_the_last_level_counts() -> None:
    first = replace(KEY_GROUP_SAMPLE, cpu_s=0.5, tuples_in=3, bytes_out=None, state_bytes=7)
    second = replace(KEY_GROUP_SAMPLE, cpu_s=None, tuples_in=4, bytes_out=None, state_bytes=9)
    half = replace(REPORT, interval_s=0.5, key_groups=(first,))
    earlier, later = replace(half, at_ms=999_600), replace(half, at_ms=999_900, key_groups=(second,))
    for records in ((earlier, later), (later, earlier)):
        [row] = of_kind(Kind.KEY_GROUP, summed(*map(record, records)))
        assert (row["start_ms"], row["last_ms"], row["samples"], row["covered_s"]) == (999_000, 999_650, 2, 1.0)
        sums, known = ([row[name] for name in names] for names in (SUM_COLUMNS, KNOWN_COLUMNS))
        assert (sums[:2], known[:2]) == ([0.5, 7.0], [0.5, 1.0])
        assert (sums[4], known[4], row[LEVEL_COLUMNS[0]]) == (None, 0.0, 9.0)


def test_each_window_has_its_own_rows_and_a_report_from_the_future_is_of_its_arrival() -> None:
    ahead = replace(REPORT, at_ms=1_000_900)
    found = of_kind(Kind.HOST, summed(record(REPORT), record(ahead), record(ahead, arrival_ms=1_000_000)))
    assert [(row["start_ms"], row["samples"]) for row in found] == [(998_000, 1), (1_000_000, 1), (999_000, 1)]


def test_a_worker_declares_its_operators_copies_and_reasons_each_in_a_row() -> None:
    found = summed(record(REPORT))
    places = {
        kind: [(row["worker"], row["operator"], row["partition"]) for row in of_kind(kind, found)]
        for kind in (Kind.OPERATOR, Kind.STANDBYS, Kind.UNKNOWN, Kind.ABSENCE, Kind.COPY)
    }
    assert places == {
        Kind.OPERATOR: [("w0", "sums", 64), ("w0", "x", 2)],
        Kind.STANDBYS: [("w0", None, 1)],
        Kind.UNKNOWN: [("w0", "parts do not add up: 0.3 of 0.5 s", None)],
        Kind.ABSENCE: [("w0", "a", None), ("w1", "a", 1)],
        Kind.COPY: [("w0", "sums", 5), ("w0", "x", 1)],
    }


def test_an_empty_batch_has_no_sums() -> None:
    assert summed() == []


def altered(change: Callable[[dict[str, Any]], object]) -> bytes:
    document = json.loads(encoded(REPORT))
    change(document)
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    "doubtful",
    [
        (b"h0", None, REPORT.at_ms),
        (b"h0", b"{", REPORT.at_ms),
        (b"h1", encoded(REPORT), REPORT.at_ms),
        (None, encoded(REPORT), REPORT.at_ms),
        record(replace(REPORT, cluster="another")),
        record(REPORT, arrival_ms=REPORT.at_ms - WINDOW_MS - 1),
        (b"h0", altered(lambda report: report["k"][0].update(c=[MAX_CORES + 1.0])), REPORT.at_ms),
        (b"h0", altered(lambda report: report["w"][0].update(fol=MAX_CORES + 1.0)), REPORT.at_ms),
    ],
    ids=["no value", "no report", "of another", "no key", "cluster", "future", "CPU of a key group", "CPU of a worker"],
)
def test_a_batch_with_a_report_that_is_not_good_is_left_to_spark(doubtful: tuple[bytes, bytes, int]) -> None:
    assert summed(record(REPORT), doubtful) is None


def test_what_the_verdict_refuses_is_not_even_read() -> None:
    records = batch((b"h0", b"0", 1), (b"h1", b"1", 1), (None, b"2", 1), (b"h2", b"3", 1), (b"h0", b"4", 1))

    def left(verdict: Verdict, hosts: tuple[str, ...] | None) -> list[bytes]:
        found = kept(records, verdict, hosts)  # type: ignore[arg-type]
        return [value.as_py() for value in found["value"]]

    def flooding(key: str) -> Verdict:
        row = Refused(host=None, fault=Fault.FLOODING, start_ms=0, reports=9, last_ms=1, key=key)
        return Verdict(refused=(row,))

    assert left(Verdict(), None) == [b"0", b"1", b"2", b"3", b"4"]
    assert left(Verdict(), ("h0", "h2")) == [b"0", b"3", b"4"]
    assert left(flooding(b"h0".hex().upper()), None) == [b"1", b"2", b"3"]
    assert left(flooding(""), None) == [b"0", b"1", b"3", b"4"], "records without a key"
    assert left(Verdict(dropped=frozenset({(0, 4)})), ("h0",)) == [b"0"]
