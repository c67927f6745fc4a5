"""Who leads, stands still and stands by, event by event."""

import itertools

import pytest

from trimtab_controller.leadership.machine import (
    REJOIN_DELAY_S,
    Candidate,
    EndAsked,
    Event,
    Join,
    Lead,
    LeaseExpired,
    LeaseGranted,
    LeaseMoved,
    Leave,
    NothingGranted,
    Resume,
    Role,
    StandDown,
    Suspend,
    TermFenced,
    Wait,
)

NOW = 100.0
FENCED = TermFenced(detail="another controller has taken over")
EVENTS: tuple[Event, ...] = (LeaseGranted(), NothingGranted(), LeaseExpired(), LeaseMoved(), FENCED, EndAsked())


def candidate(*events: Event) -> Candidate:
    """One that has joined and heard these."""
    made = Candidate()
    assert made.on_tick(NOW) == [Join()]
    for event in events:
        made.on_event(NOW, event)
    return made


def test_it_joins_once_and_waits_until_the_leader_is_gone() -> None:
    one = candidate()
    assert one.on_tick(NOW + 1) == []
    assert one.on_event(NOW, NothingGranted()) == [Wait()]
    assert one.on_event(NOW, NothingGranted()) == [], "others come and go"
    assert one.on_event(NOW, LeaseGranted()) == [Lead()]
    assert one.on_event(NOW, NothingGranted()) == [], "who leads keeps the partition when others join"
    assert one.role is Role.LEADING


def test_a_lease_that_ran_out_suspends_until_it_is_known_who_has_it() -> None:
    one = candidate(LeaseGranted())
    assert one.on_event(NOW, LeaseExpired()) == [Suspend()]
    assert one.on_event(NOW, LeaseExpired()) == []
    assert one.on_event(NOW, LeaseGranted()) == [Resume()], "the broker was away: nobody else led"
    assert one.on_event(NOW, LeaseExpired()) == [Suspend()]
    down, wait = one.on_event(NOW, NothingGranted())
    assert isinstance(down, StandDown)
    assert wait == Wait()
    assert one.on_event(NOW, LeaseGranted()) == [Lead()], "a new term: the journal is read anew"


@pytest.mark.parametrize("before", [(), (LeaseExpired(),)])
def test_who_is_fenced_stands_down_and_comes_back_as_a_new_member(before: tuple[Event, ...]) -> None:
    one = candidate(LeaseGranted(), *before)
    assert one.on_event(NOW, FENCED) == [StandDown(reason=FENCED.detail), Leave()]
    assert one.on_event(NOW, LeaseGranted()) == [], "of the membership that was given up"
    assert one.on_tick(NOW + REJOIN_DELAY_S - 0.1) == []
    assert one.on_tick(NOW + REJOIN_DELAY_S) == [Join()]
    assert one.on_event(NOW, NothingGranted()) == [Wait()]


def test_who_was_found_out_to_have_lost_the_lease_before_it_was_fenced_joins_anew_too() -> None:
    one = candidate(LeaseGranted(), LeaseExpired(), NothingGranted())
    assert one.on_event(NOW, FENCED)[-1] == Leave()
    assert one.on_tick(NOW + REJOIN_DELAY_S) == [Join()]


def test_a_lease_that_moved_ends_the_term() -> None:
    one = candidate(LeaseGranted())
    assert [type(action) for action in one.on_event(NOW, LeaseMoved())] == [StandDown, Wait]
    assert one.on_event(NOW, LeaseMoved()) == []


def test_the_end_gives_the_lease_up_at_once() -> None:
    one = candidate(LeaseGranted())
    assert one.on_event(NOW, EndAsked()) == [StandDown(reason="it is ended"), Leave()]
    assert one.on_event(NOW, EndAsked()) == []
    assert candidate(NothingGranted()).on_event(NOW, EndAsked()) == [Leave()]
    assert Candidate().on_event(NOW, EndAsked()) == [], "it never joined"


def test_terms_and_actions_agree_after_any_five_events() -> None:
    """A term begins only out of office, and ends once; nobody commands whose lease is gone; the end is the end."""
    for events in itertools.product(EVENTS, repeat=5):
        one, running = candidate(), False
        for step, event in enumerate(events):
            retired = one.role is Role.RETIRED
            actions = [*one.on_event(NOW + 2 * step, event), *one.on_tick(NOW + 2 * step + REJOIN_DELAY_S)]
            assert not (retired and actions), events
            for action in actions:
                assert not (isinstance(action, Lead) and running), events
                assert not (isinstance(action, Suspend | Resume) and not running), events
                if isinstance(action, Lead | StandDown):
                    running = isinstance(action, Lead)
            assert running is one.in_office, events
            if isinstance(event, LeaseExpired | LeaseMoved | TermFenced | EndAsked):
                assert one.role is not Role.LEADING, events
