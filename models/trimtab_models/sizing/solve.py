"""How many instances of each operator, and where, so that the sources can emit most.

Source: Nasiri, Nasehi, Divband, Goudarzi, "A Scheduling Algorithm to Maximize Storm Throughput in Heterogeneous
Cluster", arXiv 2001.10308.  The given source rate is the start of the paper's algorithm, and must be possible: if it is
proven too high for any placement, the problem is infeasible.  The rate of the plan is the largest one found.

We differ in this: the paper's one-at-a-time rule often ends far below the optimum, so its plan is only one of several
starts.  The others follow the fluid relaxation, with few to many instances.  Local search improves each.  If the exact
model is small, CP-SAT improves the best plan or proves it.  No plan is worse than round robin with its own counts.

The fluid relaxation, with divisible operators, is a bound, and a guide for placements.  In this linear program y(o, c)
tuples/s of operator o go to the machines of class c, on z(o, c) instances, which may be a fraction.  Every operator has
at least one instance, every instance has its fixed cost, and none carries more than fills a machine alone.  Every
placement at its rate is a solution, so the optimum is an upper bound on its rate.

Local search raises the rate, repairs overloaded machines by single steps, and repeats.  The paper's rule adds one
instance at a time and never removes one, so it can end far below the optimum.  Here a step adds, removes or moves one
instance, or swaps two, whichever reduces the sum of overshoots most.  If a target cannot be repaired, the raise is
halved.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from trimtab_models.sizing.paper import maximize_throughput, placement_of, round_robin
from trimtab_models.sizing.problem import Bools, Floats, Ints, SizingProblem, max_rate, sustains_start, use_of
from trimtab_models.solving import Infeasible, PlanStatus, StopRule

SOLVER_TOLERANCE = 1e-7  # relative; GLOP's own is 1e-8
FIRST_RAISE, LAST_RAISE = 0.25, 1e-5  # relative to the rate
LEAST_RATE = 1e-3  # relative to the bound: first rate if no rate is known
FIT = 1e-12  # a smaller overshoot is rounding
PER_MACHINE = (0.5, 0.75, 1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 14, 20)
OPTIMAL = 2e-5  # relative to the bound
NEGLIGIBLE = 1e-12  # share of the crude bound; GLOP refuses models with coefficients of more than 1e30


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fluid:
    """`bound` on the source rate, negative if not even idle instances fit; `shares` (O, C) of each operator's input."""

    bound: float
    shares: Floats


def fluid_relaxation(problem: SizingProblem) -> Fluid:
    """The optimum of this program, with its bound raised by the solver's tolerance."""
    from ortools.math_opt.python import mathopt  # type: ignore[import-untyped]  # (slow to load)

    first = [int(group[0]) for group in problem.classes]
    scale = _crude_bound(problem)
    unit = problem.relative * scale  # scales the rate, so that all coefficients are percentages
    use = problem.per_rate[:, first] * unit[:, None]
    fixed, capacity = problem.per_instance[:, first], problem.capacity[first]
    fits: Bools = fixed <= capacity
    works: Bools = fits & (NEGLIGIBLE * use <= capacity)
    use, fixed = np.where(works, use, 0.0), np.where(fits, fixed, 0.0)
    most = _most_per_instance(use, capacity - fixed)
    model = mathopt.Model()
    rate = model.add_variable(lb=0.0)
    operators, classes = range(len(problem.operators)), range(len(first))
    share = [[model.add_variable(lb=0.0, ub=np.inf if each else 0.0) for each in row] for row in works]
    instances = [[model.add_variable(lb=0.0, ub=np.inf if each else 0.0) for each in row] for row in fits]
    for operator in operators:
        model.add_linear_constraint(mathopt.fast_sum(share[operator]) == rate)
        model.add_linear_constraint(mathopt.fast_sum(instances[operator]) >= 1)
        for at in classes:
            model.add_linear_constraint(share[operator][at] <= most[operator, at] * instances[operator][at])
    for at in classes:
        terms = [use[operator, at] * share[operator][at] for operator in operators]
        terms += [fixed[operator, at] * instances[operator][at] for operator in operators]
        room = float(len(problem.classes[at]) * capacity[at])
        model.add_linear_constraint(mathopt.fast_sum(terms) <= room)
    if problem.max_instances is not None:
        total = mathopt.fast_sum(each for row in instances for each in row)
        model.add_linear_constraint(total <= problem.max_instances)
    model.maximize(rate)
    result = mathopt.solve(model, mathopt.SolverType.GLOP)
    if result.termination.reason is not mathopt.TerminationReason.OPTIMAL:
        return Fluid(bound=-1.0, shares=np.zeros((len(operators), len(first))))
    reached = result.objective_value()
    return Fluid(
        bound=scale * (reached * (1 + SOLVER_TOLERANCE) + SOLVER_TOLERANCE / 100),
        shares=np.array([[result.variable_values(each) for each in row] for row in share]) / max(reached, 1e-300),
    )


def _most_per_instance(use: Floats, room: Floats) -> Floats:
    """(O, C) share of the input that fills a machine beside the fixed cost of one instance; at most 1."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        most = np.where(use > 0, np.maximum(0, room) / use, np.inf)
    at_most_all: Floats = np.minimum(most, 1.0)
    return at_most_all


def _crude_bound(problem: SizingProblem) -> float:
    """Total CPU / least CPU per tuple/s."""
    return float(problem.capacity.sum() / (problem.relative * problem.per_rate.min(axis=1)).sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Limits of a search: `instances` and `steps` at most, and no rate above `bound`."""

    instances: int
    steps: int
    bound: float


def improve(problem: SizingProblem, placement: Ints, scope: Scope, stop: StopRule) -> Ints:
    """(O, M) a placement that sustains at least the rate of `placement`; unchanged if no better one is found."""
    best, rate, raised, steps = placement, max_rate(problem, placement), FIRST_RAISE, scope.steps
    while raised >= LAST_RAISE and rate < scope.bound * (1 - LAST_RAISE) and steps > 0 and not stop():
        target = min(max(rate, LEAST_RATE * scope.bound) * (1 + raised), scope.bound) if rate >= 0 else 0.0
        repaired, taken = _repaired(problem, best, target, scope.instances, steps, stop)
        steps -= taken
        if repaired is not None:
            best, rate = repaired, max(target, max_rate(problem, repaired))
        elif rate < 0:
            break
        else:
            raised /= 2
    return best


def _repaired(
    problem: SizingProblem, placement: Ints, rate: float, limit: int, steps: int, stop: StopRule
) -> tuple[Ints | None, int]:
    """`placement` changed until it sustains `rate`, or None; and the number of steps."""
    current = placement.copy()
    for taken in range(steps):
        overshoot = float(_over(problem, use_of(problem, current, rate)).sum())
        if overshoot <= FIT:
            return current, taken + 1
        left, step = min(_steps(problem, current, rate, limit), default=(np.inf, ()), key=lambda each: each[0])
        if left >= overshoot * (1 - 1e-9) or stop():
            return None, taken + 1
        for operator, machine, change in step:
            current[operator, machine] += change
    return None, steps


Step = tuple[tuple[int, int, int], ...]
"""Changes of counts: (operator, machine, +1 or -1)."""


def _over(problem: SizingProblem, use: Floats) -> Floats:
    """(M,) overshoot of each machine relative to its capacity."""
    over: Floats = np.maximum(0, use / problem.capacity - 1)
    return over


def _steps(problem: SizingProblem, placement: Ints, rate: float, limit: int) -> Iterator[tuple[float, Step]]:
    """The best step of each kind for each operator, with the overshoot that remains."""
    counts = placement.sum(axis=1)
    use = use_of(problem, placement, rate)
    for operator, count in enumerate(counts.tolist()):
        here = placement[operator]
        if counts.sum() < limit:
            relieved, added = _recounted(problem, use, operator, here, rate, count + 1)
            left, machine = _best(problem, relieved, relieved + added, np.ones(len(here), np.bool_))
            yield left, ((operator, machine, 1),)
        if count > 1:
            burdened, added = _recounted(problem, use, operator, here, rate, count - 1)
            left, machine = _best(problem, burdened, burdened - added, here > 0)
            yield left, ((operator, machine, -1),)
        _, added = _recounted(problem, use, operator, here, rate, count)
        yield from _moves(problem, use, operator, here, added)
    yield from _swaps(problem, use, placement, rate)


def _recounted(
    problem: SizingProblem, use: Floats, operator: int, here: Ints, rate: float, count: int
) -> tuple[Floats, Floats]:
    """(M,) use of the present instances if the operator has `count` instances in all; and use of one more."""
    share = problem.relative[operator] * rate
    change = share / count - share / here.sum()
    per_rate = problem.per_rate[operator]
    return use + per_rate * here * change, per_rate * share / count + problem.per_instance[operator]


def _best(problem: SizingProblem, before: Floats, after: Floats, allowed: Bools) -> tuple[float, int]:
    """The machine where `after` instead of `before` leaves the least overshoot; and that overshoot."""
    over = _over(problem, before)
    change = np.where(allowed, _over(problem, after) - over, np.inf)
    machine = int(change.argmin())
    return float(over.sum() + change[machine]), machine


def _moves(
    problem: SizingProblem, use: Floats, operator: int, here: Ints, added: Floats
) -> Iterator[tuple[float, Step]]:
    """Moves of one instance from the machine where it helps most to the one where it harms least."""
    if len(here) < 2:
        return
    over = _over(problem, use)
    leaving = np.where(here > 0, _over(problem, use - added) - over, np.inf)
    coming = _over(problem, use + added) - over
    source = int(leaving.argmin())
    coming[source] = np.inf
    target = int(coming.argmin())
    yield float(over.sum() + leaving[source] + coming[target]), ((operator, source, -1), (operator, target, 1))


def _swaps(problem: SizingProblem, use: Floats, placement: Ints, rate: float) -> Iterator[tuple[float, Step]]:
    """Swaps of an instance on the worst machine with one of another operator elsewhere."""
    over = _over(problem, use)
    worst = int(over.argmax())
    share = problem.relative * rate / placement.sum(axis=1)
    instance = problem.per_rate * share[:, None] + problem.per_instance  # (O, M)
    for gone in np.flatnonzero(placement[:, worst]).tolist():
        for come in range(len(placement)):
            partners = (placement[come] > 0) & (np.arange(len(over)) != worst)
            if come == gone or not partners.any():
                continue
            here = use[worst] - instance[gone, worst] + instance[come, worst]
            there = _over(problem, use - instance[come] + instance[gone])
            change = np.where(partners, there - over, np.inf)
            other = int(change.argmin())
            mine = max(0.0, float(here / problem.capacity[worst] - 1)) - over[worst]
            changes = ((gone, worst, -1), (come, other, -1), (gone, other, 1), (come, worst, 1))
            yield float(over.sum() + mine + change[other]), changes


@dataclass(frozen=True, slots=True, kw_only=True)
class SizingParams:
    """Limits of the search.

    `per_machine` = most instances of an operator per machine, on average; `steps` of local search over all starts;
    `exact_variables` = largest exact model; `exact_work` = its deterministic seconds (CP-SAT), 0 = not used.
    """

    per_machine: int = 8
    steps: int = 32_000
    exact_variables: int = 5_000
    exact_work: float = 3.0


DEFAULT_PARAMS = SizingParams()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SizingResult:
    """`source_rate` (tuples/s) = largest rate that the plan sustains; `bound` = proven upper bound for all plans.

    `placement` (O, M) = numbers of instances; `assignment` = instance (numbered operator by operator) -> machine.
    """

    status: PlanStatus
    source_rate: float
    throughput: float
    placement: Ints
    assignment: tuple[int, ...]
    use: Floats  # (M,) percent of CPU at the source rate
    fluid_bound: float
    bound: float
    seed: int

    @property
    def gap(self) -> float:
        """(bound - rate) / rate: how much larger the rate could be at most."""
        return self.bound / self.source_rate - 1 if self.source_rate else np.inf


def solve(
    problem: SizingProblem, *, stop: StopRule, seed: int, params: SizingParams = DEFAULT_PARAMS
) -> SizingResult | Infeasible:
    """The best plan found.  The same seed gives the same plan unless `stop` ends the search early."""
    fluid = _relaxation(problem)
    if isinstance(fluid, Infeasible):
        return fluid
    limit = params.per_machine * len(problem.operators) * len(problem.machines)
    if problem.max_instances is not None:
        limit = min(limit, problem.max_instances)
    best = _search(problem, fluid, limit, params.steps, stop)
    bound = fluid.bound
    if best is None or max_rate(problem, best) < bound * (1 - OPTIMAL):
        best, bound = _certify(problem, best, bound, limit, stop, seed, params)
    reached = -1.0 if best is None else max_rate(problem, best)
    if bound <= problem.source_rate and not sustains_start(problem, reached):
        return _too_high(problem, f"the best one known sustains {max(0, reached):g}")
    if best is None:
        return Infeasible(reason="no placement was found, however low the source rate")
    instances = best.sum(axis=1)
    dealt = placement_of(problem, instances, round_robin(instances, len(problem.machines)))
    if max_rate(problem, dealt) > max_rate(problem, best):
        best = dealt
    assignment = [machine for row in best for machine in np.repeat(np.arange(len(row)), row).tolist()]
    return _result(problem, best, assignment, fluid.bound, bound, seed)


def solve_round_robin(problem: SizingProblem, *, stop: StopRule, seed: int) -> SizingResult | Infeasible:
    """Storm's placement of the given instance counts, at its largest rate.  `stop` and `seed` have no effect."""
    assert problem.instances is not None
    fluid = _relaxation(problem)
    if isinstance(fluid, Infeasible):
        return fluid
    instances = np.array(problem.instances)
    if problem.max_instances is not None and instances.sum() > problem.max_instances:
        return Infeasible(reason=f"{instances.sum()} instances are more than max_instances, {problem.max_instances}")
    assignment = round_robin(instances, len(problem.machines))
    placement = placement_of(problem, instances, assignment)
    if max_rate(problem, placement) < 0:
        return Infeasible(reason="round robin puts more on a machine than it can carry without a single tuple")
    return _result(problem, placement, assignment, fluid.bound, fluid.bound, seed)


def _relaxation(problem: SizingProblem) -> Fluid | Infeasible:
    """The fluid relaxation, or the reason why there is no plan."""
    if not problem.machines:
        return Infeasible(reason="there is no machine")
    if problem.max_instances is not None and problem.max_instances < len(problem.operators):
        count = len(problem.operators)
        return Infeasible(
            reason=f"max_instances {problem.max_instances} is less than one for each of {count} operators"
        )
    fluid = fluid_relaxation(problem)
    if fluid.bound < 0:
        return Infeasible(reason="no machines have room for one instance of each operator, however low the source rate")
    if fluid.bound < problem.source_rate:
        return _too_high(problem, f"even divisible operators sustain no more than {fluid.bound:g}")
    return fluid


def _too_high(problem: SizingProblem, why: str) -> Infeasible:
    return Infeasible(reason=f"source rate {problem.source_rate:g} is too high for any placement: {why}")


def _search(problem: SizingProblem, fluid: Fluid, limit: int, steps: int, stop: StopRule) -> Ints | None:
    """The best of the paper's plan and the fluid ones, each improved; None if none is allowed."""
    paper = maximize_throughput(problem, problem.source_rate, limit, stop)
    best = paper
    rate = -1.0 if paper is None else max_rate(problem, paper)
    sizes = totals(problem, limit)
    scope = Scope(instances=limit, steps=steps // (1 + len(sizes)), bound=fluid.bound)
    for total in (None, *sizes):
        if stop() and best is not None:
            break
        start = paper if total is None else follow(problem, fluid, total)
        if start is None:
            continue
        improved = improve(problem, start, scope, stop)
        if max_rate(problem, improved) > rate:
            best, rate = improved, max_rate(problem, improved)
    return best


def _certify(
    problem: SizingProblem, best: Ints | None, bound: float, limit: int, stop: StopRule, seed: int, params: SizingParams
) -> tuple[Ints | None, float]:
    """What the exact model finds beyond `best`.  Its proofs are valid only if the limit is the problem's own."""
    limit = problem.max_instances or limit
    from trimtab_models.sizing.exact import raise_rate, variables  # OR-Tools is slow to load

    if variables(problem, limit) > params.exact_variables or stop():
        return best, bound
    exact = raise_rate(problem, best, limit, work=params.exact_work, stop=stop, seed=seed)
    if problem.max_instances is not None:
        bound = min(bound, exact.refuted_rate)
    return exact.placement, bound


def _result(
    problem: SizingProblem, placement: Ints, assignment: list[int], fluid_bound: float, bound: float, seed: int
) -> SizingResult:
    rate = max_rate(problem, placement)
    return SizingResult(
        status=PlanStatus.OPTIMAL if rate >= bound * (1 - OPTIMAL) else PlanStatus.FEASIBLE,
        source_rate=rate,
        throughput=rate * problem.throughput,
        placement=placement,
        assignment=tuple(assignment),
        use=use_of(problem, placement, rate),
        fluid_bound=fluid_bound,
        bound=bound,
        seed=seed,
    )


def totals(problem: SizingProblem, limit: int) -> list[int]:
    """Total numbers of instances to try, each between one per operator and `limit`."""
    least, machines = len(problem.operators), len(problem.machines)
    return sorted({min(limit, max(least, round(each * machines))) for each in PER_MACHINE})


def follow(problem: SizingProblem, fluid: Fluid, total: int) -> Ints:
    """(O, M) a placement of about `total` instances, never more, that follows the fluid relaxation.

    Few instances fill machines badly; many instances cost much by themselves.  The best number depends on both, so
    several totals are tried.  For a given total, operators get instances in proportion to the CPU that the fluid plan
    gives them, which makes all instances about equally large.  Machine classes get them in proportion to the plan's
    shares; within a class, each instance goes where most capacity is left.
    """
    first = [int(group[0]) for group in problem.classes]
    work = problem.relative * (problem.per_rate[:, first] * fluid.shares).sum(axis=1)
    counts = 1 + _apportion(work, total - len(work))
    share = problem.relative * fluid.bound / counts
    use = problem.per_rate * share[:, None] + problem.per_instance  # (O, M) of one instance
    placement = np.zeros((len(work), len(problem.machines)), np.int64)
    left = problem.capacity.copy()
    largest_first = np.argsort(-use.min(axis=1), kind="stable")
    for operator in largest_first.tolist():
        for machines, count in zip(problem.classes, _apportion(fluid.shares[operator], counts[operator]), strict=True):
            for _ in range(count):
                room = ((left - use[operator]) / problem.capacity)[machines]
                machine = machines[room.argmax()]
                placement[operator, machine] += 1
                left[machine] -= use[operator, machine]
    return placement


def _apportion(weights: Floats, total: int) -> Ints:
    """Integers in proportion to `weights` that add up to `total`, by largest remainder."""
    exact = weights * (total / weights.sum()) if weights.sum() > 0 else np.full(len(weights), total / len(weights))
    whole: Ints = np.floor(exact).astype(np.int64)
    order = np.argsort(whole - exact, kind="stable")
    whole[order[: total - int(whole.sum())]] += 1
    return whole
