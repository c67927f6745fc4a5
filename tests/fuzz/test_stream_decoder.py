"""What the stream makes of hostile reports, by Spark itself; and that its judge finds what is wrong."""

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

import pytest

from tests.fuzz.fuzzed.run import Tally
from tests.fuzz.fuzzed.samples import REPORT
from tests.fuzz.fuzzed.spark import (
    ARRIVAL_MS,
    PLANTED,
    Row,
    fuzz_stream,
    judge,
    left_out_alike,
    rows_of,
    summed_alike,
)
from trimtab_controller.stream.measures import Kind

RECORDS = 2_000
LIMIT_S = 240.0
"""Some ten seconds on a free machine."""
GOOD = PLANTED.samples[0]


@pytest.mark.e2e
@pytest.mark.timeout(300)
def test_spark_refuses_for_a_reason_or_reads_what_the_decoder_reads() -> None:
    # A process of its own: its JVM ends with it.
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        tally = process.submit(fuzz_stream, records=RECORDS, seed=1).result(LIMIT_S)
    assert tally.faults == {}
    assert tally.accepted + tally.refused.total() == tally.records == RECORDS
    assert tally.accepted > RECORDS / 20
    assert tally.refused.keys() >= {"malformed", "missing_field", "wrong_type", "unknown_field", "out_of_range"}


@pytest.mark.e2e
@pytest.mark.timeout(300)
def test_spark_and_python_leave_out_the_same_records() -> None:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        found, wrong = process.submit(left_out_alike, batches=8, seed=1).result(LIMIT_S)
    assert wrong == []
    assert found >= 8, "floods, and unknown hosts"


@pytest.mark.e2e
@pytest.mark.timeout(300)
def test_spark_and_python_add_up_good_reports_alike() -> None:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        assert process.submit(summed_alike, batches=8, seed=1).result(LIMIT_S) == []


def judged(record: bytes, rows: list[Row]) -> set[str]:
    """The kinds of faults."""
    tally = Tally(name="planted")
    judge((record,), rows, tally)
    return {fault.partition(",")[0] for fault in tally.faults}


def test_the_judge_finds_other_numbers_and_other_verdicts() -> None:
    rows = list(rows_of(REPORT, ARRIVAL_MS))
    refused: Row = (ARRIVAL_MS, 0.0, Kind.REJECTED, None, None, None, "out_of_range", *[None] * 15)
    assert judged(GOOD, rows) == judged(b"", [refused]) == set()
    assert judged(GOOD, [refused]) == {"refused (out_of_range)"}
    assert judged(GOOD.replace(b'"v":2', b'"v":3'), rows) == {"accepted", "nobody sent (998500"}
    assert judged(GOOD, rows[1:]) == {"read as another value"}
    larger = [(*row[:-1], 9.0) if row[2] == Kind.WORKER else row for row in rows]
    assert judged(GOOD, larger) == {"read as another value", "nobody sent (998500"}


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace(b'"g":4', b'"g":3,"g":4'),
        lambda text: text.replace(b'"g":4', b'"g":4,"new":[1]'),
        lambda text: text + b" {",
    ],
    ids=["a doubled key", "an unknown field", "something behind it"],
)
def test_the_judge_allows_what_changes_no_number(change: Callable[[bytes], bytes]) -> None:
    assert judged(change(GOOD), list(rows_of(REPORT, ARRIVAL_MS))) == set()


def test_the_judge_allows_what_spark_cannot_read() -> None:
    refused: Row = (ARRIVAL_MS, 0.0, Kind.REJECTED, None, None, None, "malformed", *[None] * 15)
    assert judged(b"\xef\xbb\xbf" + GOOD, [refused]) == set()
    assert judged(GOOD, [refused]) == {"refused (malformed)"}
