"""The exact model of the balance problem for OR-Tools CP-SAT.

A Boolean per key group and allowed node says that the key group is there; exactly one per key group is true.  Both ends
of the band, the budgets and the limits are linear constraints.  Numbers are rounded to integers so that no allowed plan
is lost.  The unit of load is so small that all rounding errors of a node stay below `PRECISION_PP`, by which the band
is widened.  Prices and usages are rounded down, budgets and limits up.  The solver's bound therefore holds for the
problem, if every key group may be on all nodes that the rules allow.  A plan of the solver must still be checked.

OR-Tools is imported only when needed: it takes longer to load than most problems to solve.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from trimtab_models.balance.problem import UNPLACED, BalanceProblem, Floats, Ints

if TYPE_CHECKING:
    from ortools.sat.python.cp_model import IntVar, LinearExprT

PRECISION_PP = 0.004
COARSEST_PP = 1e-4
ENOUGH_PP = 0.005  # gap of the model; the contract asks for 0.01 pp
LONGEST = 2**40  # largest sum, in units


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactResult:
    """A lower bound on the model's load distance (pp), and the best plan found, if any."""

    lower_bound: float
    allocation: Ints | None


def everywhere(problem: BalanceProblem) -> list[list[int]]:
    """The nodes that the rules allow for each key group."""
    kept = np.flatnonzero(problem.kept).tolist()
    nodes = []
    for key_group, (home, movable) in enumerate(zip(problem.home.tolist(), problem.movable.tolist(), strict=True)):
        if not movable:
            nodes.append([home])
            continue
        there = kept if problem.allowed is None else [node for node in kept if problem.may(key_group, node)]
        nodes.append(there if home == UNPLACED or home in there else [*there, home])
    return nodes


class ExactModel:
    """The model of one problem; `nodes[k]` = the nodes allowed for key group k."""

    def __init__(self, problem: BalanceProblem, nodes: Sequence[Sequence[int]], proven: float, reached: float) -> None:
        """Looks for a load distance between `proven` and `reached`."""
        from ortools.sat.python import cp_model

        self._problem, self._proven, self._reached = problem, proven, reached
        self._model = model = cp_model.CpModel()
        self._nodes = nodes
        self._stands: list[list[IntVar]] = [[model.new_bool_var("") for _ in at] for at in nodes]
        for literals in self._stands:
            model.add_exactly_one(literals)
        self._on: list[list[tuple[int, IntVar]]] = [[] for _ in problem.capacity]
        for key_group, (at, literals) in enumerate(zip(nodes, self._stands, strict=True)):
            for node, literal in zip(at, literals, strict=True):
                self._on[node].append((key_group, literal))
        self._unit = self._bound_loads(proven, reached)
        self._bound_prices()
        self._bound_usages()

    def hint(self, plan: Ints) -> None:
        """Give `plan` to the solver as a starting point."""
        for nodes, literals, node in zip(self._nodes, self._stands, plan.tolist(), strict=True):
            for at, literal in zip(nodes, literals, strict=True):
                self._model.add_hint(literal, at == node)

    def limit_movers(self, leaving: Ints, arriving: Ints, spare: int) -> None:
        """Let `leaving` to `leaving + spare` key groups leave each node (N,), and the same for `arriving`."""
        left: list[list[LinearExprT]] = [[] for _ in leaving]
        reached: list[list[LinearExprT]] = [[] for _ in arriving]
        for at, literals, home in zip(self._nodes, self._stands, self._problem.home.tolist(), strict=True):
            for node, literal in zip(at, literals, strict=True):
                if node != home:
                    reached[node].append(literal)
                    left[home].append(literal)
        for movers, fewest in ((left, leaving), (reached, arriving)):
            for movers_of_node, least in zip(movers, fewest.tolist(), strict=True):
                if movers_of_node:
                    self._model.add_linear_constraint(sum(movers_of_node), least, least + spare)

    def solve(self, *, seed: int, work: float, left_s: Callable[[], float]) -> ExactResult:
        """What CP-SAT finds and proves within `left_s()` wall-clock seconds.

        Unless that time runs out, the answer is the same on any machine: one thread, a fixed seed, and a limit on
        deterministic `work` (CP-SAT's measure, about seconds on an idle machine).
        """
        from ortools.sat.python import cp_model

        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = seed % 2**31
        solver.parameters.absolute_gap_limit = ENOUGH_PP / self._unit
        solver.parameters.max_deterministic_time = work
        solver.parameters.max_time_in_seconds = left_s()  # less what building the model took
        status = solver.solve(self._model)
        if status == cp_model.INFEASIBLE:  # even the incumbent does not fit: only float rounding allows it
            return ExactResult(lower_bound=self._proven, allocation=None)
        bound = min(self._reached, max(self._proven, (solver.best_objective_bound - 1) * self._unit))
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return ExactResult(lower_bound=bound, allocation=None)
        chosen = [[solver.boolean_value(literal) for literal in literals] for literals in self._stands]
        allocation = [at[row.index(True)] for at, row in zip(self._nodes, chosen, strict=True)]
        return ExactResult(lower_bound=bound, allocation=np.array(allocation, np.int64))

    def _bound_loads(self, proven: float, reached: float) -> float:
        """Add the band as constraints and its width as objective; returns the unit (pp) of all numbers."""
        problem = self._problem
        heaviest = float(problem.load.sum()) / float(problem.capacity.min())
        finest = 8 * PRECISION_PP / max(1, len(problem.load))  # on average an eighth of it is lost
        unit = max(min(COARSEST_PP, finest), heaviest / LONGEST)
        distance = self._model.new_int_var(int(proven / unit), int(reached / unit) + 2, "load distance")
        for node, on in enumerate(self._on):
            exact = problem.load / problem.capacity[node] / unit
            rounded = np.rint(exact)
            room = 1 + max(float((rounded - exact).clip(0).sum()), float((exact - rounded).clip(0).sum()))
            loads = rounded.astype(np.int64).tolist()
            total = sum(loads[key_group] * literal for key_group, literal in on)
            self._model.add(total <= int(np.ceil(problem.mean / unit + room)) + distance)
            if problem.kept[node]:
                self._model.add(total >= int(np.floor(problem.mean / unit - room)) - distance)
        self._model.minimize(distance)
        return unit

    def _bound_prices(self) -> None:
        problem = self._problem
        for row, allowance in zip(problem.prices, problem.allowances.tolist(), strict=True):
            prices, limit = _whole(row, allowance)
            spent = []
            for nodes, literals, home, price in zip(
                self._nodes, self._stands, problem.home.tolist(), prices, strict=True
            ):
                spent += [price * literal for node, literal in zip(nodes, literals, strict=True) if node != home]
            self._model.add(sum(spent) <= limit)

    def _bound_usages(self) -> None:
        problem = self._problem
        everything = np.arange(len(problem.load))
        for resource, limits in enumerate(problem.limit):
            for node in np.flatnonzero(np.isfinite(limits)).tolist():
                usage, limit = _whole(problem.usage_on(everything, node)[resource], float(limits[node]))
                self._model.add(sum(usage[key_group] * literal for key_group, literal in self._on[node]) <= limit)


def _whole(amounts: Floats, limit: float) -> tuple[list[int], int]:
    """Integers for these floats; whatever fits into `limit` still fits."""
    total = float(amounts.sum())
    limit = min(limit, 2 * total) * (1 + 1e-9)
    if (amounts == np.floor(amounts)).all() and total < LONGEST:
        return amounts.astype(np.int64).tolist(), int(limit)
    scale = LONGEST / max(total, 1e-300)
    return np.floor(amounts * scale).astype(np.int64).tolist(), int(np.ceil(limit * scale))
