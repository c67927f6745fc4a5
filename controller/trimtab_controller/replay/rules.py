"""The rules of operators over the recorded time: events say when each was added and when it ended.

What was added before events are kept is known from the topic of intents, if it is still wanted.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from trimtab_protocol.messages.events import INTENT_ENDED, Event, EventKind, intent_event_id
from trimtab_protocol.messages.intents import AddRule, Intent


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRule:
    """A rule that holds from `added.at` on; `ended_at` None: it is still wanted (epoch seconds)."""

    added: AddRule
    ended_at: float | None = None

    def wanted(self, at: float) -> bool:
        """Whether an operator wants it at this time; it may have an end of its own."""
        return self.added.at <= at and (self.ended_at is None or at < self.ended_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRules:
    """All that are known.  `untold` = how many were added of which the events do not say what they are."""

    rules: tuple[RecordedRule, ...] = ()
    untold: int = 0

    def at(self, now: float) -> tuple[AddRule, ...]:
        """What operators want at this time."""
        return tuple(each.added for each in self.rules if each.wanted(now))


def recorded_rules(events: Iterable[Event], wanted: Iterable[Intent | None]) -> RecordedRules:
    """The rules that these events tell of, and those of the intents that are `wanted` now."""
    found: dict[str, RecordedRule] = {}
    untold: set[str] = set()
    for event in events:
        if event.kind != EventKind.INTENT or event.reason != "rule":
            continue
        if event.phase == "ended":
            id_ = event.id.removesuffix(INTENT_ENDED)
            if id_ in found and found[id_].ended_at is None:
                found[id_] = replace(found[id_], ended_at=event.at)
        elif event.rule is None:
            untold.add(event.id)
        elif event.id not in found:
            added = AddRule(rule=event.rule, by=event.by or "", at=event.at, reason=event.rule.reason)
            found[event.id] = RecordedRule(added=added)
    for intent in wanted:
        if isinstance(intent, AddRule) and (id_ := intent_event_id(intent.key, intent.at)) not in found:
            found[id_] = RecordedRule(added=intent)
            untold.discard(id_)
    return RecordedRules(rules=tuple(_until_replaced(found.values())), untold=len(untold))


def _until_replaced(rules: Iterable[RecordedRule]) -> list[RecordedRule]:
    """A rule ends at the latest when another one of its name is added."""
    found: dict[str, RecordedRule] = {}
    ended: list[RecordedRule] = []
    for each in sorted(rules, key=lambda each: each.added.at):
        before = found.pop(each.added.key, None)
        if before is not None:
            until = each.added.at if before.ended_at is None else min(before.ended_at, each.added.at)
            ended.append(replace(before, ended_at=until))
        found[each.added.key] = each
    return [*ended, *found.values()]
