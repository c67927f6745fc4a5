"""The moves that a round chooses from, with the effect of each on the loads.

A part moves as one unit.  In one round, no two parts with much traffic between them both move, so the partners of a
moving part stay in place.  The effect of a move is then exact and independent of the other moves.  The old node loses
the load of the part, and pays for tuples that used to be local.  The new node gains the load of the part without the
traffic that becomes local, and saves its own share of that traffic.
"""

from dataclasses import dataclass

import numpy as np

from trimtab_models.albic.keep import budget_shares
from trimtab_models.albic.parts import KeyGroupParts
from trimtab_models.albic.problem import CollocationProblem
from trimtab_models.albic.scores import Pairs
from trimtab_models.balance.problem import Bools, Floats, Ints

NOMINAL_SHARE = 0.5  # of all load: assumed share of communication if its cost is unknown (job 2 of the paper)
HOTTEST, COLDEST = 8, 3  # nodes that give and receive for balance
MOST_GIVEN = 600  # most parts offered to the coldest nodes
MOST_JOINS = 1_500  # most moves to a partner; a few hundred are usual
FITS = 1 + 1e-9


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MoveOptions:
    """M moves of parts; `freed` = load that leaves the old node, `added` = load that the new node gains."""

    part: Ints  # (M,)
    node: Ints  # (M,)
    freed: Floats
    added: Floats
    saved: Floats  # load that serialisation no longer takes, or its nominal value
    joins: Bools  # whether a scored partner is on the new node

    def __len__(self) -> int:
        return len(self.part)


class PartTraffic:
    """Traffic of each part with other parts, by the node of those."""

    def __init__(self, problem: CollocationProblem, parts: KeyGroupParts, at: Ints) -> None:
        source, target = parts.of[problem.source], parts.of[problem.target]
        apart = source != target
        source, target = source[apart], target[apart]
        self._nodes = len(problem.balance.capacity)
        keys = np.concatenate((source * self._nodes + at[target], target * self._nodes + at[source]))
        self._keys, where = np.unique(keys, return_inverse=True)
        sending, receiving = problem.sending[apart], problem.receiving[apart]
        self._own = self._summed(where, np.concatenate((sending, receiving)))
        self._theirs = self._summed(where, np.concatenate((receiving, sending)))
        worth = worth_of_flows(problem)[apart]
        self._worth = self._summed(where, np.concatenate((worth, worth)))

    def _summed(self, where: Ints, amounts: Floats) -> Floats:
        """Sums per pair of part and node; the last entry, 0, is for pairs without traffic."""
        return np.append(np.bincount(where, amounts, len(self._keys)), 0.0).astype(np.float64)

    def own(self, part: Ints, node: Ints) -> Floats:
        """Load that `part` spends on tuples to and from `node` while it is elsewhere."""
        return self._own[self._index(part, node)]

    def theirs(self, part: Ints, node: Ints) -> Floats:
        """Load that the parts on `node` spend on the same tuples."""
        return self._theirs[self._index(part, node)]

    def worth(self, part: Ints, node: Ints) -> Floats:
        """Value of having `part` on `node`, together with its partners there."""
        return self._worth[self._index(part, node)]

    def _index(self, part: Ints, node: Ints) -> Ints:
        keys = part * self._nodes + node
        found = np.minimum(np.searchsorted(self._keys, keys), max(0, len(self._keys) - 1))
        if not len(self._keys):
            return found
        return np.where(self._keys[found] == keys, found, len(self._keys))


def worth_of_flows(problem: CollocationProblem) -> Floats:
    """(F,) value in load of having each flow local: what it costs while remote, or a nominal value if none costs."""
    total = float(problem.rate.sum())
    if problem.costly or not total:
        ends = problem.sending + problem.receiving
        return ends if problem.spared is None else ends + problem.spared
    return problem.rate * (NOMINAL_SHARE * float(problem.balance.load.sum()) / total)


def worth_of_pairs(problem: CollocationProblem, pairs: Pairs) -> Floats:
    """(P,) value in load of having each pair together."""
    count = len(problem.operator)
    low, high = np.minimum(problem.source, problem.target), np.maximum(problem.source, problem.target)
    keys, at = np.unique(low * count + high, return_inverse=True)
    worth = np.bincount(at, worth_of_flows(problem), len(keys)).astype(np.float64)
    found: Floats = worth[np.searchsorted(keys, pairs.first * count + pairs.second)]
    return found


def part_pairs(parts: KeyGroupParts, pairs: Pairs) -> tuple[Ints, Ints]:
    """The pairs of different parts with a scored edge between them, each once."""
    first, second = parts.of[pairs.first], parts.of[pairs.second]
    keys = np.minimum(first, second) * len(parts.size) + np.maximum(first, second)
    keys = np.unique(keys[first != second])
    low, high = np.divmod(keys, max(1, len(parts.size)))
    return low, high


class OptionCollector:
    """Collects the options of one round; `at` (P,) = node of each part."""

    def __init__(
        self, problem: CollocationProblem, parts: KeyGroupParts, at: Ints, loads: Floats, worth: Floats
    ) -> None:
        """`loads` (K,) = predicted for `at`; `worth` (P,) = value of moving a part, in addition to what it saves."""
        self._problem, self._at, self._worth = problem, at, worth
        self._loads = parts.summed(loads)
        self._shares = parts.summed(budget_shares(problem.balance))
        self._free, self._may = parts.mobile(problem.balance), parts.problem.may
        self._leaving = parts.problem.to_leave(at)
        self._traffic = PartTraffic(problem, parts, at)

    def joins(self, first: Ints, second: Ints, max_partition_load: float) -> tuple[Ints, Ints]:
        """Moves of one of two parts to the node of the other, unless their union is too large for a part."""
        apart = self._at[first] != self._at[second]
        light = self._loads[first] + self._loads[second] <= max_partition_load * FITS
        fits = apart & light & (self._shares[first] + self._shares[second] <= FITS)
        first, second = first[fits], second[fits]
        part, node = np.concatenate((first, second)), self._at[np.concatenate((second, first))]
        return part, node

    def levelling(self, deviations: Floats) -> tuple[Ints, Ints]:
        """Moves from the hottest nodes, and of all that are to leave theirs, to the coldest."""
        balance = self._problem.balance
        kept = np.flatnonzero(balance.kept)
        coldest = kept[np.argsort(deviations[kept], kind="stable")[:COLDEST]]
        hottest = np.zeros(len(deviations), np.bool_)
        hottest[np.argsort(-deviations, kind="stable")[:HOTTEST]] = True
        marked = self._leaving
        part = np.flatnonzero((hottest[self._at] | marked) & self._free)
        marked_first = np.lexsort((-self._loads[part], ~marked[part]))
        part = part[marked_first[:MOST_GIVEN]]
        return np.repeat(part, len(coldest)), np.tile(coldest, len(part))

    def options(self, part: Ints, node: Ints, joining: int) -> MoveOptions:
        """The allowed ones of these moves, each once; the first `joining` moves join a scored pair."""
        balance, at = self._problem.balance, self._at
        joins = np.arange(len(part)) < joining
        first = np.unique(part * len(balance.capacity) + node, return_index=True)[1]  # joins come first
        part, node, joins = part[first], node[first], joins[first]
        allowed = self._free[part] & (at[part] != node) & balance.kept[node] & self._may(part, node)
        part, node, joins = part[allowed], node[allowed], joins[allowed]
        here, ties = at[part], self._traffic
        saved = ties.worth(part, node) - ties.worth(part, here)
        pays = ~joins | (saved + self._worth[part] > 0)
        part, node, here, joins, saved = part[pays], node[pays], here[pays], joins[pays], saved[pays]
        load, own_here, own_there = self._loads[part], ties.own(part, here), ties.own(part, node)
        found = MoveOptions(
            part=part,
            node=node,
            freed=load - ties.theirs(part, here),
            added=load + own_here - own_there - ties.theirs(part, node),
            saved=saved,
            joins=joins,
        )
        return _best(found)


def _best(options: MoveOptions) -> MoveOptions:
    """All moves for balance, and the `MOST_JOINS` joins that save most."""
    if int(options.joins.sum()) <= MOST_JOINS:
        return options
    rank = np.argsort(-np.where(options.joins, options.saved, np.inf), kind="stable")
    chosen = np.sort(rank[: int((~options.joins).sum()) + MOST_JOINS])
    return MoveOptions(**{name: getattr(options, name)[chosen] for name in MoveOptions.__slots__})
