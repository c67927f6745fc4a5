"""What a plan costs in restores: moves go to copies where that keeps the balance, and plans know the hosts' cores.

The solver plans with loads alone.  A move onto a worker that is a standby of the key group is nearly free, and one
that has a copy of its state on its disk restores only what the copy lacks; any other target has to restore the whole
state. So the moves of an answer are exchanged, or given other targets, as long as no worker gets further from the
mean than the plan or a tolerance allows, and no host carries more than it can.  Then restores leave the host that has
most of them, in the same limits: hosts restore side by side, so that one decides how long it takes until all is warm.
A host counts with the time that its restores took so far.
"""

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from trimtab_controller.decider.policies.admission import SolveWanted
from trimtab_controller.decider.values.decision import Planned
from trimtab_controller.decider.values.settings import Settings
from trimtab_controller.decider.window.collocation import planned_with
from trimtab_controller.decider.window.copies import Held
from trimtab_controller.decider.window.owned import Floats, Integers
from trimtab_controller.decider.window.resources import resources_of
from trimtab_controller.decider.window.restores import TARGET_OPERATIONS, Restores
from trimtab_controller.decider.window.view import UNLIMITED, PlannableView
from trimtab_controller.plan import Move
from trimtab_controller.solver.answer import Answer, Method
from trimtab_models.dyndl.targets import TargetsProblem, choose_targets
from trimtab_models.solving import Never
from trimtab_models.spared import Spared
from trimtab_protocol.messages.snapshot import Snapshot

BAND_SHARE = 0.5
"""How far a worker may get from the mean for the sake of a drain, as a share of the band in which nothing moves."""
PASSES = 3
"""How often all moves are looked at; a change may make room for another one."""
TRIED = 20
"""How many moves to a worker are tried for an exchange: those with the most similar loads."""
SLACK_PP = 1e-9


def onto_copies(wanted: SolveWanted, answer: Answer, restores: Restores, settings: Settings) -> Answer:
    """The answer with targets that have as little state as possible to restore; the moved key groups are the same.

    A worker may get as far from the mean load as in the answer, in a drain half the band; rules and the limits of hosts
    are kept.  With ALBIC the targets are chosen for collocation, and stay.
    """
    if planned_with(settings, wanted.view) is Method.ALBIC or not answer.moves:
        return answer
    tolerance = BAND_SHARE * settings.load_distance if wanted.must_move else 0.0
    found = _Targets(wanted.view, answer, restores, tolerance)
    for _ in range(PASSES):
        improved = [found.improve(place) for place in range(len(answer.moves))]
        if not any(improved):
            break
    found.level()
    if not found.changed:
        return answer
    return replace(answer, moves=found.moves, load_distance=found.load_distance)


class _Targets:
    """The targets of an answer's moves, which are changed one by one; workers and key groups by their index."""

    def __init__(self, view: PlannableView, answer: Answer, restores: Restores, tolerance: float) -> None:
        table = view.owned
        self._key_groups = [key_group for key_group, _ in answer.moves]
        self._target = [target for _, target in answer.moves]
        self._capacity = np.array([worker.capacity for worker in view.workers])
        self._kept = view.staying
        self._load = table.load[self._key_groups].tolist()
        sizes = table.assumed_state_bytes[self._key_groups]
        self._bytes: list[int] = np.maximum(sizes, 1).tolist()
        places = view.numbers
        self._lacking = [
            {
                places[name]: share
                for name, share in restores.held.lacking(row.key_group).items()
                if name in places and name != row.owner and self._kept[places[name]]
            }
            for row in (table[each] for each in self._key_groups)
        ]
        """Per move, the share of the state that workers lack; the others lack all of it."""
        before = view.owner_numbers
        self._home: list[int] = before[self._key_groups].tolist()
        owner = before.copy()
        owner[self._key_groups] = self._target
        self._sums: Floats = np.bincount(owner, weights=table.load, minlength=len(view.workers)).astype(np.float64)
        self._mean = float(table.load.sum() / self._capacity[self._kept].sum())
        self._allowed = np.maximum(np.abs(self._distances()), tolerance) + SLACK_PP
        hosts = {host: place for place, host in enumerate(sorted({worker.host for worker in view.workers}))}
        self._host = [hosts[worker.host] for worker in view.workers]
        self._hosts, self._restores = tuple(hosts), restores
        of_host, resources = np.array(self._host, np.int64), resources_of(view)
        at, moved, targets = of_host[before], np.array(self._key_groups), np.array(self._target)
        self._resources = resources
        """And (resources, hosts) what is used of them and may be used."""
        self._used = np.array([each.used(at, moved, targets, of_host, len(hosts)) for each in resources])
        used_now = np.array([each.used(at, moved[:0], moved[:0], of_host, len(hosts)) for each in resources])
        room = np.array([[each.room_of(view.rooms.get(host, UNLIMITED)) for host in hosts] for each in resources])
        self._most = np.maximum(room, used_now)
        self._places = view.places if view.rules else None
        self.changed = False

    @property
    def moves(self) -> tuple[tuple[int, int], ...]:
        """The moves, as in an answer."""
        return tuple(zip(self._key_groups, self._target, strict=True))

    @property
    def load_distance(self) -> float:
        """The load distance that the moves lead to (pp)."""
        distances = self._distances()
        return float(np.where(self._kept, np.abs(distances), np.maximum(distances, 0.0)).max())

    def _distances(self) -> Floats:
        distances: Floats = self._sums / self._capacity - self._mean
        return distances

    def improve(self, place: int) -> bool:
        """Let a move go to a worker that lacks less, alone or in exchange for another move; whether it did."""
        best = max(self._changes(place), key=self._gain_of, default=None)
        if best is None or self._gain_of(best) <= 0:
            return False
        self._make(best)
        return True

    def level(self) -> None:
        """Let restores leave the host that ends last, in the same limits, and where no more is restored for it.

        Hosts restore side by side, so that one decides how long the plan takes.
        """
        chosen = choose_targets(self._problem(), stop=Never(), operations=TARGET_OPERATIONS).worker.tolist()
        changed = {at: target for at, target in enumerate(chosen) if target != self._target[at]}
        if changed:
            self._make(changed)

    def _problem(self) -> TargetsProblem:
        """The problem of `trimtab_models.dyndl`: the load of workers, and the resources of hosts, are its limits."""
        learned, rows, targets = self._restores.learned, np.array(self._key_groups), np.array(self._target)
        workers, hosts = len(self._capacity), np.array(self._host, np.int64)
        shape = len(rows), workers
        lacking = np.ones(shape)
        for at, shares in enumerate(self._lacking):
            lacking[at, list(shares)] = list(shares.values())
        allowed = np.tile(self._kept, (len(rows), 1)) & (lacking <= lacking[np.arange(len(rows)), targets][:, None])
        allowed[np.arange(len(rows)), self._home] = False
        if self._places is not None:
            allowed &= self._places.may(rows[:, None], np.arange(workers))
        amounts = np.array([each.amount[rows] for each in self._resources], np.float64)
        on_hosts = self._used - np.array(
            [np.bincount(hosts[targets], each.on(rows, targets), len(self._most[0])) for each in self._resources]
        )
        load = np.array([self._load])
        used = (self._sums - np.bincount(targets, load[0], workers)) / self._capacity
        begun = np.array([sum(map(learned.size, self._restores.running.get(host, ()))) for host in self._hosts])
        pace = np.array([self._restores.pace(host) for host in self._hosts])
        most = np.maximum(self._most, self._used)[:, hosts]
        return TargetsProblem(
            server=hosts,
            size=np.array([learned.size(size) for size in self._bytes]),
            less=[
                {worker: learned.size(share * size) for worker, share in shares.items()}
                for shares, size in zip(self._lacking, self._bytes, strict=True)
            ],
            pace=pace,
            alone=np.array([learned.cost(host).at(1) for host in self._hosts]),
            running=begun * pace,
            demand=np.concatenate((load, amounts)),
            per_unit=np.concatenate((1.0 / self._capacity[None], np.ones((len(amounts), workers)))),
            used=np.concatenate((used[None], on_hosts[:, hosts])),
            least=np.concatenate(((self._mean - self._allowed)[None], np.full_like(most, -np.inf))),
            most=np.concatenate(((self._mean + self._allowed)[None], most)),
            given=targets,
            of_servers=len(amounts),
            spared=self._spared(rows, workers),
            allowed=allowed,
        )

    def _spared(self, rows: Integers, workers: int) -> Spared | None:
        """What copies need not use of the resources of hosts, of the key groups that move."""
        parts = [
            (at, found)
            for at, each in enumerate(self._resources, 1)
            if each.spared is not None and (found := each.spared.part(rows, np.arange(workers))) is not None
        ]
        if not parts:
            return None
        amounts = [np.zeros((1 + len(self._resources), len(found.node))) for _, found in parts]
        for amount, (at, found) in zip(amounts, parts, strict=True):
            amount[at] = found.amount[0]
        key_groups, nodes = (
            np.concatenate([getattr(each, name) for _, each in parts]) for name in ("key_group", "node")
        )
        return Spared.of(key_groups, nodes, np.concatenate(amounts, axis=1), (len(rows), workers))

    def _make(self, targets: Mapping[int, int]) -> None:
        for at, target in targets.items():
            self._sums[self._target[at]] -= self._load[at]
            self._sums[target] += self._load[at]
            self._used[:, self._host[self._target[at]]] -= self._amounts(at, self._target[at])
            self._used[:, self._host[target]] += self._amounts(at, target)
            self._target[at] = target
        self.changed = True

    def _changes(self, place: int) -> Iterator[dict[int, int]]:
        """What can be done within the limits so that this move goes to a worker that lacks less."""
        left = self._target[place]
        load = self._load[place]
        for holder in sorted(each for each in self._lacking[place] if self._gain(place, each) > 0):
            others = (at for at, target in enumerate(self._target) if target == holder)
            alike = heapq.nsmallest(TRIED, others, key=lambda at: abs(self._load[at] - load))
            for targets in ({place: holder}, *({place: holder, at: left} for at in alike)):
                if self._source_of_none(targets) and self._fits(targets):
                    yield targets

    def _source_of_none(self, targets: Mapping[int, int]) -> bool:
        return all(self._home[at] != target for at, target in targets.items())

    def _gain_of(self, targets: Mapping[int, int]) -> float:
        return sum(self._gain(at, target) for at, target in targets.items())

    def _gain(self, at: int, target: int) -> float:
        """Bytes that need not be restored because of the new target."""
        now, then = (self._lacking[at].get(each, 1.0) for each in (self._target[at], target))
        return self._bytes[at] * (now - then)

    def _fits(self, targets: Mapping[int, int]) -> bool:
        """Whether rules are kept, no worker gets further from the mean than it may, and no host is overfilled."""
        if self._places and not all(self._places.may(self._key_groups[at], to) for at, to in targets.items()):
            return False
        sums: dict[int, float] = {}
        for at, target in targets.items():
            sums[target] = sums.get(target, float(self._sums[target])) + self._load[at]
            left = self._target[at]
            sums[left] = sums.get(left, float(self._sums[left])) - self._load[at]
        balanced = all(
            abs(total / self._capacity[worker] - self._mean) <= self._allowed[worker] for worker, total in sums.items()
        )
        return balanced and self._fits_on_hosts(targets)

    def _amounts(self, at: int, target: int) -> Floats:
        """(resources,) what the key group of a move uses on this target."""
        row, worker = np.array([self._key_groups[at]]), np.array([target])
        return np.array([each.on(row, worker)[0] for each in self._resources])

    def _fits_on_hosts(self, targets: Mapping[int, int]) -> bool:
        used: dict[int, Floats] = {}
        for at, target in targets.items():
            left, gets = self._host[self._target[at]], self._host[target]
            used[left] = used.get(left, self._used[:, left]) - self._amounts(at, self._target[at])
            used[gets] = used.get(gets, self._used[:, gets]) + self._amounts(at, target)
        return all(
            bool((amount <= np.maximum(self._most[:, host], self._used[:, host])).all())
            for host, amount in used.items()
        )


def with_restores(decision: Planned, snapshot: Snapshot | None, held: Held) -> Planned:
    """The plan; it knows the cores of its hosts, as far as they are reported, and what its targets lack."""
    plan = decision.plan
    hosts, rows = set(plan.hosts.values()), snapshot.hosts if snapshot else ()
    cores = {row.host: row.cores for row in rows if row.cores and row.host in hosts}
    warm = sum(move.target in held.standbys(move.key_group) for move in plan.moves)
    moves = tuple(_with_copy(move, held) for move in plan.moves)
    copied = sum(move.lacking_bytes is not None for move in moves)
    return replace(decision, plan=replace(plan, moves=moves, cores=cores, to_standbys=warm, to_copies=copied))


def _with_copy(move: Move, held: Held) -> Move:
    """The move, which knows how much its target lacks if that has a copy on its disk; a standby lacks nothing."""
    share = held.on_disk.get(move.key_group, {}).get(move.target)
    if share is None or move.state_bytes is None or move.target in held.standbys(move.key_group):
        return move
    return replace(move, lacking_bytes=round(share * move.state_bytes))
