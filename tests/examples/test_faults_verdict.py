from typing import Any

import pytest

from flights.faults.campaign import Suffered
from flights.faults.cases import ALL, Case, Fault, Moment, parse_case
from flights.faults.history import Flown, history
from flights.faults.verdict import TableFaults, costs, table_faults
from flights.readback import Record
from flights.wire import Sums
from trimtab_models.messages.names import AppId, KeyGroup, OperatorId, WorkerId
from trimtab_models.messages.snapshot import KeyGroupWindow, Snapshot

W1 = WorkerId("w1")


def suffered(fault: Fault, at: float, steered_at: float) -> Suffered:
    return Suffered(case=Case(fault=fault, moment=Moment.CALM), victim=W1, at=at, steered_at=steered_at)


def flown(sequence: int, sent_at: float, *counted_at: float, partition: int = 0) -> Flown:
    return Flown(
        sequence=sequence,
        partition=partition,
        sent_at=sent_at,
        home=partition,
        extracted_at=counted_at[:1],
        counted_at=counted_at,
    )


def window(end: float, owners: dict[int, str]) -> Snapshot:
    nothing: dict[str, Any] = dict.fromkeys(
        ["cpu", "tuples_in_s", "tuples_out_s", "bytes_in_s", "bytes_out_s", "state_bytes", "lag_records", "backlog"]
    )
    return Snapshot(
        cluster="c",
        start_ms=round(end * 1000) - 5000,
        end_ms=round(end * 1000),
        published_ms=round(end * 1000),
        hosts_seen=1,
        hosts_expected=1,
        watermark_ms=None,
        late_rows=0,
        key_groups=tuple(
            KeyGroupWindow(
                key_group=KeyGroup(AppId("flights"), OperatorId("sums"), partition),
                worker=WorkerId(worker),
                covered_s=5.0,
                **nothing,
            )
            for partition, worker in owners.items()
        ),
    )


def test_what_is_lost_is_charged_to_the_fault_it_was_sent_in_front_of() -> None:
    rows = [flown(1, 9.0, 9.1), flown(2, 11.0), flown(3, 31.0), flown(4, 70.0)]
    first, second = suffered(Fault.BROKER, 10.0, 20.0), suffered(Fault.AGENT, 30.0, 40.0)

    assert [cost.lost for cost in costs([first, second], rows, [], [], commit_s=1.0)] == [1, 2]


def test_only_the_death_of_a_worker_may_double_what_its_key_groups_did_since_the_last_commit() -> None:
    owners = [window(10.0, {0: "w1", 1: "w0"})]
    rows = [
        flown(1, 10.0, 10.1, 15.0),
        flown(2, 10.9, 11.0, 15.1),
        flown(3, 10.9, 11.0, partition=1),
        flown(4, 8.0, 8.1, 16.0),
    ]

    (worker,) = costs([suffered(Fault.WORKER, 11.2, 20.0)], rows, owners, [], commit_s=1.0)
    (agent,) = costs([suffered(Fault.AGENT, 11.2, 20.0)], rows, owners, [], commit_s=1.0)

    assert (worker.duplicated, worker.allowed, worker.kept) == (3, 2, False)
    assert (agent.duplicated, agent.allowed, agent.kept) == (3, 0, False)


def test_held_up_is_until_the_last_flight_that_took_too_long() -> None:
    rows = [flown(1, 11.0, 14.5), flown(2, 13.0, 15.0), flown(3, 16.0, 16.2), flown(4, 5.0, 8.0)]

    (cost,) = costs([suffered(Fault.BROKER, 11.0, 20.0)], rows, [], [], commit_s=1.0)

    assert cost.stalled_s == pytest.approx(4.0)
    assert cost.unsteered_s == pytest.approx(9.0)


def test_a_table_may_count_too_often_what_a_death_may_double_and_never_too_few_times() -> None:
    right = {"a": Sums(flights=2, minutes=10), "b": Sums(flights=1, minutes=1), "c": Sums(flights=3, minutes=0)}
    found = {"a": Sums(flights=3, minutes=15), "b": Sums(flights=1, minutes=2), "d": Sums(flights=1, minutes=0)}

    faults = table_faults(right, found)

    assert faults == TableFaults(checked=3, over=2, under=3, other=1)
    assert not faults.kept(allowed=10)
    assert TableFaults(checked=3, over=2, under=0, other=0).kept(allowed=2)
    assert not TableFaults(checked=3, over=2, under=0, other=0).kept(allowed=1)


def test_a_flight_is_followed_by_its_number_through_both_operators() -> None:
    def record(at: float, value: bytes, partition: int = 0) -> Record:
        return Record(partition=partition, offset=0, at=at, key=b"N1", value=value)

    source = [record(1.0, b"7,row"), record(1.5, b"8,row")]
    delays = [record(2.0, b"[7,2013,5]", partition=3), record(2.5, b"[7,2013,5]", partition=3)]
    totals = [record(3.5, b"[7,2013,2,10]"), record(3.0, b"[7,2013,1,5]")]

    assert history(source, delays, totals) == (
        Flown(sequence=7, partition=0, sent_at=1.0, home=3, extracted_at=(2.0, 2.5), counted_at=(3.0, 3.5)),
        Flown(sequence=8, partition=0, sent_at=1.5),
    )


def test_a_case_is_named_by_fault_and_moment() -> None:
    assert parse_case("worker@release") == Case(fault=Fault.WORKER, moment=Moment.RELEASE)
    assert [parse_case(str(case)) for case in ALL] == list(ALL)
    with pytest.raises(ValueError, match="'router@calm', expected one of broker@calm"):
        parse_case("router@calm")
