"""The balance solver: bound, construct, improve, certify or drain, second side, trim.

Source: Madsen, Zhou, Cao, "Integrative Dynamic Reconfiguration in a Parallel Stream Processing Engine", ICDE 2017,
section 4.3. Where we differ: no general solver, but a combinatorial bound and a search that mostly meets it; the
paper's constraint (5) is dropped, since it makes real instances infeasible; marked nodes are emptied by rule, since
the paper's lemmas do not hold for indivisible key groups (`drain.py`).

Staying put is the first incumbent; every stage replaces it only by a plan that was evaluated from scratch.

"Never worse than Flux, never worse than staying put" (load distances) holds as it stands while no key group is on a
marked node. Else emptying marked nodes and a small load distance may contradict each other, and the rule wins: the plan
is then never worse than both of these: the room that draining is given, max(`urgent`, the problem's
`max_load_distance`), and the better of Flux and staying put. So while the load distance is above that room, moves for
the drain make it no worse than now.
"""

from dataclasses import dataclass

import numpy as np

from trimtab_models.balance.bound import CountConditions, lower_bound, stronger_bound
from trimtab_models.balance.certify import booleans, certify
from trimtab_models.balance.construct import construct, place_unplaced
from trimtab_models.balance.core import core_of, solve_core
from trimtab_models.balance.drain import Drain, alerts
from trimtab_models.balance.evaluate import Score, evaluate
from trimtab_models.balance.exact import Answer
from trimtab_models.balance.flux import flux
from trimtab_models.balance.improve import Effort, Improved, Improver, Side, improve_second_side
from trimtab_models.balance.problem import Bools, Ints, Problem
from trimtab_models.balance.result import BalanceResult, Stage
from trimtab_models.balance.tabu import Band
from trimtab_models.balance.trim import trim
from trimtab_models.solving.outcome import Infeasible, Status
from trimtab_models.solving.stop import Deadline, Stop

OPTIMAL_PP = 0.01  # the file contract: proven within this of the bound
CONSTRUCT_ABOVE_PP = 1e-6  # the bound itself may be refuted by a hair
FULL_EFFORT = Effort(steps=8_000, steps_per_node=10)
BRIEF_EFFORT = Effort(steps=600)
POLISH_EFFORT = Effort(steps=2_000, steps_per_node=1)
CERTIFIED_S = 0.8  # of the time left at most: the stages after it need some
LOADING_S, BUILDING_S = 0.5, 5e-5  # OR-Tools itself, and each Boolean of the model: less time than that is no use
SMALL_BOOLEANS = 4_000  # key groups x nodes: the exact model is faster than any search, and optima hide from searches
SMALL_WORK = 5.0
FULL_WORK = 300.0
PACKING_S = 1.5  # less time is no use
CORE_WORK = 2.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """`tolerance` and `urgent` in pp. A plan within `tolerance` of the bound is not improved further."""

    tolerance: float = OPTIMAL_PP
    urgent: float = 5.0  # above it moves are spent on the load distance before marked nodes are emptied
    effort: Effort = FULL_EFFORT
    brief: Effort = BRIEF_EFFORT  # before a tight budget is tried as a packing
    polish: Effort = POLISH_EFFORT  # for the second side, and after draining
    certify: bool = False  # ask CP-SAT too: small problems at once, larger ones with what a deadline leaves


DEFAULT_PARAMS = Params()


def solve(problem: Problem, *, stop: Stop, seed: int, params: Params = DEFAULT_PARAMS) -> BalanceResult | Infeasible:
    """The best plan found for one round. The same seed gives the same plan unless `stop` cut the search short."""
    if reason := infeasible(problem):
        return Infeasible(reason=reason)
    return _Solver(problem, stop, seed, params).run()


def solve_flux(problem: Problem, *, stop: Stop, seed: int) -> BalanceResult | Infeasible:
    """The plan of the baseline Flux, with the same bound beside it."""
    if reason := infeasible(problem):
        return Infeasible(reason=reason)
    solver = _Solver(problem, stop, seed, DEFAULT_PARAMS)
    solver.offer(flux(solver.problem, solver.best, stop), Stage.CONSTRUCTED)
    return solver.result()


def solve_greedily(problem: Problem, *, stop: Stop, seed: int) -> BalanceResult | Infeasible:
    """Flux, and marked nodes emptied by the same rule as of `solve`, without any search: for when that fails."""
    if reason := infeasible(problem):
        return Infeasible(reason=reason)
    return _Solver(problem, stop, seed, DEFAULT_PARAMS).run_greedily()


def infeasible(problem: Problem) -> str | None:
    """Why there is no plan at all, or None: only a cluster without a node to keep has none."""
    if not len(problem.capacity):
        return "there is no node"
    if problem.removing.all():
        return "all nodes are marked for removal"
    return None


class _Solver:
    """The incumbent and the stages that replace it."""

    def __init__(self, problem: Problem, stop: Stop, seed: int, params: Params) -> None:
        self.best = self._stayed = place_unplaced(problem)
        self.problem = problem.tolerating(self.best)
        self._score = evaluate(self.problem, self.best)
        self._stop, self._seed, self._params = stop, seed, params
        self._stage = Stage.STAYED
        self._steps = 0
        self._conditions = CountConditions(self.problem)
        self._bound = lower_bound(self.problem, self._score.load_distance, stop, self._conditions)
        self._baseline = np.inf  # the load distance of Flux, where it matters
        self._random = np.random.default_rng(seed)

    def run(self) -> BalanceResult:
        """All stages."""
        if self.problem.removing[self.best].any():
            return self._run_draining()
        if self._is_stuck():
            return self.result()
        self._first_plans(0.0)
        self._certify(SMALL_BOOLEANS, SMALL_WORK)
        self._pack()
        self._improve(0.0, self._params.effort, returning=True)
        if isinstance(self._stop, Deadline):
            self._certify(np.inf, FULL_WORK)
        self._finish(returning=True)
        return self.result()

    def _run_draining(self) -> BalanceResult:
        urgent, start = self._params.urgent, self.best
        self._first_plans(urgent)
        self._improve(urgent, self._params.effort, returning=True)
        self._drain(start, max(urgent, self._goal(), self._score.load_distance))
        ceiling = self._ceiling()
        self._improve(0.0, self._params.polish, returning=False)
        self._finish(returning=False)
        if (certificate := self._certificate(SMALL_BOOLEANS, SMALL_WORK)) is not None:
            self._bound = certificate.lower_bound  # its plan is not taken: the rule, not the load distance, has decided
        return self.result(ceiling)

    def run_greedily(self) -> BalanceResult:
        """Flux, as long as the load distance comes first, then the drain."""
        urgent, start = self._params.urgent, self.best
        draining = bool(self.problem.removing[start].any())
        if not draining or self._score.load_distance > urgent:
            self.offer(flux(self.problem, start, self._stop), Stage.CONSTRUCTED)
        if not draining:
            return self.result()
        self._drain(start, max(urgent, self._score.load_distance))
        return self.result(self._ceiling())

    def _is_stuck(self) -> bool:
        """Whether no key group at all may move: no need to search."""
        problem = self.problem
        free: Bools = problem.movable & (problem.prices <= problem.allowances[:, None]).all(axis=0)
        return not free.any()

    def _ceiling(self) -> float:
        return max(self._score.load_distance, self.problem.max_load_distance)

    def _goal(self) -> float:
        """What need not be lowered further: within the tolerance of the bound, and never worse than Flux."""
        return min(self._bound + self._params.tolerance * (1 - 1e-6), max(self._bound, self._baseline))

    def _first_plans(self, enough: float) -> None:
        """Flux and the construction, unless the load distance is `enough` already."""
        if self._score.load_distance <= max(enough, self._bound):
            return
        baseline = flux(self.problem, self.best, self._stop)
        self._baseline = evaluate(self.problem, baseline).load_distance
        if self._score.load_distance <= max(enough, self._goal()) or self._stop():
            return
        start = self.best
        self.offer(baseline, Stage.CONSTRUCTED)
        target = max(self._bound, enough) + CONSTRUCT_ABOVE_PP
        plan = construct(self.problem, start, target, self._stop, self._conditions)
        self.offer(plan, Stage.CONSTRUCTED)

    def _improve(self, enough: float, effort: Effort, *, returning: bool) -> None:
        """Searches until the load distance is `enough` or near the bound."""
        if self._stop() or not effort.total(1) or self._score.load_distance <= max(enough, self._goal()):
            return
        self._stage = Stage.IMPROVED
        self._bound = stronger_bound(self.problem, self._bound, self._score.load_distance, self._stop)
        improver = Improver(self.problem, self._stayed, self._random, self._stop, returning=returning)
        goal = max(enough, self._goal())
        self._take(improver.lower(self.best, Side.BOTH, self._bound, goal, effort))

    def _pack(self) -> None:
        """What a tight budget leaves to choose from, as a packing."""
        if not self._params.certify or self._score.load_distance <= self._goal() or self._left_s() < PACKING_S:
            return
        self._improve(0.0, self._params.brief, returning=True)
        core = core_of(self.problem, self._conditions, self._score.load_distance)
        if core is None or self._score.load_distance <= self._goal():
            return
        work, reached = min(CORE_WORK, self._left_s()), self._score.load_distance
        plan = solve_core(
            self.problem, core, self._bound, reached, seed=self._seed, work=work, left_s=self._left_wall_s
        )
        if plan is not None:
            self.offer(plan, Stage.IMPROVED)

    def _certify(self, largest: float, work: float) -> None:
        """Proves or improves what is reached."""
        certificate = self._certificate(largest, work)
        if certificate is None:
            return
        self._stage = Stage.CERTIFIED
        self._bound = certificate.lower_bound
        if certificate.allocation is not None:
            self.offer(certificate.allocation, Stage.CERTIFIED)

    def _certificate(self, largest: float, work: float) -> Answer | None:
        """What CP-SAT says, if it is asked; before a deadline only with time that is left."""
        size, reached = booleans(self.problem), self._score.load_distance
        if not self._params.certify or size > largest or size == np.inf or reached <= self._goal():
            return None
        if self._left_s() < LOADING_S + BUILDING_S * size:
            return None
        work = min(work, self._left_s())
        wall_s = self._left_wall_s
        return certify(self.problem, self.best, self._bound, reached, seed=self._seed, work=work, left_s=wall_s)

    def _left_s(self) -> float:
        """Seconds for CP-SAT."""
        if isinstance(self._stop, Deadline):
            return CERTIFIED_S * self._stop.left_s()
        return 0.0 if self._stop() else np.inf

    def _left_wall_s(self) -> float:
        """The same for CP-SAT, which knows no other clock."""
        return CERTIFIED_S * self._stop.left_wall_s() if isinstance(self._stop, Deadline) else self._left_s()

    def _drain(self, start: Ints, reached: float) -> None:
        """Empties marked nodes with what is left of the budget, and with what `start` does not need to be left for."""
        band = Band(under=reached, over=reached)
        if self.best is not start:
            self._adopt(trim(self.problem, self.best, band, self._stop, returning=True))
        drain = Drain(self.problem, self.best, self._stop)
        drain.substitute(band)
        drain.empty(self._ceiling())
        self._stage = Stage.DRAINED
        self._adopt(drain.allocation)

    def _finish(self, *, returning: bool) -> None:
        """The second objective, then the third."""
        tolerance = self._params.tolerance
        if not self._stop():
            self._stage = Stage.SECOND_SIDE
            improver = Improver(self.problem, self._stayed, self._random, self._stop, returning=returning)
            plan = Improved(allocation=self.best, score=self._score, steps=0)
            self._take(improve_second_side(improver, plan, self._params.polish, tolerance))
        if not self._stop():
            self._stage = Stage.TRIMMED
            band = _held(self._score, self._goal(), tolerance)
            self._adopt(trim(self.problem, self.best, band, self._stop, returning=returning))

    def offer(self, allocation: Ints, stage: Stage) -> None:
        """Takes `allocation` if it is allowed and lowers the load distance."""
        score = evaluate(self.problem, allocation)
        if score.allowed and score.load_distance < self._score.load_distance:
            self.best, self._score, self._stage = allocation, score, stage

    def _adopt(self, allocation: Ints) -> None:
        """Takes `allocation`, which a rule and not the load distance speaks for, if it is allowed."""
        score = evaluate(self.problem, allocation)
        if score.allowed:
            self.best, self._score = allocation, score

    def _take(self, improved: Improved) -> None:
        self.best, self._score = improved.allocation, improved.score
        self._steps += improved.steps

    def result(self, ceiling: float | None = None) -> BalanceResult:
        """The incumbent with what is known of it; alerts only where marked nodes were to be emptied up to `ceiling`."""
        problem = self.problem
        changed = self.best != problem.home
        status = Status.FEASIBLE
        if not changed.any():
            status = Status.UNCHANGED
        elif self._score.load_distance <= self._bound + OPTIMAL_PP:
            status = Status.OPTIMAL
        return BalanceResult(
            status=status,
            allocation=self.best,
            score=self._score,
            lower_bound=min(self._bound, self._score.load_distance),
            stage=self._stage,
            steps=self._steps,
            seed=self._seed,
            alerts=() if ceiling is None else alerts(problem, self.best, ceiling),
            reversed_in_flight=tuple(np.flatnonzero(changed & problem.in_flight).tolist()),
        )


def _held(score: Score, goal: float, tolerance: float) -> Band:
    """What the third objective must not spoil: the load distance up to `goal`, the other side up to `tolerance`."""
    tight, loose = max(score.load_distance, goal), max(min(score.over, score.under), min(goal, tolerance))
    return Band(under=loose, over=tight) if score.over >= score.under else Band(under=tight, over=loose)
