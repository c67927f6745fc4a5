"""The decider's views of one app in one window, or the reason why it knows too little."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from trimtab_controller.decider.values.reasons import SkipReason
from trimtab_controller.decider.window.owned import Integers, Owned, OwnedTable
from trimtab_controller.decider.window.placing import Places
from trimtab_controller.rows import Site
from trimtab_controller.solver.answer import Copies
from trimtab_protocol.messages.names import AppId, HostId, KeyGroup, OperatorId, WorkerId
from trimtab_protocol.messages.rules import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What the key groups of an app's workers may use together on a host; infinite = no limit is known.

    `cpu` in the unit of loads; `memory` and `disk` in bytes of state; `received` and `sent` in bytes per second.
    """

    cpu: float
    memory: float
    received: float = math.inf
    sent: float = math.inf
    disk: float = math.inf


UNLIMITED = Room(cpu=math.inf, memory=math.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A worker.  `draining`: its key groups are to leave it; `zone` of its host: None if its agent names none.

    `capacity`: the cores that it may use, or its share of what is left of its host, in reference cores
    (`memory/hosts.py`); `share` = the part of what it may use with which it counts.
    """

    id: WorkerId
    host: HostId
    capacity: float
    draining: bool
    zone: str | None = None
    share: float = 1.0

    @property
    def site(self) -> tuple[WorkerId, HostId, str | None]:
        """Where it is, for rules."""
        return self.id, self.host, self.zone

    @property
    def whole_capacity(self) -> float:
        """The cores that it may use, in reference cores, whatever its host has left."""
        return self.capacity / self.share


@dataclass(frozen=True, slots=True, kw_only=True)
class EndCosts:
    """CPU seconds that a tuple costs an operator more because it goes to, or comes from, another worker."""

    sending: float = 0.0
    receiving: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreCost:
    """What a move costs its target: a core for `unit_s` seconds, and for a second per `bytes_s` bytes of state."""

    unit_s: float = 0.3
    bytes_s: float = 10e6


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedWorker:
    """A worker that takes no part in plans: its key groups stay where they are, and it gets none.

    `reason`, `detail` say why.  `worker` is None if no host has reported it yet.
    """

    id: WorkerId
    reason: SkipReason
    detail: str
    worker: Worker | None = None

    def __str__(self) -> str:
        return f"{self.id} ({self.detail})" if self.detail else self.id

    @property
    def why(self) -> str:
        """Why it takes no part, in words."""
        return f"{self.reason}: {self.detail}" if self.detail else str(self.reason)


@dataclass(frozen=True, kw_only=True)
class AppView:
    """Who owns what in one app, in one window: every key group has an owner, every owner is a running worker.

    Four classes say how far a view has come, and so what `load` is; a function takes the first that is enough for it:
    `MeasuredView`, `DemandView`, `SmoothedView`, `PlannableView`.  This one is for what reads no loads.

    Plans are made around `fixed` and its key groups, `kept`.  A kept key group has the owner that the placement should
    name.  `start_s`, `end_s` bound the window (epoch seconds); `flows` are tuples per second between key groups.
    `key_groups` and `kept` become an `OwnedTable`, whatever sequence is given.
    """

    app: AppId
    start_s: float
    end_s: float
    workers: tuple[Worker, ...]
    key_groups: Sequence[Owned]
    flows: Mapping[tuple[KeyGroup, KeyGroup], float]
    standbys: int | None = None
    """The number that each key group should have; None = unknown."""
    fixed: tuple[FixedWorker, ...] = ()
    kept: Sequence[Owned] = ()
    fresh: bool = False
    """The app was started a short while ago, and had no state then."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "key_groups", OwnedTable.of(self.app, self.key_groups))
        object.__setattr__(self, "kept", OwnedTable.of(self.app, self.kept))

    @classmethod
    def of(cls, view: "AppView", **more: object) -> Self:
        """A view that has come further: the fields of `view`, and those that are known `more`."""
        shared: dict[str, Any] = {each.name: getattr(view, each.name) for each in fields(view)}
        return cls(**(shared | more))

    @property
    def owned(self) -> OwnedTable:
        """`key_groups` as a table."""
        return OwnedTable.of(self.app, self.key_groups)

    @property
    def owners(self) -> dict[KeyGroup, WorkerId]:
        """The owner of each key group; large, and built at each call."""
        return self.owned.owners

    @property
    def kept_table(self) -> OwnedTable:
        """`kept` as a table."""
        return OwnedTable.of(self.app, self.kept)

    @property
    def placed(self) -> dict[KeyGroup, WorkerId]:
        """The owner of each key group of the app, kept ones included; large, and built at each call."""
        return {**self.owned.owners, **self.kept_table.owners}

    @cached_property
    def sizes(self) -> dict[OperatorId, int]:
        """The number of key groups of each operator, kept ones included."""
        found = Counter(self.owned.sizes)
        found.update(self.kept_table.sizes)
        return {operator: count for operator, count in found.items() if count}

    @cached_property
    def numbers(self) -> dict[WorkerId, int]:
        """The place of every worker in `workers`."""
        return {worker.id: place for place, worker in enumerate(self.workers)}

    @cached_property
    def owner_numbers(self) -> Integers:
        """(K,) the place in `workers` of the owner of each of `key_groups`."""
        table = self.owned
        owners: Integers = np.array([self.numbers[name] for name in table.workers], np.int64)[table.owner]
        return owners

    @property
    def staying(self) -> NDArray[np.bool_]:
        """(N,) the workers that are not being drained."""
        return np.array([not worker.draining for worker in self.workers], np.bool_)

    @property
    def staying_capacity(self) -> float:
        """The capacity of the workers that are not being drained."""
        return sum(worker.capacity for worker in self.workers if not worker.draining)

    @cached_property
    def hosts(self) -> dict[WorkerId, HostId]:
        """The host of every worker."""
        return {worker.id: worker.host for worker in self.workers}

    @property
    def of_drained(self) -> NDArray[np.bool_]:
        """(K,) the key groups of workers that are being drained."""
        drained = frozenset(self.draining)
        if not drained:
            return np.zeros(len(self.owned), np.bool_)
        return np.array([name in drained for name in self.owned.workers], np.bool_)[self.owned.owner]

    @property
    def all_workers(self) -> tuple[Worker, ...]:
        """The workers, the fixed ones last as far as they are known."""
        return (*self.workers, *(each.worker for each in self.fixed if each.worker is not None))

    @cached_property
    def sites(self) -> dict[WorkerId, Site]:
        """Where every worker runs, the fixed ones included."""
        return {worker.id: Site(host=worker.host, zone=worker.zone) for worker in self.all_workers}

    @property
    def memory_stays(self) -> bool:
        """Whether the old owner of a key group that moves goes on holding its state: it becomes a standby.

        Not if standbys are better that no loss takes together with the new owner: see `rows.py`.
        """
        return self.standbys != 0

    @property
    def draining(self) -> tuple[WorkerId, ...]:
        """The workers being drained."""
        return tuple(worker.id for worker in self.workers if worker.draining)

    def owned_by(self, worker: WorkerId) -> int:
        """How many key groups the worker owns."""
        return self.owned.owned_by(worker)


@dataclass(frozen=True, kw_only=True)
class MeasuredView(AppView):
    """What the snapshot alone shows of an app.

    Loads are the CPU that key groups used, in percent of a core of their worker's host; NaN = not measured, which only
    kept ones may be.  Capacities are in cores of the host.
    """


@dataclass(frozen=True, kw_only=True)
class DemandView(AppView):
    """What an app asks for in one window, with what is known of its surroundings.

    Loads are the CPU that key groups ask for, in percent of a reference core (`memory/hosts.py`); NaN = unknown, which
    only kept ones may be.  Capacities are in reference cores.
    """

    rooms: Mapping[HostId, Room] = field(default_factory=dict)
    """What these workers may use together on each host."""
    rules: tuple[Rule, ...] = ()
    """Those in force for the app."""
    remote_costs: Mapping[OperatorId, EndCosts] = field(default_factory=dict)
    """What a tuple between workers costs, by operator: what is measured and significant, nothing else."""
    by_broker: frozenset[tuple[OperatorId, OperatorId]] = frozenset()
    """Pairs of operators whose tuples go through the broker also within a worker: collocation saves nothing there."""
    none_direct: bool = False
    """Plug-ins count the tuples that skip the broker, and have seen none."""
    following_share: float | None = None
    """What it costs to follow a key group, as a share of its load; None = not measured."""
    fixed_use: float | None = None
    """What a worker uses besides its own key groups, to follow others too, in percent of a reference core: the median
    of the workers; None = not measured.
    """

    @cached_property
    def places(self) -> Places:
        """Where `key_groups` may be among `workers`, by the rules."""
        return Places.of(self.rules, self.owned, [each.site for each in self.workers])

    @property
    def misplaced(self) -> NDArray[np.bool_]:
        """(K,) the key groups that are to leave their worker by a rule, if there is another one for them."""
        table = self.owned
        if not self.rules or not len(table):
            return np.zeros(len(table), np.bool_)
        found: NDArray[np.bool_] = self.places.misplaced(self.owner_numbers) & self._has_room
        return found

    @property
    def _has_room(self) -> NDArray[np.bool_]:
        """(K,) the key groups for which rules leave a worker that is not being drained."""
        of_class = (self.places.allowed & self.staying).any(axis=1)
        found: NDArray[np.bool_] = np.append(of_class, True)  # the last one is for FREE
        return found[self.places.class_of]

    @property
    def leaving(self) -> NDArray[np.bool_]:
        """(K,) the key groups that are to leave workers that are being drained: those that no rule keeps there."""
        found = self.of_drained
        if self.rules and found.any():
            found &= ~self.places.frozen & self._has_room
        return found

    @property
    def to_empty(self) -> tuple[WorkerId, ...]:
        """The workers being drained that have key groups which can leave."""
        if not self.draining:
            return ()
        table = self.owned
        left = {table.workers[place] for place in np.unique(table.owner[self.leaving]).tolist()}
        return tuple(worker for worker in self.draining if worker in left)


AnyDemand = TypeVar("AnyDemand", bound=DemandView)
"""A view with loads in reference cores, which comes back as far as it had come."""


@dataclass(frozen=True, kw_only=True)
class SmoothedView(DemandView):
    """What an app asks for over the windows so far: every key group has a load, measured or assumed.

    Loads and flows are smoothed (`evaluate.py`); the last known loads stand in for what was not measured
    (`unknown_load.py`).
    """


@dataclass(frozen=True, kw_only=True)
class PlannableView(SmoothedView):
    """What plans are made with: also what may not move, where state is already, and the room that others have left."""

    copies: Copies | None = None
    """Where state is besides at its owner, in rows of `key_groups` and places of `workers`.

    None = that limits no plan, or is not known.
    """
    pinned: frozenset[KeyGroup] = frozenset()
    """Key groups that stay where they are, unless their worker is being drained."""
    later: tuple[int, ...] = ()
    """The rows of `key_groups` that rules do not let move yet, although they are to leave their workers."""
    restore: RestoreCost = RestoreCost()
    """What moving state costs."""
    max_moves: int | None = None
    """How many key groups a plan may move at most; None: as many as the settings say."""
    potential: float | None = None
    """Only what free moves could reach is asked, for the size of the app: the load distance to stay within (pp)."""

    @property
    def pinned_rows(self) -> Integers:
        """The rows of the pinned key groups in `owned`."""
        rows = self.owned.places_of(sorted(self.pinned))
        return rows[rows >= 0]
