"""How many instances of each operator, and where, so that the sources can emit most.

Source: Nasiri, Nasehi, Divband, Goudarzi, "A Scheduling Algorithm to Maximize Storm Throughput in Heterogeneous
Cluster", arXiv 2001.10308.  The given source rate is the start of the paper's algorithm, and must be possible: if it is
proven too high for any placement, the problem is infeasible.  The rate of the plan is the largest one found.

We differ in this: the paper's one-at-a-time rule often ends far below the optimum, so its plan is only one of several
starts.  The others follow the fluid relaxation, with few to many instances.  Local search improves each.  If the exact
model is small, CP-SAT improves the best plan or proves it.  No plan is worse than round robin with its own counts.
"""

from dataclasses import dataclass

import numpy as np

from trimtab_models.sizing.fluid import Fluid, fluid_relaxation
from trimtab_models.sizing.improve import Scope, improve
from trimtab_models.sizing.paper import maximize_throughput, placement_of, round_robin
from trimtab_models.sizing.problem import Floats, Ints, SizingProblem, max_rate, sustains_start, use_of
from trimtab_models.solving.outcome import Infeasible, PlanStatus
from trimtab_models.solving.stop import StopRule

PER_MACHINE = (0.5, 0.75, 1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 14, 20)
OPTIMAL = 2e-5  # relative to the bound


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
    use: Floats  # (Q, M) at the source rate; row 0 is percent of CPU
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
    work = problem.relative * (problem.per_rate[0][:, first] * fluid.shares).sum(axis=1)
    counts = 1 + _apportion(work, total - len(work))
    share = problem.relative * fluid.bound / counts
    use = problem.per_rate * share[:, None] + problem.per_instance  # (Q, O, M) of one instance
    placement = np.zeros((len(work), len(problem.machines)), np.int64)
    left = problem.capacity.copy()
    largest_first = np.argsort(-use[0].min(axis=1), kind="stable")
    for operator in largest_first.tolist():
        for machines, count in zip(problem.classes, _apportion(fluid.shares[operator], counts[operator]), strict=True):
            for _ in range(count):
                room = ((left - use[:, operator]) / problem.capacity)[:, machines].min(axis=0)
                machine = machines[room.argmax()]
                placement[operator, machine] += 1
                left[:, machine] -= use[:, operator, machine]
    return placement


def _apportion(weights: Floats, total: int) -> Ints:
    """Integers in proportion to `weights` that add up to `total`, by largest remainder."""
    exact = weights * (total / weights.sum()) if weights.sum() > 0 else np.full(len(weights), total / len(weights))
    whole: Ints = np.floor(exact).astype(np.int64)
    order = np.argsort(whole - exact, kind="stable")
    whole[order[: total - int(whole.sum())]] += 1
    return whole
