"""What the size of an app is judged by, from a window.

Demand is that of key groups, smoothed (`window/demand.py`).  What a worker uses besides, for heartbeats and rounds of
the network, is its fixed use.  It comes with each worker, so more workers use more in all.  Where a process does not
say what it uses, its key groups stand for it.

Its pool are the workers that agents can start for it and that do not run.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from trimtab_controller.decider.memory.forecasts import NOTHING_AHEAD, Ahead
from trimtab_controller.decider.memory.hosts import LEAST_SHARE, HostTracker
from trimtab_controller.decider.memory.unknown_load import Gaps
from trimtab_controller.decider.policies.potential import PotentialLoads
from trimtab_controller.decider.values.decision import PoolWorker
from trimtab_controller.decider.window.concerns import ClusterUse
from trimtab_controller.decider.window.owned import PERCENT_PER_CORE, Floats, OwnedTable
from trimtab_controller.decider.window.resources import free_disks
from trimtab_controller.decider.window.view import SmoothedView, Worker
from trimtab_protocol.messages.names import AppId, HostId, WorkerId
from trimtab_protocol.messages.report import Absence
from trimtab_protocol.messages.snapshot import Snapshot

SHARE_DIGITS = 1
"""Of the share of its capacity that a worker would have: noise does not change the order of the pool."""


def startable(snapshot: Snapshot, draining: frozenset[WorkerId]) -> dict[AppId, tuple[PoolWorker, ...]]:
    """The pool of each app, in order of the workers' names.

    Workers that crashed are not in it, nor are those that operators drain, because they are to stay off.
    """
    pools: defaultdict[AppId, list[PoolWorker]] = defaultdict(list)
    for row in sorted(snapshot.nodes, key=lambda row: row.worker):
        if row.absence is Absence.STOPPED and row.declared is not None and row.worker not in draining:
            pools[row.declared].append(PoolWorker(worker=row.worker, host=row.host, capacity=row.capacity))
    return {app: tuple(workers) for app, workers in sorted(pools.items())}


def helps(worker: PoolWorker) -> bool:
    """Whether its host has CPU left for it."""
    return worker.gain >= LEAST_SHARE * worker.capacity


def with_gains(pool: Sequence[PoolWorker], view: SmoothedView, hosts: HostTracker) -> tuple[PoolWorker, ...]:
    """The pool with what each worker adds to the app; those first that would have the most of their capacity."""
    added = hosts.added_to(view, [(each.host, each.capacity) for each in pool])
    found = [replace(each, adds=adds) for each, adds in zip(pool, added, strict=True)]
    return tuple(sorted(found, key=lambda each: -round(each.gain / each.capacity, SHARE_DIGITS)))


def restartable(snapshot: Snapshot) -> frozenset[WorkerId]:
    """The workers that run the app for which their agents can start them again."""
    return frozenset(row.worker for row in snapshot.nodes if row.app is not None and row.app == row.declared)


@dataclass(frozen=True, slots=True, kw_only=True)
class SizedWorker:
    """A worker of the app.  `capacity` in cores; `stays` False: it is being drained.  `free`: it can be planned with.

    `removable`: it is free, and can be started again after a stop.  `tied`: rules keep key groups on it, so that it
    cannot be emptied.  `largest_bytes` = of its key groups' states.
    """

    id: WorkerId
    host: HostId
    capacity: float
    state_bytes: int
    key_groups: int
    stays: bool
    free: bool
    removable: bool
    tied: bool = False
    largest_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """The workers that some key groups may be on by `rules` (their names), and the cores that these ask for in all."""

    rules: tuple[str, ...]
    workers: frozenset[WorkerId]
    demand: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SizeFacts:
    """What is known of an app in a window from `start_s` to `end_s` (epoch seconds).

    `demand` = cores that its key groups ask for in all; `loads` = of each one that can be moved; `fixed` = cores that
    each worker uses besides.  `behind` = cores that are asked of its workers beyond what they use.  `rate` = inputs
    done per second; workers that do not say it count like the others, and None = nobody says it.  `standbys` = how many
    each key group should have; 1 while that is unknown.

    `leaving` = workers that the controller drains to make the app smaller; `blocked` = workers with key groups that
    wait for something else than CPU; `unmeasured` = workers of which nothing is known; `starting` = workers that were
    started and do not run yet; `pool` = workers that can be started, in this order.

    `saving` = cores of the demand that collocation saves in the potential plan of one pass, `most_saved` = those that
    it could save at all.  `asks`: the solver can be asked for potential plans.  `potentials` = its answers, by the
    workers that remain; None: it gave none.

    `disks` = bytes that the disk of each host, where it is known, can take besides what is on it.  `pools`: one for all
    key groups with the same rules.

    `restart_s` = how long a started worker takes until it runs; `catch_up_s` = within which time a backlog is to be
    worked off.  `ahead` = what is forecast of the demand.
    """

    app: AppId
    start_s: float
    end_s: float
    workers: tuple[SizedWorker, ...]
    demand: float
    loads: Floats
    fixed: float
    behind: float
    rate: float | None
    standbys: int
    leaving: tuple[WorkerId, ...] = ()
    blocked: tuple[WorkerId, ...] = ()
    unmeasured: tuple[WorkerId, ...] = ()
    starting: tuple[WorkerId, ...] = ()
    saving: float = 0.0
    most_saved: float = 0.0
    asks: bool = False
    potentials: Mapping[frozenset[WorkerId], PotentialLoads | None] = field(default_factory=dict)
    pool: tuple[PoolWorker, ...] = ()
    restart_s: float = 0.0
    catch_up_s: float = math.inf
    disks: Mapping[HostId, float] = field(default_factory=dict)
    pools: tuple[Pool, ...] = ()
    ahead: Ahead = NOTHING_AHEAD

    @property
    def staying(self) -> tuple[SizedWorker, ...]:
        """The workers that are not being drained."""
        return tuple(worker for worker in self.workers if worker.stays)

    def remaining(self, gone: Collection[WorkerId] = ()) -> frozenset[WorkerId]:
        """The workers that can be planned with when these are gone."""
        return frozenset(worker.id for worker in self.staying if worker.free and worker.id not in gone)

    @property
    def capacity(self) -> float:
        """Cores of the workers that stay."""
        return sum(worker.capacity for worker in self.staying)

    @property
    def asked(self) -> float:
        """Cores asked of the workers that stay, their fixed use included."""
        return self.demand + self.fixed * len(self.staying)

    @property
    def utilisation(self) -> float:
        """What is asked of the workers that stay / their capacity; infinite where none stays."""
        return self.asked / self.capacity if self.capacity else math.inf

    @property
    def arrears(self) -> float:
        """Cores to work off, in time, what piles up until a worker that is started now runs; an upper estimate.

        Flink's autoscaler counts the whole input of a restart.  Here the other workers go on meanwhile.
        """
        return max(0.0, self.asked - self.capacity) * self.restart_s / self.catch_up_s

    def expected(self) -> "SizeFacts":
        """The same with the demand that is forecast until a worker that is started now runs, if that is more.

        Nothing piles up until then.
        """
        soon = self.ahead.soon
        if soon is None or soon.cores <= self.demand:
            return self
        return replace(self, demand=soon.cores, catch_up_s=math.inf)

    def kept_for(self) -> "SizeFacts":
        """The same with the demand that is forecast within the delay of a scale-in, if that is more.

        All key groups are taken to grow alike.
        """
        later = self.ahead.later
        if later is None or later.cores <= self.demand or not self.demand:
            return self
        times = later.cores / self.demand
        pools = tuple(replace(pool, demand=pool.demand * times) for pool in self.pools)
        grown = {workers: plan and plan.times(times) for workers, plan in self.potentials.items()}
        return replace(self, demand=later.cores, loads=self.loads * times, pools=pools, potentials=grown)


def demand_of(view: SmoothedView, gaps: Gaps) -> float:
    """Cores that the key groups of a view ask for in all; what is not known of it counts like the rest."""
    known = (float(view.owned.load.sum()) + float(np.nansum(view.kept_table.load))) / PERCENT_PER_CORE
    return known / max(1e-9, 1.0 - gaps.share)


def facts_of(
    view: SmoothedView,
    gaps: Gaps,
    use: ClusterUse,
    *,
    pool: tuple[PoolWorker, ...],
    leaving: tuple[WorkerId, ...],
    starting: tuple[WorkerId, ...],
    returnable: Collection[WorkerId] | None,
    restart_s: float,
    catch_up_s: float,
    ahead: Ahead = NOTHING_AHEAD,
    restarting: Collection[WorkerId] = (),
) -> SizeFacts:
    """The facts of a view with smoothed loads.

    `returnable`: the workers that can be started again; None: all of them.  `restarting`: those that a rolling restart
    drains.  They stay, since they come back.  The others as in `SizeFacts`.
    """
    owned = view.owned
    sizes, largest = owned.assumed_state_bytes, np.zeros(len(owned.workers), np.int64)
    np.maximum.at(largest, owned.owner, sizes)
    state = np.bincount(owned.owner, sizes, len(owned.workers))
    state_of = dict(zip(owned.workers, state.tolist(), strict=True))
    largest_of = dict(zip(owned.workers, largest.tolist(), strict=True))
    count_of = _counts(owned) + _counts(view.kept_table)
    free, tied = {worker.id for worker in view.workers}, _tied(view)
    rows = [*view.workers, *(each.worker for each in view.fixed if each.worker is not None)]
    of_app = [(worker, use.workers[worker.id]) for worker in rows if worker.id in use.workers]
    return SizeFacts(
        app=view.app,
        start_s=view.start_s,
        end_s=view.end_s,
        workers=tuple(
            SizedWorker(
                id=worker.id,
                host=worker.host,
                capacity=worker.capacity,
                state_bytes=int(state_of.get(worker.id, 0)),
                key_groups=count_of.get(worker.id, 0),
                stays=not worker.draining or worker.id in restarting,
                free=worker.id in free,
                removable=worker.id in free and (returnable is None or worker.id in returnable),
                tied=worker.id in tied,
                largest_bytes=largest_of.get(worker.id, 0),
            )
            for worker in rows
        ),
        demand=demand_of(view, gaps),
        loads=owned.load / PERCENT_PER_CORE,
        fixed=(view.fixed_use or 0.0) / PERCENT_PER_CORE,
        behind=sum(
            worker.whole_capacity * max(0.0, worker_use.demand_pct - worker_use.used_pct) / 100.0
            for worker, worker_use in of_app
            if worker_use.demand_pct is not None and worker_use.used_pct is not None
        ),
        rate=_rate(rows, use),
        standbys=1 if view.standbys is None else view.standbys,
        leaving=leaving,
        blocked=tuple(worker.id for worker, worker_use in of_app if worker_use.blocked is not None),
        unmeasured=tuple(each.id for each in view.fixed if each.worker is None),
        starting=starting,
        pool=pool,
        restart_s=restart_s,
        catch_up_s=catch_up_s,
        disks=free_disks(view),
        pools=tuple(_pools(view)),
        ahead=ahead,
    )


def _rate(workers: Collection[Worker], use: ClusterUse) -> float | None:
    known = [
        (worker.capacity, worker_use.inputs_s)
        for worker in workers
        if (worker_use := use.workers.get(worker.id)) is not None and worker_use.inputs_s is not None
    ]
    of_known = sum(capacity for capacity, _ in known)
    if not of_known:
        return None
    return sum(rate for _, rate in known) * sum(worker.capacity for worker in workers) / of_known


def _tied(view: SmoothedView) -> frozenset[WorkerId]:
    """The workers with key groups that are frozen there, or that may be on no other worker which stays."""
    if not view.rules:
        return frozenset()
    table, where = view.owned, view.places
    alone = np.append((where.allowed & view.staying).sum(axis=1) <= 1, False)  # the last one is for those without rules
    rows = where.frozen | (alone[where.class_of] & ~view.misplaced)
    return frozenset(table.workers[place] for place in np.unique(table.owner[rows]).tolist())


def _pools(view: SmoothedView) -> Iterator[Pool]:
    """Of key groups for which rules leave a worker."""
    where, names = view.places, [worker.id for worker in view.workers]
    for which, allowed in enumerate(where.allowed):
        if allowed.any():
            yield Pool(
                rules=tuple(rule.name for rule in where.rules[which]),
                workers=frozenset(names[place] for place in np.flatnonzero(allowed).tolist()),
                demand=float(view.owned.load[where.class_of == which].sum()) / PERCENT_PER_CORE,
            )


def _counts(table: OwnedTable) -> Counter[WorkerId]:
    """The number of key groups of each worker."""
    counts = np.bincount(table.owner, minlength=len(table.workers)).tolist()
    return Counter(dict(zip(table.workers, counts, strict=True)))
