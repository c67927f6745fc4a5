import zipfile
from pathlib import Path

import pytest
from aiokafka.partitioner import DefaultPartitioner

from flights.dataset import HEADER, DatasetError, Delay, parse_row, partition_of, read_flights

ROW = "2013,1,1,517,515,2,830,819,11,UA,1545,N14228,EWR,IAH,227,1400,5,15,2013-01-01T10:00:00Z"
DIVERTED = "2013,1,1,1525,1530,-5,1934,1805,NA,MQ,4525,N719MQ,LGA,XNA,NA,1147,15,30,2013-01-01T20:00:00Z"
CANCELLED = "2013,1,2,NA,1545,NA,NA,1910,NA,AA,133,NA,JFK,LAX,NA,2475,15,45,2013-01-02T20:00:00Z"


@pytest.mark.parametrize(
    ("row", "delay"),
    [
        (ROW, Delay(airplane="N14228", year=2013, minutes=11)),
        (DIVERTED, Delay(airplane="N719MQ", year=2013, minutes=-5)),
        (CANCELLED, Delay(airplane="AA133", year=2013, minutes=0)),
    ],
)
def test_every_flight_has_an_airplane_and_a_delay(row: str, delay: Delay):
    assert parse_row(row) == delay


def test_a_row_of_another_shape_is_refused():
    with pytest.raises(ValueError, match="found 3 cells, expected 19"):
        parse_row("2013,1,1")


def test_the_package_holds_all_flights_in_order():
    flights = list(read_flights())

    assert len(flights) == 336_776
    assert [flight.sequence for flight in flights[:3]] == [0, 1, 2]
    assert flights[0].row == ROW
    assert len({flight.airplane for flight in flights if flight.airplane.startswith("N")}) == 4042


def test_a_limit_cuts_the_end():
    assert [flight.sequence for flight in read_flights(limit=2)] == [0, 1]


def archive(folder: Path, name: str, text: str) -> Path:
    path = folder / "flights.csv.zip"
    with zipfile.ZipFile(path, "w") as content:
        content.writestr(name, text)
    return path


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("flights.csv", "year,month\n2013,1\n", "columns: found 'year,month'"),
        ("other.csv", HEADER, "other|flights.csv"),
    ],
)
def test_another_file_is_refused(tmp_path: Path, name: str, text: str, message: str):
    with pytest.raises(DatasetError, match=message):
        list(read_flights(archive(tmp_path, name, text)))


def test_a_file_that_is_no_archive_is_refused(tmp_path: Path):
    (tmp_path / "x.zip").write_bytes(b"no archive")
    with pytest.raises(DatasetError, match="not a zip file"):
        list(read_flights(tmp_path / "x.zip"))


def test_keys_go_to_the_partitions_that_faust_would_choose():
    partitions = list(range(64))
    keys = sorted({flight.airplane for flight in read_flights(limit=5000)})

    assert len(keys) > 1000
    for key in keys:
        assert partition_of(key, 64) == DefaultPartitioner()(key.encode(), partitions, partitions)
