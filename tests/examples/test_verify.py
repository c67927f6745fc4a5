import pytest

from flights.dataset import Flight, partition_of
from flights.replay import Sent
from flights.verify import Answers, Events, compare, count_events, expected_sums, flights_sent
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

    answers = compare(right, {"a": Sums(flights=1), "b": Sums(flights=9), "d": Sums()})

    assert (answers.checked, answers.wrong) == (3, 3)
    assert answers.examples[0] == f"b: found {Sums(flights=9)}, expected {Sums(flights=2)}"
    assert compare(right, dict(right)) == Answers(checked=3, wrong=0, examples=())


def test_records_come_back_as_they_were_written():
    assert decode_source(encode_source(17, "a,b,c")) == (17, "a,b,c")
    assert decode_total(b"N1", b"[3, 2013, 2, -9]") == Total(
        sequence=3, airplane="N1", year=2013, sums=Sums(flights=2, minutes=-9)
    )
    assert decode_changelog(f'"{table_key("N1", 2013)}"'.encode(), b"[2, -9]") == (
        "N1/2013",
        Sums(flights=2, minutes=-9),
    )


@pytest.mark.parametrize("value", [b"x,row", b""])
def test_a_source_record_without_a_number_is_refused(value: bytes):
    with pytest.raises(ValueError):
        decode_source(value)
