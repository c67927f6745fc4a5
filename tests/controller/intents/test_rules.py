"""Rules of operators: what follows from one, and which are refused."""

from dataclasses import replace

import pytest

from tests.controller.decider.hosted_job import APP, HostedJob
from tests.controller.decider.test_rules import job as ruled_job
from trimtab_controller.decider.events import IntentsChanged
from trimtab_controller.decider.values.rules import followed, known_rules
from trimtab_controller.execution.state import Execution
from trimtab_controller.intents import rules
from trimtab_controller.intents.change import Asked, Change, ChangeRefused, RefusalKind
from trimtab_controller.intents.plans import Looked
from trimtab_protocol.messages.codec import encoded
from trimtab_protocol.messages.intents import AddRule, Intent, TakenBack, decode_intent
from trimtab_protocol.messages.names import Epoch
from trimtab_protocol.messages.rules import MAX_RULES, Rule, RuleKind
from trimtab_protocol.messages.status import RuleStatus, Status

NOW = 1_100.0
FILE = Rule(name="fast", kind=RuleKind.POOL, reason="SSDs", key_groups=((0, 3),), workers=("w0",))
AWAY = Rule(name="away", kind=RuleKind.EXCLUDE, reason="a disk fails", workers=("w0",), until=NOW + 3600.0)
STATUS = Status(
    cluster="c", at=NOW, acting=True, epoch=Epoch(1, 1), paused=None, window_end=NOW, coverage=1.0,
    rules=(RuleStatus(rule=FILE),),
)  # fmt: skip


def said(rule: Rule, at: float = 1.0) -> AddRule:
    return AddRule(rule=rule, by="bob", at=at, reason=rule.reason)


def job() -> HostedJob:
    """8 key groups on two workers, w0 of which has the even ones."""
    return ruled_job(FILE, key_groups=8, workers=2)


@pytest.fixture(scope="module")
def looked() -> Looked:
    of = job()
    decider = of.decider()
    snapshot = of.window()
    decider.record(snapshot.end_ms / 1000.0, snapshot)
    return Looked(decider=decider, execution=Execution(generation=1))


def asked(*intents: Intent, status: Status | None = STATUS) -> Asked:
    return Asked(by="ann", at=NOW, reason="a disk fails", status=status, intents={each.key: each for each in intents})


def written(change: Change) -> list[Intent]:
    intents = [intent for _, intent in change.records if intent is not None and not isinstance(intent, TakenBack)]
    for intent in intents:
        assert decode_intent(intent.key.encode(), encoded(intent)) == intent
    return intents


def test_a_rule_is_added_with_what_follows(looked: Looked) -> None:
    change = rules.add(asked(), replace(AWAY, key_groups=((4, 7),)), looked)
    assert written(change) == [
        AddRule(rule=replace(AWAY, key_groups=((4, 7),)), by="ann", at=NOW, reason="a disk fails")
    ]
    assert change.text == (
        "rule away (exclude) is kept from the next window on: it is about 4 key groups of app, of which 2 have to move"
    )
    assert change.caveats == ()


def test_a_conflict_is_told_with_the_smallest_set(looked: Looked) -> None:
    change = rules.add(asked(), AWAY, looked)
    assert change.text.endswith("it is about 8 key groups of app, of which 2 have to move"), "those of the pool cannot"
    assert change.caveats == (
        "but no worker is allowed for 4 key groups, such as app/sums/0, by fast (pool: SSDs) and away (exclude: "
        "a disk fails): they stay where they are",
    )


def test_a_rule_about_nothing_is_told(looked: Looked) -> None:
    [of_nobody] = rules.add(asked(), replace(AWAY, app="other"), looked).caveats
    assert of_nobody == "but no app that reports matches 'other'; there is app"
    [of_nothing] = rules.add(asked(), replace(AWAY, operator="x"), looked).caveats
    assert of_nothing == "but it is about no key group of app"


def test_a_pattern_that_nothing_matches_is_told(looked: Looked) -> None:
    misspelt = replace(AWAY, workers=("w1", "W0"), hosts=("h-*",), zones=("rack-1",))
    assert rules.add(asked(), misspelt, looked).caveats == (
        "but no worker that runs now matches 'W0'",
        "but no host that runs now matches 'h-*'",
        "but no zone that runs now matches 'rack-1'",
    )
    assert rules.add(asked(), replace(misspelt, workers=("w1",), hosts=(), zones=()), looked).caveats == ()


def test_names_that_are_taken_are_refused_and_too_many_rules(looked: Looked) -> None:
    with pytest.raises(ChangeRefused, match=r"controller.toml has a rule fast") as refused:
        rules.add(asked(), replace(AWAY, name="fast"), looked)
    assert refused.value.fault is RefusalKind.CONFLICT
    with pytest.raises(ChangeRefused, match=r"bob has added a rule away: take it back first"):
        rules.add(asked(said(AWAY)), AWAY, looked)
    many = [said(replace(AWAY, name=f"r{number}")) for number in range(MAX_RULES - 1)]
    with pytest.raises(ChangeRefused, match=r"rules in controller.toml: 1, of operators: 59; expected 60 at most"):
        rules.add(asked(*many), AWAY, looked)
    with pytest.raises(ChangeRefused, match=r"the end of rule away is over"):
        rules.add(asked(), replace(AWAY, until=NOW), looked)
    with pytest.raises(
        ChangeRefused, match=r"rule away would end after the year 9999: expected an earlier end, or none"
    ):
        rules.add(asked(), replace(AWAY, until=1e17), looked)


def test_what_has_ended_makes_room_and_is_taken_away(looked: Looked) -> None:
    over = [said(replace(AWAY, name=f"r{number}", until=NOW - 1.0)) for number in range(MAX_RULES)]
    change = rules.add(asked(*over, said(replace(AWAY, until=NOW - 1.0))), AWAY, looked)
    assert change.key == "rule/away"
    assert change.records[1:] == tuple((each.key, None) for each in over)


def test_only_an_operators_rule_is_taken_back() -> None:
    change = rules.remove(asked(said(AWAY)), "away")
    back = TakenBack(by="ann", at=NOW, reason="a disk fails")
    assert change.records == (("rule/away", back),)
    with pytest.raises(ChangeRefused, match=r"rule fast stands in controller.toml: remove it there"):
        rules.remove(asked(), "fast")
    with pytest.raises(ChangeRefused, match="no operator has added a rule 'x'; there is away"):
        rules.remove(asked(said(AWAY)), "x")


def test_all_controllers_put_the_rules_in_one_order() -> None:
    clash = said(replace(AWAY, name="fast"), at=5.0)
    late, early = said(replace(AWAY, name="b"), at=9.0), said(replace(AWAY, name="c"), at=2.0)
    over = said(replace(AWAY, name="d", until=NOW - 1.0))
    known = known_rules((FILE,), (late, clash, over, early), NOW)
    assert [(each.rule.name, each.ignored) for each in known] == [
        ("fast", None), ("c", None), ("fast", "controller.toml has a rule of this name"), ("b", None),
    ]  # fmt: skip
    assert [each.name for each in followed(known)] == ["fast", "c", "b"]
    full = known_rules([replace(FILE, name=f"f{number}") for number in range(MAX_RULES)], (late,), NOW)
    assert full[-1].ignored == "there are 60 rules already"


def test_a_decider_keeps_an_operators_rule_until_it_ends_and_says_what_it_does_not_keep() -> None:
    of = job()
    of.rules = ()
    decider = of.decider()
    decider.on_event(0.0, IntentsChanged(intents=(said(replace(AWAY, until=of.window().end_ms / 1000.0 + 25.0)),)))
    of.round(decider)
    assert [each.rule.name for each in decider.known.rules] == ["away"]
    for _ in range(3):
        of.round(decider)
    assert decider.known.rules == ()
    assert set(of.owners.values()) == {"w1", "w0"}, "all have left w0, and came back when the rule had ended"
    of = job()
    decider = of.decider()
    decider.on_event(0.0, IntentsChanged(intents=(said(replace(AWAY, name="fast")),)))
    of.round(decider)
    [told] = decider.known.concerns
    assert (told.app, told.detail) == (APP, "rule fast of bob is not kept: controller.toml has a rule of this name")
