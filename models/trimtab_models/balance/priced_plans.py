"""Plans by prices of loads (`load_prices.py`), and the bound that the prices prove.

At the prices at which nodes pay most, a mixture of their choices sends as many key groups of each load away as arrive.
Nearly all nodes have a single choice in it; for the others one is drawn.  The key groups that nodes give up in this way
are packed onto the least loaded nodes, and then distributed anew by a tabu search, in which nothing else moves.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from trimtab_models.balance.construct import packed
from trimtab_models.balance.evaluate import evaluate
from trimtab_models.balance.knapsack import relative_prices
from trimtab_models.balance.load_prices import ROUNDING, Choice, Detail, Relaxation
from trimtab_models.balance.losses import NOTHING
from trimtab_models.balance.pieces import is_affordable
from trimtab_models.balance.price_ascent import Ascent
from trimtab_models.balance.problem import UNPLACED, BalanceProblem, Floats, Ints
from trimtab_models.balance.tabu import Band, Search, SearchState
from trimtab_models.solving.stop import StopRule

LARGEST = 10_000  # key groups; beyond, a step takes too long
STEPS, PLAN_STEPS = 60, 15  # most for the bound, and for the plans of a trial distance
ENOUGH = 5e-4  # of the budget
HOPE = 20.0  # times the gain that is possible near the best prices: more is hardly possible farther away
ROUNDS = (
    (Detail(cells=1_000, classes=40, knots=8), (0.05, 0.15, 0.3)),
    (Detail(cells=4_000, classes=160, knots=32), (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8)),
)  # with the trial distances for plans, in pp above the bound
DRAWN = 4
SEARCH_STEPS, PATIENCE = 400, 100


def plans_by_load_prices(
    problem: BalanceProblem, proven: float, reached: float, random: np.random.Generator, stop: StopRule
) -> Iterator[tuple[float, Ints]]:
    """Lower bounds (pp), never falling from `proven` on, each with a plan (K,), which may not be allowed.

    `reached` = the load distance of the best plan so far.  Where there is no budget of bytes, only bounds, each with
    the allocation at home.  None without a budget, or if the problem is large.
    """
    movable = problem.load[problem.movable & (problem.home != UNPLACED)]
    if len(problem.load) > LARGEST or movable.max(initial=0.0) <= NOTHING:
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
