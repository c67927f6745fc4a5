"""Choose standbys: the workers that keep a key group's state warm, so that the loss of its owner needs no restore.

Every key group gets as many standbys as its app asks for.  Owner and standbys run on different hosts, or on different
workers if there is only one host.  A worker being drained is never a standby, nor is one that only reports.  A standby
that fits stays, because a change costs a restore; other fixed workers keep what they follow, and get no more.

A gap is filled with the worker of the smallest expected load relative to its capacity: its own load, a share of the
load that it follows, and the load that it would inherit if the owner's host were lost.  The key groups of one host are
assigned heaviest first, so they spread over the other workers as evenly as their loads allow.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from trimtab_controller.decider.owned import Floats, OwnedTable
from trimtab_controller.decider.reasons import SkipReason
from trimtab_controller.decider.view import AppView, Worker
from trimtab_protocol.messages.names import KeyGroup, WorkerId
from trimtab_protocol.messages.placement import Owners, Placement

FOLLOWING_SHARE = 0.2
"""Cost of following a key group, as a share of its load.  A guess; it spreads the followed load evenly."""
IDLE_SHARE = 0.1
"""Minimum weight of a key group, as a share of the mean load, so that key groups without load are spread too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The most that one worker may begin to restore in one round; one key group is always allowed."""

    key_groups: int
    state_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyRows:
    """The changes to publish.

    `rows` = (owner, standby ...) of the key groups whose standbys change.  `added` = number of new standbys.  `missing`
    = number of key groups that still have too few standbys.
    """

    rows: Mapping[KeyGroup, Owners] = field(default_factory=dict)
    added: int = 0
    missing: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", MappingProxyType(dict(self.rows)))


def count_missing(view: AppView, placement: Placement | None, wanted: int) -> int:
    """Number of key groups with too few standbys in the placement."""
    cluster = _Cluster.of(view)
    kept = cluster.fitting(placement, wanted)
    return sum(len(found) < cluster.due(owner, wanted) for found, owner in zip(kept, cluster.owner, strict=True))


def choose_standbys(view: AppView, placement: Placement | None, wanted: int, budget: Budget) -> StandbyRows:
    """The rows to publish so that every key group has `wanted` standbys, as far as budget and workers allow."""
    cluster = _Cluster.of(view)
    kept = cluster.fitting(placement, wanted)
    before = [tuple(found) for found in kept]
    filling = _Filling(cluster, kept, budget)
    for rank in range(wanted):
        filling.fill(rank, wanted)
    placed = cluster.placed(placement)
    names = [worker.id for worker in cluster.workers]
    rows = {}
    for place, (found, standbys) in enumerate(zip(kept, placed, strict=True)):
        chosen = tuple(names[each] for each in found)
        if chosen != standbys:
            rows[cluster.key_group(place)] = (names[cluster.owner[place]], *chosen)
    return StandbyRows(
        rows=rows,
        added=sum(len(found) - len(old) for found, old in zip(kept, before, strict=True)),
        missing=sum(len(found) < cluster.due(owner, wanted) for found, owner in zip(kept, cluster.owner, strict=True)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cluster:
    """The view with numbers for names: a place is an index of a worker, a host or a key group.

    The first `free` workers may get standbys; the others are fixed and keep those that they have.
    """

    view: AppView
    table: OwnedTable
    workers: tuple[Worker, ...]
    places: Mapping[WorkerId, int]
    owner: list[int]
    host: list[int]
    on_host: list[list[int]]
    eligible: list[bool]
    free: int
    eligible_hosts: frozenset[int]

    @classmethod
    def of(cls, view: AppView) -> "_Cluster":
        known = tuple(each.worker for each in view.fixed if each.worker is not None)
        table, workers = view.owned, (*view.workers, *known)
        places = {worker.id: place for place, worker in enumerate(workers)}
        names = {name: place for place, name in enumerate(sorted({worker.host for worker in workers}))}
        host = [names[worker.host] for worker in workers]
        on_host: list[list[int]] = [[] for _ in names]
        for place, each in enumerate(host):
            on_host[each].append(place)
        owners = [places[name] for name in table.workers]
        idle = {each.id for each in view.fixed if each.reason is SkipReason.WORKER_NOT_STEERING}
        eligible = [not worker.draining and worker.id not in idle for worker in workers]
        return cls(
            view=view,
            table=table,
            workers=workers,
            places=places,
            owner=[owners[each] for each in table.owner.tolist()],
            host=host,
            on_host=on_host,
            eligible=eligible,
            free=len(view.workers),
            eligible_hosts=frozenset(each for each, fits in zip(host, eligible, strict=True) if fits),
        )

    def key_group(self, place: int) -> KeyGroup:
        return KeyGroup(
            self.view.app, self.table.operators[self.table.operator[place]], int(self.table.partition[place])
        )

    def apart(self, owner: int) -> bool:
        """Whether another host can take standbys of this worker's key groups."""
        return len(self.eligible_hosts) > (self.host[owner] in self.eligible_hosts)

    def domain(self, owner: int) -> tuple[bool, int]:
        """What fails together with this worker: its host, or the worker alone if there is no other host."""
        return (True, self.host[owner]) if self.apart(owner) else (False, owner)

    def lost_with(self, domain: tuple[bool, int]) -> list[int]:
        """The workers of a domain."""
        return self.on_host[domain[1]] if domain[0] else [domain[1]]

    def due(self, owner: int, wanted: int) -> int:
        """Number of standbys that a key group of this worker can have, at most `wanted`."""
        if self.apart(owner):
            return min(wanted, len(self.eligible_hosts) - (self.host[owner] in self.eligible_hosts))
        return min(wanted, sum(self.eligible[each] for each in self.on_host[self.host[owner]] if each != owner))

    def placed(self, placement: Placement | None) -> list[Owners]:
        """The standbys in the placement, without the reported owner, which may be one of them."""
        if placement is None:
            return [()] * len(self.table)
        rows = [placement.owners.get(operator, ()) for operator in self.table.operators]
        found = []
        for operator, partition, owner in zip(
            self.table.operator.tolist(), self.table.partition.tolist(), self.owner, strict=True
        ):
            row = rows[operator][partition][1:] if partition < len(rows[operator]) else ()
            name = self.workers[owner].id
            found.append(tuple(each for each in row if each != name) if name in row else row)
        return found

    def fitting(self, placement: Placement | None, wanted: int) -> list[list[int]]:
        """For each key group, the standbys in the placement that may stay."""
        due = [self.due(owner, wanted) for owner in range(len(self.workers))]
        return [
            self._fitting(standbys, owner, due[owner])
            for standbys, owner in zip(self.placed(placement), self.owner, strict=True)
        ]

    def _fitting(self, standbys: Owners, owner: int, due: int) -> list[int]:
        apart = self.apart(owner)
        used = {self.host[owner]} if apart else {owner}
        kept: list[int] = []
        for name in standbys:
            place = self.places.get(name)
            if place is None or not self.eligible[place] or len(kept) == due:
                continue
            where = self.host[place] if apart else place
            if where not in used:
                used.add(where)
                kept.append(place)
        return kept


class _Filling:
    """Fills the gaps in `kept`, rank by rank, one domain after the other."""

    def __init__(self, cluster: _Cluster, kept: list[list[int]], budget: Budget) -> None:
        table, size = cluster.table, len(cluster.workers)
        self._cluster = cluster
        self._kept = kept
        self._budget = budget
        mean = float(table.load.mean()) if len(table) else 0.0
        self._weight = table.load + (IDLE_SHARE * mean if mean else 1.0)
        self._bytes = table.assumed_state_bytes
        self._capacity = np.array([worker.capacity for worker in cluster.workers], np.float64)
        self._carried: Floats = np.bincount(cluster.owner, weights=table.load, minlength=size).astype(np.float64)
        """Each worker's own load plus a share of the load that it follows."""
        self._inherited: dict[tuple[bool, int], dict[int, float]] = defaultdict(lambda: defaultdict(float))
        self._begun = np.zeros(size, np.int64)
        self._begun_bytes = np.zeros(size, np.float64)
        self._closed = np.array([not fits for fits in cluster.eligible])
        self._closed[cluster.free :] = True
        for place, found in enumerate(kept):
            for rank, standby in enumerate(found):
                self._note(place, standby, rank)

    def fill(self, rank: int, wanted: int) -> None:
        """Give a standby to each key group that has `rank` standbys and should have more."""
        cluster = self._cluster
        due = [cluster.due(owner, wanted) for owner in range(len(cluster.workers))]
        orphans: dict[tuple[bool, int], list[int]] = defaultdict(list)
        for place, (found, owner) in enumerate(zip(self._kept, cluster.owner, strict=True)):
            if len(found) == rank < due[owner]:
                orphans[cluster.domain(owner)].append(place)
        for domain in sorted(orphans):
            self._fill_domain(rank, domain, sorted(orphans[domain], key=lambda place: -self._weight[place]))

    def _fill_domain(self, rank: int, domain: tuple[bool, int], orphans: Iterable[int]) -> None:
        heavier = self._carried.copy()
        for each, load in self._inherited[domain].items():
            heavier[each] += load
        expected = heavier / self._capacity
        expected[self._closed] = np.inf
        expected[self._cluster.lost_with(domain)] = np.inf
        for place in orphans:
            standby = self._least(expected, self._beside(place, apart=domain[0]))
            if standby is None:
                continue
            expected[standby] += self._note(place, standby, rank) / self._capacity[standby]
            self._kept[place].append(standby)
            if self._begin(place, standby):
                expected[standby] = np.inf

    def _beside(self, place: int, *, apart: bool) -> list[int]:
        """The workers that cannot be the next standby: a worker of their host, or they themselves, already is one."""
        cluster, found = self._cluster, self._kept[place]
        return [worker for each in found for worker in cluster.on_host[cluster.host[each]]] if apart else found

    @staticmethod
    def _least(expected: Floats, taken: list[int]) -> int | None:
        if taken:
            expected = expected.copy()
            expected[taken] = np.inf
        least = int(expected.argmin())
        return None if expected[least] == np.inf else least

    def _note(self, place: int, standby: int, rank: int) -> float:
        """Record a standby and return its additional expected load; only the first standby inherits."""
        weight = float(self._weight[place])
        self._carried[standby] += FOLLOWING_SHARE * weight
        if rank:
            return FOLLOWING_SHARE * weight
        self._inherited[self._cluster.domain(self._cluster.owner[place])][standby] += weight
        return (1.0 + FOLLOWING_SHARE) * weight

    def _begin(self, place: int, standby: int) -> bool:
        """Count a restore; return whether the worker's budget for this round is used up."""
        self._begun[standby] += 1
        self._begun_bytes[standby] += self._bytes[place]
        full = self._begun[standby] >= self._budget.key_groups or self._begun_bytes[standby] >= self._budget.state_bytes
        self._closed[standby] |= full
        return bool(full)
