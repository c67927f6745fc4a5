"""Standbys to place, and those that a plan or an adoption brings in the same publication."""

from collections.abc import Mapping
from dataclasses import replace

from trimtab_controller.decider.memory.standby_choice import StandbyRows
from trimtab_controller.decider.memory.standbys import RestoresOf, StandbyRounds
from trimtab_controller.decider.values.decision import Adopted, Planned, StandbysPlaced
from trimtab_controller.decider.values.reasons import NotReady
from trimtab_controller.decider.window.resources import brought_by, with_less_disk
from trimtab_controller.decider.window.view import SmoothedView
from trimtab_protocol.messages.names import AppId
from trimtab_protocol.messages.placement import Placement
from trimtab_protocol.wording import counted

TOLD_S = 1.0
"""Restores that take less are not worth a word."""


def place(
    standbys: StandbyRounds,
    now: float,
    views: Mapping[AppId, SmoothedView | NotReady],
    placements: Mapping[AppId, Placement],
    restores: RestoresOf,
) -> StandbysPlaced | None:
    """New rows for the first app that has too few or too many standbys, else for one that can have better ones."""
    promised = standbys.promised(now)
    known = [
        (with_less_disk(view, promised), placement)
        for app, view in views.items()
        if isinstance(view, SmoothedView) and (placement := placements.get(app)) is not None
    ]
    for choose in (standbys.next_round, standbys.replacements):
        for view, placement in known:
            found = choose(now, view, placement, restores)
            if found.rows:
                return StandbysPlaced(
                    app=view.app,
                    rows=found.rows,
                    lacking=found.lacking,
                    detail=_described(found),
                    added=found.added,
                    warm=found.warm,
                )
    return None


def with_adopted(
    standbys: StandbyRounds,
    now: float,
    view: SmoothedView,
    placement: Placement | None,
    adopted: Adopted,
    restores: RestoresOf,
) -> Adopted:
    """The adoption, with new standbys in the same publication."""
    found = standbys.next_round(now, with_less_disk(view, standbys.promised(now)), placement, restores)
    detail = f"{adopted.detail}; {_described(found)}" if found.rows else adopted.detail
    return replace(
        adopted, detail=detail, standbys=found.rows, lacking=found.lacking, added=found.added, warm=found.warm
    )


def with_plan(
    standbys: StandbyRounds,
    now: float,
    view: SmoothedView,
    placement: Placement | None,
    planned: Planned,
    restores: RestoresOf,
) -> Planned:
    """The plan, with new standbys for the key groups that it does not move in the same publication.

    `view` = what the plan was made with: it has less room for what earlier standbys will write.
    """
    moved = {move.key_group for move in planned.plan.moves}
    rows = {each: placement.of(each.operator, each.partition) if placement else () for each in moved}
    written = [move for move in planned.plan.moves if move.target not in rows[move.key_group]]
    left = with_less_disk(view, brought_by(view, written))
    lacking = [(view.hosts[move.target], move.to_restore) for move in written if move.target in view.hosts]
    found = standbys.next_round(now, left, placement, lambda app: restores(app).beside(lacking), besides=moved)
    return replace(planned, standbys=found.rows, lacking=found.lacking, added=found.added, warm=found.warm)


def _described(found: StandbyRows) -> str:
    fewer = f"fewer standbys of {counted(len(found.rows), 'key group')}"
    what = counted(found.added, "new standby") if found.added else fewer
    if found.replaced:
        what += f", {found.replaced} of them in place of others, so that less load meets at one worker after a loss"
    if found.warm is not None and found.warm.seconds >= TOLD_S:
        what += f", all warm after about {found.warm.seconds:.0f} s, bound {found.warm.bound_s:.0f} s"
    return what + (f", {found.missing} key groups still lack one" if found.missing else "")
