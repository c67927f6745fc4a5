"""Where the placement differs from what workers report: the placement follows.  Pure functions."""

from collections.abc import Mapping

from trimtab_controller.decider.decision import Adopted
from trimtab_controller.decider.observing.view import AppView, NotReady
from trimtab_controller.execution.state import Execution
from trimtab_protocol.messages.names import AppId
from trimtab_protocol.messages.placement import Placement
from trimtab_protocol.wording import first_few


def drift(view: AppView, placement: Placement | None) -> Adopted | None:
    """Adopt the reported owners if they, or the key groups, differ from the placement, or if there is no placement."""
    if placement is None:
        detail = f"first placement: {sum(view.sizes.values())} key groups with their present owners"
        return Adopted(app=view.app, owners=view.placed, detail=detail)
    if (changed := _changed_operators(view, placement)) is not None:
        detail = f"{changed}: the placement follows the reports"
        return Adopted(app=view.app, owners=view.placed, detail=detail)
    owners = view.placed
    other = [
        str(key_group)
        for key_group, owner in owners.items()
        if placement.of(key_group.operator, key_group.partition)[:1] != (owner,)
    ]
    if not other:
        return None
    detail = (
        f"{len(other)} key groups have other owners than placed, such as {other[0]}: the placement follows the reports"
    )
    return Adopted(app=view.app, owners=owners, detail=detail)


def any_drift(views: Mapping[AppId, AppView | NotReady], execution: Execution) -> bool:
    """Whether the placement of any app that is not busy differs from the reports."""
    return any(
        isinstance(view, AppView) and drift(view, execution.placements.get(app)) is not None
        for app, view in views.items()
        if not execution.busy(app)
    )


def _changed_operators(view: AppView, placement: Placement) -> str | None:
    """Which operators of the placement are gone, which are new, and which have another number of key groups."""
    now, before = view.sizes, {operator: len(rows) for operator, rows in placement.owners.items()}
    if now == before:
        return None
    other = [
        f"{operator} ({before[operator]} key groups before, now {now[operator]})"
        for operator in sorted(now.keys() & before.keys())
        if now[operator] != before[operator]
    ]
    parts: dict[str, list[str]] = {
        "gone": sorted(before.keys() - now.keys()),
        "new": sorted(now.keys() - before.keys()),
        "of another size": other,
    }
    return "operators " + "; ".join(f"{what}: {first_few(names)}" for what, names in parts.items() if names)
