"""Which of several streams publishes, and that each window is published once and in order."""

import pytest

from tests.controller.stream.test_chunks import snapshot as window
from trimtab_controller.stream.outlet import MAX_HELD, Fenced, Outlet, Turns, first_ms
from trimtab_protocol.messages.snapshot import Snapshot

WINDOW_MS = 10_000
SILENT_MS = 25_000


class Topic:
    """The ends of the published windows, and who may write."""

    def __init__(self) -> None:
        self.ends: list[int] = []
        self.writer: object = None


class Client:
    """A stream's connection to the topic."""

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.fault: Exception | None = None

    def newest_ms(self) -> int:
        return max(self.topic.ends, default=0)

    def take_over(self) -> None:
        self._fail()
        self.topic.writer = self

    def publish(self, snapshot: Snapshot) -> None:
        self._fail()
        if self.topic.writer is not self:
            raise Fenced("fenced")
        self.topic.ends.append(snapshot.end_ms)

    def _fail(self) -> None:
        if self.fault is not None:
            raise self.fault


class Stream:
    """An outlet that gets a window every ten seconds."""

    def __init__(self, topic: Topic, *, told: bool = True) -> None:
        self.client = Client(topic)
        self.turns = Turns(told=told, silent_ms=SILENT_MS)
        self.outlet = Outlet(self.client, self.turns)

    def see(self, *numbers: int, delay_ms: int = 500) -> None:
        for number in numbers:
            end_ms = (number + 1) * WINDOW_MS
            self.outlet.add(end_ms + delay_ms, window(end_ms))


def ends(*numbers: int) -> list[int]:
    return [(number + 1) * WINDOW_MS for number in numbers]


def test_a_standby_publishes_what_the_leader_has_not_and_nothing_twice() -> None:
    topic = Topic()
    leader, standby = Stream(topic), Stream(topic)
    leader.turns.lead()
    leader.see(10)
    standby.see(10)
    leader.see(11)
    standby.see(11, 12, 13)
    assert topic.ends == ends(10, 11), "it holds what it has not been told to publish"
    standby.turns.lead()
    assert standby.outlet.is_due
    standby.outlet.flush(ends(14)[0])
    assert topic.ends == ends(10, 11, 12, 13)
    assert not standby.outlet.is_due
    standby.see(14)
    leader.see(12, 13, 14, 15)
    assert topic.ends == ends(10, 11, 12, 13, 14), "who is fenced publishes nothing, whatever it believes"
    standby.see(15)
    assert topic.ends == ends(*range(10, 16))


def test_a_standby_that_lags_behind_does_not_publish_again_what_the_leader_has() -> None:
    topic = Topic()
    leader, standby = Stream(topic), Stream(topic)
    leader.turns.lead()
    leader.see(10, 11, 12)
    standby.turns.lead()
    standby.outlet.flush(ends(13)[0])
    standby.see(11, 12, 13)
    assert topic.ends == ends(10, 11, 12, 13)


def test_who_is_told_to_stand_by_publishes_no_more_and_goes_on_in_its_next_term() -> None:
    topic = Topic()
    stream = Stream(topic)
    stream.turns.lead()
    stream.see(1)
    stream.turns.stand_by()
    stream.see(2, 3)
    assert topic.ends == ends(1)
    stream.turns.lead()
    stream.see(4)
    assert topic.ends == ends(1, 2, 3, 4)


def test_a_standby_holds_no_more_than_the_last_windows() -> None:
    topic = Topic()
    stream = Stream(topic)
    stream.see(*range(100))
    stream.turns.lead()
    stream.see(100)
    assert topic.ends == ends(*range(101 - MAX_HELD, 101))


def test_a_stream_that_nobody_tells_begins_when_no_other_one_publishes() -> None:
    topic = Topic()
    leader, looking_on = Stream(topic), Stream(topic, told=False)
    leader.turns.lead()
    leader.see(1)
    looking_on.see(1, 2)
    assert topic.ends == ends(1), "the last window is not old enough"
    looking_on.see(3, 4)
    assert topic.ends == ends(1, 2, 3, 4)
    leader.see(2, 3, 4)
    assert topic.ends == ends(1, 2, 3, 4), "fenced"
    looking_on.see(5)
    leader.turns.lead()  # its next term
    leader.see(5, 6)
    looking_on.see(6, 7)
    assert topic.ends == ends(1, 2, 3, 4, 5, 6)


def test_who_was_fenced_goes_on_when_the_other_one_is_gone() -> None:
    topic = Topic()
    leader, other = Stream(topic), Stream(topic)
    leader.turns.lead()
    leader.see(1)
    other.turns.lead()
    other.see(1, 2)
    leader.see(2, 3, 4)
    assert topic.ends == ends(1, 2)
    leader.see(5)
    assert topic.ends == ends(1, 2, 3, 4, 5)


def test_a_query_that_failed_begins_again_after_the_last_published_window() -> None:
    topic = Topic()
    stream = Stream(topic)
    stream.turns.lead()
    stream.see(1)
    stream.client.fault = OSError("the broker is away")
    with pytest.raises(OSError, match="away"):
        stream.see(2)
    assert stream.outlet.restart() == ends(1)[0]
    with pytest.raises(OSError, match="away"):
        stream.see(1)
    stream.outlet.restart()
    stream.client.fault = None
    stream.see(1, 2, 3)
    assert topic.ends == ends(1, 2, 3)


def test_a_stream_begins_where_the_last_one_ended_unless_that_is_long_ago() -> None:
    now_ms = 1_000_000
    assert first_ms(now_ms, 960_000, WINDOW_MS) == 950_000
    assert first_ms(now_ms, 940_000, WINDOW_MS) == 930_000
    assert first_ms(now_ms, 930_000, WINDOW_MS) == 970_000
    assert first_ms(now_ms, 0, WINDOW_MS) == 970_000
