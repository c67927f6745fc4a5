"""The true state of one round: its nodes and key groups, their loads at any placement, and how its nodes change.

Nodes join, drain or are lost independently of the workload.  The changes depend only on the seed, so that all policies
see the same ones.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from trimtab_models.albic.problem import CollocationProblem
from trimtab_models.balance.problem import UNPLACED, Bools, Ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Moment:
    """The true state of one round.

    `problem` = the problem at its own placement; ids of its nodes and key groups, in order.  `at` gives the problem at
    the placement of a simulation.  `alike` (F,) = whether both ends of a flow have the same key, so that it can be
    collocated; None if unknown.
    """

    nodes: tuple[str, ...]
    key_groups: tuple[str, ...]
    problem: CollocationProblem
    alike: Bools | None = None

    def __post_init__(self) -> None:
        balance = self.problem.balance
        if len(self.nodes) != len(balance.capacity) or len(self.key_groups) != len(balance.load):
            raise ValueError("every node and every key group needs an id")
        if self.alike is not None and self.alike.shape != self.problem.rate.shape:
            raise ValueError("alike must have one entry per flow")

    @property
    def home(self) -> Ints:
        """(K,) the placement at which the problem was measured."""
        return self.problem.balance.home

    def at(self, placement: Ints) -> CollocationProblem:
        """The problem, measured at `placement`."""
        return self.problem.moved_to(placement)

    def obtained(self, placement: Ints) -> float:
        """Local share of the flows that can be collocated, by rate; 0 if that is unknown or there are none."""
        if self.alike is None:
            return 0.0
        rate = self.problem.rate
        obtainable = float(rate[self.alike].sum())
        return float(rate[self.alike & ~self.problem.remote(placement)].sum()) / obtainable if obtainable else 0.0


def renumbered(placement: Ints, old: tuple[str, ...], new: tuple[str, ...]) -> Ints:
    """`placement` with positions in `new` instead of `old`; UNPLACED for nodes that are not in `new`."""
    if old is new or old == new:
        return placement
    position = {id_: at for at, id_ in enumerate(new)}
    moved = np.array([*(position.get(id_, UNPLACED) for id_ in old), UNPLACED], np.int64)
    return moved[placement]  # UNPLACED (-1) indexes the last entry


def with_nodes(moment: Moment, nodes: tuple[str, ...], *, pattern: Ints, removing: frozenset[str]) -> Moment:
    """`moment` on other `nodes`; `pattern` = own node that each of them is like, `removing` = draining nodes."""
    balance = moment.problem.balance
    marks = balance.removing[pattern] | np.array([id_ in removing for id_ in nodes], np.bool_)
    changed = replace(
        balance,
        capacity=balance.capacity[pattern],
        limit=balance.limit[:, pattern],
        removing=marks,
        allowed=None if balance.allowed is None else balance.allowed.part(np.arange(len(balance.load)), pattern),
        home=renumbered(balance.home, moment.nodes, nodes),
    )
    problem = moment.problem
    remote = problem.loads(changed.home) if (changed.home == UNPLACED).any() else balance.load
    return replace(moment, nodes=nodes, problem=replace(problem, balance=replace(changed, load=remote)))


class ChangeKind(Enum):
    """What happens to a node."""

    JOIN = "join"
    MARK = "mark"  # draining: it leaves once it is empty
    LOSE = "lose"  # its key groups become unplaced


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeChange:
    """A change of `count` nodes at the start of round `round` (the first is 1)."""

    round: int
    kind: ChangeKind
    count: int

    def __post_init__(self) -> None:
        if self.round < 1 or self.count < 1:
            raise ValueError("a change needs a round and a count of 1 or more")


def churn(rounds: int, probability: float, seed: int) -> tuple[NodeChange, ...]:
    """Random changes: in each round a node joins with `probability`; with the same one a node drains or is lost."""
    if not 0 <= probability <= 1:
        raise ValueError("a probability is between 0 and 1")
    random = np.random.default_rng((seed, 1))
    changes = []
    for number in range(1, rounds + 1):
        joins, leaves, lost = random.random(3) < (probability, probability, 0.5)
        if joins:
            changes.append(NodeChange(round=number, kind=ChangeKind.JOIN, count=1))
        if leaves:
            changes.append(NodeChange(round=number, kind=ChangeKind.LOSE if lost else ChangeKind.MARK, count=1))
    return tuple(changes)


class ChangingNodes:
    """The nodes of a workload with all changes so far."""

    def __init__(self, changes: Iterable[NodeChange], seed: int) -> None:
        self._changes = sorted(changes, key=lambda change: change.round)
        self._random = np.random.default_rng((seed, 2))
        self._joined: list[str] = []
        self._marked: set[str] = set()
        self._gone: set[str] = set()

    def enter(self, number: int, moment: Moment) -> Moment:
        """`moment` of round `number`, on the nodes that exist then."""
        for change in self._changes:
            if change.round == number:
                self._apply(change, moment)
        if not moment.nodes or not (self._joined or self._marked or self._gone):
            return moment
        present = np.array([id_ not in self._gone for id_ in moment.nodes], np.bool_)
        own = np.flatnonzero(present)
        joined = [id_ for id_ in self._joined if id_ not in self._gone]
        like = np.zeros(len(joined), np.int64)  # a new node is like the first node of the workload
        nodes = (*(moment.nodes[at] for at in own.tolist()), *joined)
        return with_nodes(
            moment, nodes, pattern=np.concatenate((own, like)), removing=frozenset(self._marked - self._gone)
        )

    def release(self, moment: Moment, placement: Ints) -> int:
        """Remove all draining nodes that are empty in `placement`; returns how many."""
        held: Bools = np.bincount(placement, minlength=len(moment.nodes)) > 0
        empty = np.flatnonzero(moment.problem.balance.removing & ~held).tolist()
        released = {moment.nodes[at] for at in empty} & self._marked
        self._gone |= released
        return len(released)

    def _apply(self, change: NodeChange, moment: Moment) -> None:
        if change.kind is ChangeKind.JOIN:
            first = len(self._joined) + 1
            self._joined += [f"joined-{number}" for number in range(first, first + change.count)]
            return
        removing = moment.problem.balance.removing.tolist()
        own = [id_ for id_, marked in zip(moment.nodes, removing, strict=True) if not marked]
        staying = [id_ for id_ in (*own, *self._joined) if id_ not in self._marked and id_ not in self._gone]
        count = min(change.count, len(staying) - 1)  # the last node stays
        chosen = {staying[at] for at in self._random.choice(len(staying), max(0, count), replace=False).tolist()}
        if change.kind is ChangeKind.MARK:
            self._marked |= chosen
        else:
            self._gone |= chosen
