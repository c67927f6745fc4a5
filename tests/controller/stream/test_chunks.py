import random
from dataclasses import replace

import pyarrow as pa
import pytest
import zstandard

from tests.controller.decider.decider_situations import a_load, a_window, kg
from trimtab_controller.kafka.chunks import MAX_CHUNK_BYTES, Chunk, Reassembler, read_chunk, split, unpack
from trimtab_controller.stream.arrivals import SEEN, SMALL_HOSTS, SMALL_SAMPLES, BatchSizes, is_small, too_many
from trimtab_controller.stream.signatures import Refused, Verdict
from trimtab_protocol.messages.decode import BadMessage, Fault
from trimtab_protocol.messages.snapshot import Snapshot


def snapshot(
    end_ms: int = 20_000, *, key_groups: int = 50, cluster: str = "c", published_ms: int | None = None
) -> Snapshot:
    numbers = random.Random(end_ms)
    rows = [
        a_load(kg(partition), "w0", numbers.random(), tuples_in_s=numbers.random()) for partition in range(key_groups)
    ]
    return a_window(end_ms / 1000, (), rows, cluster=cluster, published_ms=published_ms or end_ms + 700)


def received(chunk: Chunk) -> Chunk:
    return read_chunk(chunk.headers, chunk.payload)


def test_a_large_snapshot_comes_back_from_chunks_in_any_order_and_more_than_once() -> None:
    chunks = split(snapshot(), max_chunk_bytes=100)
    assert len(chunks) > 5
    assert all(len(chunk.payload) <= 100 for chunk in chunks)
    reassembler = Reassembler("c")
    arrivals = [*chunks[1:], *chunks[1:4], chunks[0], *chunks]
    random.Random(1).shuffle(arrivals)
    assert [found for chunk in arrivals if (found := reassembler.add(received(chunk)))] == [snapshot()]


def test_chunks_are_within_kafkas_default_message_size() -> None:
    noise = random.Random(3)
    large = snapshot(key_groups=1)
    rejected = {f"r{index}-{noise.random()}": noise.randrange(10**15) for index in range(60_000)}
    chunks = split(replace(large, rejected=rejected))
    assert len(chunks) > 1
    assert max(len(chunk.payload) for chunk in chunks) == MAX_CHUNK_BYTES


def test_an_incomplete_snapshot_gives_way_to_the_next() -> None:
    reassembler = Reassembler("c")
    old, new = split(snapshot(20_000), max_chunk_bytes=100), split(snapshot(30_000), max_chunk_bytes=100)
    found = [reassembler.add(chunk) for chunk in [*old[:-1], *new[:2], old[-1], *new[2:]]]
    assert [value for value in found if value] == [snapshot(30_000)]


def test_a_second_try_does_not_mix_with_the_first() -> None:
    reassembler = Reassembler("c")
    first = split(snapshot(published_ms=20_100), max_chunk_bytes=100)
    second = split(snapshot(published_ms=20_900), max_chunk_bytes=100)
    pairs = enumerate(zip(first, second, strict=True), start=1)
    changed = next(number for number, (one, other) in pairs if one.payload != other.payload)
    found = [reassembler.add(chunk) for chunk in [*first[:changed], *second[changed:], *second[:changed]]]
    assert [value for value in found if value] == [snapshot(published_ms=20_900)]


def test_a_chunk_that_says_there_are_more_belongs_to_no_snapshot() -> None:
    reassembler = Reassembler("c")
    first, second = split(snapshot(), max_chunk_bytes=1_000)
    stray = replace(first, index=2, count=3)
    assert [reassembler.add(chunk) for chunk in (first, stray, first, second)] == [None, None, None, snapshot()]


def test_another_clusters_snapshot_is_refused() -> None:
    (chunk,) = split(snapshot(cluster="other"))
    with pytest.raises(BadMessage) as refused:
        Reassembler("c").add(chunk)
    assert refused.value.fault == Fault.CLUSTER


GOOD = [("snapshot", b"1-2"), ("end_ms", b"1"), ("chunk", b"0"), ("chunks", b"1")]


@pytest.mark.parametrize(
    ("headers", "value", "fault"),
    [
        (None, b"x", Fault.MISSING),
        ([("snapshot", None), *GOOD[1:]], b"x", Fault.MISSING),
        ([("snapshot", b"\xff/"), *GOOD[1:]], b"x", Fault.MISSING),
        (GOOD, None, Fault.OVERSIZED),
        (GOOD, b"", Fault.OVERSIZED),
        (GOOD, b"x" * (2 * MAX_CHUNK_BYTES + 1), Fault.OVERSIZED),
        ([*GOOD[:2], ("chunk", b"1"), GOOD[3]], b"x", Fault.RANGE),
        ([*GOOD[:2], ("chunk", b"-1"), GOOD[3]], b"x", Fault.RANGE),
        ([*GOOD[:3], ("chunks", b"99999999999999999999")], b"x", Fault.RANGE),
        ([*GOOD[:3], ("chunks", b"5000")], b"x", Fault.RANGE),
        (GOOD[:3], b"x", Fault.RANGE),
        ([GOOD[0], ("end_ms", b"soon"), *GOOD[2:]], b"x", Fault.RANGE),
    ],
)
def test_a_message_that_is_no_chunk_is_refused(
    headers: list[tuple[str, bytes | None]], value: bytes, fault: Fault
) -> None:
    with pytest.raises(BadMessage) as refused:
        read_chunk(headers, value)
    assert refused.value.fault == fault


def test_what_cannot_be_unpacked_is_refused_and_the_next_snapshot_is_read() -> None:
    reassembler = Reassembler("c")
    with pytest.raises(BadMessage):
        reassembler.add(Chunk(snapshot="1-1", end_ms=1, index=0, count=1, payload=b"no zstd"))
    with pytest.raises(BadMessage):
        reassembler.add(Chunk(snapshot="2-1", end_ms=2, index=0, count=1, payload=zstandard.compress(b"{}")))
    (chunk,) = split(snapshot())
    assert reassembler.add(chunk) == snapshot()


def test_a_bomb_is_refused_before_it_is_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trimtab_controller.kafka.chunks.MAX_SNAPSHOT_BYTES", 1_000_000)
    with pytest.raises(BadMessage) as refused:
        unpack(zstandard.compress(bytes(1_000_001)))
    assert refused.value.fault == Fault.OVERSIZED
    streamed = zstandard.ZstdCompressor().compressobj()
    unsized = streamed.compress(bytes(1_000_001)) + streamed.flush()
    with pytest.raises(BadMessage):
        unpack(unsized)


def test_a_chunk_outside_its_snapshot_cannot_be_made() -> None:
    with pytest.raises(ValueError):
        Chunk(snapshot="1-1", end_ms=1, index=2, count=2, payload=b"x")


# ---- what of a small batch is not parsed


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
