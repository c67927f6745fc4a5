"""Headroom: how many times the present input an app could take before the first of its workers, or hosts, is full.

All loads are taken to grow alike; what belongs to no key group, and what other apps and processes use, stays.  Three
figures: with the key groups where they are; with free moves; and a bound that no placement can exceed.  The difference
of the first two is what balancing can gain, before another worker is needed.

As placed, traffic grows with the input too, and the link of a host may be full first.

With free moves, key groups go heaviest first to the worker that is least loaded with them.  For very many key groups
what that reaches at least is stated instead: no worker more than one key group above the mean.  Pure.
"""

import heapq
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trimtab_controller.decider.memory.hosts import HostsSeen, HostTracker
from trimtab_controller.decider.memory.speeds import CostBook
from trimtab_controller.decider.values.reasons import NotReady
from trimtab_controller.decider.window.owned import PERCENT_PER_CORE, Floats
from trimtab_controller.decider.window.resources import sums_of_workers
from trimtab_controller.decider.window.view import UNLIMITED, SmoothedView, Worker
from trimtab_protocol.messages.names import AppId, HostId, KeyGroup, WorkerId

MAX_CELLS = 2_000_000
"""Key groups times workers up to which they are placed one by one, which takes less than 0.1 s."""
TINY = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Headroom:
    """Multiples of the present input: `as_placed`, `potential` with free moves, and their `bound`.

    `first` = what is full first as placed: a worker, a host, or its link.  `heaviest` = the key group that limits the
    bound; None if all workers together do.
    """

    as_placed: float
    potential: float
    bound: float
    first: str
    heaviest: KeyGroup | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Carrier:
    """A worker, a host with all workers on it, or its link; `load` of the key groups and their room, in one unit."""

    name: str
    load: float
    room: float

    @property
    def times(self) -> float:
        """How many times its load fits; infinite without load."""
        return self.room / self.load if self.load > 0 else math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What is known of hosts and costs, and the headroom of the apps in which it is known."""

    seen: HostsSeen
    costs: CostBook
    headrooms: Mapping[AppId, Headroom]

    @property
    def accuracies(self) -> Mapping[AppId, float]:
        """Per app, the share of the workers' CPU that the fitted costs predict."""
        return self.costs.accuracies


NO_CAPACITY = Capacity(seen=HostsSeen(), costs=CostBook(), headrooms={})


def capacity_of(views: Mapping[AppId, SmoothedView | NotReady], hosts: HostTracker) -> Capacity:
    """What is known after a window."""
    found = ((app, headroom(view, hosts.seen)) for app, view in views.items() if isinstance(view, SmoothedView))
    return Capacity(
        seen=hosts.seen, costs=hosts.costs, headrooms={app: each for app, each in found if each is not None}
    )


def headroom(view: SmoothedView, seen: HostsSeen) -> Headroom | None:
    """The headroom of an app; None while it has no load, no worker that stays, or its workers have no room at all.

    Workers being drained carry nothing in the potential and the bound.
    """
    kept = [worker for worker in view.workers if not worker.draining]
    table = view.owned
    if not kept or not len(table) or not float(table.load.sum()) > 0:
        return None
    rooms = {worker.id: _room(worker, seen) for worker in view.workers}
    first = min(_carriers(view, rooms), key=lambda carrier: carrier.times)
    limits = np.array([rooms[worker.id] for worker in kept])
    at_most = np.minimum(limits, [view.rooms.get(worker.host, UNLIMITED).cpu for worker in kept])
    limits *= _within_hosts(view, kept, limits)
    if not limits.sum() > 0:
        return None
    total, heaviest = float(table.load.sum()), int(table.load.argmax())
    divisible, alone = float(limits.sum()) / total, float(at_most.max()) / float(table.load[heaviest])
    potential, bound = times_placed(table.load, limits), min(divisible, alone)
    if len(kept) == len(view.workers):
        potential = max(potential, first.times)
    return Headroom(
        as_placed=first.times,
        potential=min(bound, potential),
        bound=bound,
        first=first.name,
        heaviest=table[heaviest].key_group if alone < divisible else None,
    )


def _room(worker: Worker, seen: HostsSeen) -> float:
    """What a worker's key groups may use: its capacity but for its fixed use, in reference cores."""
    asked, host = seen.workers.get(worker.id), seen.hosts.get(worker.host)
    fixed = 0.0 if asked is None or host is None else host.speed * max(0.0, asked.fixed)
    return max(0.0, PERCENT_PER_CORE * worker.capacity - fixed)


def _carriers(view: SmoothedView, rooms: Mapping[WorkerId, float]) -> Iterator[Carrier]:
    loads = view.owned.loads_of_workers()
    for worker in view.workers:
        yield Carrier(name=worker.id, load=loads.get(worker.id, 0.0), room=rooms[worker.id])
    of_worker = sums_of_workers(view.owned, [view.owned.load, *view.owned.assumed_traffic])
    on_host: dict[HostId, Floats] = {}
    for worker in view.workers:
        on_host[worker.host] = on_host.get(worker.host, np.zeros(3)) + of_worker.get(worker.id, np.zeros(3))
    for host, room in view.rooms.items():
        load, received, sent = on_host.get(host, np.zeros(3)).tolist()
        yield Carrier(name=f"host {host}", load=load, room=room.cpu)
        yield Carrier(name=f"link of host {host}", load=received, room=room.received)
        yield Carrier(name=f"link of host {host}", load=sent, room=room.sent)


def _within_hosts(view: SmoothedView, kept: Sequence[Worker], limits: Floats) -> Floats:
    """By how much each worker must be cut so that those of a host keep its room together."""
    together: dict[HostId, float] = {}
    for worker, limit in zip(kept, limits.tolist(), strict=True):
        together[worker.host] = together.get(worker.host, 0.0) + limit
    return np.array(
        [min(1.0, view.rooms.get(each.host, UNLIMITED).cpu / max(together[each.host], TINY)) for each in kept],
        np.float64,
    )


def times_placed(load: Floats, room: Floats) -> float:
    """How many times the loads fit into rooms, in the same unit, if they are placed heaviest first."""
    there = room[room > 0]
    if len(load) * len(there) > MAX_CELLS:
        mean, heaviest = float(load.sum()) / float(there.sum()), float(load.max())
        return 1.0 / (mean + heaviest / float(there.min()))
    filled = [(0.0, place) for place in range(len(there))]
    if len(set(there.tolist())) == 1:
        size = float(there[0])
        for each in np.sort(load)[::-1].tolist():
            share, place = filled[0]
            heapq.heapreplace(filled, (share + each / size, place))
        return 1.0 / max(share for share, _ in filled)
    return _placed_on_unequal(load, there)


def _placed_on_unequal(load: Floats, room: Floats) -> float:
    used = np.zeros(len(room))
    for each in np.sort(load)[::-1].tolist():
        used[int(((used + each) / room).argmin())] += each
    return 1.0 / float((used / room).max())
