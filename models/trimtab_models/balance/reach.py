"""The reach condition of the bound: the loads that a node can have after `a` key groups left and `b` arrived.

Theory.  After a moves out and b moves in, node i has load base_i - out + in.  Here out lies between the sums of its a
smallest and a largest movable key groups, and in between those of the cluster's b smallest and b largest (including
unplaced ones).  b(a) is the smallest b that can lift the node to low_i.  If even the smallest sum of b(a) arrivals
exceeds high_i, that a is impossible, since more arrivals only add load.  The nodes are coupled: a plan of m <= M
migrations with u unplaced key groups of load U has sum a_i = m, sum b_i = m + u, sum (out_i - in_i) = -U.  Hence for
every lam in [0, 1] and mu >= 0

    sum_i min_a [lam a + (1 - lam) b(a) - mu net_i(a)]  <=  M + (1 - lam) u + mu U

where net_i(a) is the largest possible out - in.  A pair (lam, mu) that violates this refutes d.  The left side is
concave in (lam, mu); a coarse grid and a pattern search look for such a pair.
"""

import numpy as np

from trimtab_models.balance.problem import UNPLACED, BalanceProblem, Floats, Ints

PATTERN_STEPS = 12


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
