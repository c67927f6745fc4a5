"""The recomputations of the papers' jobs, by hand on a few records, and what the comparison with them finds."""

from collections import Counter
from itertools import islice

import pytest

from flights.dataset import partition_of
from jobs.catalogue import JOBS
from jobs.delays import FLIGHTS, airplane_sums, apart, extract, route_sums
from jobs.edits import job_1, plus, top
from jobs.feed import Input
from jobs.oracle import Change, judge
from jobs.rain import effect_key, job_4, joined
from jobs.views import simple, unique, viewed

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
