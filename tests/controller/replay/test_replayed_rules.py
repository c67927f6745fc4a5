"""Rules of operators over the recorded time: each is kept while it was wanted."""

from dataclasses import replace

from tests.controller.decider.decider_situations import W0, W1, kg
from tests.controller.replay.test_replay import OVERLOADED, configured, window
from trimtab_controller.loop.events.of_status import events_of_status
from trimtab_controller.replay.cluster import Pace
from trimtab_controller.replay.replay import Replay
from trimtab_controller.replay.rules import RecordedRule, RecordedRules, recorded_rules
from trimtab_controller.solver.balance import answer
from trimtab_protocol.messages.events import Event, decode_event, encode_event, intent_event_id
from trimtab_protocol.messages.intents import AddRule, Drain
from trimtab_protocol.messages.names import Epoch
from trimtab_protocol.messages.rules import Rule, RuleKind
from trimtab_protocol.messages.status import Status

RULE = Rule(name="stay", kind=RuleKind.PIN, reason="a test", key_groups=((0, 3),), workers=(W0,))
ADDED = AddRule(rule=RULE, by="ann", at=95.0, reason=RULE.reason)
DRAIN = Drain(worker=W1, by="bob", at=96.0, reason="new disk")


def status(at: float, *wanted: AddRule) -> Status:
    return Status(
        cluster="c", at=at, acting=True, epoch=Epoch(1, 1), paused=None, coverage=1.0, window_end=at,
        intents={each.key: each.at for each in wanted},
    )  # fmt: skip


def told(before: Status, after: Status, *heard: AddRule) -> list[Event]:
    """The events of a status, as they come from the wire."""
    return [decode_event(encode_event(each)) for each in events_of_status(before, after, heard)]


def test_a_rule_is_wanted_from_its_event_to_that_of_its_end() -> None:
    events = told(status(90.0), status(100.0, ADDED), ADDED)
    ended = told(status(100.0, ADDED), status(200.0))
    found = recorded_rules([*events, *events, *ended], [DRAIN, None])
    kept = AddRule(rule=RULE, by="ann", at=100.0, reason="a test")
    assert found == RecordedRules(rules=(RecordedRule(added=kept, ended_at=200.0),))
    assert [found.at(at) for at in (99.0, 100.0, 199.0, 200.0)] == [(), (kept,), (kept,), ()]


def test_one_of_the_same_name_takes_the_place_of_another() -> None:
    other = replace(ADDED, rule=replace(RULE, workers=(W1,)), at=300.0)
    events = [*told(status(90.0), status(100.0, ADDED), ADDED), *told(status(200.0), status(310.0, other), other)]
    found = recorded_rules(events, [other])
    assert [each.rule.workers for each in found.at(305.0)] == [(W0,)]
    assert [each.rule.workers for each in found.at(311.0)] == [(W1,)]


def test_what_is_still_wanted_is_known_without_events() -> None:
    assert recorded_rules([], [ADDED]).at(95.0) == (ADDED,)


def test_a_rule_of_which_the_event_says_nothing_is_counted() -> None:
    [given] = told(status(90.0), status(100.0, ADDED), ADDED)
    silent = replace(given, rule=None)
    assert given.id == intent_event_id(ADDED.key, ADDED.at)
    assert recorded_rules([silent, silent], []) == RecordedRules(untold=1)
    assert recorded_rules([silent], [ADDED]) == RecordedRules(rules=(RecordedRule(added=ADDED),)), "it is still wanted"


def test_an_event_with_a_rule_of_a_later_version_is_read_without_it() -> None:
    [given] = told(status(90.0), status(100.0, ADDED), ADDED)
    later = encode_event(given).replace(b'"kind":"pin"', b'"kind":"tilt"')
    assert later != encode_event(given)
    assert decode_event(later) == replace(given, rule=None)


def test_a_replay_keeps_a_rule_while_it_was_wanted() -> None:
    """Four of the eight key groups of the overloaded worker are pinned: to it, then to the other one."""

    def owners_of_pinned(*rules: RecordedRule) -> set[str]:
        replay = Replay(configured(), answer, Pace(), RecordedRules(rules=rules))
        for number in range(24):
            replay.see(window(number, OVERLOADED))
        return {replay.owners[kg(partition)] for partition in range(4)}

    until = window(12, OVERLOADED).end_ms / 1000.0
    here = RecordedRule(added=replace(ADDED, at=0.0), ended_at=until)
    there = RecordedRule(added=replace(ADDED, at=until, rule=replace(RULE, workers=(W1,))))
    assert owners_of_pinned(here) == {W0}
    assert owners_of_pinned(here, there) == {W1}
