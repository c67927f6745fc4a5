"""Step 2 of ALBIC: collocated key groups stay together, in parts small enough to move and to balance.

Scored pairs on the same node are merged into sets.  A set whose load exceeds maxPL or whose cost exceeds the budget is
split into `max(ceil(load / maxPL), ceil(cost / budget))` parts by balanced min-cut (METIS; edge weight = rate, vertex
weight = the larger of load/maxPL and cost/budget).  Parts that are still too large are split again.  A single key group
is always accepted.
"""

import math
from collections import defaultdict

import numpy as np

from trimtab_models.albic.metis import cut
from trimtab_models.albic.scores import Pairs
from trimtab_models.balance.problem import BalanceProblem, Floats, Ints

Members = list[int]
MOST_SHARE = 1e9  # largest share of a budget; more makes no difference


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
        return min(len(members), max(1, _whole(load), _whole(cost)))

    def _cut(self, members: Members, count: int) -> list[Members]:
        position = {member: at for at, member in enumerate(members)}
        chosen = [at for member in members for at in self._pairs_of[member] if int(self._pairs.second[at]) in position]
        edges = [(position[int(self._pairs.first[at])], position[int(self._pairs.second[at])]) for at in chosen]
        weights = np.maximum(self._by_load[members], self._by_cost[members])
        labels = cut(weights, np.array(edges, np.int64).reshape(-1, 2), self._pairs.rate[chosen], count, self._seed)
        return _grouped(members, labels)


def _whole(share: float) -> int:
    """Number of parts that a set of this share needs; tolerates rounding errors of sums."""
    return math.ceil(min(share, MOST_SHARE) - 1e-9)


def _grouped(members: Members, labels: Ints) -> list[Members]:
    groups: dict[int, Members] = defaultdict(list)
    for member, label in zip(members, labels.tolist(), strict=True):
        groups[label].append(member)
    return list(groups.values())
