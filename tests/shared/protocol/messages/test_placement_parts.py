"""A placement in parts: a reader has a placement that was published, or says why not, whatever it reads."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab_protocol.messages.codec import decoded, document, encoded
from trimtab_protocol.messages.decode import BadMessage, Fault
from trimtab_protocol.messages.names import AppId, Epoch, KeyGroup, OperatorId, WorkerId
from trimtab_protocol.messages.owner_rows import OwnerPart, OwnerTable
from trimtab_protocol.messages.placement import MAX_OPERATORS, MAX_STANDBYS, Placement
from trimtab_protocol.messages.placement_log import PlacementLog
from trimtab_protocol.messages.placement_parts import MAX_PART_SIZE, PlacementPart, decode_record, head_of, records_of

APP, SUMS, COUNTS = AppId("shop"), OperatorId("sums"), OperatorId("counts")
WORKERS = tuple(WorkerId(f"w{number}") for number in range(4))

Record = tuple[bytes, bytes | None]


def row(number: int) -> tuple[WorkerId, ...]:
    return (WORKERS[number % 4], WORKERS[(number + 1) % 4])


def placement(number: int, count: int = 10, part_size: int | None = 3) -> Placement:
    owners = {SUMS: [row(at) for at in range(count)], COUNTS: [row(at + 1) for at in range(4)]}
    return Placement(cluster="c", app=APP, epoch=Epoch(1, number), owners=owners, part_size=part_size)


def read(records: Iterable[Record], log: PlacementLog | None = None) -> PlacementLog:
    """As a reader that starts: it puts together what it has read at the end."""
    log = log or PlacementLog()
    for key, value in records:
        if value is not None:
            log.take(decode_record(key, value))
    log.settle()
    return log


@dataclass
class Published:
    """What a controller has published: one list of records per transaction, and the placement after it."""

    steps: list[tuple[list[Record], Placement]] = field(default_factory=list)

    def publish(self, after: Placement) -> None:
        before = self.steps[-1][1] if self.steps else None
        self.steps.append((records_of(after, before), after))

    @property
    def records(self) -> list[Record]:
        return [record for records, _ in self.steps for record in records]

    @property
    def newest(self) -> Placement:
        return self.steps[-1][1]


def test_a_step_publishes_the_parts_that_it_changes_and_a_head() -> None:
    before = placement(1, count=1000, part_size=100)
    after = before.changed(Epoch(1, 2), {KeyGroup(APP, SUMS, 250): row(9), KeyGroup(APP, SUMS, 251): row(9)})

    assert [key for key, _ in records_of(after, before)] == [b"shop/sums/2", b"shop"]
    assert after.of(SUMS, 250) == row(9)
    assert before.of(SUMS, 250) == row(250)
    assert [new is old for new, old in zip(after.owners[SUMS].parts, before.owners[SUMS].parts, strict=True)] == [
        index != 2 for index in range(10)
    ]


def test_what_a_placement_no_longer_has_is_deleted() -> None:
    before = placement(1)
    assert [key for key, value in records_of(placement(2, count=4), before) if value is None] == [
        b"shop/sums/2",
        b"shop/sums/3",
    ]
    whole = placement(2, part_size=None)
    deleted = [key for key, value in records_of(whole, before) if value is None]
    assert deleted == [
        b"shop/sums/0",
        b"shop/sums/1",
        b"shop/sums/2",
        b"shop/sums/3",
        b"shop/counts/0",
        b"shop/counts/1",
    ]
    assert records_of(whole, before)[-1][0] == b"shop"


def test_readers_that_know_only_one_record_refuse_a_head() -> None:
    with pytest.raises(BadMessage) as refused:
        decoded(records_of(placement(1), None)[-1][1], Placement)
    assert refused.value.fault is Fault.VERSION


def test_the_largest_record_fits_into_a_message() -> None:
    workers = tuple(WorkerId(f"{number:0200}") for number in range(1 + MAX_STANDBYS))
    counts = {OperatorId(f"{number:0200}"): 1 for number in range(1, MAX_OPERATORS)}
    counts[OperatorId("0" * 200)] = MAX_PART_SIZE - len(counts)
    owners = {operator: [workers] * count for operator, count in counts.items()}
    largest = Placement(cluster="c" * 200, app=AppId("a" * 200), epoch=Epoch(2**53, 2**53), owners=owners)
    for size in (None, MAX_PART_SIZE):
        found = replace(largest, part_size=size)
        assert read(records_of(found, None)).newest == found


@pytest.mark.parametrize("lost", range(6))
def test_while_a_part_is_missing_the_reader_keeps_what_it_has_and_says_so(lost: int) -> None:
    whole = placement(2).changed(Epoch(1, 2), {KeyGroup(APP, SUMS, at): row(at + 2) for at in range(10)})
    whole = whole.changed(Epoch(1, 2), {KeyGroup(APP, COUNTS, at): row(at + 2) for at in range(4)})
    log = read(records_of(placement(1), None))
    records = records_of(whole, placement(1))
    del records[lost]

    assert read(records, log).newest == placement(1)
    assert log.flaw is not None

    after = whole.changed(Epoch(1, 3), {KeyGroup(APP, SUMS, 0): row(3)})
    if lost != 0:  # the first part comes again, all others do not
        assert read(records_of(after, whole), log).newest == placement(1)
        assert log.flaw is not None
    log.begin_again()
    assert read([*records_of(whole, None), *records_of(after, whole)], log).newest == after
    assert log.flaw is None


def test_an_old_part_that_somebody_wrote_once_more_is_not_followed() -> None:
    published = Published()
    published.publish(placement(1))
    published.publish(placement(1).changed(Epoch(1, 2), {KeyGroup(APP, SUMS, 0): row(2)}))
    old = published.steps[0][0][0]

    assert read([*published.records, old]).newest == published.newest
    compacted = [record for record in published.records if record[0] != old[0]]
    log = read([*compacted, old])  # compaction has removed the true one
    assert log.newest is None
    assert log.flaw is not None


def test_a_part_of_a_transaction_whose_head_follows_is_no_flaw() -> None:
    published = Published()
    published.publish(placement(1))
    published.publish(placement(1).changed(Epoch(1, 2), {KeyGroup(APP, SUMS, 0): row(2)}))
    log = read(published.records[:-1])

    assert (log.newest, log.flaw, log.in_transaction) == (None, None, True), "its first part is of the next placement"
    assert read(published.records[-1:], log).newest == published.newest


MALFORMED: dict[str, tuple[bytes, dict[str, Any]]] = {
    "part under another app's key": (b"other/sums/0", {}),
    "part under another operator's key": (b"shop/counts/0", {}),
    "part under another index": (b"shop/sums/1", {}),
    "key with a zero before": (b"shop/sums/00", {}),
    "rows that are no array": (b"shop/sums/0", {"rows": 7}),
    "too many rows": (b"shop/sums/0", {"rows": [[]] * (MAX_PART_SIZE + 1)}),
    "a worker twice": (b"shop/sums/0", {"rows": [["w0", "w0"]]}),
    "index below zero": (b"shop/sums/-1", {"part": -1}),
    "version of a head": (b"shop/sums/0", {"v": 2}),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_parts_that_are_refused(name: str) -> None:
    key, changes = MALFORMED[name]
    part = PlacementPart(cluster="c", app=APP, epoch=Epoch(1, 1), operator=SUMS, part=0, rows=(row(0),))
    with pytest.raises(BadMessage):
        decode_record(key, Raw(document(part) | changes).encoded)
    assert decode_record(part.key, encoded(part)) == part


@pytest.mark.parametrize(
    "changes",
    [
        {"part_size": 0},
        {"part_size": MAX_PART_SIZE + 1},
        {"key_groups": {"sums": 0}},
        {"key_groups": {f"o{at}": 100_000 for at in range(11)}},
        {"v": 3},
        {"app": "other"},
        {"digest": 7},
    ],
)
def test_heads_that_are_refused(changes: dict[str, Any]) -> None:
    head = head_of(placement(1))
    with pytest.raises(BadMessage):
        decode_record(b"shop", Raw(document(head) | changes).encoded)
    assert decode_record(b"shop", encoded(head)) == head


class Raw:
    """A document that no message has."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.encoded = json.dumps(document).encode()


@given(
    st.lists(st.integers(0, 9), max_size=40),
    st.integers(1, 7),
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 9)), max_size=10),
)
def test_a_changed_table_is_the_list_with_the_changes(
    numbers: list[int], size: int, changes: list[tuple[int, int]]
) -> None:
    rows = [row(number) for number in numbers]
    table = OwnerTable.of(rows, size)
    wanted = {at: row(number) for at, number in changes if at < len(rows)}
    for at, new in wanted.items():
        rows[at] = new
    changed = table.changed(wanted)

    assert list(changed) == rows == [changed[at] for at in range(len(changed))]
    assert (changed, hash(changed)) == (OwnerTable.of(rows, size), hash(tuple(rows)))
    assert changed.digest == OwnerTable.of(rows, size).digest
    assert OwnerTable.of(rows, size) == OwnerTable.of(rows, size + 1) == tuple(rows)
    assert changed[1:3] == tuple(rows[1:3])
    with pytest.raises(IndexError):
        changed[len(rows)]
    with pytest.raises(IndexError):
        table.changed({len(rows): row(0)})


def test_parts_are_equal_by_their_rows() -> None:
    assert OwnerPart((row(0),)) == OwnerPart((row(0),))
    assert OwnerPart((row(0),)) != OwnerPart((row(1),))
    assert hash(OwnerPart((row(0),))) == hash(OwnerPart((row(0),)))


# --- any sequence of publications, read in any way in which Kafka can deliver them

STEP = st.one_of(
    st.dictionaries(st.integers(0, 9), st.integers(0, 9), min_size=1, max_size=3),  # rows that change
    st.sampled_from(["in one record", "in parts of 3", "in parts of 4", "smaller", "larger", "revoked", "whole again"]),
)


def histories(steps: list[Any]) -> Published:
    published = Published()
    published.publish(placement(1))
    for number, what in enumerate(steps, start=2):
        before, epoch = published.newest, Epoch(1 + number // 5, number)
        if isinstance(what, dict):
            if before.is_taken_back:
                continue
            count = len(before.owners[SUMS])
            after = before.changed(epoch, {KeyGroup(APP, SUMS, at % count): row(to) for at, to in what.items()})
        elif what == "revoked":
            after = Placement(cluster="c", app=APP, epoch=epoch, owners={})
        elif what == "whole again":  # the topic was re-created, or a key was changed
            after = replace(before, epoch=epoch)
            published.steps.append((records_of(after, None), after))
            continue
        else:
            sizes = {"in one record": None, "in parts of 3": 3, "in parts of 4": 4}
            counts = {"smaller": 5, "larger": 14}
            size = sizes.get(what, before.part_size)
            after = replace(placement(number, counts.get(what, 10), size), epoch=epoch)
        published.publish(after)
    return published


def compacted(records: list[Record], until: int) -> list[Record]:
    """Of the records before `until`, the last of each key."""
    last = {key: at for at, (key, _) in enumerate(records[:until])}
    return [record for at, record in enumerate(records) if at >= until or last[record[0]] == at]


@given(st.lists(STEP, max_size=12), st.data())
def test_a_reader_that_starts_after_any_compaction_has_the_newest_placement(steps: list[Any], data: Any) -> None:
    published = histories(steps)
    records = published.records
    until = data.draw(st.integers(0, len(records)))
    log = read(compacted(records, until))

    assert log.newest == published.newest
    assert (log.flaw, log.in_transaction) == (None, False)


@given(st.lists(STEP, max_size=12), st.data())
def test_a_reader_has_only_placements_that_were_published_and_at_last_the_newest(steps: list[Any], data: Any) -> None:
    """Records are lost (an old offset in a new topic), doubled, and read again from the beginning."""
    published = histories(steps)
    by_epoch = {after.epoch: after for _, after in published.steps}
    records = published.records
    log, at, lost = PlacementLog(), 0, False
    while at < len(records):
        what = data.draw(st.sampled_from(["read"] * 8 + ["skip", "again", "back"]))
        if what == "back":
            log.begin_again()
            at, lost = 0, False
        elif what == "skip":
            at, lost = at + data.draw(st.integers(1, 4)), True
            continue
        key, value = records[at]
        for _ in range(2 if what == "again" else 1):
            if value is not None:
                before = log.epoch
                log.take(decode_record(key, value))
                if data.draw(st.booleans()):
                    log.settle()
                assert log.epoch >= before
                assert log.newest is None or log.newest == by_epoch[log.epoch]
        at += 1
    log.settle()
    if lost and log.newest != published.newest:
        assert log.epoch < published.newest.epoch
        log.begin_again()
        read(records, log)
    assert log.newest == published.newest
    assert (log.flaw, log.in_transaction) == (None, False)


@given(st.lists(STEP, max_size=8), st.data())
def test_a_lost_record_never_gives_a_placement_that_was_not_published(steps: list[Any], data: Any) -> None:
    published = histories(steps)
    by_epoch = {after.epoch: after for _, after in published.steps}
    records = published.records
    gone = data.draw(st.sets(st.integers(0, len(records) - 1), max_size=5))
    log = read(record for at, record in enumerate(records) if at not in gone)

    assert log.newest is None or log.newest == by_epoch[log.epoch]
    if log.newest != published.newest and log.announced == published.newest.epoch:
        assert log.flaw is not None
