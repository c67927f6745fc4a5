"""Step 1 of ALBIC: the pairs of key groups worth collocating (Madsen et al. 2017, section 4.3.2).

Pair (i, j) is scored iff out(i, j) > sF * out(i) / (number of downstream key groups of i), strictly; the downstream
key groups of i are all key groups of the operators that i's operator sends to.  Rates should be smoothed over three
periods or more.  We differ in this: the rate of a pair counts both directions, since collocation saves
both.
"""

from dataclasses import dataclass

import numpy as np

from trimtab_models.albic.problem import CollocationProblem
from trimtab_models.balance.problem import UNPLACED, Bools, Floats, Ints

RELATIVE = 1e-12  # tolerance: a rate at the threshold is not above it


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pairs:
    """P unordered pairs of key groups, `first < second`, each once, with the rate between them (tuples/s)."""

    first: Ints
    second: Ints
    rate: Floats

    def __len__(self) -> int:
        return len(self.rate)

    def subset(self, chosen: Bools | Ints) -> "Pairs":
        """The chosen pairs."""
        return Pairs(first=self.first[chosen], second=self.second[chosen], rate=self.rate[chosen])

    def together(self, allocation: Ints) -> Bools:
        """(P,) whether both key groups of each pair are on the same node."""
        here = allocation[self.first]
        shared: Bools = (here == allocation[self.second]) & (here != UNPLACED)
        return shared


def scored_pairs(problem: CollocationProblem) -> Pairs:
    """The pairs that ALBIC keeps or brings together."""
    return scored_among(problem.operator, problem.source, problem.target, problem.rate, problem.score_factor)


def scored_among(operator: Ints, senders: Ints, receivers: Ints, rates: Floats, score_factor: float) -> Pairs:
    """The scored pairs of K key groups, given their operators (K,), with F flows between them."""
    count = len(operator)
    keys, at = np.unique(senders * count + receivers, return_inverse=True)
    rate = np.bincount(at, rates, len(keys)).astype(np.float64)
    source, target = np.divmod(keys, count) if count else (keys, keys)
    total = np.bincount(source, rate, count)
    threshold = score_factor * total[source] * (1 + RELATIVE)
    above = (rate * _downstream(operator, source, target, rate)[source] > threshold) & (source != target)
    low, high = np.minimum(source, target), np.maximum(source, target)
    pair_keys, pair_at = np.unique(low * count + high, return_inverse=True)
    chosen = np.bincount(pair_at, above, len(pair_keys)) > 0
    pair_rate = np.bincount(pair_at, rate, len(pair_keys)).astype(np.float64)
    first, second = np.divmod(pair_keys, count) if count else (pair_keys, pair_keys)
    return Pairs(first=first[chosen], second=second[chosen], rate=pair_rate[chosen])


def _downstream(operator: Ints, source: Ints, target: Ints, rate: Floats) -> Ints:
    """(K,) the number of downstream key groups."""
    operators = int(operator.max(initial=-1)) + 1
    sizes = np.bincount(operator, minlength=operators)
    flowing = rate > 0
    edges = np.unique(operator[source[flowing]] * operators + operator[target[flowing]])
    sender, receiver = np.divmod(edges, operators) if operators else (edges, edges)
    reached: Ints = np.bincount(sender, sizes[receiver], operators).astype(np.int64)
    return reached[operator]
