"""Decides when to place standbys and how many at a time, so that restores do not overload the hosts."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from trimtab_controller.decider.decision import Adopted, Planned, StandbysPlaced
from trimtab_controller.decider.standbys import Budget, StandbyRows, choose_standbys, count_missing
from trimtab_controller.decider.view import AppView, FixedWorker, NotReady, Worker
from trimtab_protocol.messages.names import AppId, KeyGroup
from trimtab_protocol.messages.placement import Placement

ROUND = Budget(key_groups=20, state_bytes=1 << 30)
"""The most that one worker begins to restore in one round; it opens 20 databases in one or two seconds."""
ROUND_INTERVAL_S = 10.0
"""Minimum time between two rounds of an app in which restores begin."""


@dataclass(frozen=True, slots=True)
class _Situation:
    """What the standbys of an app depend on; as long as it stays the same, they need not be computed again."""

    placement: Placement
    workers: tuple[Worker | FixedWorker, ...]
    wanted: int

    def is_still(self, other: "_Situation | None") -> bool:
        """Whether nothing has changed."""
        return (
            other is not None
            and self.placement is other.placement
            and (self.wanted, self.workers) == (other.wanted, other.workers)
        )


class StandbyRounds:
    """Plans the rounds.  `missing` = per known app, the number of key groups with too few standbys."""

    def __init__(self) -> None:
        self.missing: dict[AppId, int] = {}
        self._counted: dict[AppId, _Situation] = {}
        self._settled: dict[AppId, _Situation] = {}
        self._begun_at: dict[AppId, float] = {}

    def see(self, views: Mapping[AppId, AppView | NotReady], placements: Mapping[AppId, Placement]) -> None:
        """Count the missing standbys of the apps that are known now."""
        before, self.missing = self.missing, {}
        for app, view in views.items():
            found = _situation(view, placements.get(app)) if isinstance(view, AppView) else None
            if found is None or not isinstance(view, AppView):
                continue
            same = found.is_still(self._counted.get(app)) and app in before
            self.missing[app] = before[app] if same else count_missing(view, found.placement, found.wanted)
            self._counted[app] = found
        for remembered in (self._counted, self._settled, self._begun_at):
            for gone in remembered.keys() - views.keys():
                del remembered[gone]

    def next_round(
        self, now: float, view: AppView, placement: Placement | None, *, besides: Collection[KeyGroup] = ()
    ) -> StandbyRows:
        """The rows to publish now, without the key groups `besides`; empty if nothing changes or it is too early."""
        if view.standbys is None:
            return StandbyRows()
        found = _situation(view, placement)
        if found is not None and found.is_still(self._settled.get(view.app)):
            return StandbyRows()
        if now < self._begun_at.get(view.app, 0.0) + ROUND_INTERVAL_S:
            return StandbyRows()
        chosen = choose_standbys(view, placement, view.standbys, ROUND)
        if found is not None and not chosen.rows:
            self._settled[view.app] = found
        rows = {key_group: row for key_group, row in chosen.rows.items() if key_group not in besides}
        if rows and chosen.added:
            self._begun_at[view.app] = now
        return StandbyRows(rows=rows, added=chosen.added, missing=chosen.missing)

    def place(
        self, now: float, views: Mapping[AppId, AppView | NotReady], placements: Mapping[AppId, Placement]
    ) -> StandbysPlaced | None:
        """New rows for the first app that has too few or too many standbys."""
        for app, view in views.items():
            placement = placements.get(app)
            if isinstance(view, NotReady) or placement is None:
                continue
            found = self.next_round(now, view, placement)
            if found.rows:
                return StandbysPlaced(app=app, rows=found.rows, detail=_described(found))
        return None

    def with_adopted(self, now: float, view: AppView, placement: Placement | None, adopted: Adopted) -> Adopted:
        """The adoption, with new standbys in the same publication."""
        found = self.next_round(now, view, placement)
        detail = f"{adopted.detail}; {_described(found)}" if found.rows else adopted.detail
        return replace(adopted, detail=detail, standbys=found.rows)

    def with_plan(self, now: float, view: AppView, placement: Placement | None, planned: Planned) -> Planned:
        """The plan, with new standbys for the key groups that it does not move in the same publication."""
        moved = {move.key_group for move in planned.plan.moves}
        return replace(planned, standbys=self.next_round(now, view, placement, besides=moved).rows)


def _described(found: StandbyRows) -> str:
    what = f"{found.added} new standbys" if found.added else f"fewer standbys of {len(found.rows)} key groups"
    return what + (f", {found.missing} key groups still lack one" if found.missing else "")


def _situation(view: AppView, placement: Placement | None) -> _Situation | None:
    if placement is None or view.standbys is None:
        return None
    return _Situation(placement, (*view.workers, *view.fixed), view.standbys)
