"""Blocks of columns: what is known, what is not, and what is refused, with its place."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from trimtab_protocol.messages import report
from trimtab_protocol.messages.codec import decoded, encoded
from trimtab_protocol.messages.decode import BadMessage, Fault
from trimtab_protocol.messages.key_group_table import KeyGroupTable
from trimtab_protocol.messages.names import AppId, HostId, KeyGroup, OperatorId, WorkerId
from trimtab_protocol.messages.report import Basis, HostSample, KeyGroupSample, PairSample, Report
from trimtab_protocol.messages.snapshot import KeyGroupWindow, PairWindow, Snapshot, encode_snapshot

Change = Callable[[dict[str, Any]], object]


def group(operator: str, partition: int) -> KeyGroup:
    return KeyGroup(AppId("app"), OperatorId(operator), partition)


def sample(operator: str, partition: int, worker: str, cpu_s: float | None) -> KeyGroupSample:
    return KeyGroupSample(
        key_group=group(operator, partition), worker=WorkerId(worker), cpu_s=cpu_s, tuples_in=partition
    )


def measured(operator: str, partition: int, worker: str, cpu: float | None, **more: Any) -> KeyGroupWindow:
    return KeyGroupWindow(
        key_group=group(operator, partition), worker=WorkerId(worker), covered_s=1.0, cpu=cpu, tuples_in_s=None, **more
    )


REPORT = Report(
    cluster="c",
    host=HostId("h0"),
    at_ms=1,
    interval_s=1.0,
    sequence=1,
    sample=HostSample(cpu_s=None, cores=None, basis=Basis.HOST),
    workers=(),
    key_groups=(
        sample("a", 1, "w0", 0.5),
        sample("a", 2, "w0", None),
        sample("a", 0, "w1", 0.25),
        sample("b", 1, "w0", None),
    ),
    pairs=(
        PairSample(source=group("a", 1), target=group("b", 2), tuples=3, bytes=4),
        PairSample(source=group("a", 1), target=group("c", 0), tuples=5, bytes=6, direct=5),
        PairSample(source=group("a", 2), target=group("c", 0), tuples=7, bytes=8),
        PairSample(source=group("a", 2), target=group("c", 1), tuples=9, bytes=1, direct=0),
    ),
)
SNAPSHOT = Snapshot(
    cluster="c",
    start_ms=0,
    end_ms=1,
    published_ms=2,
    hosts_seen=1,
    hosts_expected=1,
    watermark_ms=None,
    late_rows=0,
    key_groups=tuple(
        measured(operator, partition, f"w{partition}", cpu, state_bytes=2**60 + partition)
        for operator, partition, cpu in (("a", 0, 0.5), ("a", 1, None), ("b", 0, 0.25))
    ),
    pairs=(
        PairWindow(source=group("a", 0), target=group("b", 0), tuples_s=1.5, bytes_s=2.5),
        PairWindow(source=group("a", 1), target=group("b", 0), tuples_s=3.0, bytes_s=0.0, direct_s=0.5),
        PairWindow(source=group("a", 1), target=group("c", 0), tuples_s=3.0, bytes_s=0.0),
    ),
)


def test_samples_of_several_workers_and_operators_come_back() -> None:
    assert decoded(encoded(REPORT), Report) == REPORT
    assert decoded(encode_snapshot(SNAPSHOT), Snapshot) == SNAPSHOT


def test_what_skipped_the_broker_is_null_where_unknown_and_absent_where_all_of_a_block_is() -> None:
    assert [(block["to"], block.get("dir", "absent")) for block in json.loads(encoded(REPORT))["e"]] == [
        ("b", "absent"),
        ("c", [5, None, 0]),
    ]
    pairs = json.loads(encode_snapshot(SNAPSHOT))["pairs"]
    assert [(block["to"][1], block.get("direct_s", "absent")) for block in pairs] == [
        ("b", [None, 0.5]),
        ("c", "absent"),
    ]


def test_what_has_the_same_names_shares_a_block_and_unknown_columns_are_absent() -> None:
    blocks = json.loads(encoded(REPORT))["k"]
    assert [(block["w"], block["o"], block["p"], block.get("c"), block.get("sb")) for block in blocks] == [
        ("w0", "a", [1, 2], [0.5, None], None),
        ("w1", "a", [0], [0.25], None),
        ("w0", "b", [1], None, None),
    ]


@pytest.mark.parametrize(
    ("change", "fault", "path"),
    [
        (lambda block: block.update(p=[1]), Fault.RANGE, "k[0].c"),
        (lambda block: block.update(p=[]), Fault.RANGE, "k[0].p"),
        (lambda block: block.update(p=None), Fault.MISSING, "k[0].p"),
        (lambda block: block.update(p=7), Fault.TYPE, "k[0].p"),
        (lambda block: block.update(p=[1, None]), Fault.MISSING, "k[0].p[1]"),
        (lambda block: block.update(p=[1, 100_001]), Fault.RANGE, "k[0].p[1]"),
        (lambda block: block.update(ni=[1, 1.5]), Fault.TYPE, "k[0].ni[1]"),
        (lambda block: block.update(ni=[True, 1]), Fault.TYPE, "k[0].ni[0]"),
        (lambda block: block.update(c=[None, -0.5]), Fault.RANGE, "k[0].c[1]"),
        (lambda block: block.update(c=[None, "1"]), Fault.TYPE, "k[0].c[1]"),
        (lambda block: block.update(c={}), Fault.TYPE, "k[0].c"),
        (lambda block: block.update(bl=[0, 10**400]), Fault.RANGE, "k[0].bl[1]"),
        (lambda block: block.pop("o"), Fault.MISSING, "k[0].o"),
    ],
)
def test_a_bad_block_is_refused_and_the_place_is_named(change: Change, fault: Fault, path: str) -> None:
    document = json.loads(encoded(REPORT))
    change(document["k"][0])
    with pytest.raises(BadMessage) as caught:
        decoded(json.dumps(document).encode(), Report)
    assert (caught.value.fault, caught.value.path) == (fault, path)


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (lambda document: document["key_groups"][0].update(worker=[0, 2]), "key_groups[0].worker[1]"),
        (lambda document: document["key_groups"][0].update(workers=["w/0", "w1"]), "key_groups[0].workers[0]"),
        (lambda document: document["key_groups"][0].update(covered_s=[1.0]), "key_groups[0].covered_s"),
        (lambda document: document["pairs"][0].update({"from": ["app", "a/b"]}), "pairs[0].from[1]"),
        (lambda document: document["pairs"][0].update(bytes_s=[0, 1e300]), "pairs[0].bytes_s[1]"),
        (lambda document: document["pairs"][0].update(direct_s=[None, -1]), "pairs[0].direct_s[1]"),
        (lambda document: document["pairs"][0].update(direct_s=[0]), "pairs[0].direct_s"),
    ],
)
def test_a_bad_block_of_a_snapshot_is_refused(change: Change, path: str) -> None:
    document = json.loads(encode_snapshot(SNAPSHOT))
    change(document)
    with pytest.raises(BadMessage) as caught:
        decoded(json.dumps(document).encode(), Snapshot)
    assert (caught.value.fault, caught.value.path) == (Fault.RANGE, path)


def test_a_table_of_key_groups_is_a_sequence_of_its_rows() -> None:
    rows = [
        measured(operator, partition, worker, cpu, backlog=partition)
        for operator, partition, worker, cpu in (("b", 1, "w1", 0.5), ("b", 0, "w0", None), ("a", 7, "w1", 0.0))
    ]
    table = KeyGroupTable.of(rows)
    assert KeyGroupTable.of(table) is table
    assert list(table) == [table[0], table[1], table[-1]] == rows
    assert (table, table[1:], len(table)) == (rows, tuple(rows[1:]), 3)
    assert table != rows[:2]
    assert table != [*rows[:2], replace(rows[2], cpu=None)]
    assert [block.owned() for block in table.blocks] == [{"w1": 1, "w0": 1}, {"w1": 1}]
    with pytest.raises(IndexError):
        table[3]


def test_the_key_groups_of_all_blocks_are_limited_together() -> None:
    document = json.loads(encoded(REPORT))
    names = {name: document["k"][0][name] for name in "wao"}
    document["k"] = [{**names, "p": [0] * (report.MAX_KEY_GROUPS - 1)}, {**names, "p": [0]}, {**names, "p": [0]}]
    with pytest.raises(BadMessage) as caught:
        decoded(json.dumps(document).encode(), Report)
    assert (caught.value.fault, caught.value.path) == (Fault.OVERSIZED, "k[2].p")
