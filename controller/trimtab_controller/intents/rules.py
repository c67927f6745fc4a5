"""An operator's rules: add one, take one back.  All raise ChangeRefused."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from trimtab_controller.decider.values.reasons import NotReady
from trimtab_controller.decider.values.rules import followed, known_rules
from trimtab_controller.decider.window.placing import covers, in_force
from trimtab_controller.decider.window.rules import conflicts_in
from trimtab_controller.decider.window.view import DemandView
from trimtab_controller.intents.change import (
    Asked,
    Change,
    ChangeRefused,
    Record,
    RefusalKind,
    not_now,
    one,
    take_back,
)
from trimtab_controller.intents.plans import Looked
from trimtab_protocol.messages.intents import AddRule
from trimtab_protocol.messages.names import AppId
from trimtab_protocol.messages.rules import LATEST_END, MAX_RULES, Rule
from trimtab_protocol.wording import counted, first_few, what_there_is

UNSEEN = "it is not known how many key groups have to move"


def add(asked: Asked, rule: Rule, looked: Looked) -> Change:
    """Keep a rule, for the reason of the request, from the next window on; the text says what follows now."""
    rule = replace(rule, reason=asked.reason)
    if rule.ended(asked.at):
        raise ChangeRefused(
            RefusalKind.INVALID, f"the end of rule {rule.name} is over: expected a time to come in until"
        )
    if rule.until is not None and rule.until > LATEST_END:
        text = f"rule {rule.name} would end after the year 9999: expected an earlier end, or none"
        raise ChangeRefused(RefusalKind.INVALID, text)
    own, added = _own(asked, looked), _added(asked)
    if rule.name in {each.name for each in own}:
        text = f"controller.toml has a rule {rule.name}: expected a name that no other rule has"
        raise ChangeRefused(RefusalKind.CONFLICT, text)
    known = next((each for each in added if each.rule.name == rule.name), None)
    if known is not None and not known.rule.ended(asked.at):
        text = f"{known.by} has added a rule {rule.name}: take it back first, by `trimtab rule remove {rule.name}`"
        raise ChangeRefused(RefusalKind.CONFLICT, text)
    lasting = [each for each in added if not each.rule.ended(asked.at)]
    if len(own) + len(lasting) >= MAX_RULES:
        text = f"rules in controller.toml: {len(own)}, of operators: {len(lasting)}; expected {MAX_RULES} at most"
        raise ChangeRefused(RefusalKind.CONFLICT, text)
    intent = AddRule(rule=rule, by=asked.by, at=asked.at, reason=asked.reason)
    rules = followed(known_rules(own, [*lasting, intent], asked.at))
    moves, caveats = _what_follows(rule, rules, looked, asked.at)
    over: list[Record] = [(each.key, None) for each in added if each.rule.ended(asked.at) and each.key != intent.key]
    change = one(intent, f"rule {rule.name} ({rule.kind}) is kept from the next window on: {moves}")
    return replace(
        change,
        records=(*change.records, *over),
        caveats=(*not_now(asked, "it is kept", "moves"), *caveats),
    )


def remove(asked: Asked, name: str) -> Change:
    """Take back a rule that an operator has added."""
    key = AddRule.key_of(name)
    if key in asked.intents:
        return take_back(asked, key, f"rule {name} is not kept any longer: nothing moves because of that", "")
    told = asked.status.rules or () if asked.status else ()
    if name in {each.rule.name for each in told if each.by is None}:
        text = f"rule {name} stands in controller.toml: remove it there, and restart the controllers"
        raise ChangeRefused(RefusalKind.CONFLICT, text)
    names = sorted(each.rule.name for each in _added(asked))
    raise ChangeRefused(RefusalKind.UNKNOWN, f"no operator has added a rule {name[:200]!r}; {what_there_is(names)}")


def _own(asked: Asked, looked: Looked) -> tuple[Rule, ...]:
    """The rules of controller.toml, as the controller tells them; those of the file that is read here otherwise."""
    told = asked.status.rules if asked.status else None
    if told is not None:
        return tuple(each.rule for each in told if each.by is None)
    return tuple(each.rule for each in looked.known.rules if each.by is None)


def _added(asked: Asked) -> list[AddRule]:
    return [each for each in asked.intents.values() if isinstance(each, AddRule)]


def _what_follows(rule: Rule, rules: Sequence[Rule], looked: Looked, now: float) -> tuple[str, tuple[str, ...]]:
    """How many key groups have to move, and what cannot be kept."""
    views = {app: view for app, view in looked.known.views.items() if rule.holds(app, now)}
    if not looked.known.views:
        return UNSEEN, ("but no window is known: there may be conflicts with other rules",)
    if not views:
        there = what_there_is(sorted(looked.known.views))
        return "no key group has to move", (f"but no app that reports matches {rule.app!r}; {there}",)
    found = list(_each(rule, rules, views.items(), now))
    caveats = [each for _, told in found for each in told]
    known = [view for view in views.values() if isinstance(view, DemandView)]
    return "; ".join(moves for moves, _ in found), (*caveats, *(_unmatched(rule, known) if known else ()))


def _unmatched(rule: Rule, views: Sequence[DemandView]) -> Iterator[str]:
    """The patterns that no worker matches now: they may be misspelt."""
    workers = [worker for view in views for worker in view.all_workers]
    zones = {worker.zone for worker in workers if worker.zone is not None}
    named: tuple[tuple[str, Sequence[str], Collection[str]], ...] = (
        ("worker", rule.workers, {worker.id for worker in workers}),
        ("host", rule.hosts, {worker.host for worker in workers}),
        ("zone", rule.zones, zones),
    )
    for what, patterns, names in named:
        if idle := [each for each in patterns if not any(fnmatchcase(name, each) for name in names)]:
            yield f"but no {what} that runs now matches {first_few(map(repr, idle))}"


def _each(
    rule: Rule, rules: Sequence[Rule], views: Iterable[tuple[AppId, DemandView | NotReady]], now: float
) -> Iterator[tuple[str, list[str]]]:
    for app, view in views:
        if isinstance(view, NotReady):
            yield f"{UNSEEN} in {app}", [f"but nothing is planned for {app} now: {view.reason}: {view.detail}"]
            continue
        others = [each for each in rules if each is not rule]
        before = replace(view, rules=in_force(others, app, now))
        after = replace(view, rules=in_force(rules, app, now))
        about = int(covers(rule, view.owned.joined(view.kept_table)).sum())
        have = int((after.misplaced & ~before.misplaced).sum())
        caveats = [f"but {each}" for each in conflicts_in(after) if each not in set(conflicts_in(before))]
        if not about:
            caveats.append(f"but it is about no key group of {app}")
        groups = counted(about, "key group")
        yield f"it is about {groups} of {app}, of which {have} {'has' if have == 1 else 'have'} to move", caveats
