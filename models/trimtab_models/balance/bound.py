"""A proven lower bound on the load distance that one round can reach.

Theory.  Fix a trial distance d.  Node i must end within [low_i, high_i] = [(mean - d) c_i, (mean + d) c_i]; draining
nodes have no lower end.  The conditions below follow from this and from the budget.  If one fails, no plan reaches d.
The bound is the largest refuted d, found by bisection.  Limits on further resources are ignored, which keeps the bound
valid.

Piece     every key group is on some node: its own, or one that is not draining.
R         a node above high_i must lose the excess, which takes at least its n largest movable key groups.
S         a node below low_i must gain the deficit, which takes at least the n largest key groups of the cluster.
D         the moves of R and the best further moves must cover the sum of all deficits.  A node gives down to low_i at
          most.  It offers its largest key groups in turn, the last one in part; this is concave, so greedy is optimal.
Cost      R and D for a budget of bytes, with divisible key groups (fewest bytes per load first).
Knapsack  Cost with indivisible key groups (`knapsack.py`).
Class     see `class_bound`: where key groups may not be on all nodes.
Reach     see `reach.py`.  Knapsack and Reach take the most time and are applied last.

`load_prices.py` proves more, in about a second, and for budgets of bytes finds plans by the way (`priced_plans.py`).

Unplaced key groups are free.  Their load covers deficits first; S is then not used.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from trimtab_models.balance.knapsack import KnapsackCondition
from trimtab_models.balance.losses import LARGEST
from trimtab_models.balance.pieces import Excesses, Pieces, is_affordable
from trimtab_models.balance.problem import UNPLACED, BalanceProblem, Bools, Floats, Ints
from trimtab_models.balance.reach import ReachCondition
from trimtab_models.solving.stop import StopRule

TOLERANCE_PP = 1e-6
REACH_TOLERANCE_PP = 1e-4
COARSE_TOLERANCE_PP = 0.005  # the grid that Knapsack begins with is coarser than that
RELATIVE = 1e-9  # of the load distance: precision of floats for huge loads
NEGLIGIBLE = 1e-12  # of the largest load
REACH_ENTRIES = 200_000  # (node, moves out) pairs; beyond, Reach takes seconds and seldom helps


class Transfers:
    """Load that nodes can give to nodes with a deficit; each node gives its pieces in order."""

    def __init__(self, problem: BalanceProblem, pieces: Pieces) -> None:
        self._excesses = Excesses(problem)
        self.pieces = pieces

    def offers(self, d: float) -> Floats:
        """(P,) load that each piece can bring to deficits, after the earlier pieces of its node."""
        room = np.maximum(0.0, self._excesses.spare(d))[self.pieces.node] - self.pieces.before
        return np.clip(room, 0.0, self.pieces.load)

    def deficit(self, d: float) -> float:
        """Load that the nodes below the band lack, minus the load of unplaced key groups."""
        return float(np.maximum(0.0, -self._excesses.spare(d)).sum()) - self._excesses.unplaced


class CountConditions(Transfers):
    """The conditions R, S and D for a budget of migrations."""

    def __init__(self, problem: BalanceProblem) -> None:
        super().__init__(problem, Pieces.ordered(problem, -problem.load))
        self._rank = np.arange(len(self.pieces.load)) - self.pieces.first[self.pieces.node]
        self._top = np.concatenate(([0.0], np.cumsum(np.sort(self.pieces.load)[::-1])))
        budget = problem.max_migrations
        self._budget = len(self.pieces.load) if budget is None else min(budget, len(self.pieces.load))

    def mandatory(self, d: float) -> Ints | None:
        """(N,) least number of moves out of each node; None if even all movable key groups of a node are too few."""
        above, pieces = self._excesses.above(d), self.pieces
        fewest = np.zeros(len(above), np.int64)
        hot = np.flatnonzero(above > 0)
        start = pieces.first[hot]
        fewest[hot] = np.searchsorted(pieces.running, pieces.running[start] + above[hot]) - start
        return fewest if (fewest <= np.diff(pieces.first)).all() else None

    def arrivals(self, d: float) -> Ints:
        """(N,) least number of moves to each node, if nothing is unplaced; above P if all pieces are too few."""
        deficits = np.maximum(0.0, -self._excesses.spare(d))
        fewest: Ints = np.searchsorted(self._top, deficits)
        return fewest

    def refute(self, d: float) -> bool:
        """Whether R, S or D refutes `d`."""
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
    """The condition Cost: R and D for a budget of bytes."""

    def __init__(self, problem: BalanceProblem, budget_bytes: float) -> None:
        least = NEGLIGIBLE * float(problem.load.max(initial=0.0)) or 1.0  # a smaller load is priced as this one
        bytes_per_load = problem.cost_bytes / np.maximum(problem.load, least)
        super().__init__(problem, Pieces.ordered(problem, bytes_per_load))
        self._bytes_per_load = bytes_per_load[self.pieces.key_groups]
        self.cheapest = np.argsort(self._bytes_per_load, kind="stable")
        self._budget_bytes = budget_bytes

    def mandatory(self, d: float) -> Bools:
        """(P,) the cheapest pieces that bring their node to the upper end of the band; the last one counts in part."""
        return self.pieces.before < self._excesses.above(d)[self.pieces.node]

    def lacking(self, d: float) -> Bools:
        """(N,) the nodes below the band of `d`."""
        lacking: Bools = self._excesses.spare(d) < 0
        return lacking

    def candidates(self, d: float, ample: float) -> Ints:
        """The key groups that carry `ample` times the load that must move, with the fewest bytes per load."""
        above, pieces = np.maximum(0.0, self._excesses.above(d)), self.pieces
        leaving = pieces.before < ample * above[pieces.node]
        offers = np.where(leaving, 0.0, self.offers(d))[self.cheapest]
        missing = ample * max(0.0, self.deficit(d) - float(above.sum()))
        further = self.cheapest[(offers > 0) & (np.cumsum(offers) - offers < missing)]
        return pieces.key_groups[np.concatenate((np.flatnonzero(leaving), further))]

    def whole(self, d: float) -> Ints | None:
        """Whole key groups, the fewest bytes per load first, that meet R and D at `d`; None if even all are too few.

        If the budgets pay for them, Knapsack does not refute `d`.
        """
        chosen, are_enough = self.needed(d)
        return chosen if are_enough else None

    def needed(self, d: float, least_share: float = 0.0) -> tuple[Ints, bool]:
        """The mandatory pieces, then offers with the fewest bytes per load until they cover the deficits at `d`.

        Only offers of at least `least_share` of their load.  Returns the key groups, and whether they are enough.
        """
        pieces, mandatory, offers = self.pieces, self.mandatory(d), self.offers(d)
        missing = self.deficit(d) - float(offers[mandatory].sum())
        further = self.cheapest
        offered = (offers[further] > 0) & (offers[further] >= least_share * pieces.load[further])
        further = further[~mandatory[further] & offered]
        count = int(np.searchsorted(np.cumsum(offers[further]), missing)) + 1 if missing > 0 else 0
        return pieces.key_groups[np.concatenate((np.flatnonzero(mandatory), further[:count]))], count <= len(further)

    def refute(self, d: float) -> bool:
        """Whether R or D refutes `d`."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """The conditions of one problem that need no search; `cost` is None without a budget of bytes."""

    count: CountConditions
    cost: CostConditions | None

    @classmethod
    def of(cls, problem: BalanceProblem) -> "Conditions":
        """Those of `problem`; O(K log K)."""
        budget = problem.max_cost_bytes
        cost = None if budget is None else CostConditions(problem, budget)
        return cls(count=CountConditions(problem), cost=cost)


def piece_bound(problem: BalanceProblem) -> float:
    """The bound by Piece: the key group that exceeds the mean most, each on the best node that it may be on."""
    if not len(problem.load):
        return 0.0
    anywhere = problem.load / problem.capacity[problem.kept].max()
    own = np.where(problem.home == UNPLACED, np.inf, problem.load / problem.capacity[problem.home])
    best = np.where(problem.movable, np.minimum(anywhere, own), own)
    return max(0.0, float(best.max()) * (1 - 1e-12) - problem.mean)


def lower_bound(problem: BalanceProblem, reached: float, stop: StopRule, conditions: Conditions | None = None) -> float:
    """The largest load distance (pp) that Piece, Class, R, S, D and Cost refute, at most `reached`.

    `reached` = load distance of an allowed allocation.  When `stop` ends it early, it returns the bound so far.
    `conditions` = those of `problem`, if the caller already has them.  O(K log K) once, then O(K) per trial.
    """
    conditions = conditions or Conditions.of(problem)
    refuters = [conditions.count.refute]
    if conditions.cost is not None:
        refuters.append(conditions.cost.refute)
    proven = max(class_bound(problem), piece_bound(problem))
    for refute in refuters:
        low, high = proven, reached
        if low < high and refute(low):
            while high - low > max(TOLERANCE_PP, RELATIVE * reached) and not stop():
                middle = 0.5 * (low + high)
                low, high = (middle, high) if refute(middle) else (low, middle)
            proven = low
    return min(proven, reached)


def stronger_bound(
    problem: BalanceProblem, proven: float, reached: float, stop: StopRule, conditions: Conditions | None = None
) -> float:
    """`proven`, raised by Reach and Knapsack, which take more time: about 20 ms for 60 nodes and 1,200 key groups.

    `conditions` as in `lower_bound`.
    """
    pieces = Pieces.ordered(problem, -problem.load)
    if ReachCondition.entries(problem, pieces.first) <= REACH_ENTRIES:
        reach = ReachCondition(problem, pieces.load, pieces.first)
        proven = _raised(reach.refute, proven, reached, stop, REACH_TOLERANCE_PP)
    cost = (conditions or Conditions.of(problem)).cost
    if cost is not None and len(pieces.load) <= LARGEST and not stop():
        whole = cost.whole(min(reached, proven + COARSE_TOLERANCE_PP))
        if whole is not None and is_affordable(problem, whole):
            return proven
        proven = _raised(KnapsackCondition(problem, np.inf).refute, proven, reached, stop, COARSE_TOLERANCE_PP)
        if proven > 0:  # else the budget is ample: the finer grid would hardly prove more
            proven = _raised(KnapsackCondition(problem, proven).refute, proven, reached, stop, REACH_TOLERANCE_PP)
    return proven


def _raised(refute: Callable[[float], bool], proven: float, reached: float, stop: StopRule, tolerance: float) -> float:
    """The largest refuted trial: doubles its steps up from `proven`, then bisects."""
    low, high, stride = proven, reached, 0.05
    if low < high and not stop() and not refute(min(high, low + tolerance)):
        return low  # mostly so: one trial instead of ten
    while low < high:
        if stop():
            return low
        trial = min(high, low + stride)
        if not refute(trial):
            high = trial
            break
        low, stride = trial, 2 * stride
    while high - low > max(tolerance, RELATIVE * reached) and not stop():
        middle = 0.5 * (low + high)
        low, high = (middle, high) if refute(middle) else (low, middle)
    return low


def class_bound(problem: BalanceProblem) -> float:
    """A bound (pp) on the load distance of all plans; 0 where all key groups may be anywhere.

    It follows from the nodes that key groups may be on: any budget, divisible key groups.  Take a set of nodes.  What
    may be on these nodes alone is there: their mean load is at least its load by their capacity.  And only what may be
    on one of them is there: their mean load is at most its load by their capacity.  Some node of the set is at least as
    far from the mean of all nodes.  The sets tried are those that a class may be on, and what is left of the others.

    A key group on a draining node, or on one that it may not be on, need not leave within the budget: it counts as one
    that may be anywhere.
    """
    allowed = problem.allowed
    if allowed is None or not len(allowed.nodes) or not len(problem.load):
        return 0.0
    placed = problem.home != UNPLACED
    free = placed & problem.removing[problem.home]
    free[placed] |= ~allowed.may(np.flatnonzero(placed), problem.home[placed])
    loads = np.bincount(allowed.class_of[~free], problem.load[~free], len(allowed.nodes))
    anywhere = float(problem.load[free].sum())
    found = 0.0
    rows = allowed.nodes & problem.kept
    for inside in np.unique(np.concatenate((rows, problem.kept & ~rows)), axis=0):
        capacity = float(problem.capacity[inside].sum())
        if not capacity:
            continue
        only_here = float(loads[~(rows & ~inside).any(axis=1)].sum())
        at_most = anywhere + float(loads[(rows & inside).any(axis=1)].sum())
        found = max(found, only_here / capacity - problem.mean, problem.mean - at_most / capacity)
    return found * (1 - 1e-12)
