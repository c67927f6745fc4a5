import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flights.replay import Replay


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
