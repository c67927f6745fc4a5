"""All rules of a cluster: those of controller.toml, which are read here, and those that operators have added."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from trimtab_protocol.messages.codec import CONFIGURATION, Key, Most, WrittenAs, converted, document
from trimtab_protocol.messages.decode import BadMessage, Fault
from trimtab_protocol.messages.intents import AddRule, Intent
from trimtab_protocol.messages.rules import MAX_RULES, Rule
from trimtab_protocol.messages.status import MAX_STATUS_RULES


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownRule:
    """A rule, `by` the operator's intent that adds it (None: controller.toml has it).

    `ignored` = why it is not kept; None: it is.
    """

    rule: Rule
    by: AddRule | None = None
    ignored: str | None = None


def still_wanted(intents: Iterable[Intent], now: float) -> tuple[Intent, ...]:
    """The intents without rules that have ended by themselves: these stay on the topic until a rule is added."""
    return tuple(each for each in intents if not (isinstance(each, AddRule) and each.rule.ended(now)))


def known_rules(own: Sequence[Rule], intents: Iterable[Intent], now: float) -> tuple[KnownRule, ...]:
    """The rules in one order for all controllers: `own`, those of controller.toml, then those of operators, by age.

    Those of operators that have ended are left out.
    """
    added = (each for each in still_wanted(intents, now) if isinstance(each, AddRule))
    names, room = {rule.name for rule in own}, MAX_RULES - len(own)
    found = [KnownRule(rule=rule) for rule in own]
    for intent in sorted(added, key=lambda each: (each.at, each.key)):
        ignored = None
        if intent.rule.name in names:
            ignored = "controller.toml has a rule of this name"
        elif room <= 0:
            ignored = f"there are {MAX_RULES} rules already"
        else:
            room -= 1
        found.append(KnownRule(rule=intent.rule, by=intent, ignored=ignored))
    return tuple(found[:MAX_STATUS_RULES])


def followed(known: Iterable[KnownRule]) -> tuple[Rule, ...]:
    """The rules that are kept."""
    return tuple(each.rule for each in known if each.ignored is None)


def _read_rule(found: Any) -> Rule:
    if not isinstance(found, Mapping):
        raise BadMessage(Fault.TYPE, "", found, "a table")
    until = {"until": _time(found["until"])} if "until" in found else {}
    return converted({**found, **until}, Rule, defaults=CONFIGURATION)


def _time(value: object) -> float:
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise BadMessage(Fault.TYPE, "until", str(value), "a time with its zone, such as 2026-12-01T00:00:00Z")
    return value.timestamp()


def _read_rules(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    known: set[str] = set()
    for place, rule in enumerate(rules):
        if rule.name in known:
            raise BadMessage(Fault.RANGE, f"[{place}].name", rule.name, "a name that no other rule has")
        known.add(rule.name)
    return rules


RuleTable = Annotated[Rule, WrittenAs(Any, document, _read_rule)]
RuleTables = Annotated[
    tuple[Rule, ...],
    WrittenAs(Annotated[tuple[RuleTable, ...], Most(MAX_RULES)], list, _read_rules),
    Key("rule"),
]
"""The tables [[rule]] of controller.toml, in their order."""
