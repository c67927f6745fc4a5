"""The true state of one round: its nodes and key groups, and their loads at any placement."""

from dataclasses import dataclass, replace

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
