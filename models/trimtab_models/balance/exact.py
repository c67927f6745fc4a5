"""The exact model of the balance problem for OR-Tools CP-SAT.

A Boolean per key group and allowed node says that the key group is there; exactly one per key group is true.  Both ends
of the band, the budgets and the limits are linear constraints.  Numbers are rounded to integers so that no allowed plan
is lost.  The unit of load is so small that all rounding errors of a node stay below `PRECISION_PP`, by which the band
is widened.  Prices and usages are rounded down, budgets and limits up.  The solver's bound therefore holds for the
problem, if every key group may be on all nodes that the rules allow.  A plan of the solver must still be checked.

OR-Tools is imported only when needed: it takes longer to load than most problems to solve.

`certify` closes the gap between bound and plan on the complete model.  For tight budgets of migrations there is a
reduced one, the core, which is small enough.  Any plan better than the present one must take a minimum number of key
groups from each node above the band, and bring a minimum number to each node below it (R and S of `bound.py`).  If
these moves use most of the budget, little else can move.  What remains is a packing problem with few large pieces, at
which local search is weak.  In the reduced problem only nodes above the band give and only nodes below it receive, each
at most `SPARE` key groups more than the minimum. This may exclude the optimum: a plan that CP-SAT finds is valid, but
infeasibility here proves nothing.

With a budget of bytes, the number of moves is not known.  There the key groups that may move are those with the fewest
bytes per load: from each node above the band twice its excess, and from all nodes twice what the deficits still lack.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from trimtab_models.balance.bound import CostConditions, CountConditions
from trimtab_models.balance.problem import UNPLACED, BalanceProblem, Bools, Floats, Ints

PRECISION_PP = 0.004
COARSEST_PP = 1e-4
ENOUGH_PP = 0.005  # gap of the model; the contract asks for 0.01 pp
LONGEST = 2**40  # largest sum, in units
MOST_NODES = 60
MOST_BOOLEANS = 100_000
SPARE = 1
TIGHT = 0.75  # least share of the budget that the necessary moves must use
CORE_BOOLEANS = 12_000
BINDS_PP = 1.0  # below, a budget of bytes is not tight, and prices of loads and search do better
AMPLE = 2.0  # times the load that must move


if TYPE_CHECKING:
    from ortools.sat.python.cp_model import IntVar, LinearExprT


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


def booleans(problem: BalanceProblem) -> float:
    """Number of Booleans in the exact model; infinite if it is too large to try."""
    nodes = len(problem.capacity)
    count = nodes * len(problem.load)
    return count if nodes <= MOST_NODES and count <= MOST_BOOLEANS else np.inf


def certify(
    problem: BalanceProblem,
    plan: Ints,
    proven: float,
    reached: float,
    *,
    seed: int,
    work: float,
    left_s: Callable[[], float] = lambda: np.inf,
) -> ExactResult:
    """Bound and plan from CP-SAT, started from `plan` with load distance `reached`.

    The bound holds for the problem and is at least `proven`.  `work` and `left_s` as in `ExactModel.solve`.
    """
    exact = ExactModel(problem, everywhere(problem), proven, reached)
    exact.hint(plan)
    return exact.solve(seed=seed, work=work, left_s=left_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Core:
    """The nodes allowed for each key group, and the minimum number that leaves and reaches each node (N,), if known."""

    nodes: list[list[int]]
    leaving: Ints | None = None
    arriving: Ints | None = None


def core_of(problem: BalanceProblem, conditions: CountConditions, reached: float) -> Core | None:
    """The core for plans with a load distance below `reached`; None if the budget is not tight or it is too large."""
    budget = problem.max_migrations
    leaving = conditions.mandatory(reached)
    if budget is None or leaving is None or not TIGHT * budget <= leaving.sum() <= budget:
        return None
    if (problem.home == UNPLACED).any():
        return None
    arriving = conditions.arrivals(reached)
    free, receivers = problem.movable & (leaving > 0)[problem.home], np.flatnonzero(arriving).tolist()
    if not 0 < int(free.sum()) * len(receivers) <= CORE_BOOLEANS:
        return None
    return Core(nodes=_allowed(problem, free, receivers), leaving=leaving, arriving=arriving)


def core_by_bytes(problem: BalanceProblem, proven: float) -> Core | None:
    """The core of a budget of bytes, for plans with a load distance near `proven`; None if it is too large or empty."""
    if problem.max_cost_bytes is None or proven < BINDS_PP or (problem.home == UNPLACED).any():
        return None
    conditions = CostConditions(problem, problem.max_cost_bytes)
    receivers = np.flatnonzero(conditions.lacking(proven)).tolist()
    chosen = conditions.candidates(proven, AMPLE)
    if not 0 < len(chosen) * len(receivers) <= CORE_BOOLEANS:
        return None
    free = np.zeros(len(problem.load), np.bool_)
    free[chosen] = True
    return Core(nodes=_allowed(problem, free, receivers))


def _allowed(problem: BalanceProblem, free: Bools, receivers: list[int]) -> list[list[int]]:
    return [
        sorted({home, *(node for node in receivers if problem.may(key_group, node))}) if leaves else [home]
        for key_group, (home, leaves) in enumerate(zip(problem.home.tolist(), free.tolist(), strict=True))
    ]


def solve_core(
    problem: BalanceProblem,
    core: Core,
    proven: float,
    reached: float,
    *,
    plan: Ints | None = None,
    seed: int,
    work: float,
    left_s: Callable[[], float] = lambda: np.inf,
) -> Ints | None:
    """(K,) the best plan found with load distance in [`proven`, `reached`], beginning with `plan`, if given.

    `work`, `left_s` as in `ExactModel.solve`.
    """
    nodes = core.nodes
    if plan is not None:
        nodes = [sorted({*at, node}) for at, node in zip(nodes, plan.tolist(), strict=True)]
    exact = ExactModel(problem, nodes, proven, reached)
    if plan is not None:
        exact.hint(plan)
    if core.leaving is not None and core.arriving is not None:
        exact.limit_movers(core.leaving, core.arriving, SPARE)
    return exact.solve(seed=seed, work=work, left_s=left_s).allocation
