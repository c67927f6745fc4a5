from collections.abc import Mapping

import pytest

from flights.dataset import Flight, partition_of
from flights.replay import Sent
from flights.verify import (
    Answers,
    Change,
    Events,
    Table,
    compare,
    count_events,
    expected_sums,
    flights_sent,
    table_of,
)
from flights.wire import (
    Sums,
    Total,
    decode_changelog,
    decode_source,
    decode_total,
    encode_source,
    table_key,
)


def flight(sequence: int, airplane: str = "N1", minutes: str = "5", year: int = 2013) -> Flight:
    row = f"{year},1,1,517,515,2,830,819,{minutes},UA,1545,{airplane},EWR,IAH,227,1400,5,15,2013-01-01T10:00:00Z"
    return Flight(sequence=sequence, airplane=airplane, row=row)


def total(sequence: int) -> Total:
    return Total(sequence=sequence, airplane="N1", year=2013, sums=Sums(flights=1, minutes=5))


def table(sums: Mapping[str, Sums]) -> Table:
    return Table(sums=sums, stepped_back=0, examples=())


def test_the_sums_of_the_flights_sent():
    flights = [flight(0), flight(1, minutes="-7"), flight(2, "N2"), flight(3, year=2014)]

    assert expected_sums(flights) == {
        "N1/2013": Sums(flights=2, minutes=-2),
        "N2/2013": Sums(flights=1, minutes=5),
        "N1/2014": Sums(flights=1, minutes=5),
    }


def test_the_flights_sent_are_those_before_the_clock_of_their_key_group():
    flights = [flight(number, f"N{number % 5}") for number in range(20)]
    clocks = (4, 11)

    sent = flights_sent(flights, Sent(clocks=clocks))

    assert sent == [f for f in flights if f.sequence < clocks[partition_of(f.airplane, 2)]]
    assert 4 < len(sent) < 11


def test_lost_duplicated_and_foreign_are_counted():
    sent = [flight(number) for number in range(5)]

    events = count_events(sent, [total(n) for n in (0, 2, 2, 2, 3, 9, 9)])

    assert events == Events(
        sent=5,
        processed=3,
        lost=2,
        duplicated=2,
        foreign=2,
        lost_examples=(1, 4),
        duplicated_examples=(2,),
    )


def test_an_answer_that_is_missing_superfluous_or_different_is_wrong():
    right = {"a": Sums(flights=1), "b": Sums(flights=2), "c": Sums(flights=3)}

    answers = compare(right, table({"a": Sums(flights=1), "b": Sums(flights=9), "d": Sums()}))

    assert (answers.checked, answers.wrong, answers.stepped_back) == (3, 3, 0)
    assert answers.examples[0] == f"b: found {Sums(flights=9)}, expected {Sums(flights=2)}"
    assert compare(right, table(right)) == Answers(checked=3, wrong=0, stepped_back=0, examples=())


def changes(*counts: int | None, key: str = "a", partition: int = 0) -> list[Change]:
    return [Change(partition, key, None if count is None else Sums(flights=count, minutes=-7)) for count in counts]


def test_the_table_is_what_its_changelog_says_last() -> None:
    found = table_of([*changes(1, 2), *changes(1, key="b"), *changes(3)])

    assert found == table({"a": Sums(flights=3, minutes=-7), "b": Sums(flights=1, minutes=-7)})


@pytest.mark.parametrize(
    ("counts", "stepped_back", "examples"),
    [
        ((1, 2, 3), 0, ()),
        ((1, 4), 0, ()),  # what lies between was compacted away
        ((1, 2, 3, 2, 3, 4), 1, ("a: 2 flights after 3",)),
        ((1, 2, 2, 3), 1, ("a: 2 flights after 2",)),
        ((1, 2, 3, 1, 2, 1), 2, ("a: 1 flights after 3", "a: 1 flights after 2")),
        ((1, 2, None, 1), 1, ("a: 0 flights after 2",)),
        ((0, 1), 1, ("a: 0 flights after 0",)),
    ],
)
def test_a_count_that_does_not_grow_has_stepped_back(
    counts: tuple[int | None, ...], stepped_back: int, examples: tuple[str, ...]
) -> None:
    found = table_of(changes(*counts))

    assert (found.stepped_back, found.examples) == (stepped_back, examples)


def test_a_step_back_counts_though_the_table_is_right_in_the_end() -> None:
    answers = compare({"a": Sums(flights=3, minutes=-7)}, table_of(changes(1, 2, 1, 3)))

    assert answers == Answers(checked=1, wrong=0, stepped_back=1, examples=("a: 1 flights after 2",))


def test_counts_of_other_keys_and_partitions_are_no_step_back() -> None:
    assert table_of([*changes(5), *changes(1, key="b"), *changes(1, partition=1)]).stepped_back == 0


def test_a_key_that_was_deleted_is_missing() -> None:
    assert compare({"a": Sums(flights=2, minutes=-7)}, table_of(changes(1, 2, None))).wrong == 1


def test_records_come_back_as_they_were_written():
    assert decode_source(encode_source(17, "a,b,c")) == (17, "a,b,c")
    assert decode_total(b"N1", b"[3, 2013, 2, -9]") == Total(
        sequence=3, airplane="N1", year=2013, sums=Sums(flights=2, minutes=-9)
    )
    assert decode_changelog(f'"{table_key("N1", 2013)}"'.encode(), b"[2, -9]") == (
        "N1/2013",
        Sums(flights=2, minutes=-9),
    )
    assert decode_changelog(b'"N1/2013"', None) == ("N1/2013", None)


@pytest.mark.parametrize("value", [b"x,row", b""])
def test_a_source_record_without_a_number_is_refused(value: bytes):
    with pytest.raises(ValueError):
        decode_source(value)
