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
Knapsack  Cost with indivisible key groups; see below.
Class     see `class_bound`: where key groups may not be on all nodes.
Reach     see below.  Knapsack and Reach take the most time and are applied last.

`load_prices.py` proves more, in about a second, and for budgets of bytes finds plans by the way.

Unplaced key groups are free.  Their load covers deficits first; S is then not used.

Knapsack, for budgets of bytes: nodes lose indivisible key groups.  The condition Cost allows fractions of key groups,
so it underestimates the cost by up to one key group per node.  Here every node has its integer knapsack, which
`losses.py` couples by a price of load: if the relaxed minimum at a trial d exceeds the budget, no plan reaches d.

Where both budgets bind, a plan that keeps both also keeps every mixture of them; some mixtures are tried.

Rounding up a key group by a grid step gives load away for nothing: 0.05 pp each for a node at a load of 50.  The nodes
that must lose something get a finer grid.

Reach: the loads that a node can have after `a` key groups left and `b` arrived.  After a moves out and b moves in, node
i has load base_i - out + in.  Here out lies between the sums of its a smallest and a largest movable key groups, and in
between those of the cluster's b smallest and b largest (including unplaced ones).  b(a) is the smallest b that can lift
the node to low_i.  If even the smallest sum of b(a) arrivals exceeds high_i, that a is impossible, since more arrivals
only add load.  The nodes are coupled: a plan of m <= M migrations with u unplaced key groups of load U has sum a_i = m,
sum b_i = m + u, sum (out_i - in_i) = -U.  Hence for every lam in [0, 1] and mu >= 0

    sum_i min_a [lam a + (1 - lam) b(a) - mu net_i(a)]  <=  M + (1 - lam) u + mu U

where net_i(a) is the largest possible out - in.  A pair (lam, mu) that violates this refutes d.  The left side is
concave in (lam, mu); a coarse grid and a pattern search look for such a pair.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from trimtab_models.balance.losses import LARGEST, LEAST_ALLOWANCE, Excesses, LeavingSets, Pieces, is_affordable
from trimtab_models.balance.problem import UNPLACED, BalanceProblem, Bools, Floats, Ints
from trimtab_models.solving import StopRule

MIXTURES = (0.0, 0.5, 0.2, 0.8)  # shares of the budget of migrations
PATTERN_STEPS = 12
TOLERANCE_PP = 1e-6
REACH_TOLERANCE_PP = 1e-4
COARSE_TOLERANCE_PP = 0.005  # the grid that Knapsack begins with is coarser than that
RELATIVE = 1e-9  # of the load distance: precision of floats for huge loads
NEGLIGIBLE = 1e-12  # of the largest load
REACH_ENTRIES = 200_000  # (node, moves out) pairs; beyond, Reach takes seconds and seldom helps


def relative_prices(problem: BalanceProblem, shares: tuple[float, ...] = MIXTURES) -> Iterator[Floats]:
    """(K,) prices of which no plan pays more than 1: the budget of bytes, and mixtures with that of migrations.

    `shares` of the budget of migrations, where both bind.  None without a budget of bytes.
    """
    if problem.max_cost_bytes is None or not len(problem.prices):
        return
    least = LEAST_ALLOWANCE * problem.prices.max(axis=1)
    rows = problem.prices / np.maximum(np.maximum(problem.allowances, least), 1e-300)[:, None]
    for share in shares if len(rows) == 2 else (0.0,):
        yield np.array([share, 1.0 - share])[-len(rows) :] @ rows


class KnapsackCondition:
    """The condition of one problem; O(K CELLS) once, then O(N CELLS) per trial at most."""

    def __init__(self, problem: BalanceProblem, hot: float) -> None:
        """Nodes outside the band of a load distance of `hot` get the finer grid."""
        self._excesses = Excesses(problem)
        movable = problem.movable & (problem.home >= 0)
        mine = np.bincount(problem.home[movable], problem.load[movable], len(problem.capacity))
        self._movable = mine.astype(np.float64)
        fine: Bools = self._excesses.above(hot) > 0
        self._losses = [LeavingSets(problem, price, fine=fine, listed=False) for price in relative_prices(problem)]

    def refute(self, d: float) -> bool:
        """Whether no plan within the budgets has load distance `d`."""
        if (self._excesses.above(d) > self._movable + self._excesses.slack).any():
            return True
        return any(losses.cover(d).price > 1 + 1e-9 for losses in self._losses)


class ReachCondition:
    """One problem's condition.  `load` (P,), `first` (N + 1,): movable placed key groups by node, largest first."""

    def __init__(self, problem: BalanceProblem, load: Floats, first: Ints) -> None:
        self._problem = problem
        nodes = len(problem.capacity)
        unplaced = problem.load[problem.home == UNPLACED]
        self._unplaced, self._unplaced_load = len(unplaced), float(unplaced.sum())
        self._budget = len(load) if problem.max_migrations is None else min(problem.max_migrations, len(load))
        most = np.minimum(np.diff(first), self._budget)
        entries = int(most.sum()) + nodes
        self._start = np.concatenate(([0], np.cumsum(most + 1)))[:-1]
        self._node = np.repeat(np.arange(nodes), most + 1)
        self._out = np.arange(entries) - self._start[self._node]
        running = np.concatenate(([0.0], np.cumsum(load)))
        self._out_top = running[first[self._node] + self._out] - running[first[self._node]]
        self._out_bottom = running[first[self._node + 1]] - running[first[self._node + 1] - self._out]
        arriving = np.sort(np.concatenate((load, unplaced)))
        self._in_bottom = np.concatenate(([0.0], np.cumsum(arriving)))
        self._in_top = np.concatenate(([0.0], np.cumsum(arriving[::-1])))
        self._base = problem.node_loads(problem.home)[self._node]
        self._capacity = problem.capacity[self._node]
        self._removing = problem.removing[self._node]
        self._slack = 1e-11 * max(1.0, float(problem.load.sum()))
        carried = np.sort(load)[len(load) - self._budget :]
        self._scale = 1 / max(1e-9, float(carried.mean()) if len(carried) else 0.0)  # moves per unit of load
        self._hint = (0.5, 0.0)  # multipliers that refuted the last trial often refute the next

    @staticmethod
    def entries(problem: BalanceProblem, first: Ints) -> int:
        """Number of pairs (node, moves out) that each trial examines."""
        count = np.diff(first)
        most = count if problem.max_migrations is None else np.minimum(count, problem.max_migrations)
        return int(most.sum()) + len(count)

    def refute(self, d: float) -> bool:
        """Whether no plan within the budget of migrations has load distance `d`."""
        low = (self._problem.mean - d) * self._capacity
        high = (self._problem.mean + d) * self._capacity
        arrivals = np.searchsorted(self._in_top, low - self._base + self._out_bottom - self._slack)
        arrivals = np.where(self._removing, 0, arrivals)
        missing = arrivals >= len(self._in_top)
        arrivals = np.minimum(arrivals, len(self._in_top) - 1)
        brought = self._in_bottom[arrivals]
        impossible = missing | (brought > high - self._base + self._out_top + self._slack)
        if np.bitwise_and.reduceat(impossible, self._start).any():
            return True
        given = self._out_top - brought
        given = np.where(self._removing, given, np.minimum(given, self._base - low)) + self._slack
        possible = ~impossible
        start = np.searchsorted(np.flatnonzero(possible), self._start)
        relaxed = (self._out[possible], arrivals[possible], given[possible], start)
        return self._search_multipliers(relaxed)

    def _search_multipliers(self, relaxed: tuple[Ints, Ints, Floats, Ints]) -> bool:
        """Whether some (lam, mu) violates the inequality; `relaxed` = a, b(a), net(a), first entry per node."""
        out, arrivals, given, start = relaxed
        limit = 1e-9 * max(1, self._budget)

        def surplus(lam: float, mu: float) -> float:
            least = np.minimum.reduceat(lam * out + (1 - lam) * arrivals - mu * given, start).sum()
            return float(least - self._budget - (1 - lam) * self._unplaced - mu * self._unplaced_load)

        if surplus(*self._hint) > limit:
            return True
        best = (-np.inf, 0.5, 0.0)
        for lam in (0.0, 0.25, 0.5, 0.75, 1.0):
            for factor in (0.0, 0.3, 0.5, 0.7, 0.85, 1.0, 1.2):
                best = max(best, (surplus(lam, factor * self._scale), lam, factor * self._scale))
                if best[0] > limit:
                    self._hint = best[1:]
                    return True
        lam_step, mu_step = 0.12, 0.15 * self._scale
        for _ in range(PATTERN_STEPS):
            value, lam, mu = best
            around = ((lam + lam_step, mu), (lam - lam_step, mu), (lam, mu + mu_step), (lam, mu - mu_step))
            trials = [(surplus(*pair), *pair) for pair in around if 0 <= pair[0] <= 1 and pair[1] >= 0]
            best = max(best, *trials)
            if best[0] > limit:
                self._hint = best[1:]
                return True
            if best[0] <= value:
                lam_step, mu_step = lam_step / 2, mu_step / 2
        return False


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
