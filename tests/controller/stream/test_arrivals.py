"""What of a small batch is not parsed."""

import pyarrow as pa
import pytest

from trimtab_controller.stream.arrivals import SEEN, SMALL_HOSTS, SMALL_SAMPLES, BatchSizes, is_small, too_many
from trimtab_controller.stream.claims import MAX_CLAIMS
from trimtab_controller.stream.signatures import Refused, Verdict
from trimtab_protocol.messages.decode import Fault

WINDOW_MS = 5_000


def batch(*rows: tuple[bytes | None, int, int | None]) -> pa.Table:
    keys, times, sizes = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.table(
        {
            "key": pa.array(keys, pa.binary()),
            "arrival_ms": pa.array(times, pa.int64()),
            "size": pa.array(sizes, pa.int32()),
        }
    )


def refused(rows: pa.Table, expected: tuple[str, ...] | None = ("h0", "h1")) -> list[Refused]:
    verdict = too_many(rows, window_ms=WINDOW_MS, most_reports=3, most_bytes=1_000, expected=expected)
    assert verdict == Verdict(refused=verdict.refused, claims=verdict.claims), "nothing but what is refused"
    return sorted(verdict.refused, key=lambda row: (row.key or "", row.start_ms))


def test_what_expected_hosts_send_within_their_limits_is_parsed() -> None:
    assert refused(batch()) == []
    assert refused(batch(*((b"h0", 10_000 + each, 300) for each in range(3)), (b"h1", 10_000, None))) == []


@pytest.mark.parametrize("rows", [[(b"h1", 10_000, 1)] * 4, [(b"h1", 10_000, 500), (b"h1", 10_000, 501)]])
def test_who_sends_too_many_or_too_much_in_one_window_is_refused(rows: list[tuple[bytes, int, int]]) -> None:
    [row] = refused(batch(*rows, (b"h0", 10_000, 5), (b"h1", 15_000, 5)))
    assert row == Refused(
        host="h1", fault=Fault.FLOODING, start_ms=10_000, reports=len(rows), last_ms=10_000, key="6831"
    )


def test_unknown_hosts_share_one_row_per_window() -> None:
    rows = batch((b"h9", 10_001, 5), (None, 10_002, 5), (b"h8", 15_000, 5), (b"h0", 10_000, 5))
    first, second = refused(rows)
    assert first == Refused(host=None, fault=Fault.UNKNOWN_HOST, start_ms=10_000, reports=2, last_ms=10_002, key=None)
    assert (second.start_ms, second.reports) == (15_000, 1)


def test_those_who_are_refused_are_named_if_their_keys_are_names() -> None:
    rows = batch(
        *((b"h1", 10_000 + each, 1) for each in range(4)), (b"h9", 10_001, 5), (b"h9", 15_003, 5), (b"\xff", 1, 5)
    )
    verdict = too_many(rows, window_ms=WINDOW_MS, most_reports=3, most_bytes=1_000, expected=("h0", "h1"))
    assert verdict.claims == {("h1", "flooding"): (4, 10_003), ("h9", "unknown_host"): (2, 15_003)}


def test_of_many_invented_names_those_with_most_reports_are_told() -> None:
    invented = [(f"x{each}".encode(), 10_000, 1) for each in range(2 * MAX_CLAIMS)]
    verdict = too_many(
        batch(*invented, (b"h9", 10_000, 1), (b"h9", 10_000, 1)),
        window_ms=WINDOW_MS, most_reports=3, most_bytes=1_000, expected=("h0",),
    )  # fmt: skip
    assert next(iter(verdict.claims)) == ("h9", "unknown_host")
    assert len(verdict.claims) == MAX_CLAIMS


def test_where_all_hosts_count_each_is_judged_by_itself() -> None:
    rows = batch(*((b"\xff", 10_000, 1) for _ in range(4)), (None, 10_000, 1), (b"h9", 10_000, 1))
    [row] = refused(rows, expected=None)
    assert (row.host, row.key, row.fault) == ("\ufffd", "FF", Fault.FLOODING)


@pytest.mark.parametrize(("hosts", "small"), [(1, True), (SMALL_HOSTS, True), (SMALL_HOSTS + 1, False), (None, False)])
def test_a_fleet_is_small_by_its_hosts(hosts: int | None, small: bool) -> None:
    assert is_small(None if hosts is None else [f"h{each}" for each in range(hosts)]) is small


def test_small_is_what_follows_small_batches_only_and_no_flood() -> None:
    sizes, seen = BatchSizes(small=False), []
    for samples, flooded in ((SMALL_SAMPLES, False), (1, True), (1, False), (SMALL_SAMPLES + 1, False)):
        sizes.see(samples, flooded=flooded)
        seen.append(sizes.small)
    assert seen == [True, False, True, False]
    for _ in range(SEEN):
        assert not sizes.small, "what is late for a large window is a small batch"
        sizes.see(1, flooded=False)
    assert sizes.small
