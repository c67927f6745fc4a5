"""How long events stay with agents, learned from looks once a second."""

import math
from types import SimpleNamespace
from typing import Any

from faust.types import TP

from trimtab_agent.engines.faust.transport.in_work import EventsInWork

ONE, OTHER = TP("in", 1), TP("in", 2)


class Message(SimpleNamespace):
    __hash__ = object.__hash__  # type: ignore[assignment]


def begun(tp: TP, offset: int, at: float) -> Any:
    return Message(tp=tp, offset=offset, time_in=at)


def test_batches_are_as_long_as_their_first_event_was_seen_and_fade_when_events_become_short() -> None:
    seen = EventsInWork()
    for now in range(61):
        seen.see([begun(ONE, 7, 0.0), begun(ONE, 8, 0.5), begun(OTHER, 3, now - 0.1)], {}, float(now))
    assert seen.counts == {ONE: 2, OTHER: 1}
    assert seen.longest_s([ONE]) == 0.0, "it has not ended"

    seen.see([begun(ONE, 9, 61.0), begun(OTHER, 4, 60.9)], {}, 61.0)
    assert seen.longest_s([ONE, OTHER]) == 61.0, "at most"
    assert seen.longest_s([OTHER]) < 2.0

    for number in range(10):  # a service that was slow for a minute answers at once again
        seen.see([begun(ONE, 10 + number, 62.0 + number)], {}, 62.0 + number)
    assert seen.longest_s([ONE]) < 10.0


def test_what_this_worker_gives_away_is_forgotten() -> None:
    seen = EventsInWork()
    seen.see([begun(ONE, 7, 0.0)], {}, 30.0)
    seen.see([], {}, 31.0)
    seen.forget([ONE])

    assert seen.longest_s([ONE]) == 0.0


def test_what_waits_for_another_agent_is_not_in_work_before_that_takes_it() -> None:
    seen, event = EventsInWork(), begun(ONE, 7, 0.0)
    for now in range(61):
        seen.see([event], {"queue": [event]}, float(now))
    assert seen.counts == {}

    assert seen.oldest_of([event], 62.0)[ONE].age_s == 2.0
    seen.see([event], {}, 62.0)
    seen.see([], {}, 63.0)
    assert seen.longest_s([ONE]) == 3.0, "at most"


def test_what_is_brought_forward_takes_its_share_of_the_time_that_an_agent_is_behind() -> None:
    waiting = [begun(ONE if number % 4 == 0 else OTHER, number, 10.0 + number) for number in range(40)]
    seen = EventsInWork()

    def behind(*tps: TP) -> float:
        return seen.seconds_behind("queue", waiting, tps, 70.0)

    assert behind(ONE) == 15.0, "others have begun 40 in 60 s"
    assert behind(ONE, OTHER) == 60.0
    assert behind(TP("in", 3)) == 0.0
    assert seen.seconds_behind("queue", [], [ONE], 70.0) == 0.0

    earlier = [begun(OTHER, 90 + number, 9.0) for number in range(5)]
    seen.see([], {"queue": [*earlier, *waiting]}, 68.0)
    seen.see([], {"queue": waiting}, 70.0)
    assert behind(ONE) == 4.0, "it takes 5 in 2 s"
    seen.see([], {"queue": waiting}, 71.0)
    assert behind(ONE) == math.inf
