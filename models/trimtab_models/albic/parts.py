"""Step 2 of ALBIC: collocated key groups stay together, in parts small enough to move and to balance.

Scored pairs on the same node are merged into sets.  A set whose load exceeds maxPL or whose cost exceeds the budget is
split into `max(ceil(load / maxPL), ceil(cost / budget))` parts by balanced min-cut (edge weight = rate, vertex weight =
the larger of load/maxPL and cost/budget).  Parts that are still too large are split again.  A single key group is
always accepted.  The cut is by METIS (Karypis and Kumar 1998), with a fixed seed and integer weights.
"""

import math
from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np

from trimtab_models.albic.scores import Pairs
from trimtab_models.balance.problem import BalanceProblem, Bools, Floats, Ints

FINENESS = 1_000_000  # sum of the integer weights, which METIS adds in 32 bits
FULL_SHARE = 1 + 1e-9  # of both budgets, with a tolerance for rounding
Members = list[int]
MOST_SHARE = 1e9  # largest share of a budget; more makes no difference


def cut(weights: Floats, edges: Ints, edge_weights: Floats, parts: int, seed: int) -> Ints:
    """(V,) labels of `parts` parts of about equal weight with little edge weight between them.

    `edges` (E, 2) has each undirected edge once; V >= 2.  At least two parts are not empty.  The same seed gives the
    same labels.
    """
    vertex = _integers(weights)
    if not len(edges):
        return _dealt(vertex, parts)
    import pymetis  # who only looks at pairs, or predicts loads, need not have it

    ends = np.concatenate((edges, edges[:, ::-1]))
    order = np.argsort(ends[:, 0], kind="stable")
    start = np.concatenate(([0], np.cumsum(np.bincount(ends[:, 0], minlength=len(weights)))))
    _, labels = pymetis.part_graph(
        parts,
        pymetis.CSRAdjacency(adj_starts=start.tolist(), adjacent=ends[order, 1].tolist()),
        vweights=vertex.tolist(),
        eweights=np.tile(np.maximum(1, _integers(edge_weights)), 2)[order].tolist(),
        recursive=parts <= 8,
        options=pymetis.Options(seed=seed % 2**31),
    )
    found = np.array(labels, np.int64)
    # With very uneven weights METIS may leave all parts but one empty.
    return found if len(np.unique(found)) > 1 else _dealt(vertex, parts)


def _integers(weights: Floats) -> Ints:
    total = float(weights.sum())
    scaled: Ints = np.floor(weights / (total or 1.0) * FINENESS).astype(np.int64)
    return scaled


def _dealt(weights: Ints, parts: int) -> Ints:
    """(V,) labels: heaviest vertices first, each to the lightest part."""
    labels, filled = np.zeros(len(weights), np.int64), [(0, 0)] * parts
    for vertex in np.argsort(-weights, kind="stable").tolist():
        part = min(range(parts), key=filled.__getitem__)
        labels[vertex] = part
        filled[part] = (filled[part][0] + int(weights[vertex]), filled[part][1] + 1)
    return labels


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KeyGroupParts:
    """`of` (K,) = part of every key group; `problem` = the balance problem with the parts as its key groups.

    A part costs as many migrations as it has members, but the balance problem counts one per unit.  Unless all parts
    are single, its budget of bytes therefore stands for the budget that binds: migrations, bytes, or the larger share
    of both.  In the last case a little of one budget may stay unspent; none is ever overspent.
    """

    of: Ints
    size: Ints  # (P,)
    problem: BalanceProblem

    def expand(self, allocation: Ints) -> Ints:
        """(K,) nodes of the key groups when the parts are at `allocation`."""
        expanded: Ints = allocation[self.of]
        return expanded

    def mobile(self, problem: BalanceProblem) -> Bools:
        """(P,) whether each part may move within the budgets of `problem`, the problem of single key groups."""
        prices = np.array([self.summed(row) for row in problem.prices]).reshape(-1, len(self.size))
        payable: Bools = np.logical_and.reduce(prices <= problem.allowances[:, None])
        return self.problem.movable & payable

    def summed(self, amounts: Floats) -> Floats:
        """(P,) sums over the members of each part."""
        return np.bincount(self.of, amounts, len(self.size)).astype(np.float64)


def parts_of(problem: BalanceProblem, members: list[Members]) -> KeyGroupParts:
    """The parts for `members`, a sorted partition of the key groups; all members of a part have the same home."""
    of = np.empty(len(problem.load), np.int64)
    for at, part in enumerate(members):
        of[part] = at
    size = np.array([len(part) for part in members], np.int64)
    if len(members) == len(of):  # all single, in order: the problem stays the same
        return KeyGroupParts(of=of, size=size, problem=problem)
    first = np.array([part[0] for part in members], np.int64)
    cost, allowance = _combined_cost(problem)
    return KeyGroupParts(
        of=of,
        size=size,
        problem=replace(
            problem,
            load=_summed(of, problem.load, len(size)),
            cost_bytes=_summed(of, cost, len(size)),
            home=problem.home[first],
            pinned=_any(of, ~problem.movable, len(size)),
            allowed=None if problem.allowed is None else problem.allowed.merged(of, len(size)),
            evicted=None if problem.evicted is None else _any(of, problem.evicted, len(size)),
            usage=np.array([_summed(of, row, len(size)) for row in problem.usage]).reshape(-1, len(size)),
            spared=None if problem.spared is None else problem.spared.merged(of, len(size)),
            max_migrations=None,
            max_cost_bytes=allowance,
        ),
    )


def _combined_cost(problem: BalanceProblem) -> tuple[Floats, float | None]:
    """(K,) cost of each key group, and the budget, that represent both budgets."""
    count, cost = problem.max_migrations, problem.max_cost_bytes
    if count is None:
        return problem.cost_bytes, cost
    if cost is None or count == 0:
        return np.ones(len(problem.load)), float(count)
    if cost == 0:
        return problem.cost_bytes, 0.0
    return np.maximum(1 / count, problem.cost_bytes / cost), FULL_SHARE


def _summed(of: Ints, amounts: Floats, count: int) -> Floats:
    return np.bincount(of, amounts, count).astype(np.float64)


def _any(of: Ints, flags: Bools, count: int) -> Bools:
    found: Bools = np.bincount(of, flags, count) > 0
    return found


def parts_to_keep(problem: BalanceProblem, pairs: Pairs, max_partition_load: float, seed: int) -> list[Members]:
    """The parts: every key group in exactly one, in order of their first members."""
    if max_partition_load <= 0:
        return [[key_group] for key_group in range(len(problem.load))]
    collocated = pairs.subset(pairs.together(problem.home))
    splitter = _Splitter(problem, collocated, max_partition_load, seed)
    parts = [part for members in _merged(len(problem.load), collocated) for part in splitter.split(members)]
    return sorted(parts)


def budget_shares(problem: BalanceProblem) -> Floats:
    """(K,) share of a round's budget that moving each key group takes; 0 without cost or without budget."""
    payable = problem.allowances > 0
    prices, allowances = problem.prices[payable], problem.allowances[payable, None]
    shares: Floats = (prices / np.maximum(allowances, prices / MOST_SHARE)).max(axis=0, initial=0.0)
    return shares


def _merged(count: int, pairs: Pairs) -> list[Members]:
    """The connected sets of `pairs`, by union-find."""
    parent = list(range(count))

    def root(member: int) -> int:
        while parent[member] != member:
            parent[member] = parent[parent[member]]
            member = parent[member]
        return member

    for first, second in zip(pairs.first.tolist(), pairs.second.tolist(), strict=True):
        parent[root(second)] = root(first)
    sets: dict[int, Members] = defaultdict(list)
    for member in range(count):
        sets[root(member)].append(member)
    return list(sets.values())


class _Splitter:
    def __init__(self, problem: BalanceProblem, pairs: Pairs, max_partition_load: float, seed: int) -> None:
        self._by_load = problem.load / max_partition_load
        self._by_cost = budget_shares(problem)
        self._pairs, self._seed = pairs, seed
        self._pairs_of: dict[int, list[int]] = defaultdict(list)
        for at, first in enumerate(pairs.first.tolist()):
            self._pairs_of[first].append(at)

    def split(self, members: Members) -> list[Members]:
        """`members` in parts that keep both limits or are single."""
        parts, waiting = [], [members]
        while waiting:
            part = waiting.pop()
            count = 1 if len(part) == 1 else self._parts_needed(part)
            if count == 1:
                parts.append(part)
            elif count == len(part):
                parts.extend([member] for member in part)
            else:
                waiting.extend(self._cut(part, count))
        return parts

    def _parts_needed(self, members: Members) -> int:
        load, cost = float(self._by_load[members].sum()), float(self._by_cost[members].sum())
        return min(len(members), max(1, _parts_needed(load), _parts_needed(cost)))

    def _cut(self, members: Members, count: int) -> list[Members]:
        position = {member: at for at, member in enumerate(members)}
        chosen = [at for member in members for at in self._pairs_of[member] if int(self._pairs.second[at]) in position]
        edges = [(position[int(self._pairs.first[at])], position[int(self._pairs.second[at])]) for at in chosen]
        weights = np.maximum(self._by_load[members], self._by_cost[members])
        labels = cut(weights, np.array(edges, np.int64).reshape(-1, 2), self._pairs.rate[chosen], count, self._seed)
        return _grouped(members, labels)


def _parts_needed(share: float) -> int:
    """Number of parts that a set of this share needs; tolerates rounding errors of sums."""
    return math.ceil(min(share, MOST_SHARE) - 1e-9)


def _grouped(members: Members, labels: Ints) -> list[Members]:
    groups: dict[int, Members] = defaultdict(list)
    for member, label in zip(members, labels.tolist(), strict=True):
        groups[label].append(member)
    return list(groups.values())
