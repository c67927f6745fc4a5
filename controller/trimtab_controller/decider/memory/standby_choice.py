"""Choose standbys: the workers that keep a key group's state warm, and the first of which owns it when its owner dies.

Every key group gets as many standbys as its app asks for.  Owner and standbys run on different hosts, or on different
workers if there is only one host.  Where agents name zones, standbys are outside the owner's zone, if a worker there
is able.  A rule may spread all copies over zones.

A worker being drained is never a standby, nor is one that only reports.  Other fixed workers keep what they follow, and
get no more; the standbys of key groups that are kept stay as they are.  No disk gets more new standbys than it has room
for.  The standby model chooses standbys so that after the loss of any one
host (or worker, if there is only one host) the survivors stay balanced (N-1).  Where it is nearly indifferent, new
standbys go where all are warm sooner: onto copies on disks, and not all to one host.

A key group is followed only by workers that rules allow for it.

Following a key group counts as a share of its load: as measured (`FollowingCosts`), FOLLOWING_SHARE until then.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from trimtab_controller.decider.values.decision import WarmForecast
from trimtab_controller.decider.values.reasons import SkipReason
from trimtab_controller.decider.window.copies import Held
from trimtab_controller.decider.window.owned import Floats, Integers, OwnedTable
from trimtab_controller.decider.window.placing import Places, spreads
from trimtab_controller.decider.window.resources import free_disks
from trimtab_controller.decider.window.restores import TARGET_OPERATIONS, Restores
from trimtab_controller.decider.window.view import SmoothedView, Worker
from trimtab_models.solving import Never
from trimtab_models.standbys.problem import HOST, UNPLACED, StandbyBudget, StandbyProblem, is_new
from trimtab_models.standbys.restoring import RestoredStandbys, RestoreTimes, restored_sooner
from trimtab_models.standbys.solve import StandbyParams, StandbyResult, kept_standbys, rated, solve
from trimtab_protocol.messages.names import HostId, KeyGroup, WorkerId
from trimtab_protocol.messages.owner_rows import Owners
from trimtab_protocol.messages.placement import Placement
from trimtab_protocol.wording import first_few

FOLLOWING_SHARE = 0.2
"""Cost of following a key group, as a share of its load, until it is measured.  Applying a record without processing it
is less work than processing it."""
NO_REPLACEMENT = float("inf")
"""The tolerance with which every present standby stays."""
SEARCH = StandbyParams(steps=2_000, peaks=False)
"""A limit on the time of the search, at most a second for 100,000 key groups: the decider waits for it.  What is chosen
is rated with the next window."""
SOONER_S, SOONER = 1.0, 0.1
"""By so much, in seconds and as a share, all must be warm sooner for a standby to go elsewhere."""
GONE = UNPLACED - 1
"""A standby in the placement that is no worker of the app any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyRows:
    """The changes to publish.

    `rows` = (owner, standby ...) of the key groups whose standbys change.  `added` = number of new standbys, of which
    `replaced` take the place of others.  `missing` = number of key groups that still have too few standbys.
    `lacking` = bytes that the new standbys of a key group restore, by host.  `warm`: when they are restored; None
    if it was not asked.
    """

    rows: Mapping[KeyGroup, Owners] = field(default_factory=dict)
    added: int = 0
    replaced: int = 0
    missing: int = 0
    lacking: Mapping[KeyGroup, Mapping[HostId, int]] = field(default_factory=dict)
    warm: WarmForecast | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Survival:
    """What the loss of any one host, or worker, leads to (N-1); loads in percent of the worker's capacity.

    After the loss of the workers `lost`, `worker` has the highest load of all losses, `worst_pct`.  No choice of
    standbys has a lower one than `bound_pct`.  `missing` = key groups that lack a standby: nobody inherits these, so
    the load may be higher.
    """

    worst_pct: float
    bound_pct: float
    lost: tuple[WorkerId, ...]
    worker: WorkerId
    missing: int = 0

    @property
    def excess_pct(self) -> float:
        """By how much the worst load is above its bound."""
        return self.worst_pct - self.bound_pct

    def __str__(self) -> str:
        said = f"{self.worst_pct:.0f} % at {self.worker} after losing {first_few(self.lost)}"
        if self.missing:
            return f"at least {said}; without a standby: {self.missing} of the key groups"
        return f"{said}, bound {self.bound_pct:.0f} %"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Following:
    """The standbys of a view's key groups in a placement, as numbers of the view's workers; the fixed ones come last.

    `placed` (K, P) has them as they are published, without the reported owner, GONE for an unknown worker, and
    UNPLACED behind the last one.
    """

    view: SmoothedView
    placed: Integers

    @classmethod
    def of(cls, view: SmoothedView, placement: Placement | None) -> "Following":
        """Those in the placement; without one there are none."""
        table = _whole(view)
        places = {worker.id: place for place, worker in enumerate(view.all_workers)}
        owners = (
            np.array([places[name] for name in table.workers], np.int64)[table.owner] if len(table) else table.owner
        )
        rows: list[list[int]] = []
        published = [placement.owners.get(operator, ()) if placement else () for operator in table.operators]
        for operator, partition, owner in zip(
            table.operator.tolist(), table.partition.tolist(), owners.tolist(), strict=True
        ):
            row = published[operator][partition] if partition < len(published[operator]) else ()
            rows.append([place for name in row[1:] if (place := places.get(name, GONE)) != owner])
        width = max(map(len, rows), default=0)
        padded = [row + [UNPLACED] * (width - len(row)) for row in rows]
        return cls(view=view, placed=np.array(padded, np.int64).reshape(len(rows), width))

    def problem(self, view: SmoothedView, wanted: int, budget: StandbyBudget, tolerance: float) -> StandbyProblem:
        """The problem of the model; `view` may have other loads than the one that this was made for."""
        table, workers = _whole(view), view.all_workers
        idle = {each.id for each in view.fixed if each.reason is SkipReason.WORKER_NOT_STEERING}
        places = {worker.id: place for place, worker in enumerate(workers)}
        owner = np.array([places[name] for name in table.workers], np.int64)
        present, frozen = np.maximum(self.placed, UNPLACED), np.arange(len(table)) >= len(view.owned)
        usage, limit = self._most_followed(view, table, workers, budget)
        removing = np.array([worker.draining or worker.id in idle for worker in workers], np.bool_)
        near_home: NDArray[np.bool_] | None = None
        if placing := [rule for rule in view.rules if rule.places_standbys]:
            where = Places.of(placing, table, [each.site for each in workers])
            barred = (present != UNPLACED) & ~where.may(np.arange(len(table))[:, None], present)
            present = np.where(barred & ~frozen[:, None], UNPLACED, present)
            near_home = _kept_near(where, workers, owner[table.owner], removing)
            ruled = _by_rules(where, np.where(frozen[:, None], present, UNPLACED))
            usage, limit = np.concatenate((usage, ruled[0])), np.concatenate((limit, ruled[1]))
        return StandbyProblem(
            owner=owner[table.owner] if len(table) else table.owner,
            load=table.load,
            follow=_share(view) * table.load,
            state_bytes=table.assumed_state_bytes.astype(np.float64),
            capacity=np.array([worker.capacity for worker in workers], np.float64),
            besides=self._besides(view),
            removing=removing,
            levels=_levels(workers),
            present=present,
            frozen=frozen,
            wanted=wanted,
            usage=usage,
            limit=limit,
            budget=budget,
            tolerance=tolerance,
            lost_by=HOST,
            near_home=near_home,
            spread=spreads(view.rules) and any(worker.zone is not None for worker in workers),
        )

    def _besides(self, view: SmoothedView) -> float:
        """What each worker uses besides its key groups and following others, in percent of a reference core."""
        following = _share(view) * sum(self.load_followed(view).values()) / max(1, len(view.all_workers))
        return max(0.0, (view.fixed_use or 0.0) - following)

    def _most_followed(
        self, view: SmoothedView, table: OwnedTable, workers: tuple[Worker, ...], budget: StandbyBudget
    ) -> tuple[Floats, Floats]:
        """(R, K) what following a key group takes, and (R, N) how much of it each worker may follow.

        A fixed worker: as many key groups as now.  Any other, where the budget could fill a disk: as many bytes as now,
        and those free on its disk, which other workers of the host may take as well (`_fitting`).
        """
        usage, limit = list[Floats](), list[Floats]()
        followed = self.placed >= 0
        by = self.placed[followed]
        if view.fixed:
            most = np.full(len(workers), np.inf)
            free = len(view.workers)
            most[free:] = np.bincount(by, minlength=len(workers))[free:]
            usage.append(np.ones(len(table)))
            limit.append(most)
        state = table.assumed_state_bytes.astype(np.float64)
        together = Counter(worker.host for worker in workers)
        a_worker = max(budget.worker_bytes, float(state.max(initial=0.0)))
        disks = free_disks(view)
        if any(free < min(together[host] * a_worker, len(workers) * state.sum()) for host, free in disks.items()):
            held = np.bincount(by, state[np.nonzero(followed)[0]], len(workers))
            usage.append(state)
            limit.append(held + np.array([disks.get(worker.host, np.inf) for worker in workers]))
        return np.array(usage).reshape(-1, len(table)), np.array(limit).reshape(-1, len(workers))

    def on_lost(self, here: Collection[WorkerId]) -> int:
        """Number of key groups whose owner, or one of whose standbys, is a worker that is not `here`."""
        nobody = (False, False)  # what GONE and UNPLACED, counted from the end, find
        lost = np.array([*(worker.id not in here for worker in self.view.all_workers), *nobody], np.bool_)
        table = _whole(self.view)
        owners = np.array([worker not in here for worker in table.workers], np.bool_)[table.owner]
        return int((owners | lost[self.placed].any(axis=1)).sum())

    def bytes_followed(self, view: SmoothedView) -> dict[WorkerId, float]:
        """Bytes of state that each worker follows."""
        return self._followed(view, _whole(view).assumed_state_bytes)

    def load_followed(self, view: SmoothedView) -> dict[WorkerId, float]:
        """Load of the key groups that each worker follows, in percent of a core."""
        return self._followed(view, np.nan_to_num(_whole(view).load))

    def _followed(self, view: SmoothedView, amount: Floats | Integers) -> dict[WorkerId, float]:
        rows, columns = np.nonzero(self.placed >= 0)
        workers = view.all_workers
        sums = np.bincount(self.placed[rows, columns], amount[rows], len(workers))
        return dict(zip((worker.id for worker in workers), sums.tolist(), strict=True))

    def missing(self, view: SmoothedView, wanted: int) -> int:
        """Number of key groups with fewer standbys that may stay than they can have."""
        problem = self.problem(view, wanted, StandbyBudget(), NO_REPLACEMENT)
        return int(((kept_standbys(problem) != UNPLACED).sum(axis=1) < problem.due).sum())

    def survival(self, view: SmoothedView, wanted: int, *, peaks: bool) -> Survival | None:
        """N-1 with these standbys; `peaks`: with a tighter bound, which takes 0.1 s with 8 workers.

        Fixed workers count as they are placed.  None where no other worker can take over.
        """
        problem = self.problem(view, wanted, StandbyBudget(), NO_REPLACEMENT)
        found = rated(problem, kept_standbys(problem), peaks=peaks)
        domain, worker, workers = found.score.worst_domain, found.score.worst_worker, view.all_workers
        if not wanted or worker < 0 or not problem.due.any():
            return None
        return Survival(
            worst_pct=found.score.worst,
            bound_pct=found.lower_bound,
            lost=tuple(workers[each].id for each in np.flatnonzero(problem.domain == domain).tolist()),
            worker=workers[worker].id,
            missing=found.score.missing,
        )

    def choose(
        self,
        view: SmoothedView,
        wanted: int,
        budget: StandbyBudget,
        tolerance: float = NO_REPLACEMENT,
        restores: Restores | None = None,
    ) -> StandbyRows:
        """The rows to publish so that every key group has `wanted` standbys, as far as budget and workers allow.

        A standby that may stay is replaced only where that lowers the highest load after a loss by about `tolerance`
        percent of a worker.  With `restores`, new standbys go where all are warm sooner, if that is worthwhile.
        """
        problem = self.problem(view, wanted, budget, tolerance)
        found = solve(problem, params=SEARCH)
        if restores is None or not is_new(problem, found.assignment).any():
            return self._rows(view, problem, found, Held())
        sooner = self._sooner(view, problem, found.assignment, restores)
        unit_s, gained = restores.learned.unit_s, sooner.before - sooner.makespan
        worthwhile = gained * unit_s >= SOONER_S and gained >= SOONER * sooner.before
        rows = self._rows(
            view, problem, replace(found, assignment=sooner.assignment) if worthwhile else found, restores.held
        )
        warm_s = unit_s * (sooner.makespan if worthwhile else sooner.before)
        return replace(rows, warm=WarmForecast(seconds=warm_s, bound_s=unit_s * sooner.lower_bound))

    def _sooner(
        self, view: SmoothedView, problem: StandbyProblem, assignment: Integers, restores: Restores
    ) -> RestoredStandbys:
        """Other workers for the new standbys, by what hosts restore already and what they have on their disks."""
        table, workers, learned = _whole(view), view.all_workers, restores.learned
        hosts = sorted({worker.host for worker in workers})
        server = {host: place for place, host in enumerate(hosts)}
        places = {worker.id: place for place, worker in enumerate(workers)}
        on_disk = restores.held.on_disk
        less = {
            row: {
                places[name]: learned.size(share * float(problem.state_bytes[row]))
                for name, share in shares.items()
                if name in places
            }
            for row, shares in zip(table.places_of(on_disk).tolist(), on_disk.values(), strict=True)
            if row >= 0
        }
        pace = np.array([restores.pace(host) for host in hosts])
        begun = np.array([sum(map(learned.size, restores.running.get(host, ()))) for host in hosts])
        times = RestoreTimes(
            server=np.array([server[worker.host] for worker in workers], np.int64),
            size=np.array([learned.size(each) for each in problem.state_bytes.tolist()], np.float64),
            less=less,
            pace=pace,
            alone=np.array([learned.cost(host).at(1) for host in hosts]),
            running=begun * pace,
        )
        return restored_sooner(problem, assignment, times, stop=Never(), operations=TARGET_OPERATIONS)

    def _rows(self, view: SmoothedView, problem: StandbyProblem, found: StandbyResult, held: Held) -> StandbyRows:
        width = max(self.placed.shape[1], found.assignment.shape[1])
        changed = (_widened(self.placed, width) != _widened(found.assignment, width)).any(axis=1) & ~problem.frozen
        table, names = _whole(view), [worker.id for worker in view.all_workers]
        new, kept = is_new(problem, found.assignment), kept_standbys(problem) != UNPLACED
        lacks, refused = _fitting(view, problem, found.assignment, new & changed[:, np.newaxis], held)
        rows, lacking = {}, {}
        for place in np.flatnonzero(changed & ~refused).tolist():
            key_group = KeyGroup(view.app, table.operators[table.operator[place]], int(table.partition[place]))
            standbys = (names[each] for each in found.assignment[place].tolist() if each != UNPLACED)
            rows[key_group] = (names[problem.owner[place]], *standbys)
            if place in lacks:
                lacking[key_group] = lacks[place]
        more = (found.assignment != UNPLACED).sum(axis=1) - kept.sum(axis=1)
        added, filled = int(new[~refused].sum()), int(more[~refused].sum())
        missing = found.score.missing + int((refused & (more > 0)).sum())
        return StandbyRows(rows=rows, added=added, replaced=added - filled, missing=missing, lacking=lacking)


def _levels(workers: tuple[Worker, ...]) -> Integers:
    """The worker, its host and, where one is known, its zone, as numbers; all hosts of unknown zones are one zone."""
    hosts, zones = [worker.host for worker in workers], [worker.zone or "" for worker in workers]
    named = [hosts, zones] if any(zones) else [hosts]
    rows = [range(len(workers)), *(np.unique(np.array(each), return_inverse=True)[1].reshape(-1) for each in named)]
    return np.array(rows, np.int64)


def _kept_near(
    where: Places, workers: tuple[Worker, ...], owner: Integers, removing: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """(K,) the key groups for which rules leave no able worker outside the zone of their owner (K,)."""
    zones = np.unique(np.array([worker.zone or "" for worker in workers]), return_inverse=True)[1].reshape(-1)
    here = np.zeros((len(where.allowed) + 1, int(zones.max(initial=0)) + 1), np.bool_)
    here[-1, zones] = True  # no rule is about those of FREE
    for row, allowed in zip(here, where.allowed, strict=False):
        row[zones[allowed & ~removing]] = True
    of_class = here[where.class_of]
    found: NDArray[np.bool_] = of_class.sum(axis=1) <= of_class[np.arange(len(owner)), zones[owner]]
    return found


def _by_rules(where: Places, stays: Integers) -> tuple[Floats, Floats]:
    """(C, K) which key groups are of each class, and (C, N) how many of them each worker may follow.

    Workers that a class may not be on follow those that stay (K, P), which they follow already, and no others.
    """
    of_class = where.class_of == np.arange(len(where.allowed))[:, None]
    limit = np.where(where.allowed, np.inf, 0.0)
    for row, chosen in zip(limit, of_class, strict=True):
        followed = stays[chosen]
        row[:] = np.maximum(row, np.bincount(followed[followed != UNPLACED], minlength=len(row)))
    return of_class.astype(np.float64), limit


def _fitting(
    view: SmoothedView, problem: StandbyProblem, assignment: Integers, new: NDArray[np.bool_], held: Held
) -> tuple[dict[int, dict[HostId, int]], NDArray[np.bool_]]:
    """Bytes that the new standbys of key groups restore, by host; and (K,) those for which a disk has no room."""
    disks, workers, table = free_disks(view), view.all_workers, _whole(view)
    on_disk = dict(zip(table.places_of(held.on_disk).tolist(), held.on_disk.values(), strict=True))
    written: dict[HostId, float] = {}
    lacking: dict[int, dict[HostId, int]] = {}
    refused = np.zeros(len(assignment), np.bool_)
    for place in np.flatnonzero(new.any(axis=1)).tolist():
        size, shares = float(problem.state_bytes[place]), on_disk.get(place, {})
        lacks: dict[HostId, int] = {}
        for worker in (workers[each] for each in assignment[place, new[place]].tolist()):
            lacks[worker.host] = lacks.get(worker.host, 0) + int(size * shares.get(worker.id, 1.0))
        after = {host: written.get(host, 0.0) + lacking_there for host, lacking_there in lacks.items()}
        if any(taken > disks.get(host, np.inf) for host, taken in after.items()):
            refused[place] = True
        else:
            written |= after
            lacking[place] = lacks
    return lacking, refused


def _share(view: SmoothedView) -> float:
    return FOLLOWING_SHARE if view.following_share is None else view.following_share


def _whole(view: SmoothedView) -> OwnedTable:
    """All key groups of the view, the kept ones last."""
    return view.owned.joined(view.kept_table)


def _widened(standbys: Integers, width: int) -> Integers:
    return np.pad(standbys, ((0, 0), (0, width - standbys.shape[1])), constant_values=UNPLACED)
