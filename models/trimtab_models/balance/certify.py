"""Certify and polish: OR-Tools CP-SAT on the exact model, for what bound and search have left open.

The model has a Boolean for every node that a key group may stand on, exactly one of which is true; both ends of the
band, every budget and every limit is a linear constraint. The plan is the hint, and the load distance is sought in
[bound, plan]. Numbers become integers so that no allowed plan is lost: loads in units so small that all roundings of a
node together stay below `PRECISION_PP`, for which the band has room; prices and usages rounded down, allowances and
limits up. So the solver's bound holds for the problem, while a plan of its is only a proposal.

OR-Tools is imported when it is asked for: it takes longer to load than most problems to solve.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from trimtab_models.balance.problem import UNPLACED, Floats, Ints, Problem

if TYPE_CHECKING:
    from ortools.sat.python.cp_model import CpModel, IntVar

NODES = 60
BOOLEANS = 100_000
PRECISION_PP = 0.004
COARSEST_PP = 1e-4
ENOUGH_PP = 0.005  # a gap of the model's within the contract's hundredth
LONGEST = 2**40  # units that the largest sum may have


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """A lower bound on the load distance (pp), and the solver's plan if it found another than the hint."""

    lower_bound: float
    allocation: Ints | None


def booleans(problem: Problem) -> float:
    """The size of the exact model; infinite where proofs are out of reach."""
    nodes = len(problem.capacity)
    count = nodes * len(problem.load)
    return count if nodes <= NODES and count <= BOOLEANS else np.inf


def certify(
    problem: Problem,
    plan: Ints,
    proven: float,
    reached: float,
    *,
    seed: int,
    work: float,
    left_s: Callable[[], float] = lambda: np.inf,
) -> Certificate:
    """What CP-SAT proves and finds from a `plan` whose load distance is `reached`, within the seconds of `left_s()`.

    The same answer on any machine unless those cut it short: one thread, a fixed seed, and a limit on the `work` in
    CP-SAT's own measure, which is about seconds on a free machine.
    """
    from ortools.sat.python import cp_model

    exact = _Exact(problem, proven, reached, cp_model.CpModel())
    exact.hint(plan)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = seed % 2**31
    solver.parameters.absolute_gap_limit = ENOUGH_PP / exact.unit
    solver.parameters.max_deterministic_time = work
    solver.parameters.max_time_in_seconds = left_s()  # building the model has taken some
    status = solver.solve(exact.model)
    if status == cp_model.INFEASIBLE:  # not even the hint fits: a plan that roundings of floats alone allow
        return Certificate(lower_bound=proven, allocation=None)
    bound = min(reached, max(proven, (solver.best_objective_bound - 1) * exact.unit))
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Certificate(lower_bound=bound, allocation=None)
    chosen = [[solver.boolean_value(literal) for literal in literals] for literals in exact.stands]
    allocation = np.array([nodes[row.index(True)] for nodes, row in zip(exact.nodes, chosen, strict=True)], np.int64)
    return Certificate(lower_bound=bound, allocation=allocation)


class _Exact:
    """The model of one problem; `nodes[k]` are the nodes that key group k may stand on, `stands[k]` its literals."""

    def __init__(self, problem: Problem, proven: float, reached: float, model: "CpModel") -> None:
        self._problem, self.model = problem, model
        kept = np.flatnonzero(problem.kept).tolist()
        self.nodes: list[list[int]] = []
        for home, movable in zip(problem.home.tolist(), problem.movable.tolist(), strict=True):
            if not movable:
                self.nodes.append([home])
            elif home == UNPLACED or problem.kept[home]:
                self.nodes.append(kept)
            else:
                self.nodes.append([*kept, home])
        self.stands: list[list[IntVar]] = [[model.new_bool_var("") for _ in nodes] for nodes in self.nodes]
        for literals in self.stands:
            model.add_exactly_one(literals)
        self._on: list[list[tuple[int, IntVar]]] = [[] for _ in problem.capacity]
        for key_group, (nodes, literals) in enumerate(zip(self.nodes, self.stands, strict=True)):
            for node, literal in zip(nodes, literals, strict=True):
                self._on[node].append((key_group, literal))
        self.unit = self._bound_loads(proven, reached)
        self._bound_prices()
        self._bound_usages()

    def hint(self, plan: Ints) -> None:
        """Starts the solver from `plan`."""
        for nodes, literals, node in zip(self.nodes, self.stands, plan.tolist(), strict=True):
            for at, literal in zip(nodes, literals, strict=True):
                self.model.add_hint(literal, at == node)

    def _bound_loads(self, proven: float, reached: float) -> float:
        """The band as constraints, its width as objective; the unit (pp) of all numbers."""
        problem = self._problem
        heaviest = float(problem.load.sum()) / float(problem.capacity.min())
        finest = 8 * PRECISION_PP / max(1, len(problem.load))  # an eighth is lost on average
        unit = max(min(COARSEST_PP, finest), heaviest / LONGEST)
        distance = self.model.new_int_var(int(proven / unit), int(reached / unit) + 2, "load distance")
        for node, on in enumerate(self._on):
            exact = problem.load / problem.capacity[node] / unit
            rounded = np.rint(exact)
            room = 1 + max(float((rounded - exact).clip(0).sum()), float((exact - rounded).clip(0).sum()))
            loads = rounded.astype(np.int64).tolist()
            total = sum(loads[key_group] * literal for key_group, literal in on)
            self.model.add(total <= int(np.ceil(problem.mean / unit + room)) + distance)
            if problem.kept[node]:
                self.model.add(total >= int(np.floor(problem.mean / unit - room)) - distance)
        self.model.minimize(distance)
        return unit

    def _bound_prices(self) -> None:
        problem = self._problem
        for row, allowance in zip(problem.prices, problem.allowances.tolist(), strict=True):
            prices, limit = _whole(row, allowance)
            spent = []
            for nodes, literals, home, price in zip(
                self.nodes, self.stands, problem.home.tolist(), prices, strict=True
            ):
                spent += [price * literal for node, literal in zip(nodes, literals, strict=True) if node != home]
            self.model.add(sum(spent) <= limit)

    def _bound_usages(self) -> None:
        problem = self._problem
        for row, limits in zip(problem.usage, problem.limit, strict=True):
            for node in np.flatnonzero(np.isfinite(limits)).tolist():
                usage, limit = _whole(row, float(limits[node]))
                self.model.add(sum(usage[key_group] * literal for key_group, literal in self._on[node]) <= limit)


def _whole(amounts: Floats, limit: float) -> tuple[list[int], int]:
    """Integers in place of floats: whatever fits into `limit` still does."""
    total = float(amounts.sum())
    limit = min(limit, 2 * total) * (1 + 1e-9)
    if (amounts == np.floor(amounts)).all() and total < LONGEST:
        return amounts.astype(np.int64).tolist(), int(limit)
    scale = LONGEST / max(total, 1e-300)
    return np.floor(amounts * scale).astype(np.int64).tolist(), int(np.ceil(limit * scale))
