"""Whether moves keep the rules, and which key groups come first where not all can, by the rules of the kind priority.

The hand-overs of a plan begin in this order, and so do restores after a loss.  Where more key groups must leave their
workers, by a drain or by a rule, than one plan may move, those of a lower priority wait for the next one.

Also rules that cannot hold, as concerns that operators are told of.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

import numpy as np

from trimtab_controller.decider.values.reasons import Concern, ConcernKind, NotReady
from trimtab_controller.decider.values.rules import KnownRule
from trimtab_controller.decider.window.owned import OwnedTable
from trimtab_controller.decider.window.placing import (
    FREE,
    Conflict,
    Places,
    Site,
    allowed_by,
    names,
    priorities,
    smallest,
)
from trimtab_controller.decider.window.view import DemandView
from trimtab_controller.plan import Plan
from trimtab_protocol.messages.names import AppId, WorkerId
from trimtab_protocol.messages.rules import Rule, RuleKind
from trimtab_protocol.wording import first_few


def with_priorities(view: DemandView, plan: Plan) -> Plan:
    """The plan, whose moves know their priority."""
    table = view.owned.joined(view.kept_table)
    found = priorities(view.rules, table)
    if found is None:
        return plan
    rows = table.places_of([move.key_group for move in plan.moves])
    moves = (
        replace(move, priority=int(found[row])) if row >= 0 else move
        for move, row in zip(plan.moves, rows.tolist(), strict=True)
    )
    return replace(plan, moves=tuple(moves))


def later(view: DemandView, most: int) -> tuple[int, ...]:
    """The rows of the key groups that must leave their workers, but wait for others, if a plan may move `most`."""
    found = priorities(view.rules, view.owned)
    if found is None:
        return ()
    due = np.flatnonzero(view.leaving | view.misplaced)
    if len(due) <= most:
        return ()
    least = -np.partition(-found[due], most - 1)[most - 1]
    return tuple(due[found[due] < least].tolist())


def broken_by(view: DemandView, moves: Mapping[int, WorkerId]) -> str:
    """The moves (row of the view -> target) that rules forbid, with these rules; empty if there are none."""
    if not view.rules:
        return ""
    found = []
    for row, target in moves.items():
        if by := view.places.against(row, view.numbers[target]):
            found.append(f"{view.owned[row].key_group} may not go to {target} by {names(by)}")
    return first_few(found) if found else ""


def rule_concerns(views: Mapping[AppId, DemandView | NotReady], known: Sequence[KnownRule]) -> Iterator[Concern]:
    """One for each app in which rules leave no worker to some key groups, or too few zones to owner and standbys.

    Or in which one of an operator's rules is not kept.
    """
    for app, view in views.items():
        told = [
            f"rule {each.rule.name} of {each.by.by} is not kept: {each.ignored}"
            for each in known
            if each.ignored is not None and each.by is not None and fnmatchcase(app, each.rule.app)
        ]
        told += conflicts_in(view) if isinstance(view, DemandView) and view.rules else ()
        if told:
            yield Concern(kind=ConcernKind.RULES_CONFLICT, app=app, workers=(), detail="; ".join(told))


def conflicts_in(view: DemandView) -> Iterator[str]:
    """The smallest sets of rules that cannot hold in an app, in words."""
    table = view.owned.joined(view.kept_table)
    sites = [each.site for each in view.all_workers]
    places = Places.of(view.rules, table, sites)
    if nowhere := places.conflicts():
        yield f"no worker is allowed for {_told(nowhere, table)}: they stay where they are"
    spreading = [rule for rule in view.rules if rule.kind is RuleKind.SPREAD]
    if spreading and not any(zone for _, _, zone in sites):
        yield f"no agent names a zone: {names(spreading)} spreads nothing"
    yield from _held_in_drains(view)
    copies = 1 + (view.standbys or 0)
    following = [each.site for each in view.all_workers if not each.draining]
    if narrow := list(too_narrow(view.rules, table, following, copies)):
        yield f"fewer than {copies} zones are left to {_told(narrow, table)}: they have fewer standbys"


def _held_in_drains(view: DemandView) -> Iterator[str]:
    """The workers that are being drained and cannot be emptied, because rules keep key groups there."""
    table, held = view.owned, view.of_drained & ~view.leaving
    for place in np.unique(table.owner[held]).tolist():
        rows = np.flatnonzero(held & (table.owner == place))
        first = int(rows[0])
        by = view.places.frozen_by(first) or view.places.rules[int(view.places.class_of[first])]
        kept = f"{len(rows)} key groups, such as {table[first].key_group}"
        yield f"{table.workers[place]} is being drained, but keeps {kept}, by {names(by)}: it is not stopped"


def too_narrow(rules: Sequence[Rule], table: OwnedTable, sites: Sequence[Site], copies: int) -> Iterator[Conflict]:
    """The smallest sets of rules that leave fewer zones than there are `copies`, which are to be spread over zones.

    Where no zone is known, nothing is spread.
    """
    spreading = next((rule for rule in rules if rule.kind is RuleKind.SPREAD), None)
    if spreading is None or copies < 2 or not any(zone for _, _, zone in sites):
        return
    where = Places.of([rule for rule in rules if rule.places_standbys], table, sites)

    def fails(chosen: Iterable[Rule]) -> bool:
        allowed = allowed_by([rule for rule in chosen if rule is not spreading], sites)
        zones = {zone or "" for (_, _, zone), may in zip(sites, allowed, strict=True) if may}
        return spreading in chosen and len(zones) < copies

    for which in range(FREE, len(where.allowed)):
        rows = np.flatnonzero(where.class_of == which)
        of_class = (spreading, *(where.rules[which] if which != FREE else ()))
        if len(rows) and fails(of_class):
            yield Conflict(rules=smallest(of_class, fails), example=int(rows[0]), count=len(rows))


def _told(conflicts: Iterable[Conflict], table: OwnedTable) -> str:
    told = []
    for each in conflicts:
        rules = " and ".join(f"{rule.name} ({rule.kind}: {rule.reason})" for rule in each.rules)
        told.append(f"{each.count} key groups, such as {table[each.example].key_group}, by {rules}")
    return "; ".join(told)
