"""The balance solver.  Its stages: bound, construct, improve, certify or drain, second side, trim.

Source: Madsen, Zhou, Cao, "Integrative Dynamic Reconfiguration in a Parallel Stream Processing Engine", ICDE 2017,
section 4.3.  We differ in this: instead of a general solver, a combinatorial bound and a search that usually reaches
it; without the paper's constraint (5), which makes real instances infeasible; draining nodes are emptied by a rule,
because the paper's lemmas do not hold for indivisible key groups (`drain.py`).

The present allocation is the first incumbent.  A stage replaces it only by a plan that was evaluated from scratch.

While no key group is on a draining node, the load distance of the plan is never above that of Flux, nor above the
present one.  Otherwise emptying a node may contradict a small load distance, and the rule has priority.  The load
distance is then at most the larger of two values: the room for draining, max(`urgent`, the problem's
`max_load_distance`), and the better of Flux and the present allocation.  So while the load distance is above that room,
moves for the drain do not make it worse.

While the load distance is above `urgent`, a plan with a load distance lower by less than WORTH_PP counts as equal.  Of
equal plans, the one that empties more is preferred.  The rule alone, without a search, is always one of them.
"""

from dataclasses import dataclass

import numpy as np

from trimtab_models.balance.bound import Conditions, lower_bound, stronger_bound
from trimtab_models.balance.construct import construct, place_unplaced, to_copies
from trimtab_models.balance.covers import plans_by_price
from trimtab_models.balance.drain import DrainBuilder, alerts, plain_drain
from trimtab_models.balance.enumeration import CELLS, FEW_CELLS, by_objectives, enumerate_plans, worth_trying
from trimtab_models.balance.evaluate import evaluate
from trimtab_models.balance.exact import ExactResult, booleans, certify, core_by_bytes, core_of, solve_core
from trimtab_models.balance.flux import flux
from trimtab_models.balance.improve import Effort, Improved, Improver, Side, held, improve_second_side, trim
from trimtab_models.balance.load_prices import plans_by_load_prices
from trimtab_models.balance.mending import mended
from trimtab_models.balance.problem import BalanceProblem, Bools, Ints, infeasible
from trimtab_models.balance.result import OPTIMAL_PP, BalanceResult
from trimtab_models.balance.tabu import Band
from trimtab_models.solving import Deadline, Infeasible, StopRule, part_of

FULL_EFFORT = Effort(steps=8_000, steps_per_node=10)
BRIEF_EFFORT = Effort(steps=600)
POLISH_EFFORT = Effort(steps=2_000, steps_per_node=1)
CONSTRUCT_ABOVE_PP = 1e-6  # rounding may refute the bound itself
CERTIFIED_S = 0.8  # largest share of the time left; later stages need the rest
LOADING_S, BUILDING_S = 0.5, 5e-5  # seconds to load OR-Tools, and per Boolean of the model
SMALL_BOOLEANS = 4_000  # key groups x nodes; below, the exact model beats any search
SMALL_WORK = 5.0
FULL_WORK = 300.0
PACKING_S = 1.5  # least time for which it is worth trying
CORE_WORK = 2.5
ENDLESS = 10**9
PRICING_S = 2.5e-4  # least time for prices of loads, per key group
PRICING_SHARE, BOUNDING_SHARE = 0.7, 0.3  # of the time: for prices of loads with a budget of bytes, and without
WORTH_PRICING_PP, LITTLE_PP = 0.05, 0.1  # least gap; a lower bound than LITTLE_PP promises that search comes near it
SEARCH_ON_SHARE = 0.8  # of the time that is left after the search and CP-SAT
FLUX_SHARE = 0.2  # of the time, where copies matter
SEARCH_SHARE = 0.6  # of the time, while there are key groups on draining nodes
WORTH_PP = 1.0  # a load distance lower by this is worth moves that empty no draining node


@dataclass(frozen=True, slots=True, kw_only=True)
class BalanceParams:
    """`tolerance` and `urgent` in pp.  A plan within `tolerance` of the bound is not improved further."""

    tolerance: float = OPTIMAL_PP
    urgent: float = 5.0  # above it, reducing the load distance comes before draining
    effort: Effort = FULL_EFFORT
    brief: Effort = BRIEF_EFFORT  # before the reduced problem of a tight budget is tried
    polish: Effort = POLISH_EFFORT  # for the second side and after draining
    certify: bool = False  # use CP-SAT at once for small problems; for larger ones all of the time, CP-SAT and search

    def shortest(self, nodes: int) -> Effort:
        """The brief effort for a cluster of `nodes`, or all of it if that is less."""
        return min(self.brief, self.effort, key=lambda effort: effort.total(nodes))


DEFAULT_PARAMS = BalanceParams()


class Incumbent:
    """The plan `best` with its `score`; `bound` (pp) is proven.  `stayed` = the plan without moves."""

    def __init__(self, problem: BalanceProblem, stop: StopRule, params: BalanceParams) -> None:
        self.best = self.stayed = place_unplaced(problem)
        self.problem = problem.tolerating(self.best)
        self.score = evaluate(self.problem, self.best)
        self.conditions = Conditions.of(self.problem)
        self.bound = lower_bound(self.problem, self.score.load_distance, stop, self.conditions)
        self.baseline = np.inf  # the load distance of Flux, if it was computed
        self._tolerance = params.tolerance
        self._bound_raised = False

    def goal(self) -> float:
        """A load distance that is good enough: within the tolerance of the bound, and not above Flux."""
        return min(self.bound + self._tolerance * (1 - 1e-6), max(self.bound, self.baseline))

    def raise_bound(self, stop: StopRule) -> None:
        """Raise the bound by conditions that take time, once."""
        if not self._bound_raised:
            self._bound_raised = True
            self.bound = stronger_bound(self.problem, self.bound, self.score.load_distance, stop, self.conditions)

    def offer(self, allocation: Ints) -> None:
        """Take `allocation` if it is allowed and has a lower load distance."""
        score = evaluate(self.problem, allocation)
        if score.allowed and score.load_distance < self.score.load_distance:
            self.best, self.score = allocation, score

    def adopt(self, allocation: Ints) -> None:
        """Take `allocation` if it is allowed, whatever its load distance."""
        score = evaluate(self.problem, allocation)
        if score.allowed:
            self.best, self.score = allocation, score

    def take(self, improved: Improved) -> None:
        """Take the plan of a search, which is no worse."""
        self.best, self.score = improved.allocation, improved.score

    def result(self, ceiling: float | None = None) -> BalanceResult:
        """The incumbent and its proof; with alerts if draining nodes were emptied up to `ceiling`."""
        return BalanceResult.of(
            self.problem,
            self.best,
            self.score,
            self.bound,
            alerts=() if ceiling is None else alerts(self.problem, self.best, ceiling),
        )


def solve(
    problem: BalanceProblem, *, stop: StopRule, seed: int, params: BalanceParams = DEFAULT_PARAMS
) -> BalanceResult | Infeasible:
    """The best plan found for one round.  The same seed gives the same plan unless `stop` ends the search early."""
    if reason := infeasible(problem):
        return Infeasible(reason=reason)

    def searched(part: BalanceProblem, until: StopRule) -> BalanceResult:
        return _Solver(part, until, seed, params).run()

    return mended(problem, searched, stop) or searched(problem, stop)


def solve_flux(problem: BalanceProblem, *, stop: StopRule, seed: int) -> BalanceResult | Infeasible:
    """The plan of the baseline Flux, with the same bound; nodes are drained, and rules kept, as `solve` does it."""
    if reason := infeasible(problem):
        return Infeasible(reason=reason)

    def constructed(part: BalanceProblem, until: StopRule) -> BalanceResult:
        return _Solver(part, until, seed, DEFAULT_PARAMS).run_flux()

    return mended(problem, constructed, stop) or constructed(problem, stop)


class _Solver(Incumbent):
    """The stages that replace the incumbent."""

    def __init__(self, problem: BalanceProblem, stop: StopRule, seed: int, params: BalanceParams) -> None:
        super().__init__(problem, stop, params)
        self._stop, self._seed, self._params = stop, seed, params
        self._random = np.random.default_rng(seed)

    def run(self) -> BalanceResult:
        """The plan of all stages."""
        if self.problem.to_leave(self.best).any():
            return self._run_draining()
        if self._is_stuck():
            self.bound = self.score.load_distance
            return self.result()
        self._first_plans(0.0)
        if self._solve_small():
            return self.result()
        self._certify(SMALL_BOOLEANS, SMALL_WORK)
        self._price_loads()
        self._pack()
        self._improve(0.0, self._params.effort, returning=True)
        if isinstance(self._stop, Deadline):
            self._certify(np.inf, FULL_WORK)
            self._search_on()
        self._finish(returning=True)
        return self.result()

    def _run_draining(self) -> BalanceResult:
        urgent, start, stayed = self._params.urgent, self.best, self.score.load_distance
        whole, self._stop = self._stop, part_of(self._stop, SEARCH_SHARE)  # the drain needs the rest
        plain = self._drained_plainly(start)
        self._first_plans(urgent)
        if evaluate(self.problem, plain).load_distance > max(urgent, self.bound + WORTH_PP):
            self._improve(urgent, self._params.effort, returning=True)
        self._stop = whole
        self._drain(start, max(urgent, self.goal(), self.score.load_distance))
        self._prefer_emptier(plain, stayed)
        ceiling = self._ceiling()
        self._improve(0.0, self._params.polish, returning=False)
        self._finish(returning=False)
        if (
            self._enumerated(0.0, FEW_CELLS) is None
            and (certificate := self._certificate(SMALL_BOOLEANS, SMALL_WORK)) is not None
        ):
            self.bound = certificate.lower_bound  # its plan is not used: the rule has decided, not the load distance
        return self.result(ceiling)

    def run_flux(self) -> BalanceResult:
        """Flux, while the load distance has priority, then the drain."""
        urgent, start = self._params.urgent, self.best
        draining = bool(self.problem.to_leave(start).any())
        if not draining or self.score.load_distance > urgent:
            self.offer(flux(self.problem, start, self._stop))
            self._offer_copies(start)
        if not draining:
            return self.result()
        stayed, plain = evaluate(self.problem, start).load_distance, self._drained_plainly(start)
        self._drain(start, max(urgent, self.score.load_distance))
        self._prefer_emptier(plain, stayed)
        return self.result(self._ceiling())

    def _is_stuck(self) -> bool:
        """Whether no key group may move, so that a search is useless."""
        free: Bools = self.problem.movable & (self.problem.prices <= self.problem.allowances[:, None]).all(axis=0)
        return not free.any()

    def _ceiling(self) -> float:
        return max(self.score.load_distance, self.problem.max_load_distance)

    def _first_plans(self, enough: float) -> None:
        """Flux and the constructed plan, unless the load distance is already at most `enough`."""
        if self.score.load_distance <= max(enough, self.bound):
            return
        start = self.best
        self._offer_copies(start)
        limited = self.problem.spared is not None  # then many moves are tried for each that fits
        baseline = flux(self.problem, start, part_of(self._stop, FLUX_SHARE) if limited else self._stop)
        self.baseline = evaluate(self.problem, baseline).load_distance
        if self.score.load_distance <= max(enough, self.goal()) or self._stop():
            return
        self.offer(baseline)
        target = max(self.bound, enough) + CONSTRUCT_ABOVE_PP
        plan = construct(self.problem, start, target, self.score.load_distance, self._stop, self.conditions)
        self.offer(plan)
        reached = self.score.load_distance
        for plan in plans_by_price(self.problem, start, target, reached, self._stop, self.conditions):
            self.offer(plan)

    def _improve(self, enough: float, effort: Effort, *, returning: bool) -> None:
        """Search until the load distance is at most `enough` or near the bound."""
        if self._stop() or not effort.total(1) or self.score.load_distance <= max(enough, self.goal()):
            return
        self.raise_bound(self._stop)
        if self.score.load_distance <= max(enough, self.goal()):
            return
        improver = Improver(self.problem, self.stayed, self._random, self._stop, returning=returning)
        goal = max(enough, self.goal())
        self.take(improver.lower(self.best, Side.BOTH, self.bound, goal, effort))

    def _solve_small(self) -> bool:
        """Try to examine all plans, for longer after a brief search; returns whether the plan is the best."""
        if not worth_trying(self.problem):
            return False
        if self._enumerate(FEW_CELLS):
            return True
        self._improve(0.0, self._params.shortest(len(self.problem.capacity)), returning=True)
        return self.score.load_distance > self.goal() and self._enumerate(CELLS)

    def _enumerate(self, cells: int) -> bool:
        """Take the best plan by all three objectives; returns False if there are too many plans to examine."""
        plans = self._enumerated(self._params.tolerance, cells)
        if plans is None:
            return False
        goal = self.goal()
        for plan in by_objectives(self.problem, plans, goal, self._params.tolerance):
            score = evaluate(self.problem, plan)
            if score.allowed and score.load_distance <= max(goal, self.score.load_distance):
                self.best, self.score = plan, score
                return True
        return False

    def _enumerated(self, within: float, cells: int) -> Ints | None:
        """(X, K) all plans up to `within` above the optimum, if they are few enough; raises the bound in any case."""
        if self._stop() or not worth_trying(self.problem):
            return None
        found = enumerate_plans(self.problem, self.bound, self.score.load_distance, within, cells, self._stop)
        self.bound = max(self.bound, found.lower_bound)
        return found.plans

    def _search_on(self) -> None:
        """Use the time that is left for the load distance, but for what the other objectives need."""
        if not self._params.certify:
            return
        whole, self._stop = self._stop, part_of(self._stop, SEARCH_ON_SHARE)
        self._improve(0.0, Effort(steps=ENDLESS), returning=True)
        self._stop = whole

    def _price_loads(self) -> None:
        """Bound and plans by prices of loads (`priced_plans.py`), unless a brief search comes near the bound."""
        effort = self._params.shortest(len(self.problem.capacity))
        by_bytes, enough = self.problem.max_cost_bytes is not None, self._left_s() >= PRICING_S * len(self.problem.load)
        wanted = enough and (by_bytes or self._params.certify) and bool(effort.total(1))
        if not wanted or self.score.load_distance <= self.goal():
            return
        self.raise_bound(self._stop)
        if not by_bytes or self.bound < LITTLE_PP:
            self._improve(0.0, effort, returning=True)
        stop, reached = part_of(self._stop, PRICING_SHARE if by_bytes else BOUNDING_SHARE), self.score.load_distance
        if reached > max(self.goal(), self.bound + WORTH_PRICING_PP):
            for bound, plan in plans_by_load_prices(self.problem, self.bound, reached, self._random, stop):
                self.bound = bound
                self.offer(plan)

    def _pack(self) -> None:
        """Solve the reduced problem of a tight budget (`core.py`)."""
        if not self._params.certify or self.score.load_distance <= self.goal() or self._left_s() < PACKING_S:
            return
        self._improve(0.0, self._params.brief, returning=True)
        core = core_of(self.problem, self.conditions.count, self.score.load_distance)
        core = core or core_by_bytes(self.problem, self.bound)
        if core is None or self.score.load_distance <= self.goal():
            return
        plan = solve_core(
            self.problem,
            core,
            self.bound,
            self.score.load_distance,
            plan=self.best if self.problem.max_cost_bytes is not None else None,
            seed=self._seed,
            work=min(CORE_WORK, self._left_s()),
            left_s=self._left_wall_s,
        )
        if plan is not None:
            self.offer(plan)

    def _certify(self, largest: float, work: float) -> None:
        """Raise the bound or improve the plan by CP-SAT."""
        certificate = self._certificate(largest, work)
        if certificate is not None:
            self.bound = certificate.lower_bound
            if certificate.allocation is not None:
                self.offer(certificate.allocation)

    def _certificate(self, largest: float, work: float) -> ExactResult | None:
        """The answer of CP-SAT; None if it is not wanted, or too little time is left."""
        size, reached = booleans(self.problem), self.score.load_distance
        if not self._params.certify or size > largest or size == np.inf or reached <= self.goal():
            return None
        if self._left_s() < LOADING_S + BUILDING_S * size:
            return None
        work = min(work, self._left_s())
        wall_s = self._left_wall_s
        return certify(self.problem, self.best, self.bound, reached, seed=self._seed, work=work, left_s=wall_s)

    def _left_s(self) -> float:
        """Seconds that CP-SAT may use, by the clock of the deadline."""
        if isinstance(self._stop, Deadline):
            return CERTIFIED_S * self._stop.left_s()
        return 0.0 if self._stop() else np.inf

    def _left_wall_s(self) -> float:
        """The same in wall-clock seconds, which CP-SAT needs."""
        return CERTIFIED_S * self._stop.left_wall_s() if isinstance(self._stop, Deadline) else self._left_s()

    def _drain(self, start: Ints, reached: float) -> None:
        """Empty draining nodes with the rest of the budget, after undoing moves that `reached` does not need."""
        band = Band(under=reached, over=reached)
        if self.best is not start:
            self.adopt(trim(self.problem, self.best, band, self._stop, returning=True))
        drain = DrainBuilder(self.problem, self.best, self._stop)
        drain.substitute(band)
        drain.empty(self._ceiling())
        self.adopt(drain.allocation)

    def _drained_plainly(self, start: Ints) -> Ints:
        """The plan of the drain rule alone, without a search."""
        return plain_drain(self.problem, start, max(self.bound, self._params.urgent), self._stop)

    def _prefer_emptier(self, plain: Ints, stayed: float) -> None:
        """Take `plain` if it empties more, and its load distance is not urgent or larger by less than WORTH_PP.

        `stayed` = the load distance before any move.
        """
        problem, score = self.problem, evaluate(self.problem, plain)
        urgent = self._params.urgent
        room = max(urgent, problem.max_load_distance, min(stayed, self.baseline))
        if not score.allowed or score.load_distance > min(room, max(urgent, self.score.load_distance + WORTH_PP)):
            return
        left, plainly_left = (int(problem.to_leave(plan).sum()) for plan in (self.best, plain))
        if (plainly_left, score.load_distance) < (left, self.score.load_distance):
            self.best, self.score = plain, score

    def _finish(self, *, returning: bool) -> None:
        """The second objective (the other side), then the third (fewer and cheaper moves)."""
        tolerance = self._params.tolerance
        if not self._stop():
            improver = Improver(self.problem, self.stayed, self._random, self._stop, returning=returning)
            plan = Improved(allocation=self.best, score=self.score)
            self.take(improve_second_side(improver, plan, self._params.polish, tolerance))
        if not self._stop():
            band = held(self.score, self.goal(), tolerance)
            self.adopt(trim(self.problem, self.best, band, self._stop, returning=returning))

    def _offer_copies(self, start: Ints) -> None:
        if self.problem.spared is not None:
            self.offer(to_copies(self.problem, start, self._stop))
