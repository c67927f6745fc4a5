"""Bound and plans by prices of loads: the Lagrangean dual of a budget, with a knapsack per node.

Theory.  What leaves nodes comes to nodes, load by load.  Let pi be any function of the load of a key group.  A node
that gives up key groups pays their prices and gets pi of each; one that receives a key group pays pi of it.  In a plan
all pi cancel out.  So if each node takes by itself what is best for it among all that brings it into the band of a
trial distance d, the sum over all nodes is at most what any plan pays: if it is above the budget, d is refuted.

pi is linear between points of a grid of loads, and 0 at 0.  Then arrivals are priced without rounding: key groups of
any loads that add up to t cost at least H(t), where H is the least price of grid loads that add up to a grid point,
and linear in between.  (Round each load up or down to the grid at random, so that the expectation is the load and the
sum is always one of the two grid points next to t.)  What a node loses is a knapsack on a finer grid, with loads
rounded to the nearest step; the band is widened by the sum of the roundings.

The sum is concave in pi.  Its supergradient is what is asked for less what is offered, by load.  The prices follow
its moving average from the best ones so far (the volume algorithm of Barahona and Anbil, 2000).  What nodes give up at
these prices is nearly what is asked for, so it makes good plans too: they are packed like those of `covers.py`, which
know nothing of what single nodes can take.
"""

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from trimtab_models.balance.construct import packed
from trimtab_models.balance.evaluate import evaluate
from trimtab_models.balance.knapsack import relative_prices
from trimtab_models.balance.losses import Sets
from trimtab_models.balance.pieces import Pieces
from trimtab_models.balance.problem import UNPLACED, Floats, Ints, Problem
from trimtab_models.solving.stop import Stop

CELLS = 5_000  # steps of the grid for what the most loaded node can lose
LARGEST = 10_000  # key groups; beyond, a step takes too long
LONGEST = 20  # most times that what arrives may need more steps
WORK = 40_000_000  # most key groups x cells
CLASSES = 20  # grid of the prices, by the heaviest key group
KNOTS = 8  # prices, at quantiles of the loads
BARRED = 1e9  # a price that nobody pays; the budget is 1
ROUNDING = 1e-9
BISECTIONS = 12
ROUNDS = (
    *((0.0, 24), (0.5, 10), (0.3, 10)),
    *((0.0, 40), (0.4, 12), (0.2, 12)),
    *((0.0, 40), (0.3, 12), (0.15, 12)),
)
"""Steps at trial distances, as a share of the way from the bound to the best plan."""
HOPELESS, ENOUGH_STEPS = 0.7, 12  # after so many steps below so much of the budget, the trial will not be refuted
SURPLUS = 0.05  # of the budget: the aim of a step above the best value
AVERAGING = 0.2
KEPT = 0.2
MISSES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What nodes do at some prices: what they pay in all, what they give up, and the supergradient at the knots."""

    paid: float
    key_groups: Ints
    wanted: Floats


class Relaxation:
    """The relaxed problem for prices of moves of which no plan pays more than 1."""

    def __init__(self, problem: Problem, price: Floats, farthest: float) -> None:
        """`price` (K,) of a move; trial distances are at most `farthest`."""
        self.problem = problem
        self.pieces = pieces = Pieces.ordered(problem, -problem.load)
        self.price = price[pieces.key_groups]
        nodes = len(problem.capacity)
        reach = (problem.mean + farthest) * float(problem.capacity.max())
        most = max(float(np.bincount(pieces.node, pieces.load, nodes).max()), reach / LONGEST)
        self.step = step = most / min(CELLS, max(1, WORK // len(pieces.load)))
        self.steps: Ints = np.rint(pieces.load / step).astype(np.int64)
        rounding = pieces.load - self.steps * step
        self._more = np.bincount(pieces.node, np.maximum(0.0, rounding), nodes)
        self._less = np.bincount(pieces.node, np.maximum(0.0, -rounding), nodes)
        unplaced = problem.load[problem.home == UNPLACED]
        arriving = np.concatenate((pieces.load, unplaced))
        self.fine = max(1, round(float(arriving.max()) / CLASSES / step))  # steps per class
        self.width = self.fine * step
        self.lightest = max(1, int(float(arriving.min()) / self.width * (1 - ROUNDING)))
        self.classes = max(self.lightest, int(np.ceil(float(arriving.max()) / self.width * (1 + ROUNDING)))) + 1
        self.offered = self._shares(pieces.load)
        self.unplaced = self._shares(unplaced).sum(axis=0)
        self._base = problem.node_loads(problem.home)
        self.most = reach + float((self._more + self._less).max())

    def band(self, d: float) -> tuple[Ints, Ints]:
        """(N,) least and most steps that a node may receive if it loses nothing, in a band of `d`; below 0 = loses."""
        mean, capacity = self.problem.mean, self.problem.capacity
        low, high = (mean - d) * capacity - self._base - self._less, (mean + d) * capacity - self._base + self._more
        return (
            np.floor(low / self.step - ROUNDING).astype(np.int64) - 1,
            np.ceil(high / self.step + ROUNDING).astype(np.int64) + 1,
        )

    def _shares(self, load: Floats) -> Floats:
        """(X, classes) the weights of each load on the two grid points next to it."""
        shares = np.zeros((len(load), self.classes))
        place = load / self.width
        below = np.minimum(place.astype(np.int64), self.classes - 2)
        row = np.arange(len(load))
        shares[row, below] = 1 - (place - below)
        shares[row, below + 1] = place - below
        return shares

    def knots(self) -> Floats:
        """(knots, classes) prices of loads that are linear between the knots, per unit price of each knot."""
        pieces = np.quantile(self.pieces.load / self.width, np.linspace(0, 1, KNOTS))
        places = np.concatenate(([self.lightest, self.classes - 1], np.rint(pieces)))
        at = np.flatnonzero(np.bincount(places.astype(np.int64), minlength=self.classes)[1:]) + 1
        at = np.concatenate(([0], at))
        units = np.eye(len(at))[1:]
        return np.array([np.interp(np.arange(self.classes), at, unit) for unit in units])

    def at(self, prices: Floats) -> "Priced":
        """The nodes' choices at `prices` (classes,)."""
        return Priced(self, prices)


class Priced:
    """The choices at one set of prices; the knapsacks do not depend on the trial distance."""

    def __init__(self, relaxation: Relaxation, prices: Floats) -> None:
        self._it = it = relaxation
        reduced = it.price - it.offered @ prices
        bounds = list(pairwise(it.pieces.first.tolist()))
        self._sets = [Sets(it.steps[first:end], reduced[first:end]) for first, end in bounds]
        self._constant = -float(it.unplaced @ prices)
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
        fine[1 : (it.lightest - 1) * it.fine + 1] = BARRED
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
            yield float(value[lost]), lost, received

    def paid(self, d: float) -> float:
        """What all nodes pay in a band of `d`, in budgets."""
        return sum(paid for paid, _, _ in self._choices(d)) + self._constant

    def answer(self, d: float) -> Answer:
        """The choices in a band of `d`."""
        it = self._it
        paid, wanted, given = self._constant, -it.unplaced, []
        for node, (price, lost, received) in enumerate(self._choices(d)):
            paid += price
            given += [int(it.pieces.first[node]) + place for place in self._sets[node].members(lost)]
            point, rest = divmod(received, it.fine)
            for load, weight in ((point, 1 - rest / it.fine), (point + 1, rest / it.fine)):
                while weight and load > 0 and self._first_load[load]:
                    wanted[self._first_load[load]] += weight
                    load -= int(self._first_load[load])
        return Answer(paid=paid, key_groups=it.pieces.key_groups[given], wanted=wanted - it.offered[given].sum(axis=0))

    def farthest(self, d: float, reached: float) -> float:
        """A refuted distance, from `d`, which is refuted, towards `reached`."""
        low, high = d, reached
        for _ in range(BISECTIONS):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if self.paid(middle) > 1 + ROUNDING else (low, middle)
        return low


def _sliding_least(values: Floats, width: int) -> Floats:
    """(X,) the least of `width` values from each one on; fewer at the end."""
    least, done = values.copy(), 1
    while done < width:
        step = min(done, width - done)
        least[:-step] = np.minimum(least[:-step], least[step:])
        done += step
    return least


class Ascent:
    """Looks for the prices at which the nodes pay most."""

    def __init__(self, knots: Floats, offered: Floats) -> None:
        """`knots` (n, classes), `offered` (classes,) key groups: the more of them, the smaller the step."""
        self._knots, self._scale = knots, 1 / np.maximum(1.0, knots @ offered)
        self._best = self._trial = np.zeros(len(knots))
        self._value, self._factor, self._misses = -np.inf, 1.0, 0
        self._direction = np.zeros(len(knots))

    def prices(self) -> Floats:
        """(classes,) the prices to try next."""
        prices: Floats = self._trial @ self._knots
        return prices

    def restart(self, trial: bool) -> None:
        """The trial distance changes: go on from the prices just tried, if `trial`, or from the best ones."""
        self._trial, self._value = self._trial if trial else self._best, -np.inf

    def learn(self, answer: Answer) -> None:
        """Take note of the answer to `prices`, and choose the next."""
        slope = self._knots @ answer.wanted
        if self._value == -np.inf:
            self._best, self._value = self._trial, answer.paid
            self._direction = self._direction + (KEPT if self._direction.any() else 1.0) * (slope - self._direction)
        else:
            self._judge(answer.paid, slope)
        norm = float((self._direction**2 * self._scale).sum())
        aim = max(1.0, self._value) * (1 + SURPLUS) - self._value
        step = self._factor * aim / norm if norm > ROUNDING else 0.0
        self._trial = self._best + step * self._direction * self._scale

    def _judge(self, paid: float, slope: Floats) -> None:
        if paid > self._value:
            if float(slope @ self._direction) > 0:
                self._factor = min(1.3 * self._factor, 4.0)
            self._best, self._value, self._misses = self._trial, paid, 0
        else:
            self._misses += 1
            if self._misses >= MISSES:
                self._factor, self._misses = 0.6 * self._factor, 0
        change = slope - self._direction
        norm = float((change**2 * self._scale).sum())
        share = -float((self._direction * change * self._scale).sum()) / norm if norm > 0 else AVERAGING
        self._direction = self._direction + min(max(share, AVERAGING / 10), AVERAGING) * change


def plans_by_load_prices(problem: Problem, proven: float, reached: float, stop: Stop) -> Iterator[tuple[float, Ints]]:
    """Lower bounds (pp), never falling from `proven` on, each with a plan (K,), which may not be allowed.

    `reached` = the load distance of the best plan so far.  None without a budget of bytes, or if the problem is large.
    """
    relaxations = _relaxations(problem, reached) if len(problem.load) <= LARGEST else []
    if not relaxations:
        return
    relaxation = max(relaxations, key=lambda one: one.at(np.zeros(one.classes)).paid(proven))
    bounding = Ascent(relaxation.knots(), relaxation.offered.sum(axis=0))
    start, seen = problem.home.copy(), set()
    for share, steps in ROUNDS:
        ascent = copy(bounding) if share else bounding  # prices for a plan do not disturb those for the bound
        ascent.restart(trial=False)
        for step in range(steps):
            d = proven + share * (reached - proven)
            if stop() or reached <= proven:
                return
            priced = relaxation.at(ascent.prices())
            answer = priced.answer(d)
            if answer.paid > 1 + ROUNDING:
                proven = priced.farthest(d, reached)
                ascent.restart(trial=True)
                answer = priced.answer(proven + share * (reached - proven))
            ascent.learn(answer)
            chosen = answer.key_groups.tobytes()
            if chosen not in seen and (problem.prices[:, answer.key_groups].sum(axis=1) <= problem.allowances).all():
                seen.add(chosen)
                plan = packed(problem, start, answer.key_groups)
                score = evaluate(problem, plan)
                reached = min(reached, score.load_distance) if score.allowed else reached
                yield proven, plan
            if not share and step >= ENOUGH_STEPS and answer.paid < HOPELESS:
                break
    yield proven, start


def _relaxations(problem: Problem, farthest: float) -> list[Relaxation]:
    if not problem.load[problem.movable & (problem.home != UNPLACED)].any():
        return []
    return [Relaxation(problem, price, farthest) for price in relative_prices(problem)]
