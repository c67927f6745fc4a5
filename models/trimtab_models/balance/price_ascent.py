"""Finds the prices of loads at which the nodes pay most: cutting planes, a linear program and a trust region.

At any prices a node pays at most what one of its choices costs: the price of the key groups that it gives, plus the
prices of what it receives, less those of what it gives.  So every choice seen is a linear upper limit of what its node
pays, and the prices that maximise the sum of these limits are the ones to try next.  They stay near the best prices so
far, because far from them the limits say little.  The first ones are equal for all loads: a share of a move, which is
halved while the nodes pay more for it.

The dual of the linear program is a mixture of choices, in which as many key groups of each load leave nodes as arrive.
Nearly all nodes have a single choice in it.
"""

from typing import Any

import numpy as np

from trimtab_models.balance.load_prices import Choice, Relaxation
from trimtab_models.balance.problem import Floats
from trimtab_models.solving.stop import Deadline, StopRule

_Key = tuple[int, tuple[int, ...], tuple[tuple[int, float], ...]]  # node, given, received

RADIUS = 0.1  # of a median price of a move: how far the next prices may be from the best ones, at first
SMALLEST = 1 / 32  # share of a median price of a move in the first prices
NEAREST, FARTHEST = 0.25, 100.0  # times that, later
HOLDS = 0.5  # least share of the gain promised by the limits for which the trust region grows
LARGEST = 1e3  # price, in budgets
NOTHING = 1e-9


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
        self._paid = [solver.NumVar(-LARGEST, LARGEST, "") for _ in relaxation.cells]
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
            if (weight := abs(row.dual_value())) > NOTHING:
                found[node].append((weight, choice))
        return found
