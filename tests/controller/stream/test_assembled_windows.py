"""Which windows are published and when, which hosts they wait for, and what is late."""

import random
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pytest

from tests.controller.stream.assembler_situations import (
    assembler,
    declared,
    host,
    key_group,
    kg,
    pair,
    published,
    rejected,
    worker,
)
from trimtab_controller.stream import contents
from trimtab_controller.stream.contents import DECIMALS, key_group_windows
from trimtab_controller.stream.measures import ABSENCES, KNOWN_COLUMNS, STATES, SUM_COLUMNS, Kind, Row
from trimtab_controller.stream.rows import of_kind, table_of
from trimtab_protocol.messages.codec import decoded
from trimtab_protocol.messages.copies import Copy
from trimtab_protocol.messages.decode import Fault
from trimtab_protocol.messages.key_group_table import LEVELS, RATES, KeyGroupWindow
from trimtab_protocol.messages.names import MAX_PARTITIONS, AppId, HostId, KeyGroup, OperatorId, WorkerId
from trimtab_protocol.messages.report import MAX_APPS, Absence, WorkerState
from trimtab_protocol.messages.snapshot import Snapshot, encode_snapshot


def test_a_window_is_published_once_when_every_expected_host_has_covered_it() -> None:
    machine = assembler()
    assert machine.on_rows([host("h0", 0, 10), host("h1", 0, 9)], now_ms=9_100) == []
    assert published(machine.on_rows([host("h1", 0, 1, last_ms=9_500)], now_ms=10_100)) == [(10_000, 2, 2)]
    assert machine.on_rows([], now_ms=10_200) == []


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("last_ms", [10_000, 10_500])
def test_a_host_that_went_on_is_not_waited_for(order: int, last_ms: int) -> None:
    machine = assembler()
    rows = [host("h0", 0, 10), host("h1", 0, 9), host("h1", 10_000, 1, last_ms=last_ms)]  # one report of h1 was lost
    assert published(machine.on_rows(rows[::order], now_ms=11_100)) == [(10_000, 2, 2)]


@pytest.mark.parametrize(("seconds", "windows"), [(9.5, [(10_000, 2, 2)]), (9.4, [])])
def test_what_lacks_less_than_half_an_interval_is_covered(seconds: float, windows: list[tuple[int, int, int]]) -> None:
    machine = assembler()
    short = host("h1", 0, seconds, samples=9)  # of an interval of about a second
    assert published(machine.on_rows([host("h0", 0, 10), short], now_ms=10_100)) == windows


def test_a_missing_host_delays_its_window_until_the_watermark_and_lowers_the_coverage() -> None:
    machine = assembler()
    machine.on_rows([host("h0", 0, 10), host("h1", 0, 4), key_group(1, host("h1", 0, 4))], now_ms=10_100)
    assert machine.on_rows([host("h0", 10_000, 5)], now_ms=15_100) == []  # watermark 9.5 s
    (snapshot,) = machine.on_rows([host("h0", 10_000, 6)], now_ms=16_100)
    assert (snapshot.hosts_seen, snapshot.hosts_expected, snapshot.coverage) == (1, 2, 0.5)
    assert [window.host for window in snapshot.hosts] == ["h0"]
    assert snapshot.watermark_ms == 10_500


def test_without_a_list_the_first_window_waits_for_the_watermark_and_names_the_hosts_for_the_next() -> None:
    machine = assembler(None)
    assert machine.on_rows([host("h0", 0, 10), host("h1", 0, 10)], now_ms=10_100) == []
    assert published(machine.on_rows([host("h0", 10_000, 6), host("h1", 10_000, 6)], now_ms=16_000)) == [(10_000, 2, 2)]
    assert published(machine.on_rows([host("h0", 10_000, 10), host("h1", 10_000, 10)], now_ms=20_100)) == [
        (20_000, 2, 2)
    ]


def test_without_a_list_a_lost_host_is_expected_for_three_windows() -> None:
    machine = assembler(None)
    rows = [host("h0", 0, 10), host("h1", 0, 10)]
    rows += [host("h0", start, 10) for start in range(10_000, 70_000, 10_000)]
    seen = published(machine.on_rows(rows, now_ms=70_000))
    assert seen == [
        (10_000, 2, 2),
        (20_000, 1, 2),
        (30_000, 1, 2),
        (40_000, 1, 2),
        (50_000, 1, 1),
        (60_000, 1, 1),
        (70_000, 1, 1),
    ]


def test_a_host_that_joins_a_little_behind_the_others_is_awaited_from_then_on() -> None:
    machine = assembler(None)
    machine.on_rows([host("h0", start, 10) for start in (0, 10_000, 20_000)], now_ms=30_000)
    assert machine.on_rows([host("h1", 20_000, 10)], now_ms=30_400) == []  # late: its window is out
    assert machine.on_rows([host("h0", 30_000, 10)], now_ms=40_000) == []
    assert published(machine.on_rows([host("h1", 30_000, 10)], now_ms=40_400)) == [(40_000, 1, 1)]
    assert machine.on_rows([host("h0", 40_000, 10)], now_ms=50_000) == []
    assert published(machine.on_rows([host("h1", 40_000, 10)], now_ms=50_400)) == [(50_000, 2, 2)]


def test_a_host_that_came_too_late_once_and_left_is_awaited_for_one_window() -> None:
    machine = assembler(None)
    machine.on_rows([host("h0", start, 10) for start in (0, 10_000, 20_000)], now_ms=30_000)
    machine.on_rows([host("h1", 20_000, 10)], now_ms=30_400)
    assert machine.on_rows([host("h0", 30_000, 10)], now_ms=40_000) == []
    rows = [host("h0", 40_000, 10)]
    assert published(machine.on_rows(rows, now_ms=50_000)) == [(40_000, 1, 1), (50_000, 1, 1)]


def test_what_comes_for_a_window_before_a_published_one_is_late_whatever_the_watermark_says() -> None:
    machine = assembler(["h0"], watermark_ms=30_000)
    assert published(machine.on_rows([host("h0", 10_000, 10)], now_ms=20_100)) == [(20_000, 1, 1)]
    assert machine.on_rows([host("h0", 0, 10)], now_ms=20_200) == []
    (snapshot,) = machine.on_rows([host("h0", 20_000, 10)], now_ms=30_100)
    assert (snapshot.end_ms, snapshot.late_rows) == (30_000, 10)


def test_rows_after_the_publication_are_late_and_change_nothing() -> None:
    machine = assembler(["h0"])
    machine.on_rows([host("h0", 0, 10), key_group(1, host("h0", 0, 10), seconds=4)], now_ms=10_100)
    assert machine.on_rows([key_group(1, host("h0", 0, 10), seconds=7)], now_ms=10_200) == []
    (snapshot,) = machine.on_rows([host("h0", 10_000, 10)], now_ms=20_100)
    assert snapshot.late_rows == 7
    assert snapshot.key_groups == ()


def test_the_next_look_awaits_the_last_report_of_each_host() -> None:
    machine = assembler()
    machine.on_rows([host("h0", 0, 10), host("h1", 0, 10, last_ms=9_800)], now_ms=10_300)
    assert machine.next_look_ms(10_400, patience_ms=300) == 20_600, "h1 reports for the window at 20.3 s"
    machine.on_rows([host("h0", 10_000, 10), host("h1", 10_000, 9, last_ms=18_800)], now_ms=20_200)
    assert machine.next_look_ms(20_250, patience_ms=300) == 20_600
    assert machine.next_look_ms(20_700, patience_ms=300) == 21_000, "it is overdue"


def test_however_far_the_hosts_clocks_are_ahead_the_next_look_is_within_a_window() -> None:
    machine = assembler()
    machine.on_rows([host("h0", 3_600_000, 3)], now_ms=3_000)
    assert machine.next_look_ms(3_000, patience_ms=500) == 13_500


def test_a_refused_report_does_not_make_all_others_late_where_the_brokers_clock_is_ahead() -> None:
    machine = assembler()
    stranger = rejected("unknown_host", 60_000, 1)
    assert machine.on_rows([host("h0", 0, 10), host("h1", 0, 9), stranger], now_ms=10_000) == []
    assert published(machine.on_rows([host("h1", 0, 1, last_ms=9_500)], now_ms=10_100)) == [(10_000, 2, 2)]


def test_a_snapshot_names_the_hosts_in_whose_name_reports_were_refused() -> None:
    machine = assembler(["h0"])
    machine.refuse({(HostId("h9"), "unknown_host"): (2, 3_000)})
    machine.refuse({(HostId("h9"), "unknown_host"): (3, 4_000)})
    bad = rejected("malformed", 0, 1)._replace(worker="h0", last_ms=2_000)
    nameless = rejected("malformed", 0, 7)
    [found] = machine.on_rows([host("h0", 0, 10), bad, nameless], now_ms=10_100)

    rows = [(row.topic, row.host, row.fault, row.messages, row.at) for row in found.refused.worst]
    topic = f"trimtab.{found.cluster}.reports"
    assert rows == [(topic, "h9", "unknown_host", 5, 4.0), (topic, "h0", "malformed", 1, 2.0)]
    assert (found.refused.more, found.rejected["malformed"]) == (0, 8)
    assert decoded(encode_snapshot(found), Snapshot) == found


def test_the_snapshots_that_a_batch_completes_name_the_hosts_whose_signatures_it_doubts() -> None:
    machine = assembler(["h0"])
    machine.doubt({"unsigned": 2}, {HostId("h1"): "unsigned"})
    first = machine.on_rows([host("h0", 0, 10), host("h0", 10_000, 10)], now_ms=20_100)
    assert [(dict(each.unsigned), dict(each.doubted)) for each in first] == [({"unsigned": 2}, {"h1": "unsigned"})] * 2

    machine.doubt({"unsigned": 1}, {HostId("h2"): "unknown_key"})
    machine.doubt({}, {})  # a later look completes the window
    [later] = machine.on_rows([host("h0", 20_000, 10)], now_ms=30_100)
    assert (dict(later.unsigned), dict(later.doubted)) == ({"unsigned": 3}, {"h2": "unknown_key"})


@pytest.mark.parametrize("expected", [None, ("h0", "h1", "h2")])
def test_a_host_whose_agent_has_said_that_it_ends_is_neither_awaited_nor_expected(
    expected: tuple[str, ...] | None,
) -> None:
    """Pods have new names with every deployment; until now each delayed three windows, and lowered the coverage."""
    machine = assembler(expected)
    machine.on_rows([host(name, 0, 10) for name in ("h0", "h1", "h2")], now_ms=10_100)
    ends = host("h2", 10_000, 0.5, samples=1, last_ms=10_250, ended=True)
    rows = [host("h0", 10_000, 10), host("h1", 10_000, 10), ends]
    [*_, snapshot] = machine.on_rows(rows, now_ms=20_100)
    assert (snapshot.end_ms, snapshot.hosts_seen, snapshot.hosts_expected, snapshot.ended) == (20_000, 2, 2, ("h2",))
    assert decoded(encode_snapshot(snapshot), Snapshot).ended == snapshot.ended
    [later] = machine.on_rows([host("h0", 20_000, 10), host("h1", 20_000, 10)], now_ms=30_100)
    assert (later.hosts_seen, later.hosts_expected) == (2, 2)
    back = [host(name, 30_000, 10) for name in ("h0", "h1", "h2")]
    [again] = machine.on_rows(back, now_ms=40_100)
    assert (again.hosts_seen, again.hosts_expected, again.ended) == (2 if expected is None else 3, again.hosts_seen, ())
    assert machine.on_rows([host("h0", 40_000, 10), host("h1", 40_000, 10)], now_ms=50_100) == [], "it is awaited again"


# ---- what a published window says of hosts, workers, key groups, pairs and refused reports


def test_a_worker_declares_what_its_last_report_says() -> None:
    early, late = host("h0", 0, 5, last_ms=4_500), host("h0", 0, 5, last_ms=9_500)
    unsure = host("h0", 0, 1, last_ms=7_500)
    rows = [worker("w0", early), declared("w0", early, Kind.OPERATOR, "old", 8)]
    rows += [declared("w0", early, Kind.STANDBYS, None, 0), declared("w0", early, Kind.UNKNOWN, "starts", None)]
    rows += [declared("w0", early, Kind.REASON, "workers differ", None)]
    rows += [worker("w2", early), declared("w2", early, Kind.REASON, "exactly_once", None)]
    machine = assembler(("h0",))
    assert machine.on_rows([early, *rows], now_ms=5_000) == []
    rows = [worker("w0", late), *(declared("w0", late, Kind.OPERATOR, name, 4) for name in ("sums", "counts"))]
    rows += [
        declared("w0", late, Kind.STANDBYS, None, 2)._replace(levels=[3.0]),
        declared("w0", unsure, Kind.UNKNOWN, "no base yet", None),
    ]
    rows += [worker("w2", late), declared("w2", late, Kind.REASON, "exactly_once, global tables", None)]
    [snapshot] = machine.on_rows([late, *rows, worker("w1", late)], now_ms=10_100)
    known, silent, changed = snapshot.nodes
    assert (known.operators, known.standbys, known.cold) == ({"sums": 4, "counts": 4}, 2, 3)
    assert known.unknown == "no base yet", "the newest reason in the window, though it knows its loads again"
    assert known.reason is None, "it steers again"
    assert changed.reason == "exactly_once, global tables"
    undeclared = (silent.operators, silent.standbys, silent.cold, silent.unknown, silent.reason)
    assert undeclared == (None,) * 5, "not declared yet"


def test_why_a_worker_is_away_and_for_which_app_it_can_be_started_is_as_last_reported() -> None:
    early, late = host("h0", 0, 5, last_ms=4_500), host("h0", 0, 5, last_ms=9_500)
    away, starting, crashed = STATES.index(WorkerState.AWAY), *map(ABSENCES.index, (Absence.STARTING, Absence.CRASHED))
    rows = [worker("w0", early, state=away), declared("w0", early, Kind.ABSENCE, "flights", starting)]
    rows += [worker("w1", early, state=away), declared("w1", early, Kind.ABSENCE, "flights", starting)]
    machine = assembler(("h0",))
    assert machine.on_rows([early, *rows], now_ms=5_000) == []
    rows = [worker("w0", late, state=away), declared("w0", late, Kind.ABSENCE, None, crashed), worker("w1", late)]
    rows += [worker("w2", late), declared("w2", late, Kind.ABSENCE, "flights", None)]
    [snapshot] = machine.on_rows([late, *rows], now_ms=10_100)

    assert [(row.absence, row.declared) for row in snapshot.nodes] == [
        (Absence.CRASHED, None),
        (None, None),
        (None, "flights"),
    ]
    assert decoded(encode_snapshot(snapshot), Snapshot) == snapshot


def copy(name: str, on: Row, partition: int, records: int) -> Row:
    return declared(name, on, Kind.COPY, "sums", partition)._replace(levels=[float(records), *[None] * 7])


def test_the_copies_on_a_workers_disk_are_as_last_reported() -> None:
    early, late = host("h0", 0, 5, last_ms=4_500), host("h0", 0, 5, last_ms=9_500)
    machine = assembler(("h0",))
    rows = [worker("w0", early), copy("w0", early, 3, 50), copy("w0", early, 4, 9)]
    assert machine.on_rows([early, *rows], now_ms=5_000) == []
    rows = [worker("w0", late), copy("w0", late, 3, 70), copy("w0", late, 5, 2**40), worker("w1", late)]
    [snapshot] = machine.on_rows([late, *rows], now_ms=10_100)

    copies = (Copy(OperatorId("sums"), 3, 70), Copy(OperatorId("sums"), 5, 2**40))
    assert [row.copies for row in snapshot.nodes] == [copies, ()]
    assert decoded(encode_snapshot(snapshot), Snapshot) == snapshot


def on_two(first: Row, second: Row) -> tuple[str, tuple[str, ...]]:
    """Where the worker w0 is, and where else, when both hosts report it in these parts of a window."""
    whole = [host("h0", 0, 10), host("h1", 0, 10)]
    rows = [worker("w0", first), worker("w0", second)]
    [snapshot] = assembler().on_rows([*whole, *rows], now_ms=10_100)
    [node] = snapshot.nodes
    return node.host, node.also_on


def test_two_workers_under_one_name_are_told_from_one_that_moved() -> None:
    both = host("h0", 0, 10), host("h1", 0, 10)
    assert on_two(*both) == on_two(*both[::-1]) == ("h1", ("h0",))
    moved = host("h0", 0, 4), host("h1", 0, 5, last_ms=9_500)
    assert on_two(*moved) == on_two(*moved[::-1]) == ("h1", ()), "h0 says nothing of it any more"
    later = host("h0", 0, 4), host("h1", 0, 7, last_ms=9_500)
    assert on_two(*later) == ("h1", ("h0",)), "for two seconds it ran on both"


def test_a_claim_to_a_worker_that_its_host_still_reports_does_not_count() -> None:
    """Any host could name the workers of others, which stopped all plans for their app, or spoke for them."""
    machine = assembler(("h0", "h1"))

    def nodes(start_ms: int, *on: str) -> list[tuple[str, tuple[str, ...], tuple[str, ...]]]:
        rows = [host("h0", start_ms, 10), host("h1", start_ms, 10)]
        rows += [row for row in (worker("w0", each) for each in rows) if row.host in on]
        rows += [key_group(index, each, owner="w0") for index, each in enumerate(rows[:2]) if each.host in on]
        [snapshot] = machine.on_rows(rows, now_ms=start_ms + 10_100)
        assert decoded(encode_snapshot(snapshot), Snapshot) == snapshot
        assert len(snapshot.key_groups) == (1 if snapshot.nodes[0].claimed_by else len(on))
        return [(node.host, node.also_on, node.claimed_by) for node in snapshot.nodes]

    assert nodes(0, "h0") == [("h0", (), ())]
    assert nodes(10_000, "h0", "h1") == [("h0", (), ("h1",))]
    assert nodes(20_000, "h0", "h1") == [("h0", (), ("h1",))]
    assert nodes(30_000, "h1") == [("h1", (), ())], "its host reports without it: it has moved"
    assert nodes(40_000, "h0", "h1") == [("h1", (), ("h0",))]


def test_a_worker_that_its_old_host_says_away_has_moved() -> None:
    whole = [host("h0", 0, 10), host("h1", 0, 10)]
    away = worker("w0", host("h0", 0, 6, last_ms=9_500), state=3)._replace(app=None)
    rows = [worker("w0", host("h0", 0, 4)), away, worker("w0", host("h1", 0, 9, last_ms=9_500))]
    [snapshot] = assembler().on_rows([*whole, *rows], now_ms=10_100)
    assert [(node.host, node.also_on) for node in snapshot.nodes] == [("h1", ())]


def test_a_host_that_invents_apps_is_not_seen_and_the_others_are() -> None:
    machine = assembler()
    for start_ms, further, seen in ((0, 0, 2), (10_000, 1, 1)):
        calm, many = host("h0", start_ms, 10), host("h1", start_ms, 10)
        apps = [key_group(0, many)._replace(app=f"app{at}") for at in range(MAX_APPS)]
        apps += [worker("w1", many)._replace(app=f"other{at}") for at in range(further)]
        [snapshot] = machine.on_rows([calm, many, key_group(0, calm), *apps], now_ms=start_ms + 10_100)
        assert (snapshot.hosts_seen, len(snapshot.key_groups)) == (seen, 1 if further else 1 + MAX_APPS)
    assert dict(snapshot.rejected) == {Fault.FLOODING: 10}, "its reports"


def of_many_reports(many: Row, what: str) -> list[Row]:
    """Three things that reports of one host name."""
    match what:
        case "workers":
            return [worker(f"w{at}", many) for at in range(3)]
        case "owners":
            return [key_group(1, many, owner=f"w{at}") for at in range(3)]
        case "operators":
            return [worker("w1", many), *(declared("w1", many, Kind.OPERATOR, f"o{at}", 8) for at in range(3))]
        case "key groups":
            return [key_group(at, many) for at in range(3)]
        case "pairs":
            return [pair(1, at, many, tuples=1) for at in range(3)]
        case _:
            return [declared(f"w{at}", many, Kind.ABSENCE, f"app{at}", None) for at in range(3)]


@pytest.mark.parametrize("what", ["workers", "owners", "operators", "key groups", "pairs", "declared apps"])
def test_many_reports_of_a_host_may_not_name_much_more_than_one(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("MAX_WORKERS", "MAX_KEY_GROUPS", "MAX_PAIRS"):
        monkeypatch.setattr(contents, limit, 1)  # of one report, and twice as many in a window
    for limit in ("MAX_APPS", "MAX_OPERATORS"):
        monkeypatch.setattr(contents, limit, 2)
    for left, seen in ((2, 2), (3, 1)):
        calm, many = host("h0", 0, 10), host("h1", 0, 10)
        rows = [calm, many, key_group(7, calm), *of_many_reports(many, what)[: -1 if left == 2 else None]]
        [snapshot] = assembler().on_rows(rows, now_ms=10_100)
        assert (snapshot.hosts_seen, {each.host for each in snapshot.hosts} >= {"h0"}) == (seen, True)


def test_a_host_that_claims_the_workers_of_others_says_nothing_of_them_and_still_speaks_for_its_own() -> None:
    machine = assembler()
    for start_ms in (0, 10_000):
        h0, h1 = host("h0", start_ms, 10), host("h1", start_ms, 10)
        own = [worker("w0", h0), worker("w1", h0), key_group(0, h0), key_group(1, h0, owner="w1"), worker("w9", h1)]
        claims = [worker("w0", h1), key_group(0, h1), key_group(1, h1, owner="w1"), key_group(2, h1, owner="w9")]
        [snapshot] = machine.on_rows([h0, h1, *own, *(claims if start_ms else ())], now_ms=start_ms + 10_100)
    assert [(node.worker, node.host, node.claimed_by) for node in snapshot.nodes] == [
        ("w0", "h0", ("h1",)), ("w1", "h0", ("h1",)), ("w9", "h1", ()),
    ]  # fmt: skip
    assert {row.key_group.partition: (row.worker, row.covered_s) for row in snapshot.key_groups} == {
        0: ("w0", 10.0), 1: ("w1", 10.0), 2: ("w9", 10.0),
    }  # fmt: skip


def test_key_groups_of_a_host_that_stopped_are_unknown_not_idle() -> None:
    machine = assembler(["h0", "h1"])
    stopped = host("h1", 0, 8)
    rows = [host("h0", 0, 10), key_group(0, host("h0", 0, 10)), stopped, key_group(1, stopped), worker("w1", stopped)]
    machine.on_rows([*rows, pair(1, 2, stopped, tuples=5)], now_ms=10_100)
    (snapshot,) = machine.on_rows([host("h0", 10_000, 6)], now_ms=16_000)
    assert [window.key_group for window in snapshot.key_groups] == [kg(0)]
    assert (snapshot.nodes, snapshot.pairs) == ((), ())


def test_rates_are_per_second_in_which_the_quantity_was_known() -> None:
    machine = assembler(["h0"])
    h0 = host("h0", 0, 10)
    (snapshot,) = machine.on_rows([h0, worker("w0", h0), key_group(3, h0), pair(3, 4, h0, tuples=50)], now_ms=10_000)
    (on,), (node,), (group,), (flow,) = snapshot.hosts, snapshot.nodes, snapshot.key_groups, snapshot.pairs
    assert (on.cpu, on.received_bytes_s, on.sent_bytes_s, on.cores, on.basis) == (0.5, 1000.0, None, 2.0, "cgroup")
    assert (node.cpu, node.capacity, node.epoch, node.generation, node.complete) == (0.01, 0.25, (3, 8), 12, True)
    assert (group.cpu, group.tuples_in_s, group.bytes_in_s, group.bytes_out_s) == (0.02, 30.0, None, 900.0)
    assert (group.state_bytes, group.lag_records, group.backlog, group.covered_s) == (4096, 7, None, 10.0)
    # Reported in one second only, because there was no traffic in the others.
    assert (flow.tuples_s, flow.bytes_s) == (5.0, 40.0)


def test_what_skipped_the_broker_is_unknown_for_a_pair_if_one_report_does_not_say_it() -> None:
    h0, h1 = host("h0", 0, 10), host("h1", 0, 10)
    first = [pair(1, 2, h0, tuples=20, direct=15), pair(3, 4, h0, tuples=20, direct=0), pair(5, 6, h0, tuples=8)]
    later = [pair(1, 2, h0, tuples=10, direct=10), pair(3, 4, h0, tuples=10)]  # 3 -> 4: its agent was replaced
    other = [pair(1, 2, h1, tuples=30, direct=30), pair(5, 6, h1, tuples=8, direct=8)]  # moved from h0 to h1
    machine = assembler()
    machine.on_rows([*first, *other], now_ms=1_000)
    (snapshot,) = machine.on_rows([h0, h1, *later], now_ms=10_000)
    assert [(each.source.partition, each.tuples_s, each.direct_s) for each in snapshot.pairs] == [
        (1, 6.0, 5.5),
        (3, 3.0, None),
        (5, 1.6, None),
    ]


def test_marks_and_states_of_workers_are_passed_on() -> None:
    machine = assembler(["h0"])
    h0 = host("h0", 0, 10)
    away = worker("w1", h0, state=3)._replace(known_s=[0.0] * 5, sums=[None] * 5)
    (snapshot,) = machine.on_rows([h0, worker("w0", h0, marked=1), away], now_ms=10_000)
    assert [(node.worker, node.state, node.complete, node.cpu) for node in snapshot.nodes] == [
        ("w0", WorkerState.RUNNING, False, 0.01),
        ("w1", WorkerState.AWAY, True, None),
    ]


def test_numbers_beyond_every_measure_are_unknown_and_spoil_nobody_elses_snapshot() -> None:
    hosts = [host("h0", 0, 10.0), host("h1", 0, 10.0)]
    largest = float(2**63 - 1)
    wild = hosts[0]._replace(
        covered_s=0.001, known_s=[0.001] * 5, sums=[largest] * 5, levels=[1.0, 1.0] + [largest] * 6
    )
    rows = [
        *hosts,
        wild._replace(kind=Kind.WORKER, worker="w0", app="app", levels=[0.25, 0.0, 1.0] + [largest] * 5),
        wild._replace(kind=Kind.KEY_GROUP, worker="w0", app="app", operator="count", partition=0, levels=[largest] * 8),
        key_group(1, hosts[1], owner="w1"),
        *(pair(0, 1, hosts[0], tuples=largest)._replace(host=each.host) for each in hosts),
    ]

    (snapshot,) = assembler().on_rows(rows, now_ms=10_000)

    assert decoded(encode_snapshot(snapshot), Snapshot) == snapshot
    spoiled, sound = snapshot.key_groups
    assert (spoiled.tuples_in_s, spoiled.state_bytes, spoiled.backlog) == (None, None, None)
    assert (sound.tuples_in_s, sound.state_bytes) == (30.0, 4096)
    assert (snapshot.nodes[0].memory_bytes, snapshot.nodes[0].epoch, snapshot.nodes[0].generation) == (None, None, None)
    assert snapshot.pairs[0].tuples_s == 1e18


# --- contents ---------------------------------------------------------------------------------------------------------


WORKERS = {"w0": "h0", "w1": "h0", "w10": "h1", "W2": "h1"}


def some_rows(draw: random.Random) -> list[Row]:
    """Key groups that have one or several owners, with values that floats add up exactly."""
    found = {}
    for _ in range(draw.randrange(1, 40)):
        worker = draw.choice(list(WORKERS))
        row = key_group(0, host(WORKERS[worker], 0, 1.0), owner=worker)._replace(
            app=draw.choice(["b", "ab", "a"]),
            operator=draw.choice(["sums", "s", "counts"]),
            partition=draw.choice([0, 1, 2, MAX_PARTITIONS]),
            samples=draw.randrange(1, 4),
            last_ms=draw.randrange(3),
            covered_s=draw.randrange(1, 8) / 2,
            sums=tuple(draw.choice([None, 0.0, 1.5, 2.0**40, 2.0**80]) for _ in SUM_COLUMNS),
            known_s=tuple(draw.choice([0.0, 0.25, 0.5, 1.0]) for _ in KNOWN_COLUMNS),
            levels=tuple(draw.choice([None, 0.0, 7.0, 2.0**53, 2.0**62]) for _ in LEVELS),
        )
        found[row.thing] = row
    return list(found.values())


def rate(rows: Iterable[Row], place: int) -> float | None:
    known_s = sum(row.known_s[place] for row in rows)
    amount = sum(row.sums[place] or 0.0 for row in rows)
    return round(amount / known_s, DECIMALS) if known_s and amount / known_s <= 1e18 else None


def row_by_row(rows: Iterable[Row]) -> list[KeyGroupWindow]:
    """The dumb twin of `key_group_windows`."""
    owners = defaultdict(list)
    for row in rows:
        owners[KeyGroup(AppId(row.app or ""), OperatorId(row.operator or ""), row.partition or 0)].append(row)
    windows = []
    for each, found in sorted(owners.items()):
        last = max(found, key=lambda row: (row.last_ms, -row.samples, row.worker))
        values: dict[str, Any] = {name: rate(found, place) for place, name in enumerate(RATES)}
        for name, level in zip(LEVELS, last.levels, strict=True):
            values[name] = None if level is None or level > 2.0**53 else int(level)
        covered_s = sum(row.covered_s for row in found)
        windows.append(
            KeyGroupWindow(key_group=each, worker=WorkerId(last.worker or ""), covered_s=covered_s, **values)
        )
    return windows


def test_key_groups_are_made_as_row_by_row() -> None:
    draw = random.Random(7)
    for _ in range(100):
        rows = some_rows(draw)
        assert key_group_windows(of_kind(table_of(rows), Kind.KEY_GROUP)) == row_by_row(rows)
