"""Which windows are published and when, which hosts they wait for, and what is late."""

import pytest

from tests.controller.stream.assembler_situations import assembler, host, key_group, published, rejected
from trimtab_protocol.messages.decode import Fault
from trimtab_protocol.messages.names import HostId
from trimtab_protocol.messages.snapshot import decode_snapshot, encode_snapshot


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


def test_a_host_that_was_seen_is_awaited_though_nobody_expects_it() -> None:
    machine = assembler(["h0"])
    assert published(machine.on_rows([host("h0", 0, 10), host("h9", 0, 10)], now_ms=10_100)) == [(10_000, 1, 1)]
    assert machine.on_rows([host("h0", 10_000, 10)], now_ms=20_100) == []
    assert published(machine.on_rows([host("h9", 10_000, 10)], now_ms=20_200)) == [(20_000, 1, 1)]


def test_a_host_that_is_left_out_for_it_floods_is_not_waited_for() -> None:
    machine = assembler()
    flood = rejected(Fault.FLOODING, 10_000, 500)._replace(host="h1", last_ms=10_200)
    assert published(machine.on_rows([host("h0", 0, 10), host("h1", 0, 4), flood], now_ms=10_300)) == [(10_000, 1, 2)]


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


def test_an_unlisted_host_is_reported_but_not_counted() -> None:
    machine = assembler(["h0"])
    (snapshot,) = machine.on_rows([host("h0", 0, 10), host("h9", 0, 10)], now_ms=10_100)
    assert (snapshot.hosts_seen, snapshot.hosts_expected) == (1, 1)
    assert [window.host for window in snapshot.hosts] == ["h0", "h9"]


def test_windows_are_published_in_order() -> None:
    machine = assembler(["h0"])
    assert machine.on_rows([host("h0", 20_000, 1, last_ms=9_000)], now_ms=1) == []
    later, earlier = host("h0", 10_000, 10), host("h0", 0, 10)
    assert published(machine.on_rows([later, earlier], now_ms=20_100)) == [(10_000, 1, 1), (20_000, 1, 1)]


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


def test_rows_of_a_window_behind_the_watermark_are_late() -> None:
    machine = assembler(["h0"])
    machine.on_rows([host("h0", 0, 10), host("h0", 10_000, 10)], now_ms=20_000)
    machine.on_rows([host("h1", 0, 3)], now_ms=20_100)
    (snapshot,) = machine.on_rows([host("h0", 20_000, 10)], now_ms=30_100)
    assert snapshot.late_rows == 3


def test_windows_from_before_the_start_are_left_alone() -> None:
    machine = assembler(["h0"], from_ms=10_000)
    assert machine.on_rows([host("h0", 0, 10), rejected("malformed", 0, 4)], now_ms=10_000) == []
    (snapshot,) = machine.on_rows([host("h0", 10_000, 10)], now_ms=20_000)
    assert (snapshot.start_ms, snapshot.late_rows, dict(snapshot.rejected)) == (10_000, 0, {})


def test_a_report_from_before_the_start_is_late_once_the_watermark_has_passed() -> None:
    machine = assembler(["h0"], from_ms=20_000)
    machine.on_rows([host("h0", 20_000, 9)], now_ms=29_000)
    (snapshot,) = machine.on_rows([host("h0", 20_000, 10), host("h1", 0, 2)], now_ms=30_000)
    assert snapshot.late_rows == 2


def test_the_next_look_is_after_the_end_of_the_oldest_open_window() -> None:
    machine = assembler()
    assert machine.next_look_ms(3_000, patience_ms=500) == 10_500
    machine.on_rows([host("h0", 0, 10)], now_ms=10_500)
    assert machine.next_look_ms(10_700, patience_ms=500) == 11_200  # h1 is overdue
    machine.on_rows([host("h1", 0, 10), host("h1", 10_000, 1)], now_ms=11_200)
    assert machine.next_look_ms(11_300, patience_ms=500) == 20_500


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


def test_a_spurious_call_changes_nothing() -> None:
    machine = assembler(["h0"])
    machine.on_rows([host("h0", 0, 9)], now_ms=9_000)
    assert machine.on_rows([], now_ms=99_000) == []
    assert published(machine.on_rows([host("h0", 0, 10)], now_ms=99_001)) == [(10_000, 1, 1)]


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
    assert decode_snapshot(encode_snapshot(found)) == found


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
    assert decode_snapshot(encode_snapshot(snapshot)).ended == snapshot.ended
    [later] = machine.on_rows([host("h0", 20_000, 10), host("h1", 20_000, 10)], now_ms=30_100)
    assert (later.hosts_seen, later.hosts_expected) == (2, 2)
    back = [host(name, 30_000, 10) for name in ("h0", "h1", "h2")]
    [again] = machine.on_rows(back, now_ms=40_100)
    assert (again.hosts_seen, again.hosts_expected, again.ended) == (2 if expected is None else 3, again.hosts_seen, ())
    assert machine.on_rows([host("h0", 40_000, 10), host("h1", 40_000, 10)], now_ms=50_100) == [], "it is awaited again"
