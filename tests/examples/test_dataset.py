import random
import zipfile
from pathlib import Path

import pytest
from aiokafka.partitioner import DefaultPartitioner
from hypothesis import given
from hypothesis import strategies as st

from flights.dataset import HEADER, DatasetError, Delay, parse_row, partition_of, read_flights
from flights.replay import Replay
from flights.settings import Settings, from_environment

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


def test_every_key_group_goes_through_its_flights_evenly_however_the_file_has_them():
    replay = Replay([0] * 10 + [1] * 5, key_groups=2, rate=3.0)  # 2 and 1 per second; the second begins 0.62 ahead

    assert replay.due(10.0) == []
    assert replay.due(10.4) == [10]
    assert replay.due(11.0) == [0, 1]
    assert replay.due(13.0) == [2, 3, 4, 5, 11, 12]
    assert replay.sent.clocks == (6, 13)
    assert not replay.finished
    assert len(replay.due(15.0)) == 6
    assert replay.finished
    assert replay.sent.clocks == (15, 15)


def test_a_faster_key_group_gets_its_flights_ahead_of_time_and_is_silent_at_its_end():
    replay = Replay([0, 1] * 10, key_groups=2, rate=2.0)
    replay.due(0.0)
    replay.set_speed([1], 4.0)

    assert replay.due(1.0) == [0, 1, 3, 5, 7]
    assert replay.sent.clocks == (2, 9)
    assert replay.due(2.0) == [2, 9, 11, 13, 15]
    assert replay.due(4.0) == [4, 6, 17, 19]
    assert replay.due(5.0) == [8]


def test_key_groups_of_equal_pace_do_not_send_at_once():
    replay = Replay(list(range(10)) * 10, key_groups=10, rate=10.0)
    replay.due(0.0)

    counts = [len(replay.due(tick / 10)) for tick in range(1, 40)]

    assert max(counts) <= 2


def test_a_clock_that_goes_back_sends_nothing():
    replay = Replay([0] * 5, key_groups=1, rate=1.0)
    replay.due(5.0)
    assert replay.due(3.0) == []
    assert replay.due(4.0) == [0]


@given(st.integers(0, 2**32), st.integers(1, 6))
def test_every_flight_is_sent_once_in_the_order_of_its_key_group_and_the_clocks_tell_which(seed: int, key_groups: int):
    chance = random.Random(seed)
    rows = [chance.randrange(key_groups) for _ in range(200)]
    replay = Replay(rows, key_groups=key_groups, rate=50.0)
    now, sent = 0.0, []
    for _ in range(30):
        replay.set_speed([chance.randrange(key_groups)], chance.choice([0.5, 1.0, 4.0]))
        replay.set_rate(chance.uniform(10, 100))
        now += chance.uniform(0, 0.2)
        sent += replay.due(now)

        assert len(set(sent)) == len(sent)
        assert {row for row, partition in enumerate(rows) if (partition, row) in replay.sent} == set(sent)
    for partition in range(key_groups):
        own = [row for row in sent if rows[row] == partition]
        assert own == sorted(own)


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan")])
def test_a_rate_is_above_zero(rate: float):
    with pytest.raises(ValueError, match="above zero"):
        Replay([0], key_groups=1, rate=rate)
    replay = Replay([0], key_groups=1, rate=1.0)
    with pytest.raises(ValueError, match="above zero"):
        replay.set_rate(rate)
    with pytest.raises(ValueError, match="above zero"):
        replay.set_speed([0], rate)


NEEDED = {"FLIGHTS_BROKER": "127.0.0.1:9", "FLIGHTS_DATA_DIR": "/x", "FLIGHTS_WEB_PORT": "7000"}


def test_settings_come_from_the_environment():
    assert from_environment(NEEDED) == Settings(broker="127.0.0.1:9", data_dir=Path("/x"), web_port=7000)
    more = {**NEEDED, "FLIGHTS_KEY_GROUPS": "8", "FLIGHTS_WORK": "100", "FLIGHTS_COMMIT_S": "2", "FLIGHTS_PLUGIN": "0"}
    more["FLIGHTS_LOCAL"] = "1"
    assert from_environment(more) == Settings(
        broker="127.0.0.1:9", data_dir=Path("/x"), web_port=7000, key_groups=8, work=100, commit_s=2, plugin=False,
        local=True,
    )  # fmt: skip


@pytest.mark.parametrize("name", NEEDED)
def test_what_is_missing_is_named(name: str):
    with pytest.raises(ValueError, match=name):
        from_environment({**NEEDED, name: ""})


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [("FLIGHTS_WORK", "much", "FLIGHTS_WORK: found 'much'"), ("FLIGHTS_KEY_GROUPS", "0", "out of range")],
)
def test_nonsense_is_refused(name: str, text: str, message: str):
    with pytest.raises(ValueError, match=message):
        from_environment({**NEEDED, name: text})
