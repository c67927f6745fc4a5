"""The papers' jobs: recomputations by hand, what a run reports, and latencies that sinks note."""

import time
from collections import Counter
from functools import reduce
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from flights.dataset import partition_of
from jobs.alternate import moves_to, order_of
from jobs.catalogue import JOBS
from jobs.delays import FLIGHTS, airplane_sums, apart, extract, route_sums
from jobs.edits import (
    EDITS_PER_WINDOW,
    EndedWindows,
    TwoChoices,
    inputs,
    job_1,
    merged,
    placed,
    plus,
    together,
    top,
)
from jobs.feed import Input
from jobs.latencies import FLUSH_S, LatencyLog, read_latencies
from jobs.oracle import Change, Verdict, judge
from jobs.outcome import Outcome, Phase, Saturated
from jobs.rain import effect_key, job_4, joined
from jobs.report import report
from jobs.views import simple, unique, viewed
from trimtab_protocol.messages.intents import RequestedMove
from trimtab_protocol.messages.names import AppId, KeyGroup, OperatorId, WorkerId

ROW = "2013,1,1,517,515,2,830,819,{late},UA,1545,{tail},{origin},IAH,227,1400,5,15,2013-01-01T05:00:00Z"


def flight(tail: str, late: int, origin: str = "EWR") -> Input:
    row = ROW.format(tail=tail, late=late, origin=origin)
    return Input(topic=FLIGHTS, key=tail, value=row, partition=0)


def click(number: int, page: str, user: str) -> Input:
    return Input(topic="clicks", key=page, value=f"{number} {page} 200 24341 {user}", partition=0)


def test_delays_are_summed_by_airplane_and_year_and_by_route() -> None:
    sent = [flight("N1", 10), flight("N1", -4, "JFK"), flight("N2", 3)]
    assert airplane_sums(sent) == {"N1/2013": [2, 6], "N2/2013": [1, 3]}
    assert route_sums(sent) == {"EWR-IAH": [2, 13], "JFK-IAH": [1, -4]}
    assert extract(sent[1].value).route == "JFK-IAH"


def test_the_second_operator_numbers_its_key_groups_otherwise() -> None:
    assert all((apart(f"N{number}", 20) - partition_of(f"N{number}", 20)) % 20 == 10 for number in range(50))


def test_page_views_are_counted_and_their_users_once_per_window() -> None:
    sent = [click(0, "home", "a"), click(1, "home", "a"), click(2, "item", "b"), click(800, "home", "c")]
    assert viewed(sent[3].value) == ("home", "c", 1)
    assert simple(sent) == {"counts": {"home": [3], "item": [1]}}
    assert unique(sent) == {"visitors": {"home/0": [2, ["a"]], "item/0": [1, ["b"]], "home/1": [1, ["c"]]}}


def test_edits_are_counted_by_cell_and_by_article() -> None:
    sent = list(islice(JOBS["job1"].inputs(20), 500))
    tables = job_1(sent)
    cells: Counter[str] = Counter()
    for key, (count, articles) in tables["cells"].items():
        assert key.endswith("/0")
        assert count == sum(articles.values())
        cells.update(articles)
    assert {key: value[0] for key, value in tables["articles"].items()} == {f"{each}/0": n for each, n in cells.items()}
    assert top({"a": 1, "c": 5, "b": 5})[:2] == [("b", 5), ("c", 5)]
    assert plus([1, {"a": 1}], "b") == [2, {"a": 1, "b": 1}]


def test_the_popularity_of_articles_drifts() -> None:
    begun = Counter(placed(each.value)[1] for each in islice(inputs(20), 3_000))
    later = Counter(placed(each.value)[1] for each in islice(inputs(20), 60_000, 63_000))
    often = [{name for name, _ in counts.most_common(10)} for counts in (begun, later)]
    assert 0 < len(often[0] & often[1]) < 10


def test_whoever_sends_chooses_the_partition_of_two_that_it_has_sent_less_to() -> None:
    chooses, chosen = TwoChoices(20), [Counter[int](), Counter[int]()]
    for number in range(4_000):
        key = f"article-{number % 100 if number % 2 else 7}"  # every second tuple has one key
        for counts, partition in zip(chosen, (chooses.partition(key), partition_of(key, 20)), strict=True):
            counts[partition] += 1
    by_two, by_one = (max(counts.values()) for counts in chosen)
    assert by_one > 2_000
    assert 1_000 <= by_two < 1_100
    assert len({TwoChoices(20).partition("a") for _ in range(9)}) == 1, "what it sends, not what others do, counts"


def test_what_two_partitions_count_and_send_when_windows_end_is_merged_to_the_recomputation() -> None:
    """The tuples of each partition come late by up to 50; every window but the last ends."""
    sent = list(islice(inputs(20), 2 * EDITS_PER_WINDOW + 2_000))
    chooses, ends = TwoChoices(20), EndedWindows()
    counted: dict[tuple[int, str], list[Any]] = {}
    whole: dict[str, dict[str, list[Any]]] = {}
    for number in sorted(range(len(sent)), key=lambda each: each + each * 7_919 % 50):
        cell, article, window = placed(sent[number].value)
        key, partition = f"{cell}/{window}", chooses.partition(cell)
        counted[partition, key] = plus(counted.get((partition, key)), article)
        for ended in ends.after(partition, key, window):
            whole[ended] = merged(whole.get(ended), partition, counted[partition, ended])
    expected = {key: value for key, value in job_1(sent)["cells"].items() if not key.endswith("/2")}
    assert {key: reduce(together, parts.values()) for key, parts in whole.items()} == expected
    assert max(len(parts) for parts in whole.values()) == 2


def test_a_late_tuple_is_merged_by_itself() -> None:
    ends = EndedWindows()
    assert [ends.after(3, *each) for each in (("a/0", 0), ("b/0", 0), ("a/1", 1), ("b/0", 0), ("c/2", 2))] == [
        [], [], ["a/0", "b/0"], ["b/0"], ["a/1"]
    ]  # fmt: skip
    assert ends.after(4, "a/0", 0) == [], "of another partition"


def test_flights_wait_for_the_rain_of_their_hour_in_any_order() -> None:
    early, late = ["flight", "EWR-IAH", 5], ["flight", "EWR-MIA", 7]
    waiting, none = joined(None, early)
    assert (waiting, none) == ([1, None, [["EWR-IAH", 5]]], [])
    known, flown = joined(waiting, ["rain", 42])
    assert (known, flown) == ([2, 42, []], [["EWR-IAH", 5]])
    assert joined(known, late) == ([3, 42, []], [["EWR-MIA", 7]])
    assert effect_key("EWR-IAH", 42) == "EWR-IAH/40"


def test_delays_are_summed_by_rain_where_it_is_known() -> None:
    weather = "EWR,2013,1,1,5,39,26,59,270,10,NA,0.605,1012,10,2013-01-01T10:00:00Z"
    rain = Input(topic="weather", key="EWR", value=weather, partition=0)
    tables = job_4([flight("N1", 10), rain, flight("N2", 3), flight("N1", 1, "JFK")])
    assert tables["efficiency"] == tables["store"] == {"EWR-IAH/50": [2, 13]}
    assert tables["hours"] == {"EWR/1-1-5": [3, 50, []], "JFK/1-1-5": [1, None, [["JFK-IAH", 1]]]}
    assert tables["routes"]["JFK-IAH"] == [1, 1]


@pytest.mark.parametrize("name", JOBS)
def test_the_input_of_a_job_fits_its_recomputation(name: str) -> None:
    job = JOBS[name]
    sent = list(islice(job.inputs(20), 300))
    assert {each.topic for each in sent} <= set(job.topics)
    assert {each.partition for each in sent} <= set(range(20))
    tables = job.expected(sent)
    assert set(tables) == set(job.tables)
    assert all(value[0] >= 1 for table in tables.values() for value in table.values())


EXPECTED = {"a": [2, 5], "b": [1, 7]}
RIGHT = [Change(0, "a", [1, 2]), Change(1, "b", [1, 7]), Change(0, "a", [2, 5])]


def test_a_changelog_that_counts_every_tuple_once_is_right() -> None:
    verdict = judge(EXPECTED, RIGHT)
    assert verdict.right
    assert (verdict.results, verdict.keys) == (3, 2)


@pytest.mark.parametrize(
    ("changes", "lost", "repeated", "wrong"),
    [
        (RIGHT[:2], 1, 0, 1),
        ([RIGHT[0], RIGHT[2]], 1, 0, 1),
        ([RIGHT[1], RIGHT[2]], 1, 0, 0),
        ([*RIGHT, RIGHT[2]], 0, 1, 0),
        ([*RIGHT, Change(0, "a", [3, 9])], 0, 0, 1),
        ([*RIGHT[:2], Change(0, "a", [2, 6])], 0, 0, 1),
        ([*RIGHT, Change(2, "c", [1, 1])], 0, 0, 1),
    ],
    ids=["lost at the end", "a key lost", "a gap", "repeated", "one too many", "another sum", "a foreign key"],
)
def test_what_differs_is_found(changes: list[Change], lost: int, repeated: int, wrong: int) -> None:
    verdict = judge(EXPECTED, changes)
    assert (verdict.lost, verdict.repeated, verdict.wrong) == (lost, repeated, wrong)
    assert not verdict.right
    assert verdict.examples


def test_the_parts_of_a_key_in_two_partitions_count_together() -> None:
    parts = [Change(0, "a", [1, {"x": 1}]), Change(1, "a", [1, {"x": 1}]), Change(0, "a", [2, {"x": 1, "y": 1}])]
    assert judge({"a": [3, {"x": 2, "y": 1}]}, parts, together).right
    assert judge({"a": [3, {"x": 3}]}, parts, together).wrong == 1
    assert judge({"a": [3, {"x": 2, "y": 1}]}, parts[:2], together).lost == 1
    assert together([2], [5]) == [7]


def phase(
    worker_us: float, latency_ms: float | None = None, direct: float | None = 0.5, rate: float | None = None
) -> Phase:
    return Phase(
        worker_us=worker_us,
        broker_us=worker_us / 2,
        rate=100.0,
        collocation=0.5,
        local_sends=direct,
        load=0.001,
        load_distance=1.0,
        latencies_ms=None if latency_ms is None else (latency_ms, 3 * latency_ms),
        saturated=None if rate is None else Saturated(rate=rate, worker_us=worker_us / 4, broker_us=worker_us / 8),
    )


def rows(*turns: tuple[Phase, Phase]) -> dict[str, str]:
    saturated = Saturated(rate=1000.0, worker_us=500.0, broker_us=100.0)
    found = Outcome(
        job="views",
        method="albic",
        before=phase(1000.0),
        after=phase(800.0),
        rounds=(),
        steps=(),
        obtainable=None,
        saturated=(saturated, saturated),
        turns=turns,
        sent=10,
        verdict=Verdict(results=10, keys=1, lost=0, repeated=0, wrong=0),
    )
    lines = report(JOBS["views"], {"albic": found}).splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return {row[0]: row[2] for row in cells}


def test_placements_measured_in_turn_are_reported_by_their_medians_and_each() -> None:
    found = rows(
        (phase(1000.0, 40.0), phase(800.0, 30.0)),
        (phase(1100.0, 50.0), phase(850.0, 20.0)),
        (phase(2000.0, 45.0), phase(700.0, 25.0)),
    )
    assert found["in turn: CPU of workers per record, µs"] == (
        "1,100 to 800 (1,000 to 800, 1,100 to 850, 2,000 to 700)"
    )
    assert found["in turn: latency, mean, ms"] == "45.0 to 25.0 (40.0 to 30.0, 50.0 to 20.0, 45.0 to 25.0)"
    assert found["in turn: latency, 99th percentile, ms"].startswith("135.0 to 75.0 ")
    assert found["in turn: tuples that skip the broker"].startswith("50% to 50% ")


def test_bursts_are_compared_in_turn_too() -> None:
    found = rows((phase(1000.0, rate=500.0), phase(800.0, rate=900.0)))
    assert found["in turn: at saturation: records per second"] == "500 to 900 (500 to 900)"
    assert found["in turn: at saturation: CPU of workers per record, µs"] == "250 to 200 (250 to 200)"
    assert found["in turn: at saturation: CPU of the broker per record, µs"] == "125 to 100 (125 to 100)"
    assert rows((phase(1000.0), phase(800.0)))["in turn: at saturation: records per second"] == "not noted"


def test_what_was_not_measured_in_a_turn_is_not_a_figure() -> None:
    found = rows((phase(1000.0, direct=None), phase(800.0)))
    assert found["in turn: latency, mean, ms"] == "not noted"
    assert found["in turn: tuples that skip the broker"] == "not noted"
    assert not [name for name in rows() if name.startswith("in turn")]


@pytest.mark.parametrize(("turn", "expected"), [(0, (1, 2)), (1, (2, 1)), (2, (1, 2))])
def test_the_placement_that_comes_first_changes_from_turn_to_turn(turn: int, expected: tuple[int, int]) -> None:
    first, last = phase(1.0), phase(2.0)
    assert tuple(each.worker_us for each in order_of(turn, first, last)) == expected
    assert order_of(turn, *order_of(turn, first, last)) == (first, last)


def test_only_key_groups_that_are_elsewhere_move() -> None:
    one, two = (KeyGroup(AppId("views"), OperatorId("view"), partition) for partition in (0, 1))
    a, b = WorkerId("a"), WorkerId("b")
    assert moves_to({one: a, two: b}, {one: b, two: b}) == (RequestedMove(key_group=one, worker=a),)
    assert moves_to({one: a}, {one: a}) == ()


def test_what_a_sink_has_noted_is_read_while_it_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, now = tmp_path / "latencies", 1000.0
    monkeypatch.setenv("JOBS_LATENCIES", str(path))
    monkeypatch.setattr(time, "time", lambda: now)
    sink = LatencyLog()
    for at, milliseconds in ((1000.0, 7), (1001.0, 12), (1002.0, 5), (1003.0 + 2 * FLUSH_S, 9)):
        now = at
        sink.note(at - milliseconds / 1000)
    assert read_latencies([path, tmp_path / "none"], 1000.5, 1002.5) == [5.0, 12.0]


def test_a_line_that_is_being_written_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "latencies"
    path.write_text("1000.000 12.5\n1000.100 13")
    assert read_latencies([path], 0.0, 2000.0) == [12.5]
