"""Bound by prices of loads: the Lagrangian dual of a budget, with a knapsack per node.

Theory.  What leaves nodes comes to nodes, load by load.  Let pi be any function of the load of a key group.  A node
that gives up key groups pays their prices and gets pi of each; one that receives a key group pays pi of it.  In a plan
all pi cancel out.  So if each node takes by itself what is best for it among all that brings it into the band of a
trial distance d, the sum over all nodes is at most what any plan pays: if it is above the budget, d is refuted.

pi is linear between points of a grid of loads, and 0 at 0.  Then arrivals are priced without rounding: key groups of
any loads that add up to t cost at least H(t), where H is the least price of grid loads that add up to a grid point,
and linear in between.  (Round each load up or down to the grid at random, so that the expectation is the load and the
sum is always one of the two grid points next to t.)

What a node loses is a knapsack on a finer grid, with loads rounded to the nearest step; the band is widened by the sum
of the roundings.  The grid ends at what a node has reason to lose.  For larger losses a simpler limit holds: the least
price of divisible key groups, and the least that arrivals can cost per load (`_Tail`).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from trimtab_models.balance.losses import NOTHING, Sets
from trimtab_models.balance.pieces import Pieces
from trimtab_models.balance.problem import UNPLACED, BalanceProblem, Floats, Ints

LONGEST = 20  # most times that what arrives may need more steps than what leaves
MOST_WORK = 40_000_000  # key groups x cells
POINTS = 4_000  # most points of the grid of prices, up to what a node can receive
CLASSES = 80
KNOTS = 16
BARRED = 1e9  # a price that nobody pays; the budget is 1
ROUNDING = 1e-9
BISECTIONS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What is best for a node: what it `paid`, the pieces `given`, their `price`, and what is `received`.

    `received` = points of the grid of prices, each with the number of key groups.  `paid` may be less than this costs,
    if a larger loss cannot be excluded.
    """

    paid: float
    price: float
    given: tuple[int, ...]
    received: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """How fine a relaxation is.

    `cells` = steps of what an average node may lose; `classes` = points of the grid of prices, up to the heaviest key
    group; `knots` = prices, at quantiles of the loads; `beyond` = what a node may lose without need, by its
    heaviest key group.
    """

    cells: int
    classes: int
    knots: int
    beyond: float = 3.0


class Relaxation:
    """The relaxed problem for prices of moves of which no plan pays more than 1."""

    def __init__(self, problem: BalanceProblem, price: Floats, farthest: float, detail: Detail) -> None:
        """`price` (K,) of a move; trial distances are at most `farthest`."""
        self.problem, self.detail = problem, detail
        self.pieces = pieces = Pieces.ordered(problem, -problem.load)
        self.price_of, self.price = price, price[pieces.key_groups]
        self._base = problem.node_loads(problem.home)
        unplaced = problem.load[problem.home == UNPLACED]
        arriving = np.concatenate((pieces.load, unplaced))
        lightest, heaviest = float(arriving.min()) * (1 - ROUNDING), float(arriving.max()) * (1 + ROUNDING)
        reach = (problem.mean + farthest) * float(problem.capacity.max())
        self._round(heaviest, reach)
        self.least_arriving = int(lightest / self.step)  # fewer steps cannot arrive
        self.lightest = max(1, int(lightest / self.width))
        self.classes = max(self.lightest, int(np.ceil(heaviest / self.width))) + 1
        self.offered = self._shares(pieces.load)
        self.unplaced = self._shares(unplaced).sum(axis=0)
        self.most = reach + float((self._more + self._less).max())
        places = np.rint(np.quantile(pieces.load / self.width, np.linspace(0, 1, detail.knots)))
        places = np.clip(places.astype(np.int64), self.lightest, self.classes - 1)
        self.knots: Ints = np.unique(np.concatenate((places, [self.lightest, self.classes - 1])))

    def _round(self, heaviest: float, reach: float) -> None:
        """Choose both grids, and round what nodes can lose to steps of the fine one."""
        problem, pieces, nodes = self.problem, self.pieces, len(self.problem.capacity)
        mine, largest = np.bincount(pieces.node, pieces.load, nodes), np.zeros(nodes)
        np.maximum.at(largest, pieces.node, pieces.load)
        above = np.maximum(0.0, self._base - problem.mean * problem.capacity)
        spread = np.where(problem.removing, mine, np.minimum(mine, above + self.detail.beyond * largest))
        cells = min(self.detail.cells, MOST_WORK // len(pieces.load))  # of an average key group
        step = float((np.diff(pieces.first) * spread).sum()) / len(pieces.load) / cells
        step = max(step, reach / LONGEST / cells)
        self.width = max(heaviest / self.detail.classes, reach / POINTS, step)
        self.fine = round(self.width / step)  # steps per class
        self.step = step = self.width / self.fine
        self.steps: Ints = np.rint(pieces.load / step).astype(np.int64)
        rounding = pieces.load - self.steps * step
        self._more = np.bincount(pieces.node, np.maximum(0.0, rounding), nodes)
        self._less = np.bincount(pieces.node, np.maximum(0.0, -rounding), nodes)
        everything = np.bincount(pieces.node, self.steps, nodes).astype(np.int64)
        enough = np.minimum(everything, (spread / step).astype(np.int64))
        self.cells: Ints = np.where(spread < mine, enough, everything)
        self.beyond = np.where(self.cells < everything, np.maximum(0.0, self.cells * step - self._less), np.inf)

    def band(self, d: float) -> tuple[Ints, Ints]:
        """(N,) least and most steps that a node may receive if it loses nothing, in a band of `d`; below 0 = loses."""
        low, high = self.room(d)
        return (
            np.floor((low - self._less) / self.step - ROUNDING).astype(np.int64),
            np.ceil((high + self._more) / self.step + ROUNDING).astype(np.int64),
        )

    def room(self, d: float) -> tuple[Floats, Floats]:
        """(N,) least and most load that a node may receive if it loses nothing, in a band of `d`."""
        mean, capacity = self.problem.mean, self.problem.capacity
        return (mean - d) * capacity - self._base, (mean + d) * capacity - self._base

    def _shares(self, load: Floats) -> Floats:
        """(X, classes) the weights of each load on the two grid points next to it."""
        shares = np.zeros((len(load), self.classes))
        place = load / self.width
        below = np.minimum(place.astype(np.int64), self.classes - 2)
        row = np.arange(len(load))
        shares[row, below] = 1 - (place - below)
        shares[row, below + 1] = place - below
        return shares

    def units(self) -> Floats:
        """(knots, classes) prices of loads that are linear between the knots, per unit price of each knot."""
        at, classes = np.append(0, self.knots), np.arange(self.classes)
        return np.array([np.interp(classes, at, unit) for unit in np.eye(len(at))[1:]])

    def at(self, prices: Floats) -> "Priced":
        """The nodes' choices at `prices` (classes,)."""
        return Priced(self, prices)


class Priced:
    """The choices at one set of prices; the knapsacks do not depend on the trial distance."""

    def __init__(self, relaxation: Relaxation, prices: Floats) -> None:
        self._it = it = relaxation
        self._prices = prices
        reduced = it.price - it.offered @ prices
        bounds = zip(pairwise(it.pieces.first.tolist()), it.cells.tolist(), strict=True)
        self._sets = [Sets(it.steps[first:end], reduced[first:end], most=cells) for (first, end), cells in bounds]
        self.constant = -float(it.unplaced @ prices)
        self._tail = _Tail(it, prices, reduced)
        self._arrivals(prices)

    def _arrivals(self, prices: Floats) -> None:
        """H by steps of the fine grid, and for each class a first load of a cheapest combination."""
        it = self._it
        points = int(it.most / it.width) + 2
        least, chosen = np.full(points, BARRED), np.zeros(points, np.int64)
        least[0] = 0.0
        for point in range(it.lightest, points):
            heaviest = min(point, it.classes - 1)
            value = prices[it.lightest : heaviest + 1] + least[point - heaviest : point - it.lightest + 1][::-1]
            best = int(value.argmin())
            least[point], chosen[point] = min(BARRED, value[best]), it.lightest + best
        fine = np.interp(np.arange((points - 1) * it.fine + 1) / it.fine, np.arange(points), least)
        fine[1 : it.least_arriving] = BARRED
        self._least, self._first_load = fine, chosen

    def _choices(self, d: float) -> Iterator[tuple[float, int, int]]:
        """For each node: what it pays for the best choice, the steps that it loses, and those that it receives."""
        it, problem = self._it, self._it.problem
        start, end = it.band(d)
        width = int((end - start).max())
        before = max(0, -int(start.min()))
        most = int(start.max()) + max(len(sets.least) for sets in self._sets) + width
        priced = np.full(before + max(most, len(self._least)) + 1, BARRED)
        priced[before : before + len(self._least)] = self._least
        within = _sliding_least(priced, width + 1)
        beyond = self._tail.least(d).tolist()
        for node, sets in enumerate(self._sets):
            first = before + int(start[node])
            if problem.removing[node]:
                lost = max(0, -int(end[node]))
                lost += int(sets.least[lost:].argmin()) if lost < len(sets.least) else -lost
                yield float(sets.least[lost]), lost, 0
                continue
            value = sets.least + within[first : first + len(sets.least)]
            lost = int(value.argmin())
            received = int(priced[first + lost : first + lost + width + 1].argmin()) + first + lost - before
            yield min(beyond[node], float(value[lost])), lost, received

    def paid(self, d: float) -> float:
        """What all nodes pay in a band of `d`, in budgets."""
        return self.constant + sum(paid for paid, _, _ in self._choices(d))

    def choices(self, d: float) -> list[Choice]:
        """The choice of each node in a band of `d`."""
        it, found = self._it, []
        for node, (paid, lost, received) in enumerate(self._choices(d)):
            given = tuple(int(it.pieces.first[node]) + place for place in self._sets[node].members(lost))
            found.append(
                Choice(
                    paid=paid, price=float(it.price[list(given)].sum()), given=given,
                    received=tuple(self._combination(received)),
                )
            )  # fmt: skip
        return found

    def _combination(self, received: int) -> Iterator[tuple[int, float]]:
        """The cheapest loads that add up to so many steps: points of the grid of prices, and how many of each."""
        point, rest = divmod(received, self._it.fine)
        for load, weight in ((point, 1 - rest / self._it.fine), (point + 1, rest / self._it.fine)):
            while weight and load > 0 and self._first_load[load]:
                yield int(self._first_load[load]), weight
                load -= int(self._first_load[load])

    def refuted(self, d: float, reached: float) -> tuple[float, float]:
        """The largest distance from `d`, which is refuted, to `reached` that is refuted, nearly, and one above it."""
        low, high = d, reached
        for _ in range(BISECTIONS):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if self.paid(middle) > 1 + ROUNDING else (low, middle)
        return low, high


class _Tail:
    """What a node pays at least if it loses more than its cells: a convex function of the load that it loses.

    Its pieces are divisible, cheapest by load first, and what arrives costs the least price by load of any class.
    """

    def __init__(self, relaxation: Relaxation, prices: Floats, reduced: Floats) -> None:
        self._it = it = relaxation
        pieces = it.pieces
        carrying = np.flatnonzero(pieces.load > NOTHING)
        ratio = reduced[carrying] / pieces.load[carrying]
        order = np.lexsort((ratio, pieces.node[carrying]))
        self._node, load, ratio = pieces.node[carrying][order], pieces.load[carrying][order], ratio[order]
        first = np.searchsorted(self._node, self._node)
        lost, paid = (np.concatenate(([0.0], np.cumsum(part))) for part in (load, ratio * load))
        self._lost, self._paid = lost[1:] - lost[first], paid[1:] - paid[first]
        at_least = it.beyond[self._node]
        self._after = self._lost >= at_least
        self._cut = cut = np.flatnonzero(self._after & (self._lost - load <= at_least))  # the cells end in these
        self._paid_at_cut = self._paid[cut] - (self._lost[cut] - at_least[cut]) * ratio[cut]
        classes = np.arange(it.lightest, it.classes)
        self._arriving = float((prices[classes] / (classes * it.width)).min())

    def least(self, d: float) -> Floats:
        """(N,) for a band of `d`; infinite where the cells hold all."""
        ends = self._it.room(d)
        least = np.full(len(self._it.cells), np.inf)
        for node, lost, paid in (
            (self._node[self._after], self._lost[self._after], self._paid[self._after]),
            (self._node[self._cut], self._it.beyond[self._node[self._cut]], self._paid_at_cut),
        ):
            np.minimum.at(least, node, paid + np.minimum(*(self._arriving * (end[node] + lost) for end in ends)))
        return least


def _sliding_least(values: Floats, width: int) -> Floats:
    """(X,) the least of `width` values from each one on; fewer at the end."""
    least, done = values.copy(), 1
    while done < width:
        step = min(done, width - done)
        least[:-step] = np.minimum(least[:-step], least[step:])
        done += step
    return least
