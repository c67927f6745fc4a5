"""What an app needs of the memory, disks and links of hosts, and what a worker of a type has of them.  Pure.

A worker's part of its host is what the host has for the app's key groups, divided by the app's workers that run or
could be started there; of the hosts of a type the least part counts.  What other processes use stays, and so does
traffic that belongs to no key group.  Traffic grows with the input.  State does not, unless the caller says so: most
apps have as many keys at twice the rate.  Each standby has the state once more.

What has not been measured is named, and never counts as nothing: a resource of which a part is missing is needed at
least as stated.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trimtab_controller.decider.hosts.headroom import MAX_CELLS, times_placed
from trimtab_controller.decider.hosts.hosts import Host, HostsSeen
from trimtab_controller.decider.hosts.resources import DISK, LINK, MEMORY, sums_of_workers
from trimtab_controller.decider.observing.owned import Floats, OwnedTable
from trimtab_controller.decider.observing.view import SmoothedView
from trimtab_protocol.messages.names import HostId, WorkerId
from trimtab_protocol.wording import first_few

MAX_WORKERS = 10_000
"""Workers that `trimtab size` goes up to."""
MAX_MORE = 50
"""By how many workers the answer is raised at most so that all resources fit together."""
MEGABYTE = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceNeed:
    """How many workers a resource needs; None = unknown, or no number is enough, as `why` says.

    `share` = what each of them then uses of its part, on average.  `missing` = what has not been measured: without it
    `workers` is the least number, or unknown.
    """

    resource: str
    workers: int | None
    share: float | None = None
    missing: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ResourceDemand:
    """What items need of a resource; `pieces` (J, I) = of each of its amounts, such as received and sent.

    An item is a key group, or a standby of one.  `missing` = what is not measured of it.
    """

    resource: str
    pieces: Floats
    missing: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerParts:
    """What a worker has of a resource, of each of its amounts; None = unknown, and `missing` says why."""

    rooms: tuple[float, ...] | None
    missing: str = ""


def demands_of(view: SmoothedView, rate: float, state: float) -> list[ResourceDemand]:
    """What all key groups and their standbys need at `rate` times the input and `state` times the state."""
    table = view.owned
    copies = 1 + (view.standbys or 0)
    size = np.tile(state * table.assumed_state_bytes.astype(np.float64), copies)
    unknown = _named(table, table.state_bytes < 0, "state")
    if view.standbys is None:
        unknown = "; ".join(filter(None, [unknown, "agents do not say how many standbys the app wants"]))
    traffic = np.zeros((2, copies * len(table)))
    traffic[:, : len(table)] = rate * table.assumed_traffic
    lacking = _named(table, np.logical_or.reduce(np.isnan(table.traffic)), "traffic")
    return [
        ResourceDemand(resource=MEMORY, pieces=size[None], missing=unknown),
        ResourceDemand(resource=DISK, pieces=size[None], missing=unknown),
        ResourceDemand(resource=LINK, pieces=traffic, missing=lacking),
    ]


def _named(table: OwnedTable, unknown: NDArray[np.bool_], what: str) -> str:
    """The operators of which nothing is known; where something is, the largest stands in for the rest."""
    known = np.bincount(table.operator, ~unknown, len(table.operators)) > 0
    here = np.bincount(table.operator, minlength=len(table.operators)) > 0
    names = [name for name, its, any_ in zip(table.operators, known, here, strict=True) if any_ and not its]
    return f"the {what} of {first_few(names)} has not been measured" if names else ""


def parts_of(
    view: SmoothedView,
    seen: HostsSeen,
    workers: Mapping[HostId, int],
    followed: Mapping[WorkerId, float] | None,
    *,
    max_disk: float,
    max_link: float,
) -> dict[str, WorkerParts]:
    """What a worker has on hosts with so many `workers` of the app; `followed` = bytes that each follows, if known."""
    table = view.owned
    of_worker = sums_of_workers(table, [table.assumed_state_bytes, *table.assumed_traffic])
    found: dict[str, list[tuple[float, ...] | None]] = {MEMORY: [], DISK: [], LINK: []}
    for name, count in sorted(workers.items()):
        host, here = seen.hosts.get(name), [worker.id for worker in view.workers if worker.host == name]
        ours = sum((of_worker[each] for each in here if each in of_worker), np.zeros(3))
        held = (
            None
            if followed is None and here
            else float(ours[0]) + sum((followed or {}).get(each, 0.0) for each in here)
        )
        rooms = _rooms(host, held, (float(ours[1]), float(ours[2])), max_disk, max_link)
        for resource, room in rooms.items():
            found[resource].append(None if room is None else tuple(each / count for each in room))
    return {resource: _least(resource, rooms, followed is None) for resource, rooms in found.items()}


def _rooms(
    host: Host | None, held: float | None, traffic: tuple[float, float], max_disk: float, max_link: float
) -> dict[str, tuple[float, ...] | None]:
    """What a host has for the app; None = unknown."""
    memory = None if host is None else host.free_memory
    disk = math.inf if host is None else host.free_disk(max_disk)
    link = (math.inf, math.inf) if host is None else host.free_link(max_link)
    return {
        MEMORY: None if memory is None or held is None else (memory + held,),
        DISK: None if math.isinf(disk) or held is None else (disk + held,),
        LINK: None if any(map(math.isinf, link)) else tuple(a + b for a, b in zip(link, traffic, strict=True)),
    }


def _least(resource: str, rooms: Sequence[tuple[float, ...] | None], unfollowed: bool) -> WorkerParts:
    known = [room for room in rooms if room is not None]
    if known:
        return WorkerParts(rooms=tuple(map(min, zip(*known, strict=True))))
    if unfollowed and resource in (MEMORY, DISK):
        return WorkerParts(rooms=None, missing="what standbys hold is not known")
    return WorkerParts(rooms=None, missing=f"no host of the type reports its {resource}")


def need_of(view: SmoothedView, demand: ResourceDemand, parts: WorkerParts) -> ResourceNeed:
    """How many workers a resource needs by itself."""
    missing = "; ".join(filter(None, [demand.missing, parts.missing]))
    if parts.rooms is None or (demand.missing and not demand.pieces.any()):
        return ResourceNeed(resource=demand.resource, workers=None, missing=missing)
    fewest, share = 1, 0.0
    for amounts, room in zip(demand.pieces, parts.rooms, strict=True):
        largest = int(amounts.argmax())
        if amounts[largest] > room:
            key_group = view.owned[largest % len(view.owned)].key_group
            why = f"key group {key_group} alone needs {_shown(amounts[largest], demand.resource)}, and such a worker "
            return ResourceNeed(
                resource=demand.resource,
                workers=None,
                missing=missing,
                why=why + f"has {_shown(room, demand.resource)}",
            )
        count = _fewest(amounts, room)
        if count is None:
            why = f"more than {MAX_WORKERS} workers would be needed"
            return ResourceNeed(resource=demand.resource, workers=None, missing=missing, why=why)
        fewest = max(fewest, count)
    for amounts, room in zip(demand.pieces, parts.rooms, strict=True):
        share = max(share, float(amounts.sum()) / fewest / room if room > 0 else 0.0)
    return ResourceNeed(resource=demand.resource, workers=fewest, share=share, missing=missing)


def _shown(amount: float, resource: str) -> str:
    size = f"{amount / MEGABYTE:.1f} MB" if amount >= MEGABYTE else f"{amount:,.0f} bytes"
    return f"{size}{'/s' if resource == LINK else ''} of {resource}"


def _fewest(amounts: Floats, room: float) -> int | None:
    """The least number of workers found that takes these pieces; None = more than MAX_WORKERS."""
    total = float(amounts.sum())
    if not total > 0:
        return 1
    for workers in range(max(1, math.ceil(total / room * (1 - 1e-9))), MAX_WORKERS + 1):
        if workers >= len(amounts) or times_placed(amounts, np.full(workers, room)) >= 1.0 - 1e-9:
            return workers
    return None


def together(shares: Floats, workers: int) -> int | None:
    """The least number of workers found, from `workers` on, that take all items; None = not within MAX_MORE more.

    `shares` (J, I) = of a worker's part, what each item takes of each amount.  Items go, the largest share first, to
    the worker that is then used least.  For very many items each amount is left to itself.
    """
    if len(shares) < 2 or shares.shape[1] * workers > MAX_CELLS:
        return workers
    order = np.argsort(-shares.max(axis=0), kind="stable").tolist()
    return next((count for count in range(workers, workers + MAX_MORE + 1) if _takes(shares, order, count)), None)


def _takes(shares: Floats, order: Sequence[int], workers: int) -> bool:
    used = np.zeros((workers, len(shares)))
    for item in order:
        after = (used + shares[:, item]).max(axis=1)
        place = int(after.argmin())
        if after[place] > 1.0 + 1e-9:
            return False
        used[place] += shares[:, item]
    return True


def shares_of(demands: Sequence[ResourceDemand], parts: Mapping[str, WorkerParts]) -> Iterator[Floats]:
    """(I,) per amount of each known resource, what items take of a worker's part."""
    for demand in demands:
        for amounts, room in zip(demand.pieces, parts[demand.resource].rooms or (), strict=False):
            if amounts.any():
                yield amounts / room
