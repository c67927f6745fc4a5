"""How long events stay with agents, learned from looks once a second."""

from types import SimpleNamespace
from typing import Any

from faust.types import TP

from trimtab_agent.engines.faust.transport.in_work import EventsInWork

ONE, OTHER = TP("in", 1), TP("in", 2)


def begun(tp: TP, offset: int, at: float) -> Any:
    return SimpleNamespace(tp=tp, offset=offset, time_in=at)


def test_batches_are_as_long_as_their_first_event_was_seen_and_fade_when_events_become_short() -> None:
    seen = EventsInWork()
    for now in range(61):
        seen.see([begun(ONE, 7, 0.0), begun(ONE, 8, 0.5), begun(OTHER, 3, now - 0.1)], float(now))
    assert seen.counts == {ONE: 2, OTHER: 1}
    assert seen.longest_s([ONE]) == 0.0, "it has not ended"

    seen.see([begun(ONE, 9, 61.0), begun(OTHER, 4, 60.9)], 61.0)
    assert seen.longest_s([ONE, OTHER]) == 61.0, "at most"
    assert seen.longest_s([OTHER]) < 2.0

    for number in range(10):  # a service that was slow for a minute answers at once again
        seen.see([begun(ONE, 10 + number, 62.0 + number)], 62.0 + number)
    assert seen.longest_s([ONE]) < 10.0


def test_what_this_worker_gives_away_is_forgotten() -> None:
    seen = EventsInWork()
    seen.see([begun(ONE, 7, 0.0)], 30.0)
    seen.see([], 31.0)
    seen.forget([ONE])

    assert seen.longest_s([ONE]) == 0.0
