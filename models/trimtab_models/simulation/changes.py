"""Nodes that join, drain or are lost, round by round, independently of the workload.

The changes depend only on the seed, so that all policies see the same ones.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

import numpy as np

from trimtab_models.balance.problem import Bools, Ints
from trimtab_models.simulation.moment import Moment, with_nodes


class ChangeKind(Enum):
    """What happens to a node."""

    JOIN = "join"
    MARK = "mark"  # draining: it leaves once it is empty
    LOSE = "lose"  # its key groups become unplaced


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of `count` nodes at the start of round `round` (the first is 1)."""

    round: int
    kind: ChangeKind
    count: int

    def __post_init__(self) -> None:
        if self.round < 1 or self.count < 1:
            raise ValueError("a change needs a round and a count of 1 or more")


def churn(rounds: int, probability: float, seed: int) -> tuple[Change, ...]:
    """Random changes: in each round a node joins with `probability`; with the same one a node drains or is lost."""
    if not 0 <= probability <= 1:
        raise ValueError("a probability is between 0 and 1")
    random = np.random.default_rng((seed, 1))
    changes = []
    for number in range(1, rounds + 1):
        joins, leaves, lost = random.random(3) < (probability, probability, 0.5)
        if joins:
            changes.append(Change(round=number, kind=ChangeKind.JOIN, count=1))
        if leaves:
            changes.append(Change(round=number, kind=ChangeKind.LOSE if lost else ChangeKind.MARK, count=1))
    return tuple(changes)


class Cluster:
    """The nodes of a workload with all changes so far."""

    def __init__(self, changes: Iterable[Change], seed: int) -> None:
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

    def _apply(self, change: Change, moment: Moment) -> None:
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
