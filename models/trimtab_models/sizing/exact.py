"""The exact model: is there a placement that sustains a given source rate?

For a fixed rate, the load of an instance depends only on the number of instances of its operator.  With a binary n(o,
c) for "operator o has c instances" and integers k(o, c, m) for their number on machine m, everything is linear:

    sum over c of n(o, c) = 1    sum over m of k(o, c, m) = c n(o, c)    sum over o, c of use(o, c, m) k(o, c, m) <= 100

A placement that sustains a rate also sustains every lower one.  So CP-SAT is asked for the given rate first, then for
rates above that of the best known plan, until it proves that there is no better plan.  These are a few linear models
instead of one with products of rate and counts.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from ortools.sat.python import cp_model

from trimtab_models.sizing.problem import Floats, Ints, SizingProblem, max_rate, sustains_start
from trimtab_models.solving import StopRule

STEP = 1e-5  # relative precision of the proven rate
UNITS = 10**8  # units per full resource; uses are rounded down, so that proofs are valid
GROWTH = 4.0  # growth of the raise after a success
WORK_PER_VARIABLE = 5e-5  # seconds to build the model
POLL_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExactPlacement:
    """The best placement (None = unknown), and a rate proven to be unreachable (infinite = no proof)."""

    placement: Ints | None
    refuted_rate: float


def variables(problem: SizingProblem, limit: int) -> int:
    """The number of variables of the model."""
    return len(problem.operators) * (limit - len(problem.operators) + 1) * len(problem.machines)


def raise_rate(
    problem: SizingProblem, placement: Ints | None, limit: int, *, work: float, stop: StopRule, seed: int
) -> ExactPlacement:
    """Better placements of at most `limit` instances than `placement`, until there is none or `work` is spent.

    `work` = CP-SAT's deterministic seconds, with an allowance for building each model; the same work gives the same
    plan. The raise of the rate grows with each success, so a poor plan improves fast and a good one is proven by one
    model.
    """
    rate = -1.0 if placement is None else max_rate(problem, placement)
    refuted, step = np.inf, STEP
    while work > 0 and not stop():
        target = rate * (1 + step) if sustains_start(problem, rate) else problem.source_rate
        if target >= refuted:
            target = (rate + refuted) / 2
        model = _RateModel(problem, target, limit)
        status, spent = model.solve(work, stop, seed)
        work -= spent + WORK_PER_VARIABLE * variables(problem, limit)
        if status == cp_model.INFEASIBLE:
            refuted, step = target, STEP
        elif status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            found = model.placement()
            if max_rate(problem, found) <= rate:  # better only by the rounding of the model
                break
            placement, rate, step = found, max_rate(problem, found), step * GROWTH
        else:
            break
        if refuted <= max(rate * (1 + 2 * STEP), problem.source_rate):
            break
    return ExactPlacement(placement=placement, refuted_rate=refuted)


class _RateModel:
    """The model for one rate."""

    def __init__(self, problem: SizingProblem, rate: float, limit: int) -> None:
        self._problem, self._rate, self._limit = problem, rate, limit
        self._model = cp_model.CpModel()
        self._solver = cp_model.CpSolver()
        self._sizes: list[cp_model.LinearExprT] = []
        self._here: list[tuple[int, int, cp_model.IntVar]] = []  # operator, machine, instances
        self._load: list[list[cp_model.LinearExprT]] = [[] for _ in problem.machines]
        for operator in range(len(problem.operators)):
            options = range(1, limit - len(problem.operators) + 2)
            chosen = [each for count in options for each in self._option(operator, count)]
            self._model.add_exactly_one(chosen)  # infeasible if there is no option
        self._constrain()

    def _option(self, operator: int, count: int) -> list[cp_model.IntVar]:
        """The binary for "`operator` has `count` instances"; none if no machine could carry one of them."""
        problem, model = self._problem, self._model
        share = problem.relative[operator] * self._rate / count
        use = problem.per_rate[operator] * share + problem.per_instance[operator]
        units: Floats = np.floor(use / problem.capacity * UNITS * (1 - 1e-12))
        machines = np.flatnonzero(units <= UNITS).tolist()
        if not machines:
            return []
        chosen = model.new_bool_var("")
        instances = []
        for machine in machines:
            each = int(units[machine])
            here = model.new_int_var(0, min(count, UNITS // max(1, each)), "")
            instances.append(here)
            self._here.append((operator, machine, here))
            self._load[machine].append(each * here)
        model.add(cp_model.LinearExpr.sum(instances) == count * chosen)
        self._sizes.append(count * chosen)
        return [chosen]

    def _constrain(self) -> None:
        total = cp_model.LinearExpr.sum
        self._model.add(total(self._sizes) <= self._limit)
        for terms in self._load:
            self._model.add(total(terms) <= UNITS)
        for group in self._problem.classes:  # break symmetry: among equal machines the fuller ones first
            for fuller, emptier in zip(group.tolist(), group.tolist()[1:], strict=False):
                self._model.add(total(self._load[fuller]) >= total(self._load[emptier]))

    def solve(self, work: float, stop: StopRule, seed: int) -> tuple[int, float]:
        """The status of CP-SAT and the deterministic seconds that it took."""
        solver = self._solver
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = seed % 2**31
        solver.parameters.max_deterministic_time = work
        solver.parameters.cp_model_probing_level = 0  # probing takes longer than the search and hardly counts as work
        with _stopping(solver, stop):
            status = solver.solve(self._model)
        return int(status), float(solver.response_proto.deterministic_time)

    def placement(self) -> Ints:
        """(O, M) the placement in the solution."""
        placement = np.zeros((len(self._problem.operators), len(self._problem.machines)), np.int64)
        for operator, machine, instances in self._here:
            placement[operator, machine] += self._solver.value(instances)
        return placement


@contextmanager
def _stopping(solver: cp_model.CpSolver, stop: StopRule) -> Iterator[None]:
    """Ends the search when `stop` is True, from a thread, since CP-SAT does not check it."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(POLL_S):
            if stop():
                solver.stop_search()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
