"""What key groups use of the resources of hosts, and what a plan would fill.

A key group that moves takes its load and traffic along.  Its state stays on the disk that it leaves: Faust deletes no
database.  It stays in memory too, since the old owner becomes a standby, unless the app wants none.  So of these two
only arrivals count.  A move from one worker to another of the same host is one too, but takes no memory there if the
old owner makes way for a standby on another host (`rows.py`).  Where it makes way for one in another zone, its memory
counts as free as soon as it is measured.

A target that is a standby has the state on its disk and in memory already; one that has a copy on its disk writes what
the copy lacks.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from trimtab_controller.decider.window.owned import PERCENT_PER_CORE, Floats, Integers, OwnedTable
from trimtab_controller.decider.window.view import AnyDemand, DemandView, PlannableView, Room
from trimtab_controller.plan import Move
from trimtab_models.spared import Spared
from trimtab_protocol.messages.names import HostId, WorkerId
from trimtab_protocol.wording import first_few

CPU, MEMORY, LINK, DISK = "CPU", "memory", "link", "disk"
ROUNDING = 1e-6
FULL_PCT = 100.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HostResource:
    """`amount` (K,) = what each key group uses of it, and `spared` how much less on certain workers.

    `stays`: a key group that moves goes on using it where it was.
    """

    name: str
    amount: Floats | Integers
    room_of: Callable[[Room], float]
    stays: bool = False
    spared: Spared | None = None

    def on(self, rows: Integers, workers: Integers) -> Floats:
        """(M,) what key groups use of it on workers that they move to, all by their places in the view."""
        full: Floats = self.amount[rows].astype(np.float64)
        return full if self.spared is None else full - self.spared.on(rows, workers)[0]

    def used(self, before: Integers, moved: Integers, targets: Integers, host_of: Integers, hosts: int) -> Floats:
        """(H,) what is used on each host if the key groups were on `before` (K,) and some `moved` to workers.

        `host_of` (W,) = the host of each worker.
        """
        found: Floats = np.bincount(before, self.amount, hosts).astype(np.float64)
        if not self.stays:
            found -= np.bincount(before[moved], self.amount[moved], hosts)
        found += np.bincount(host_of[targets], self.on(moved, targets), hosts)
        return found


def resources_of(view: PlannableView) -> list[HostResource]:
    """The resources of hosts that have limits."""
    table, copies = view.owned, view.copies
    received, sent = table.assumed_traffic
    state = table.assumed_state_bytes
    in_memory = on_disk = None
    if copies is not None:
        size, shape = state[copies.key_group].astype(np.float64), (len(table), len(view.workers))
        places = copies.key_group.astype(np.int64), copies.worker.astype(np.int64)
        in_memory = Spared.of(*places, np.where(copies.in_memory, size, 0.0)[None], shape)
        on_disk = Spared.of(*places, ((1.0 - copies.lacking) * size)[None], shape)
    return [
        HostResource(name=CPU, amount=table.load, room_of=lambda room: room.cpu),
        HostResource(
            name=MEMORY, amount=state, room_of=lambda room: room.memory, stays=view.memory_stays, spared=in_memory
        ),
        HostResource(name=DISK, amount=state, room_of=lambda room: room.disk, stays=True, spared=on_disk),
        HostResource(name="incoming traffic", amount=received, room_of=lambda room: room.received),
        HostResource(name="outgoing traffic", amount=sent, room_of=lambda room: room.sent),
    ]


def sums_of_workers(table: OwnedTable, amounts: Sequence[Floats | Integers]) -> dict[WorkerId, Floats]:
    """What the key groups of each worker have in all, of each of these."""
    if not len(table):
        return {}
    sums = np.array([np.bincount(table.owner, amount, len(table.workers)) for amount in amounts])
    return dict(zip(table.workers, sums.T, strict=True))


def free_disks(view: DemandView) -> dict[HostId, float]:
    """Bytes of state that each host with a known disk can take besides what its workers have."""
    known = {host: room.disk for host, room in view.rooms.items() if np.isfinite(room.disk)}
    if not known:
        return {}
    held = sums_of_workers(view.owned, [view.owned.assumed_state_bytes])
    for worker, host in view.hosts.items():
        if host in known and worker in held:
            known[host] -= float(held[worker][0])
    return {host: max(0.0, free) for host, free in known.items()}


def with_less_disk(view: AnyDemand, taken: Mapping[HostId, float]) -> AnyDemand:
    """The view with less room on the disks of these hosts (bytes)."""
    if not taken:
        return view
    rooms = {host: replace(room, disk=max(0.0, room.disk - taken.get(host, 0.0))) for host, room in view.rooms.items()}
    return replace(view, rooms=rooms)


def brought_by(view: DemandView, moves: Sequence[Move]) -> dict[HostId, float]:
    """Bytes that these moves, none of which goes to a standby, write on the disk of each host."""
    sizes = view.owned.assumed_state_bytes[view.owned.places_of(move.key_group for move in moves)].tolist()
    found: dict[HostId, float] = {}
    for move, size in zip(moves, sizes, strict=True):
        host, lacking = view.hosts[move.target], move.lacking_bytes
        found[host] = found.get(host, 0.0) + (size if lacking is None else lacking)
    return found


def may_fill(view: DemandView, moves: int) -> bool:
    """Whether the state of so many key groups can be more than the memory or the disk of a host takes."""
    state = np.sort(view.owned.assumed_state_bytes)
    most = float(state[max(0, len(state) - moves) :].sum())
    held: dict[HostId, float] = {}
    for worker, sums in sums_of_workers(view.owned, [view.owned.assumed_state_bytes]).items():
        host = view.hosts[worker]
        held[host] = held.get(host, 0.0) + float(sums[0])
    return any(min(room.memory, room.disk) < held.get(host, 0.0) + most for host, room in view.rooms.items())


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


def filled_by(view: PlannableView, moves: Mapping[int, WorkerId]) -> list[Filled]:
    """What every host with a room carries after these moves (row of the key group -> target)."""
    hosts = sorted(view.rooms.keys() & set(view.hosts.values()))
    places, table = {host: place for place, host in enumerate(hosts)}, view.owned
    nowhere = len(hosts)
    of_owner = np.array([places.get(view.hosts[name], nowhere) for name in table.workers], np.int64)
    before = of_owner[table.owner]
    host_of = np.array([places.get(worker.host, nowhere) for worker in view.workers], np.int64)
    moved = np.array(list(moves), np.int64)
    targets = np.array([view.numbers[target] for target in moves.values()], np.int64)
    none = moved[:0]
    found = []
    for each in resources_of(view):
        now = each.used(before, none, none, host_of, nowhere + 1).tolist()
        then = each.used(before, moved, targets, host_of, nowhere + 1).tolist()
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
