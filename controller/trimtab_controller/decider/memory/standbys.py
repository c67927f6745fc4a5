"""Decides when to place standbys and how many at a time, so that restores do not overload the hosts.

The execution names them when the hosts have room for the restores (`execution/standby_restores.py`).  The next
round of an app is decided when all of the last one are named, or after NAMED_S: what is not named is chosen anew.
Gaps are filled as soon as possible.  Only when there are none, and nothing else is to be done, present standbys are
replaced: where the loss of a host then leads to a load that is lower by about TOLERANCE_PCT.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from statistics import median
from types import MappingProxyType

import numpy as np

from trimtab_controller.decider.memory.standby_choice import Following, StandbyRows, Survival
from trimtab_controller.decider.values.decision import Adopted, Planned, StandbysPlaced
from trimtab_controller.decider.values.reasons import Concern, ConcernKind, NotReady
from trimtab_controller.decider.window.concerns import FULL_PCT, WINDOWS
from trimtab_controller.decider.window.copies import copies_of, state_held
from trimtab_controller.decider.window.owned import PERCENT_PER_CORE, OwnedTable
from trimtab_controller.decider.window.resources import free_disks, may_fill
from trimtab_controller.decider.window.restores import Restores
from trimtab_controller.decider.window.view import FixedWorker, SmoothedView, Worker
from trimtab_controller.execution.events import Lacking
from trimtab_controller.solver.answer import Copies
from trimtab_models.standbys.problem import StandbyBudget
from trimtab_protocol.messages.names import AppId, HostId, KeyGroup, WorkerId
from trimtab_protocol.messages.owner_rows import Owners
from trimtab_protocol.messages.placement import Placement
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.snapshot import NodeWindow, Snapshot

ROUND = StandbyBudget(worker_changes=20, worker_bytes=float(1 << 30), changes=5_000)
"""The most restores that begin in one round: at a worker, which opens 20 databases in one or two seconds, and in all,
which bounds the time that one decision takes."""
ROUND_INTERVAL_S = 10.0
"""Minimum time between two rounds of an app in which restores begin."""
NAMED_S = 60.0
"""How long the standbys of a round may wait to be named, such as for the restores of plans."""
TOLERANCE_PCT = 5.0
"""By how much less a worker is loaded after a loss, in percent of its capacity, for standbys to be replaced."""
REPLACE_INTERVAL_S = 60.0
"""Minimum time between two attempts to replace standbys of an app: loads change with every window."""
TIGHTLY_BOUND = 40
"""Most workers of an app, times the number of apps, for N-1 to be bound tightly: this is done in every window, and
takes up to 0.1 s for an app of 8 workers."""
WRITTEN_S = 600.0
"""How long what new standbys will write counts as not yet measured: they are restored by then."""
MORE_ROOM = 1.1
"""By how much more a disk must have free than when no gap could be filled, for it to be tried again."""
SAMPLES = 30
"""Windows that are remembered of an app."""
SAMPLES_NEEDED = 3
"""Windows from which the measured share counts."""
LEAST_LOAD = 1.0
"""Percent of a core that the followed key groups must ask for: what polling takes does not depend on them."""
MOST = 1.0
"""Following is never taken for more work than the work itself."""


RestoresOf = Callable[[AppId], Restores]
"""What is known of an app's restores, asked only where there is something to restore."""


class FollowingCosts:
    """Learns per app which share of a key group's load it takes to follow it.

    Plug-ins report how much CPU their worker needs to read and apply changelogs.  In a window, what the workers of an
    app need for that is compared with the load of the key groups that they follow.  The median of the last windows
    counts: while new standbys restore, they read whole changelogs, which is not what following costs.

    One number per app, because key groups of an app do alike work: what differs is how much.
    """

    def __init__(self) -> None:
        self._samples: dict[AppId, deque[float]] = {}

    def observe(
        self,
        app: AppId,
        followed: Mapping[WorkerId, float],
        nodes: Iterable[NodeWindow],
        speeds: Mapping[HostId, float],
    ) -> None:
        """Learn from a window of an app.

        `followed` = load of the key groups that each worker follows, in percent of a reference core; `speeds` = how
        fast hosts are.
        """
        took = load = 0.0
        for row in nodes:
            its = followed.get(row.worker, 0.0)
            if row.app != app or row.state is not WorkerState.RUNNING or row.following is None or not its > 0.0:
                continue
            took += PERCENT_PER_CORE * row.following * speeds.get(row.host, 1.0)
            load += its
        if load >= LEAST_LOAD:
            self._samples.setdefault(app, deque(maxlen=SAMPLES)).append(took / load)

    def of(self, app: AppId) -> float | None:
        """The share; None = not measured yet."""
        found = self._samples.get(app, ())
        return min(MOST, median(found)) if len(found) >= SAMPLES_NEEDED else None

    def keep(self, apps: Iterable[AppId]) -> None:
        """Forget all other apps."""
        known = set(apps)
        self._samples = {app: found for app, found in self._samples.items() if app in known}


@dataclass(frozen=True, slots=True)
class _Situation:
    """What the standbys of an app depend on, beside the loads."""

    placement: Placement
    workers: tuple[Worker | FixedWorker, ...]
    wanted: int
    owned: OwnedTable

    def is_still(self, other: "_Situation") -> bool:
        """Whether nothing has changed."""
        return (
            self.placement is other.placement
            and (self.wanted, self.workers) == (other.wanted, other.workers)
            and (self.owned.operators, self.owned.workers) == (other.owned.operators, other.owned.workers)
            and all(
                np.array_equal(getattr(self.owned, name), getattr(other.owned, name))
                for name in ("operator", "partition", "owner")
            )
        )


@dataclass(frozen=True, slots=True)
class _Round:
    """New standbys: `rows` with what they `lack`, decided `at` (epoch seconds)."""

    app: AppId
    at: float
    rows: Mapping[KeyGroup, Owners]
    lacking: Lacking

    def waits(self, placement: Placement) -> bool:
        """Whether a row is not named yet, and still could be."""
        rows = ((placement.of(each.operator, each.partition), row) for each, row in self.rows.items())
        return any(present != row and present[:1] == row[:1] for present, row in rows)

    def named(self, placement: Placement) -> "_Round":
        """Without the rows that the placement does not have."""
        lacking = {
            each: of
            for each, of in self.lacking.items()
            if placement.of(each.operator, each.partition) == self.rows[each]
        }
        return replace(self, rows={each: self.rows[each] for each in lacking}, lacking=lacking)


@dataclass(slots=True)
class _App:
    """What is remembered of an app.

    `settled`: no gap could be filled with so much free on disks.  `survival` = what a loss leads to, also while key
    groups lack a standby.  `overloads` = windows in a row in which a loss would overload a worker.
    """

    situation: _Situation
    following: Following
    missing: int
    settled: Mapping[HostId, float] | None = None
    survival: Survival | None = None
    overloads: int = 0

    def is_settled(self, free: Mapping[HostId, float]) -> bool:
        """Whether no gap can be filled, with so much free on disks."""
        before = self.settled
        return before is not None and all(now <= MORE_ROOM * before.get(host, now) for host, now in free.items())


class StandbyRounds:
    """Plans the rounds.

    `missing` = per known app, the number of key groups with too few standbys.  `unprotected` = those, and those that
    have lost their owner or a standby with a worker which may still come back.  `survivals` = per app, what the loss of
    any one host leads to.  `costs` = what following costs.
    """

    def __init__(self) -> None:
        self.missing: dict[AppId, int] = {}
        self.unprotected: dict[AppId, int] = {}
        self.survivals: dict[AppId, Survival] = {}
        self.costs = FollowingCosts()
        self._apps: dict[AppId, _App] = {}
        self._begun_at: dict[AppId, float] = {}
        self._replaced_at: dict[AppId, float] = {}
        self._rounds: deque[_Round] = deque()

    def promised(self, now: float) -> Mapping[HostId, float]:
        """Bytes on the disk of each host that new standbys may still write."""
        writing = (row for row in self._rounds if row.at > now - WRITTEN_S)
        found: dict[HostId, float] = {}
        for host, size in ((host, size) for row in writing for of in row.lacking.values() for host, size in of.items()):
            found[host] = found.get(host, 0.0) + size
        return found

    @property
    def concerns(self) -> tuple[Concern, ...]:
        """The apps in which one loss would overload a worker, for several windows now."""
        return tuple(
            _concern(app, known.survival)
            for app, known in sorted(self._apps.items())
            if known.survival is not None and known.overloads >= WINDOWS
        )

    def observe(
        self,
        views: Mapping[AppId, SmoothedView | NotReady],
        placements: Mapping[AppId, Placement],
        nodes: Collection[NodeWindow] = (),
        speeds: Mapping[HostId, float] = MappingProxyType({}),
        here: Collection[WorkerId] = (),
    ) -> None:
        """Follow the apps that are known now: missing standbys, what a loss leads to, and what following costs.

        `here` = the workers that do not count as lost.
        """
        self.missing, self.unprotected, self.survivals = {}, {}, {}
        for app, view in views.items():
            known = self._known(view, placements.get(app)) if isinstance(view, SmoothedView) else None
            if known is None or not isinstance(view, SmoothedView):
                continue
            self.missing[app] = known.missing
            self.unprotected[app] = known.missing + (known.following.on_lost(here) if view.standbys else 0)
            self.costs.observe(app, known.following.load_followed(view), nodes, speeds)
            tightly = len(view.all_workers) * len(views) <= TIGHTLY_BOUND
            wanted = known.situation.wanted
            known.survival = found = known.following.survival(view, wanted, peaks=tightly)
            known.overloads = known.overloads + 1 if found is not None and found.worst_pct > FULL_PCT else 0
            if found is not None and not found.missing:
                self.survivals[app] = found
        self.costs.keep(views)
        for remembered in (self._apps, self._begun_at, self._replaced_at):
            for gone in remembered.keys() - views.keys():
                del remembered[gone]

    def _known(self, view: SmoothedView, placement: Placement | None) -> _App | None:
        """What is known of an app's standbys; None if nobody says how many it asks for, or without a placement."""
        if placement is None or view.standbys is None:
            return None
        owned = view.owned.joined(view.kept_table)
        found = _Situation(placement, (*view.workers, *view.fixed), view.standbys, owned)
        before = self._apps.get(view.app)
        if before is not None and found.is_still(before.situation):
            return before
        following = Following.of(view, placement)
        known = _App(situation=found, following=following, missing=following.missing(view, view.standbys))
        if before is not None:
            known.overloads = before.overloads
        self._apps[view.app] = known
        return known

    def followed(self, view: SmoothedView, placement: Placement | None) -> dict[WorkerId, float] | None:
        """Bytes of state that each worker of an app follows; None if that is not known."""
        known = self._known(view, placement)
        return None if known is None else known.following.bytes_followed(view)

    def next_round(
        self,
        now: float,
        view: SmoothedView,
        placement: Placement | None,
        restores: RestoresOf,
        *,
        besides: Collection[KeyGroup] = (),
    ) -> StandbyRows:
        """The rows that fill gaps now, without the key groups `besides`; empty if none do or it is too early."""
        if view.standbys is None:
            return StandbyRows()
        known = self._known(view, placement)
        free = free_disks(view)
        if self._is_early(now, view.app, placement) or (known is not None and known.is_settled(free)):
            return StandbyRows()
        following = Following.of(view, placement) if known is None else known.following
        chosen = following.choose(view, view.standbys, ROUND, restores=restores(view.app))
        if known is not None and not chosen.rows:
            known.settled = free
        rows = {key_group: row for key_group, row in chosen.rows.items() if key_group not in besides}
        lacking = {key_group: of for key_group, of in chosen.lacking.items() if key_group in rows}
        return replace(chosen, rows=rows, lacking=lacking)

    def replacements(self, now: float, view: SmoothedView, placement: Placement, restores: RestoresOf) -> StandbyRows:
        """The rows that replace present standbys by better ones; none while a worker is lost that may come back."""
        known = self._known(view, placement)
        early = now < self._replaced_at.get(view.app, 0.0) + REPLACE_INTERVAL_S or self._is_early(
            now, view.app, placement
        )
        survival = None if self.unprotected.get(view.app) else self.survivals.get(view.app)
        if early or known is None or survival is None or survival.excess_pct < TOLERANCE_PCT:
            return StandbyRows()
        self._replaced_at[view.app] = now  # also where none is better: it takes long to find out
        return known.following.choose(view, known.situation.wanted, ROUND, TOLERANCE_PCT, restores(view.app))

    def _is_early(self, now: float, app: AppId, placement: Placement | None) -> bool:
        if now < self._begun_at.get(app, 0.0) + ROUND_INTERVAL_S:
            return True
        last = next((row for row in reversed(self._rounds) if row.app == app), None)
        return last is not None and placement is not None and now < last.at + NAMED_S and last.waits(placement)

    def accepted(self, now: float, placement: Placement | None, decision: Planned | StandbysPlaced | Adopted) -> None:
        """Remember that a decision is carried out: what its new standbys lack will be restored."""
        self._rounds = deque(row for row in self._rounds if row.at > now - WRITTEN_S)
        rows = decision.rows if isinstance(decision, StandbysPlaced) else decision.standbys
        if not rows or not decision.added:
            return
        app, lacking = decision.plan.app if isinstance(decision, Planned) else decision.app, decision.lacking
        self._begun_at[app] = now
        if placement is not None:  # what was not named will not be, since this round takes its place
            self._rounds = deque(row.named(placement) if row.app == app else row for row in self._rounds)
        self._rounds.append(_Round(app, now, {each: rows[each] for each in lacking}, lacking))

    def copies(
        self, view: SmoothedView, placement: Placement | None, snapshot: Snapshot | None, moves: int
    ) -> Copies | None:
        """Where state is already; None if this many moves can fill no memory and no disk."""
        if not may_fill(view, moves):
            return None
        known = self._known(view, placement)
        following = Following.of(view, placement) if known is None else known.following
        on_disk = state_held(snapshot, view.app, placement).on_disk
        return copies_of(view, following.placed, on_disk)


def _concern(app: AppId, survival: Survival) -> Concern:
    help_ = "other standbys can help" if survival.bound_pct <= FULL_PCT else "no choice of standbys prevents it"
    if survival.missing:
        help_ = "further ones may make it more"
    return Concern(kind=ConcernKind.LOSS_OVERLOADS, app=app, workers=(survival.worker,), detail=f"{survival}; {help_}")
