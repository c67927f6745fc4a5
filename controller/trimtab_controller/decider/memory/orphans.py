"""Orphans: key groups whose owner is away and that nobody took over, while no standby of theirs runs.

Who owns them next: `policies/next_owners.py`.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from trimtab_controller.decider.memory.hosts import HostsSeen
from trimtab_controller.decider.values.decision import NextOwners, PlanEnded, Planned, StandbysPlaced
from trimtab_controller.decider.values.reasons import Concern
from trimtab_controller.decider.window.demand import WorkerDemand
from trimtab_controller.decider.window.owned import OwnedTable
from trimtab_controller.decider.window.view import AppView, SmoothedView
from trimtab_protocol.messages.names import AppId, HostId, KeyGroup, WorkerId
from trimtab_protocol.messages.placement import Placement
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.snapshot import Snapshot

WINDOWS = 2
"""In so many windows in a row a worker must be away to count as lost."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Orphaned:
    """The orphans of an app; `owners` = the workers that they have lost.

    `inherited` = the demand that each worker will get besides from workers that are away.  `state` = the bytes that
    next owners are to hold; standbys hold what they inherit already.
    """

    table: OwnedTable
    owners: tuple[WorkerId, ...]
    inherited: Mapping[WorkerId, float]
    state: Mapping[WorkerId, float]

    def given(self, targets: Mapping[KeyGroup, WorkerId]) -> "Orphaned":
        """Without those that have a target already, which will get their load."""
        rows = self.table.places_of(targets)
        inherited, state = Counter(self.inherited), Counter(self.state)
        sizes, left = self.table.assumed_state_bytes, np.ones(len(self.table), np.bool_)
        for row, target in zip(rows.tolist(), targets.values(), strict=True):
            if row >= 0:
                left[row] = False
                inherited[target] += float(self.table.load[row])  # type: ignore[assignment]
                state[target] += int(sizes[row])
        return replace(self, table=self.table.only(left), inherited=inherited, state=state)


class Orphans:
    """Finds the orphans of all apps.

    `found` = the orphans of each app that have no next owner, with its view; `here` = the workers that are not lost.
    `ownerless` = how many key groups of an app lost workers owned and nobody has taken over, those with a standby too.
    `windows` = the last ones, the newest first: when a worker is lost, what it said.  `hosts` = what is known of them,
    `asked` = what is asked of each worker (percent of its capacity), `offered` = the workers that the last plan of an
    app could choose from.
    """

    def __init__(self) -> None:
        self.windows: deque[Snapshot] = deque(maxlen=WINDOWS + 2)
        self.found: dict[AppId, tuple[SmoothedView, Orphaned]] = {}
        self.ownerless: dict[AppId, int] = {}
        self.hosts = HostsSeen()
        self.asked: dict[WorkerId, float] = {}
        self._away: dict[AppId, dict[WorkerId, int]] = {}
        """In how many windows in a row each owner of an app was away; an app that cannot be judged keeps its owners."""
        self._crowded: dict[AppId, tuple[frozenset[WorkerId], Concern]] = {}
        self.offered: dict[AppId, frozenset[WorkerId]] = {}
        self.here: set[WorkerId] = set()

    @property
    def concerns(self) -> tuple[Concern, ...]:
        """The apps whose orphans no worker had room for, until the workers that they lost are back or replaced."""
        return tuple(concern for _, (_, concern) in sorted(self._crowded.items()))

    def observe(
        self,
        snapshot: Snapshot,
        views: Mapping[AppId, SmoothedView],
        placements: Mapping[AppId, Placement],
        hosts: HostsSeen,
        demands: Mapping[WorkerId, WorkerDemand],
        revoked: Collection[HostId] = (),
    ) -> None:
        """Find the orphans in a window; `views` have an assumed load for what was not measured.

        Workers on hosts `revoked` count as away: they will not be heard any more.
        """
        heard = (row for row in snapshot.nodes if row.host not in revoked)
        here = {row.worker for row in heard if row.state is not WorkerState.AWAY}
        known = {app: set(away) for app, away in self._away.items() if app in placements}
        owners = known | {app: set(view.kept_table.workers) for app, view in views.items()}
        counts = {app: self._away.get(app, {}) for app in owners}
        self._away = {app: {each: counts[app].get(each, 0) + 1 for each in owners[app] - here} for app in owners}
        here |= {each for away in self._away.values() for each, windows in away.items() if windows < WINDOWS}
        self.here = here
        self.found, self.ownerless = {}, {}
        for app, view in views.items():
            placement = placements.get(app)
            if placement is not None and not here.issuperset(view.kept_table.workers):
                lost = _ownerless(view, here, snapshot)
                self.ownerless[app] = len(lost)
                found = _orphans(lost, placement, here)
                if len(found.table):
                    self.found[app] = view, found
        self.hosts = hosts
        self.windows.appendleft(snapshot)
        self.asked = {worker: row.pct for worker, row in demands.items() if row.pct is not None}
        away = {app: set(view.kept_table.workers) - here for app, view in views.items()}
        self._crowded = {app: told for app, told in self._crowded.items() if told[0] & away.get(app, set())}

    def accepted(self, app: AppId, decision: Planned | StandbysPlaced | PlanEnded) -> None:
        """Remember that a decision of `next_owners` is carried out."""
        if decision.next_owners is not None and not isinstance(decision, PlanEnded):
            self.chosen(app, decision.next_owners)

    def chosen(self, app: AppId, chosen: NextOwners) -> None:
        """The orphans of an app have what they can get until the next window."""
        self.found.pop(app, None)
        self.offered[app] = chosen.offered
        if chosen.crowd is not None:
            self._crowded[app] = chosen.lost, chosen.crowd


def _ownerless(view: AppView, here: set[WorkerId], snapshot: Snapshot) -> OwnedTable:
    """The key groups of workers that are not `here`, which nobody who is has."""
    kept = view.kept_table
    away = np.array([worker not in here for worker in kept.workers], np.bool_)[kept.owner]
    table = kept.only(away)
    seen = OwnedTable.of_blocks(view.app, [block for block in snapshot.blocks if block.app == view.app])
    held = np.array([worker in here for worker in seen.workers] + [False], np.bool_)
    holder = np.append(seen.owner, len(seen.workers))[table.places_in(seen)]
    return table.only(~held[holder])


def _orphans(table: OwnedTable, placement: Placement, here: set[WorkerId]) -> Orphaned:
    """Those of these key groups without an owner of which no standby is `here`."""
    loads = defaultdict[WorkerId, float](float)
    lost = np.ones(len(table), np.bool_)
    for place in range(len(table)):
        row = placement.of(table.operators[table.operator[place]], int(table.partition[place]))
        standby = next((worker for worker in row[1:] if worker in here), None)
        if standby is not None:
            lost[place] = False
            loads[standby] += float(table.load[place])
    orphans = table.only(lost)
    return Orphaned(table=orphans, owners=tuple(sorted(orphans.workers)), inherited=loads, state={})
