"""Rules that cannot hold, as concerns that operators are told of."""

from collections.abc import Iterator, Mapping

from trimtab_controller.decider.concerns import Concern, ConcernKind
from trimtab_controller.decider.rules.placing import Places
from trimtab_controller.decider.view import AppView, NotReady
from trimtab_protocol.messages.names import AppId


def rule_concerns(views: Mapping[AppId, AppView | NotReady]) -> Iterator[Concern]:
    """One for each app in which rules leave no worker to some key groups.  These stay where they are."""
    for app, view in views.items():
        if not isinstance(view, AppView) or not view.rules:
            continue
        table = view.owned.joined(view.kept_table)
        conflicts = Places.of(view.rules, table, [(each.id, each.host) for each in view.all_workers]).conflicts()
        if not conflicts:
            continue
        told = []
        for each in conflicts:
            rules = " and ".join(f"{rule.name} ({rule.kind}: {rule.reason})" for rule in each.rules)
            told.append(f"{each.count} key groups, such as {table[each.example].key_group}, by {rules}")
        detail = f"no worker is allowed for {'; '.join(told)}: they stay where they are"
        yield Concern(kind=ConcernKind.RULES_CONFLICT, app=app, workers=(), detail=detail)
