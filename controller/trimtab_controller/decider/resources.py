"""What key groups use of the resources of hosts, and what a plan would fill.

A key group that moves takes its load, memory and traffic along.  Its state stays on the disk that it leaves: Faust
deletes no database.  So of a disk only arrivals count.  A move from one worker to another of the same host is one too.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from trimtab_controller.decider.owned import PERCENT_PER_CORE, Floats, Integers, OwnedTable
from trimtab_controller.decider.view import AppView, Room
from trimtab_controller.plan import Move
from trimtab_controller.wording import first_few
from trimtab_protocol.messages.names import HostId, WorkerId

CPU, MEMORY, LINK, DISK = "CPU", "memory", "link", "disk"
ROUNDING = 1e-6
FULL_PCT = 100.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Resource:
    """`amount` (K,) = what each key group uses of it.  `stays`: one that moves goes on using it where it was."""

    name: str
    amount: Floats | Integers
    room_of: Callable[[Room], float]
    stays: bool = False

    def used(self, before: Integers, after: Integers, moved: NDArray[np.bool_], hosts: int) -> Floats:
        """(H,) what is used on each host if these (K,) key groups were on `before` and are on `after`."""
        found: Floats = np.bincount(after, self.amount, hosts).astype(np.float64)
        if self.stays:
            found += np.bincount(before[moved], self.amount[moved], hosts)
        return found


def resources_of(table: OwnedTable) -> list[Resource]:
    """The resources of hosts that have limits."""
    received, sent = table.assumed_traffic
    state = table.assumed_state_bytes
    return [
        Resource(name=CPU, amount=table.load, room_of=lambda room: room.cpu),
        Resource(name=MEMORY, amount=state, room_of=lambda room: room.memory),
        Resource(name=DISK, amount=state, room_of=lambda room: room.disk, stays=True),
        Resource(name="incoming traffic", amount=received, room_of=lambda room: room.received),
        Resource(name="outgoing traffic", amount=sent, room_of=lambda room: room.sent),
    ]


def sums_of_workers(table: OwnedTable, amounts: Sequence[Floats | Integers]) -> dict[WorkerId, Floats]:
    """What the key groups of each worker have in all, of each of these."""
    if not len(table):
        return {}
    sums = np.array([np.bincount(table.owner, amount, len(table.workers)) for amount in amounts])
    return dict(zip(table.workers, sums.T, strict=True))


def free_disks(view: AppView) -> dict[HostId, float]:
    """Bytes of state that each host with a known disk can take besides what its workers have."""
    known = {host: room.disk for host, room in view.rooms.items() if np.isfinite(room.disk)}
    if not known:
        return {}
    held = sums_of_workers(view.owned, [view.owned.assumed_state_bytes])
    for worker, host in view.hosts.items():
        if host in known and worker in held:
            known[host] -= float(held[worker][0])
    return {host: max(0.0, free) for host, free in known.items()}


def with_less_disk(view: AppView, taken: Mapping[HostId, float]) -> AppView:
    """The view with less room on the disks of these hosts (bytes)."""
    if not taken:
        return view
    rooms = {host: replace(room, disk=max(0.0, room.disk - taken.get(host, 0.0))) for host, room in view.rooms.items()}
    return replace(view, rooms=rooms)


def brought_by(view: AppView, moves: Sequence[Move]) -> dict[HostId, float]:
    """Bytes that these moves write on the disk of each host."""
    sizes = view.owned.assumed_state_bytes[view.owned.places_of(move.key_group for move in moves)].tolist()
    found: dict[HostId, float] = {}
    for move, size in zip(moves, sizes, strict=True):
        host = view.hosts[move.target]
        found[host] = found.get(host, 0.0) + size
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """What a plan would use of a resource of a host: `before`, `after` and at most, in the unit of the view's room.

    `each` = what an average key group uses.
    """

    host: HostId
    resource: str
    before: float
    after: float
    room: float
    each: float

    @property
    def full(self) -> bool:
        """Whether no further key group fits."""
        return self.each > 0 and self.after + self.each > self.room

    @property
    def overfills(self) -> bool:
        """Whether the plan goes beyond the room, and makes it worse."""
        return self.after > self.before + ROUNDING and self.after > self.room * (1 + ROUNDING) + ROUNDING

    def __str__(self) -> str:
        if self.resource == CPU:
            amounts = f"{self.after / PERCENT_PER_CORE:.2f} of {self.room / PERCENT_PER_CORE:.2f} cores"
        else:
            per_second = "" if self.resource in (MEMORY, DISK) else "/s"
            amounts = f"{self.after / 1e6:.1f} of {self.room / 1e6:.1f} MB{per_second}"
        return f"{self.resource} of {self.host} ({amounts})"


def filled_by(view: AppView, moves: Mapping[int, WorkerId]) -> list[Filled]:
    """What every host with a room carries after these moves (row of the key group -> target)."""
    hosts = sorted(view.rooms.keys() & set(view.hosts.values()))
    places, table = {host: place for place, host in enumerate(hosts)}, view.owned
    nowhere = len(hosts)
    of_owner = np.array([places.get(view.hosts[name], nowhere) for name in table.workers], np.int64)
    before = of_owner[table.owner]
    after, moved = before.copy(), np.zeros(len(table), np.bool_)
    for row, target in moves.items():
        after[row], moved[row] = places.get(view.hosts[target], nowhere), True
    found = []
    for each in resources_of(table):
        now = each.used(before, before, np.zeros_like(moved), nowhere + 1).tolist()
        then = each.used(before, after, moved, nowhere + 1).tolist()
        average = float(each.amount.mean()) if len(table) else 0.0
        for host, place in places.items():
            room = each.room_of(view.rooms[host])
            found.append(
                Filled(host=host, resource=each.name, before=now[place], after=then[place], room=room, each=average)
            )
    return found


def bottleneck_in(filled: Iterable[Filled]) -> str:
    """Which hosts are full after a plan, in words to add to a decision; empty if none is."""
    full = [each for each in filled if each.full]
    return f"; full: {first_few(full)}" if full else ""
