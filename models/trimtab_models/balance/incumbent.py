"""The best plan so far, the bound that is proven, and the rules by which another plan takes its place.

The present allocation is the first incumbent.  Every plan is evaluated from scratch before it may replace it.
"""

import numpy as np

from trimtab_models.balance.bound import Conditions, lower_bound, stronger_bound
from trimtab_models.balance.construct import place_unplaced
from trimtab_models.balance.drain import alerts
from trimtab_models.balance.evaluate import evaluate
from trimtab_models.balance.improve import Improved
from trimtab_models.balance.params import OPTIMAL_PP, BalanceParams
from trimtab_models.balance.problem import BalanceProblem, Ints
from trimtab_models.balance.result import BalanceResult, SolveStage
from trimtab_models.solving.outcome import PlanStatus
from trimtab_models.solving.stop import StopRule


class Incumbent:
    """The plan `best` with its `score`, from `stage`; `bound` (pp) is proven.  `stayed` = the plan without moves."""

    def __init__(self, problem: BalanceProblem, stop: StopRule, seed: int, params: BalanceParams) -> None:
        self.best = self.stayed = place_unplaced(problem)
        self.problem = problem.tolerating(self.best)
        self.score = evaluate(self.problem, self.best)
        self.stage, self.steps = SolveStage.STAYED, 0
        self.conditions = Conditions.of(self.problem)
        self.bound = lower_bound(self.problem, self.score.load_distance, stop, self.conditions)
        self.baseline = np.inf  # the load distance of Flux, if it was computed
        self._seed, self._tolerance = seed, params.tolerance
        self._bound_raised = False

    def goal(self) -> float:
        """A load distance that is good enough: within the tolerance of the bound, and not above Flux."""
        return min(self.bound + self._tolerance * (1 - 1e-6), max(self.bound, self.baseline))

    def raise_bound(self, stop: StopRule) -> None:
        """Raise the bound by conditions that take time, once."""
        if not self._bound_raised:
            self._bound_raised = True
            self.bound = stronger_bound(self.problem, self.bound, self.score.load_distance, stop, self.conditions)

    def offer(self, allocation: Ints, stage: SolveStage) -> None:
        """Take `allocation` if it is allowed and has a lower load distance."""
        score = evaluate(self.problem, allocation)
        if score.allowed and score.load_distance < self.score.load_distance:
            self.best, self.score, self.stage = allocation, score, stage

    def adopt(self, allocation: Ints) -> None:
        """Take `allocation` if it is allowed, whatever its load distance."""
        score = evaluate(self.problem, allocation)
        if score.allowed:
            self.best, self.score = allocation, score

    def take(self, improved: Improved) -> None:
        """Take the plan of a search, which is no worse."""
        self.best, self.score = improved.allocation, improved.score
        self.steps += improved.steps

    def result(self, ceiling: float | None = None) -> BalanceResult:
        """The incumbent and its proof; with alerts if draining nodes were emptied up to `ceiling`."""
        problem = self.problem
        changed = self.best != problem.home
        status = PlanStatus.FEASIBLE
        if not changed.any():
            status = PlanStatus.UNCHANGED
        elif self.score.load_distance <= self.bound + OPTIMAL_PP:
            status = PlanStatus.OPTIMAL
        return BalanceResult(
            status=status,
            allocation=self.best,
            score=self.score,
            lower_bound=min(self.bound, self.score.load_distance),
            stage=self.stage,
            steps=self.steps,
            seed=self._seed,
            alerts=() if ceiling is None else alerts(problem, self.best, ceiling),
            reversed_in_flight=tuple(np.flatnonzero(changed & problem.in_flight).tolist()),
        )
