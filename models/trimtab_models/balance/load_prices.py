"""Bound and plans by prices of loads: the Lagrangian dual of a budget, with a knapsack per node.

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

The prices at which the nodes pay most are found by cutting planes, a linear program and a trust region.  At any prices
a node pays at most what one of its choices costs: the price of the key groups that it gives, plus the prices of what it
receives, less those of what it gives.  So every choice seen is a linear upper limit of what its node pays, and the
prices that maximise the sum of these limits are the ones to try next.  They stay near the best prices so far, because
far from them the limits say little.  The first ones are equal for all loads: a share of a move, which is halved while
the nodes pay more for it.

The dual of the linear program is a mixture of choices, in which as many key groups of each load leave nodes as arrive.
Nearly all nodes have a single choice in it; for the others one is drawn.  The key groups that nodes give up in this way
are packed onto the least loaded nodes, and then distributed anew by a tabu search, in which nothing else moves.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from trimtab_models.balance.bound import relative_prices
from trimtab_models.balance.construct import packed
from trimtab_models.balance.evaluate import evaluate
from trimtab_models.balance.losses import NOTHING, Pieces, Sets, is_affordable
from trimtab_models.balance.problem import UNPLACED, BalanceProblem, Floats, Ints
from trimtab_models.balance.tabu import Band, Search, SearchState
from trimtab_models.solving import Deadline, StopRule

LONGEST = 20  # most times that what arrives may need more steps than what leaves
MOST_WORK = 40_000_000  # key groups x cells
POINTS = 4_000  # most points of the grid of prices, up to what a node can receive
CLASSES = 80
BARRED = 1e9  # a price that nobody pays; the budget is 1
ROUNDING = 1e-9
BISECTIONS = 12
_Key = tuple[int, tuple[int, ...], tuple[tuple[int, float], ...]]  # node, given, received

RADIUS = 0.1  # of a median price of a move: how far the next prices may be from the best ones, at first
SMALLEST = 1 / 32  # share of a median price of a move in the first prices
NEAREST, FARTHEST = 0.25, 100.0  # times that, later
HOLDS = 0.5  # least share of the gain promised by the limits for which the trust region grows
LARGEST_PRICE = 1e3  # price, in budgets
LEAST_WEIGHT = 1e-9
MOST_KEY_GROUPS = 10_000  # key groups; beyond, a step takes too long
STEPS, PLAN_STEPS = 60, 15  # most for the bound, and for the plans of a trial distance
ENOUGH = 5e-4  # of the budget
HOPE = 20.0  # times the gain that is possible near the best prices: more is hardly possible farther away
DRAWN = 4
SEARCH_STEPS, PATIENCE = 400, 100


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


class Ascent:
    """The prices of one relaxation, tried one after the other."""

    def __init__(self, relaxation: Relaxation, before: "Ascent | None") -> None:
        """Begins with the best prices of `before`, if given."""
        from ortools.linear_solver import pywraplp  # type: ignore[import-untyped]  # (slow to load)

        self._units = relaxation.units()
        self._knots: Floats = np.asarray(relaxation.knots * relaxation.width, np.float64)
        self._offered = relaxation.offered @ self._units.T
        self._unplaced = self._units @ relaxation.unplaced
        self._solver = solver = pywraplp.Solver.CreateSolver("GLOP")
        self._prices = [solver.NumVar(0.0, 0.0, "") for _ in self._knots]
        self._paid = [solver.NumVar(-LARGEST_PRICE, LARGEST_PRICE, "") for _ in relaxation.cells]
        self._go_on, self._from_scratch = (pywraplp.MPSolverParameters() for _ in range(2))
        incrementality = pywraplp.MPSolverParameters.INCREMENTALITY
        self._from_scratch.SetIntegerParam(incrementality, pywraplp.MPSolverParameters.INCREMENTALITY_OFF)
        objective = solver.Objective()
        objective.SetMaximization()
        for variable in self._paid:
            objective.SetCoefficient(variable, 1.0)
        for variable, number in zip(self._prices, self._unplaced.tolist(), strict=True):
            objective.SetCoefficient(variable, -number)
        self._rows: dict[_Key, tuple[Any, Choice]] = {}  # with the row of the linear program
        move = float(np.median(relaxation.price)) or 1.0
        self._opening = before is None
        self._best = self._trial = before.at(self._knots) if before is not None else np.full(len(self._knots), move)
        self._first_radius = self._radius = RADIUS * move
        self._smallest = SMALLEST * move
        self._solved = False
        self._limit, self.value = np.inf, -np.inf  # what the nodes pay at the best prices

    @property
    def gain(self) -> float:
        """By how much the nodes may at most pay more than at the best prices, at prices near these."""
        return float(self._limit - self.value)

    def prices(self) -> Floats:
        """(classes,) the prices to try next."""
        prices: Floats = self._trial @ self._units
        return prices

    def at(self, load: Floats) -> Floats:
        """(X,) the best prices so far of key groups with `load` (X,)."""
        prices: Floats = np.interp(load, np.append(0.0, self._knots), np.append(0.0, self._best))
        return prices

    def restart(self) -> None:
        """The trial distance has grown.  It never falls: the choices seen must still be possible."""
        self._limit, self.value = np.inf, -np.inf

    def learn(self, choices: list[Choice], stop: StopRule) -> None:
        """Take note of the nodes' `choices` at `prices`, and choose the next."""
        paid = sum(choice.paid for choice in choices) - float(self._unplaced @ self._trial)
        for node, choice in enumerate(choices):
            self._note(node, choice)
        if self._opening:
            self._opening = paid > self.value and float(self._trial[0]) > self._smallest
            if paid > self.value:
                self._best, self.value = self._trial, paid
            if self._opening:
                self._trial = 0.5 * self._trial
                return
        elif paid > self.value:
            if paid - self.value > HOLDS * self.gain:
                self._radius = min(2 * self._radius, FARTHEST * self._first_radius)
            self._best, self.value = self._trial, paid
        else:
            self._radius = max(0.5 * self._radius, NEAREST * self._first_radius)
        for variable, price in zip(self._prices, self._best.tolist(), strict=True):
            variable.SetBounds(price - self._radius, price + self._radius)
        self._solved, self._limit = self._solve(stop), self.value
        if self._solved:
            self._limit = max(self.value, self._solver.Objective().Value())
            self._trial = np.array([variable.solution_value() for variable in self._prices])

    def _solve(self, stop: StopRule) -> bool:
        """Solve the linear program, from scratch if going on from the last solution fails."""
        for parameters in (self._go_on, self._from_scratch):
            if isinstance(stop, Deadline):
                self._solver.SetTimeLimit(max(1, int(1000 * stop.left_wall_s())))
            if self._solver.Solve(parameters) == self._solver.OPTIMAL:
                return True
            if stop():
                break
        return False

    def _note(self, node: int, choice: Choice) -> None:
        key = (node, choice.given, choice.received)
        if key in self._rows:
            return
        slope = -self._offered[list(choice.given)].sum(axis=0)
        for load, number in choice.received:
            slope += number * self._units[:, load]
        row = self._solver.Constraint(-self._solver.infinity(), choice.price)
        row.SetCoefficient(self._paid[node], 1.0)
        for variable, number in zip(self._prices, slope.tolist(), strict=True):
            row.SetCoefficient(variable, -number)
        self._rows[key] = row, choice

    def mixture(self) -> list[list[tuple[float, Choice]]]:
        """For each node the choices of the mixture, with their weights; none if the linear program was not solved."""
        found: list[list[tuple[float, Choice]]] = [[] for _ in self._paid]
        if not self._solved:
            return found
        for (node, _, _), (row, choice) in self._rows.items():
            if (weight := abs(row.dual_value())) > LEAST_WEIGHT:
                found[node].append((weight, choice))
        return found


ROUNDS = (
    (Detail(cells=1_000, classes=40, knots=8), (0.05, 0.15, 0.3)),
    (Detail(cells=4_000, classes=160, knots=32), (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8)),
)  # with the trial distances for plans, in pp above the bound


def plans_by_load_prices(
    problem: BalanceProblem, proven: float, reached: float, random: np.random.Generator, stop: StopRule
) -> Iterator[tuple[float, Ints]]:
    """Lower bounds (pp), never falling from `proven` on, each with a plan (K,), which may not be allowed.

    `reached` = the load distance of the best plan so far.  Where there is no budget of bytes, only bounds, each with
    the allocation at home.  None without a budget, or if the problem is large.
    """
    movable = problem.load[problem.movable & (problem.home != UNPLACED)]
    if len(problem.load) > MOST_KEY_GROUPS or movable.max(initial=0.0) <= NOTHING:
        return
    farthest, bounding = reached, problem.max_cost_bytes is None  # search finds better plans for a number of migrations
    rounds = ROUNDS[-1:] if bounding else ROUNDS
    relaxations = [Relaxation(problem, price, farthest, rounds[0][0]) for price in _prices(problem)]
    if not relaxations:
        return
    relaxation = max(relaxations, key=lambda one: one.at(np.zeros(one.classes)).paid(proven))
    ascent: Ascent | None = None
    drawing = _Drawing(problem, random, stop)
    for detail, margins in rounds:
        if detail is not relaxation.detail:
            relaxation = Relaxation(problem, relaxation.price_of, farthest, detail)
        ascent = Ascent(relaxation, ascent)
        proven = _proven(relaxation, ascent, proven, reached, stop)
        yield proven, problem.home
        for margin in () if bounding else margins:
            d = proven + margin
            if d >= reached or stop():
                break
            _climb(relaxation, ascent, d, stop)
            for plan in drawing.plans(relaxation, ascent, d):
                score = evaluate(problem, plan)
                reached = min(reached, score.load_distance) if score.allowed else reached
                yield proven, plan
                if stop() or reached <= proven:
                    return


def _prices(problem: BalanceProblem) -> list[Floats]:
    """Prices (K,) of moves of which no plan pays more than 1; none if no budget binds."""
    if problem.max_cost_bytes is not None or not len(problem.prices):
        return list(relative_prices(problem))
    return [problem.prices[0] / max(1.0, float(problem.allowances[0]))]


def _proven(relaxation: Relaxation, ascent: Ascent, proven: float, reached: float, stop: StopRule) -> float:
    """The farthest distance from `proven` to `reached` that is refuted."""
    trial = proven
    for _ in range(STEPS):
        if stop() or proven >= reached:
            break
        priced = relaxation.at(ascent.prices())
        if priced.paid(trial) > 1 + ROUNDING:
            proven, trial = priced.refuted(trial, reached)
            ascent.restart()
        ascent.learn(priced.choices(trial), stop)
        if ascent.gain < ENOUGH or ascent.value + HOPE * ascent.gain < 1:
            break
    return proven


def _climb(relaxation: Relaxation, ascent: Ascent, d: float, stop: StopRule) -> None:
    """Look for the prices at which nodes pay most for a load distance of `d`."""
    ascent.restart()
    for _ in range(PLAN_STEPS):
        if stop():
            break
        ascent.learn(relaxation.at(ascent.prices()).choices(d), stop)
        if ascent.gain < ENOUGH:
            break


class _Drawing:
    """Draws plans from mixtures of choices."""

    def __init__(self, problem: BalanceProblem, random: np.random.Generator, stop: StopRule) -> None:
        self._problem, self._random, self._stop = problem, random, stop
        self._seen: set[bytes] = set()

    def plans(self, relaxation: Relaxation, ascent: Ascent, d: float) -> Iterator[Ints]:
        """(K,) plans from the mixture of `ascent` for a load distance of `d`."""
        problem, mixture = self._problem, ascent.mixture()
        for _ in range(DRAWN):
            chosen = relaxation.pieces.key_groups[self._drawn(mixture)]
            if chosen.tobytes() in self._seen or not is_affordable(problem, chosen):
                continue
            self._seen.add(chosen.tobytes())
            plan = packed(problem, problem.home, chosen)
            yield plan
            if not (plan == UNPLACED).any():
                yield self._distributed(plan, d)

    def _drawn(self, mixture: list[list[tuple[float, Choice]]]) -> Ints:
        given: list[int] = []
        for choices in mixture:
            total = sum(weight for weight, _ in choices)
            rest = total * float(self._random.random())
            for weight, choice in choices:
                rest -= weight
                if rest <= 0:
                    given += choice.given
                    break
        return np.array(sorted(given), np.int64)

    def _distributed(self, plan: Ints, d: float) -> Ints:
        """`plan` with the key groups that are away from home on other nodes, if these can reach `d` by it."""
        problem = self._problem
        settled = replace(
            problem, home=plan, pinned=(plan == problem.home) | ~problem.movable, max_migrations=None,
            max_cost_bytes=None,
        )  # fmt: skip
        search = Search(SearchState(settled, plan), Band(under=d, over=d), self._random)
        search.run(PATIENCE, SEARCH_STEPS, self._stop)
        return search.best_at
