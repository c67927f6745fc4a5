"""A proven lower bound on the load distance that a round can reach.

Theory. Fix a trial distance d. Node i must end within [low_i, high_i] = [(mean - d) c_i, (mean + d) c_i] (marked nodes
have no lower end). Each condition below follows from that and from the budget; if one fails, no plan reaches d. The
bound is the largest d that was refuted, found by bisection. Limits on further resources are relaxed, which keeps it a
bound.

Piece   a key group stands on some node: its own, or a kept one.
R       a node above high_i must lose the excess: at least its fewest largest movable key groups.
S       a node below low_i must gain the deficit: at least the fewest largest key groups of the cluster.
D       what is lost in R and the best further moves must carry the sum of all deficits. A node gives at most down to
        low_i, so its offers are its largest key groups in turn, the last one cut: concave, hence a greedy maximum.
Cost    R and D under a budget of bytes, where key groups may be cut (cheapest bytes per load first).
Whole   see `knapsack.py`: Cost where key groups stay whole.
Reach   see `reach.py`. Both are applied last, since they cost most.

Unplaced key groups are free: their load pays deficits first (S is left out then).
"""

from collections.abc import Callable

import numpy as np

from trimtab_models.balance import knapsack
from trimtab_models.balance.knapsack import Whole
from trimtab_models.balance.pieces import Excesses, Pieces
from trimtab_models.balance.problem import UNPLACED, Bools, Floats, Ints, Problem
from trimtab_models.balance.reach import Reach
from trimtab_models.solving.stop import Stop

TOLERANCE_PP = 1e-6
REACH_TOLERANCE_PP = 1e-4
RELATIVE = 1e-9  # of the load distance: floats are no finer where loads are huge
NEGLIGIBLE = 1e-12  # of the largest load
REACH_ENTRIES = 200_000  # above this many (node, moves out) pairs Reach takes seconds and seldom improves the bound


class Transfers:
    """What pieces, in the order in which a node would give them, can carry to the nodes that miss load."""

    def __init__(self, problem: Problem, pieces: Pieces) -> None:
        self._excesses = Excesses(problem)
        self.pieces = pieces

    def offers(self, d: float) -> Floats:
        """(P,) what each piece can carry to the deficits, after those of its node that go before it."""
        room = np.maximum(0.0, self._excesses.spare(d))[self.pieces.node] - self.pieces.before
        return np.clip(room, 0.0, self.pieces.load)

    def deficit(self, d: float) -> float:
        """Load that the nodes below the band miss, less what unplaced key groups bring."""
        return float(np.maximum(0.0, -self._excesses.spare(d)).sum()) - self._excesses.unplaced


class CountConditions(Transfers):
    """R, S and D for a budget of migrations."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem, Pieces.ordered(problem, -problem.load))
        self._rank = np.arange(len(self.pieces.load)) - self.pieces.first[self.pieces.node]
        self._top = np.concatenate(([0.0], np.cumsum(np.sort(self.pieces.load)[::-1])))
        budget = problem.max_migrations
        self._budget = len(self.pieces.load) if budget is None else min(budget, len(self.pieces.load))

    def mandatory(self, d: float) -> Ints | None:
        """(N,) the fewest moves out of each node, or None if even all its movable key groups are too few."""
        above, pieces = self._excesses.above(d), self.pieces
        fewest = np.zeros(len(above), np.int64)
        hot = np.flatnonzero(above > 0)
        start = pieces.first[hot]
        fewest[hot] = np.searchsorted(pieces.running, pieces.running[start] + above[hot]) - start
        return fewest if (fewest <= np.diff(pieces.first)).all() else None

    def arrivals(self, d: float) -> Ints:
        """(N,) the fewest moves to each node, if nothing is unplaced; more than there are pieces if all are too few."""
        deficits = np.maximum(0.0, -self._excesses.spare(d))
        fewest: Ints = np.searchsorted(self._top, deficits)
        return fewest

    def refute(self, d: float) -> bool:
        """Whether R, S or D rules `d` out."""
        fewest = self.mandatory(d)
        if fewest is None or fewest.sum() > self._budget:
            return True
        deficits = -self._excesses.spare(d)
        deficits = deficits[deficits > 0]
        if not len(deficits):
            return False
        if not self._excesses.unplaced and self.arrivals(d).sum() > self._budget:
            return True
        offers = self.offers(d)
        mandatory = self._rank < fewest[self.pieces.node]
        carried = float(offers[mandatory].sum())
        further = offers[~mandatory]
        further = further[further > 0]
        left = self._budget - int(fewest.sum())
        if 0 < left < len(further):
            further = np.partition(further, len(further) - left)[len(further) - left :]
        carried += float(further.sum()) if left else 0.0
        return carried + self._excesses.slack < self.deficit(d)


class CostConditions(Transfers):
    """R and D for a budget of bytes."""

    def __init__(self, problem: Problem, budget_bytes: float) -> None:
        least = NEGLIGIBLE * float(problem.load.max(initial=0.0)) or 1.0  # what carries less is priced as if it did not
        bytes_per_load = problem.cost_bytes / np.maximum(problem.load, least)
        super().__init__(problem, Pieces.ordered(problem, bytes_per_load))
        self._bytes_per_load = bytes_per_load[self.pieces.key_groups]
        self.cheapest = np.argsort(self._bytes_per_load, kind="stable")
        self._budget_bytes = budget_bytes

    def mandatory(self, d: float) -> Bools:
        """(P,) the cheapest pieces that bring their node under the band, the last of them only in part."""
        return self.pieces.before < self._excesses.above(d)[self.pieces.node]

    def refute(self, d: float) -> bool:
        """Whether R or D rules `d` out."""
        above = np.maximum(0.0, self._excesses.above(d))
        pieces = self.pieces
        movable = np.bincount(pieces.node, pieces.load, len(above))
        if (movable + self._excesses.slack < above).any():
            return True
        lost = np.clip(above[pieces.node] - pieces.before, 0.0, pieces.load)
        cost = float((lost * self._bytes_per_load).sum())
        missing = self.deficit(d) - float(lost.sum())
        if missing > self._excesses.slack:
            offers = np.maximum(0.0, self.offers(d) - lost)[self.cheapest]
            taken = np.clip(missing - (np.cumsum(offers) - offers), 0.0, offers)
            if taken.sum() + self._excesses.slack < missing:
                return True
            cost += float((taken * self._bytes_per_load[self.cheapest]).sum())
        return cost > self._budget_bytes * (1 + 1e-9)


def piece_bound(problem: Problem) -> float:
    """No load distance is below that of the key group that fits worst on the best of the nodes it may stand on."""
    if not len(problem.load):
        return 0.0
    anywhere = problem.load / problem.capacity[problem.kept].max()
    own = np.where(problem.home == UNPLACED, np.inf, problem.load / problem.capacity[problem.home])
    best = np.where(problem.movable, np.minimum(anywhere, own), own)
    return max(0.0, float(best.max()) * (1 - 1e-12) - problem.mean)


def lower_bound(problem: Problem, reached: float, stop: Stop, count: CountConditions | None = None) -> float:
    """The largest load distance (pp) that Piece, R, S, D and Cost prove to be out of reach.

    At most `reached`, the load distance of some allowed allocation. Stopped early it returns what is proven by then.
    `count` are the conditions of `problem`, if the caller has them: sorting a million key groups takes a while.
    O(K log K) once, then O(K) per trial.
    """
    refuters = [(count or CountConditions(problem)).refute]
    if problem.max_cost_bytes is not None:
        refuters.append(CostConditions(problem, problem.max_cost_bytes).refute)
    proven = piece_bound(problem)
    for refute in refuters:
        low, high = proven, reached
        if low < high and refute(low):
            while high - low > max(TOLERANCE_PP, RELATIVE * reached) and not stop():
                middle = 0.5 * (low + high)
                low, high = (middle, high) if refute(middle) else (low, middle)
            proven = low
    return min(proven, reached)


def stronger_bound(problem: Problem, proven: float, reached: float, stop: Stop) -> float:
    """`proven` raised by Reach and Whole, which cost more and seldom add much."""
    for refute in _costly_refuters(problem):
        proven = _raised(refute, proven, reached, stop)
    return proven


def _costly_refuters(problem: Problem) -> list[Callable[[float], bool]]:
    refuters: list[Callable[[float], bool]] = []
    pieces = Pieces.ordered(problem, -problem.load)
    if Reach.entries(problem, pieces.first) <= REACH_ENTRIES:
        refuters.append(Reach(problem, pieces.load, pieces.first).refute)
    if problem.max_cost_bytes is not None and len(problem.capacity) * knapsack.CELLS <= knapsack.ENTRIES:
        refuters.append(Whole(problem, problem.max_cost_bytes).refute)
    return refuters


def _raised(refute: Callable[[float], bool], proven: float, reached: float, stop: Stop) -> float:
    """The largest trial that `refute` rules out: gallops up from `proven`, then bisects."""
    low, high, stride = proven, reached, 0.05
    while low < high:
        if stop():
            return low
        trial = min(high, low + stride)
        if not refute(trial):
            high = trial
            break
        low, stride = trial, 2 * stride
    while high - low > max(REACH_TOLERANCE_PP, RELATIVE * reached) and not stop():
        middle = 0.5 * (low + high)
        low, high = (middle, high) if refute(middle) else (low, middle)
    return low
