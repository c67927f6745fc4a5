"""Who leads, stands still and stands by, event by event."""

import itertools

import pytest

from tests.controller.loop.inbox_records import TOPICS
from trimtab_controller.kafka.connection import Connection
from trimtab_controller.leadership.driver import Candidacy
from trimtab_controller.leadership.machine import (
    ENDED,
    LASTED_S,
    LONGEST_REJOIN_DELAY_S,
    REJOIN_DELAY_S,
    TAKEN,
    Candidate,
    CandidateRole,
    Event,
    GroupEvent,
    LeadershipAction,
    ProducerEnded,
    StandDown,
    TermFenced,
)
from trimtab_controller.leadership.metrics import ProcessMetrics
from trimtab_controller.loop.metrics import ControllerMetrics
from trimtab_protocol.settings.kafka import KafkaSettings

NOW = 100.0
FENCED = TermFenced(detail="another controller has taken over")
PRODUCER_ENDED = ProducerEnded(detail="the broker has ended the producer")
EVENTS: tuple[Event, ...] = (*GroupEvent, FENCED, PRODUCER_ENDED)


def candidate(*events: Event) -> Candidate:
    """One that has joined and heard these."""
    made = Candidate()
    assert made.on_tick(NOW) == (LeadershipAction.JOIN,)
    for event in events:
        made.on_event(NOW, event)
    return made


def test_it_joins_once_and_waits_until_the_leader_is_gone() -> None:
    one = candidate()
    assert one.on_tick(NOW + 1) == ()
    assert one.on_event(NOW, GroupEvent.NOTHING_GRANTED) == (LeadershipAction.WAIT,)
    assert one.on_event(NOW, GroupEvent.NOTHING_GRANTED) == (), "others come and go"
    assert one.on_event(NOW, GroupEvent.GRANTED) == (LeadershipAction.LEAD,)
    assert one.on_event(NOW, GroupEvent.NOTHING_GRANTED) == (), "who leads keeps the partition when others join"
    assert one.role is CandidateRole.LEADING


def test_a_lease_that_ran_out_suspends_until_it_is_known_who_has_it() -> None:
    one = candidate(GroupEvent.GRANTED)
    assert one.on_event(NOW, GroupEvent.EXPIRED) == (LeadershipAction.SUSPEND,)
    assert one.on_event(NOW, GroupEvent.EXPIRED) == ()
    assert one.on_event(NOW, GroupEvent.GRANTED) == (LeadershipAction.RESUME,), "the broker was away: nobody else led"
    assert one.on_event(NOW, GroupEvent.EXPIRED) == (LeadershipAction.SUSPEND,)
    assert one.on_event(NOW, GroupEvent.NOTHING_GRANTED) == (TAKEN, LeadershipAction.WAIT)
    assert one.on_event(NOW, GroupEvent.GRANTED) == (LeadershipAction.LEAD,), "a new term: the journal is read anew"


@pytest.mark.parametrize("before", [(), (GroupEvent.EXPIRED,)])
def test_who_is_fenced_stands_down_and_comes_back_as_a_new_member(before: tuple[Event, ...]) -> None:
    one = candidate(GroupEvent.GRANTED, *before)
    assert one.on_event(NOW, FENCED) == (StandDown(reason=FENCED.detail), LeadershipAction.LEAVE)
    assert one.on_event(NOW, GroupEvent.GRANTED) == (), "of the membership that was given up"
    assert one.on_event(NOW + REJOIN_DELAY_S, FENCED) == (), "it is out already"
    assert one.on_tick(NOW + REJOIN_DELAY_S - 0.1) == ()
    assert one.on_tick(NOW + REJOIN_DELAY_S) == (LeadershipAction.JOIN,)
    assert one.on_event(NOW, GroupEvent.NOTHING_GRANTED) == (LeadershipAction.WAIT,)


@pytest.mark.parametrize("before", [(), (GroupEvent.EXPIRED,)])
def test_who_loses_its_producer_leads_again_only_if_it_is_elected_again(before: tuple[Event, ...]) -> None:
    one = candidate(GroupEvent.GRANTED, *before)
    ended = StandDown(reason=PRODUCER_ENDED.detail, taken=False)
    assert one.on_event(NOW, PRODUCER_ENDED) == (ended, LeadershipAction.LEAVE)
    assert one.on_event(NOW, GroupEvent.GRANTED) == (), "of the membership that was given up"
    assert one.on_tick(NOW + REJOIN_DELAY_S) == (LeadershipAction.JOIN,)
    assert one.on_event(NOW + 2, GroupEvent.NOTHING_GRANTED) == (LeadershipAction.WAIT,), "a standby leads"


def test_one_producer_after_another_that_ends_doubles_the_wait() -> None:
    one, at, waits = candidate(GroupEvent.GRANTED), NOW, []
    for _ in range(7):
        one.on_event(at, PRODUCER_ENDED)
        waits.append(next(each for each in range(100) if one.on_tick(at + each)))
        at += waits[-1]
        one.on_event(at, GroupEvent.GRANTED)
    assert waits == [1, 2, 4, 8, 16, 30, 30] == [*waits[:5], LONGEST_REJOIN_DELAY_S, LONGEST_REJOIN_DELAY_S]
    one.on_event(at + LASTED_S, PRODUCER_ENDED)
    assert one.on_tick(at + LASTED_S + REJOIN_DELAY_S) == (LeadershipAction.JOIN,), "the last one has lasted"


def test_the_end_gives_the_lease_up_at_once() -> None:
    one = candidate(GroupEvent.GRANTED)
    assert one.on_event(NOW, GroupEvent.END_ASKED) == (ENDED, LeadershipAction.LEAVE)
    assert one.on_event(NOW, GroupEvent.END_ASKED) == ()
    assert candidate(GroupEvent.NOTHING_GRANTED).on_event(NOW, GroupEvent.END_ASKED) == (LeadershipAction.LEAVE,)
    assert Candidate().on_event(NOW, GroupEvent.END_ASKED) == (), "it never joined"


def test_terms_and_actions_agree_after_any_five_events() -> None:
    """A term begins only out of office, and ends once; nobody commands whose lease is gone; the end is the end."""
    for events in itertools.product(EVENTS, repeat=5):
        one, running = candidate(), False
        for step, event in enumerate(events):
            retired = one.role is CandidateRole.RETIRED
            actions = [*one.on_event(NOW + 2 * step, event), *one.on_tick(NOW + 2 * step + REJOIN_DELAY_S)]
            assert not (retired and actions), events
            for action in actions:
                assert not (action is LeadershipAction.LEAD and running), events
                assert not (action in (LeadershipAction.SUSPEND, LeadershipAction.RESUME) and not running), events
                if action is LeadershipAction.LEAD or isinstance(action, StandDown):
                    running = action is LeadershipAction.LEAD
            assert running is (one.role in (CandidateRole.LEADING, CandidateRole.SUSPENDED)), events
            if event in (GroupEvent.EXPIRED, GroupEvent.MOVED, GroupEvent.END_ASKED, FENCED, PRODUCER_ENDED):
                assert one.role is not CandidateRole.LEADING, events


# ---- metrics of the controller process


def test_a_standby_shows_its_role_and_no_figures_of_a_term_that_has_ended() -> None:
    process, term = ProcessMetrics(), ControllerMetrics()
    term.generation.set(7)
    process.see(CandidateRole.LEADING)
    process.show(term.registry)
    assert process.registry.get_sample_value("trimtab_controller_epoch_generation") == 7
    process.see(CandidateRole.WAITING)
    process.show(None)
    assert process.registry.get_sample_value("trimtab_controller_epoch_generation") is None
    roles = {
        each: process.registry.get_sample_value("trimtab_controller_role", {"role": each}) for each in CandidateRole
    }
    assert [each for each, value in roles.items() if value] == [CandidateRole.WAITING]
    process.show(ControllerMetrics().registry)  # the next term counts from zero
    assert process.registry.get_sample_value("trimtab_controller_epoch_generation") == 0


def test_a_term_that_its_operator_ends_is_not_counted_as_lost_to_another_controller() -> None:
    metrics = ProcessMetrics()
    connection = Connection(kafka=KafkaSettings(bootstrap_servers="127.0.0.1:1"))
    candidacy = Candidacy(
        connection, TOPICS, 6.0, new_term=lambda office: pytest.fail("a term"), metrics=metrics, stopping=lambda: False
    )
    counts = []
    for end in (ENDED, TAKEN):
        candidacy._perform((end,))
        counts.append(metrics.registry.get_sample_value("trimtab_controller_stood_down_total"))
    assert counts == [0, 1]
