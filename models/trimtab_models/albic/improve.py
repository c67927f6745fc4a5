"""Step 3 of ALBIC: the one pair that a round brings together.

It is the scored pair with the largest rate that is not collocated yet; the seed decides ties.  If one of the two is in
a set of collocated key groups, the pair goes to that one's node; otherwise to the less loaded of the two nodes.  Pinned
key groups stay, and draining nodes receive nothing.  A pair whose union exceeds maxPL, the budget or a limit is
skipped.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from trimtab_models.albic.keep import budget_shares
from trimtab_models.albic.parts import KeyGroupParts
from trimtab_models.albic.scores import Pairs
from trimtab_models.balance.evaluate import slack
from trimtab_models.balance.problem import BalanceProblem, Floats, Ints
from trimtab_models.solving.spared import usage_on

FITS = 1 + 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """Part `mover` goes to `node`, where part `anchor` is."""

    mover: int
    anchor: int
    node: int


class CollocationImprover:
    """Looks for the pair.  `at` (P,) = node of each part, `balance` = the problem with the loads there."""

    def __init__(self, balance: BalanceProblem, parts: KeyGroupParts, at: Ints, max_partition_load: float) -> None:
        self._balance, self._parts, self._at = balance, parts, at
        self._load = parts.summed(balance.load)
        self._share = parts.summed(budget_shares(balance))
        self._movable = parts.mobile(balance)
        self._leaving = parts.problem.to_leave(at)
        self._max_partition_load = max_partition_load
        self._node_load: Floats = np.bincount(at, self._load, len(balance.capacity)) / balance.capacity
        usage = [parts.summed(row) for row in balance.usage]
        self._usage = np.array(usage).reshape(-1, len(at))
        self._spared = None if balance.spared is None else balance.spared.merged(parts.of, len(at))
        self._room = balance.limit + slack(balance) - balance.usages(parts.expand(at))

    def best(self, pairs: Pairs, random: np.random.Generator) -> Join | None:
        """The pair to bring together, or None."""
        order = np.lexsort((random.random(len(pairs)), -pairs.rate))
        for first, second in zip(
            self._parts.of[pairs.first[order]].tolist(), self._parts.of[pairs.second[order]].tolist(), strict=True
        ):
            if self._at[first] == self._at[second] or not self._fits_one_part(first, second):
                continue
            for mover, anchor in self._directions(first, second):
                if self._may_join(mover, anchor):
                    return Join(mover=mover, anchor=anchor, node=int(self._at[anchor]))
        return None

    def _fits_one_part(self, first: int, second: int) -> bool:
        load, share = self._load[first] + self._load[second], self._share[first] + self._share[second]
        return bool(load <= self._max_partition_load * FITS and share <= FITS)

    def _directions(self, first: int, second: int) -> Iterator[tuple[int, int]]:
        """(mover, anchor), first as in the paper's cases, then the other way round."""
        in_set = self._parts.size > 1
        if in_set[first] != in_set[second]:
            anchor = first if in_set[first] else second
        else:
            anchor = min(first, second, key=lambda part: self._node_load[self._at[part]])
        mover = second if anchor == first else first
        yield mover, anchor
        yield anchor, mover

    def _may_join(self, mover: int, anchor: int) -> bool:
        node = self._at[anchor]
        if not self._movable[mover] or self._leaving[anchor] or self._balance.removing[node]:
            return False
        if not self._parts.problem.may(mover, node):
            return False
        usage = usage_on(self._usage, self._spared, mover, node)
        return bool((usage <= np.maximum(0.0, self._room[:, node])).all())
