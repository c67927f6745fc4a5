"""Answers questions with the balance model, with ALBIC, or by Flux."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from trimtab_controller.plan import Collocation
from trimtab_controller.solver.answer import Answer, Method, NoAnswer, Potential, Question, Stuck
from trimtab_models.balance.drain import Alert, Obstacle
from trimtab_models.balance.evaluate import evaluate
from trimtab_models.balance.hosts import HostLimits, solve_on_hosts
from trimtab_models.balance.improve import Effort
from trimtab_models.balance.problem import BalanceProblem, PlacingRules
from trimtab_models.balance.result import BalanceResult
from trimtab_models.balance.solve import BalanceParams, solve, solve_flux
from trimtab_models.solving import Deadline, Infeasible, PlanStatus, StopRule
from trimtab_models.spared import Spared

if TYPE_CHECKING:
    from trimtab_models.albic.problem import CollocationProblem

PRECISION_PP = 0.1
"""Precision (pp) of the search.  Loads are only measured: hundredths of a point would waste time and moves."""
POLISH = Effort(steps=60)
"""Effort for the side that does not set the load distance: a tenth of a second instead of the whole time limit.  During
a drain the polish also lowers the load distance afterwards, so it keeps its normal effort."""
OPTIMAL_PP = 0.01
"""The gap that the file contract calls optimal."""
MEMORY_ROW, DISK_ROW = 1, 2
"""Memory and disk among the resources of the hosts."""
OBSTACLES = {
    Obstacle.PINNED: "its last hand-over failed, and it is left alone for a while",
    Obstacle.LOAD: "any other worker would be further above the mean load than a drain may cost",
    Obstacle.LIMITS: "no host of another worker has enough CPU, memory or disk left for it",
}
"""Obstacles in the product's words; the models say nodes."""
FROZEN = "a rule freezes it"
NO_WORKER_BY_RULES = "rules allow no other worker for it"


def problem_of(question: Question) -> BalanceProblem:
    """The balance problem, with its rules; key groups and workers keep their indices."""
    key_groups, workers = len(question.load), len(question.capacity)
    nothing = np.zeros(key_groups, np.bool_)
    problem = BalanceProblem(
        load=question.load,
        cost_bytes=np.maximum(1.0, question.state_bytes),
        home=question.owner.astype(np.int64),
        pinned=nothing if question.pinned is None else question.pinned,
        capacity=question.capacity,
        removing=question.draining,
        usage=np.zeros((0, key_groups)),
        limit=np.zeros((0, workers)),
        max_migrations=min(question.max_migrations, key_groups),
        max_load_distance=question.max_load_distance,
    )
    rules = rules_of(question)
    return problem if rules is None else rules.applied(problem)


def rules_of(question: Question) -> PlacingRules | None:
    """The rules about the workers that key groups may be on; None if there are none."""
    placing = question.placing
    if placing is None:
        return None
    return PlacingRules(class_of=placing.class_of.astype(np.int64), allowed=placing.allowed, frozen=placing.frozen)


def limits_of(question: Question) -> HostLimits | None:
    """What the hosts can carry: CPU, memory and disk for state, and traffic where a link is narrow."""
    hosts = question.hosts
    if hosts is None:
        return None
    state = question.state_bytes
    usage = np.array([question.load, state, state], np.float64)
    room = np.array([hosts.cpu, hosts.memory, hosts.disk])
    if question.traffic is not None:
        usage, room = np.concatenate((usage, question.traffic)), np.concatenate((room, hosts.link))
    return HostLimits(
        host=hosts.host.astype(np.int64),
        usage=usage,
        room=room,
        home=question.owner.astype(np.int64),
        stays=(MEMORY_ROW, DISK_ROW) if hosts.memory_stays else (DISK_ROW,),
        spared=_spared(question, len(room)),
    )


def _spared(question: Question, resources: int) -> Spared | None:
    """What copies spare: of the disk what they have, and some also the memory."""
    copies = question.copies
    if copies is None:
        return None
    size = question.state_bytes[copies.key_group].astype(np.float64)
    amount = np.zeros((resources, len(size)))
    amount[DISK_ROW], amount[MEMORY_ROW] = (1.0 - copies.lacking) * size, np.where(copies.in_memory, size, 0.0)
    shape = len(question.load), len(question.capacity)
    return Spared.of(copies.key_group.astype(np.int64), copies.worker.astype(np.int64), amount, shape)


def collocation_problem_of(question: Question) -> "CollocationProblem":
    """The balance problem with flows."""
    from trimtab_models.albic.problem import CollocationProblem  # a solver that only balances need not load OR-Tools

    flows = question.flows
    return CollocationProblem(
        balance=problem_of(question),
        operator=question.operator.astype(np.int64),
        source=np.zeros(0, np.int64) if flows is None else flows.source.astype(np.int64),
        target=np.zeros(0, np.int64) if flows is None else flows.target.astype(np.int64),
        rate=np.zeros(0) if flows is None else flows.rate,
        send_cost=None if flows is None else flows.send_cost,
        receive_cost=None if flows is None else flows.receive_cost,
        charge=question.charge,
    )


def answer(question: Question, clock: Callable[[], float] = time.monotonic) -> Answer | NoAnswer:
    """The best plan that the method finds within the time limit."""
    started = clock()
    if question.potential:
        return _potential(question, clock)
    if question.method is Method.ALBIC:
        return _collocating(question, clock)
    problem = problem_of(question)
    result = _balanced(question, problem, Deadline(clock, started + question.time_limit_s))
    return _answer_of(rules_of(question), problem, result, clock() - started)


def _balanced(question: Question, problem: BalanceProblem, stop: StopRule) -> BalanceResult | Infeasible:
    params = BalanceParams(tolerance=PRECISION_PP)
    if not problem.removing.any():
        params = replace(params, polish=POLISH)

    def planned(part: BalanceProblem, until: StopRule) -> BalanceResult | Infeasible:
        if question.method is Method.FLUX:
            return solve_flux(part, stop=until, seed=question.seed)
        return solve(part, stop=until, seed=question.seed, params=params)

    limits = limits_of(question)
    return planned(problem, stop) if limits is None else solve_on_hosts(problem, limits, planned, stop=stop)


def _collocating(question: Question, clock: Callable[[], float]) -> Answer | NoAnswer:
    from trimtab_models.albic import solve as albic

    started = clock()
    problem, limits = collocation_problem_of(question), limits_of(question)
    plain = _plain(question, problem.balance, Deadline(clock, started + question.time_limit_s / 2.0))
    stop = Deadline(clock, started + question.time_limit_s)
    if limits is None:
        result = albic.solve(problem, stop=stop, seed=question.seed)
    else:
        result = albic.solve_on_hosts(problem, limits, stop=stop, seed=question.seed)
    if isinstance(result, Infeasible):
        return NoAnswer(reason=result.reason)
    predicted, balanced = result.predicted_load_distance, result.balance
    if plain is not None:
        foreseen = evaluate(problem.predicted(plain.allocation), plain.allocation).load_distance
        left, plainly_left = (int(problem.balance.to_leave(each.allocation).sum()) for each in (balanced, plain))
        lower = foreseen < predicted and predicted > question.max_load_distance
        if plainly_left < left or (plainly_left == left and lower):
            predicted, balanced = foreseen, plain
    found = _answer_of(rules_of(question), problem.balance, balanced, clock() - started)
    if isinstance(found, NoAnswer):
        return found
    bound = min(found.lower_bound, predicted)  # collocation may lower loads below what balancing alone can reach
    collocation = _collocation(question, problem, balanced.allocation)
    return replace(found, collocation=collocation, load_distance=predicted, lower_bound=bound)


def _potential(question: Question, clock: Callable[[], float]) -> Answer | NoAnswer:
    """What a plan with free moves reaches."""
    started = clock()
    problem, stop = collocation_problem_of(question), Deadline(clock, started + question.time_limit_s)
    if question.method is Method.ALBIC:
        from trimtab_models.albic.potential import potential

        allocation = potential(problem, limits_of(question), stop=stop, seed=question.seed)
    else:
        result = _balanced(question, problem.balance, stop)
        allocation = result if isinstance(result, Infeasible) else result.allocation
    if isinstance(allocation, Infeasible):
        return NoAnswer(reason=allocation.reason)
    balance = problem.balance
    loads = np.bincount(allocation, problem.loads(allocation), len(balance.capacity))
    return Answer(
        moves=(),
        status=PlanStatus.FEASIBLE.value,
        before=evaluate(balance, balance.home).load_distance,
        load_distance=evaluate(problem.predicted(allocation), allocation).load_distance,
        lower_bound=0.0,
        solve_s=clock() - started,
        potential=Potential(
            loads=tuple(loads.tolist()), left=int(balance.to_leave(allocation).sum()), in_time=not stop()
        ),
    )


def _plain(question: Question, problem: BalanceProblem, stop: StopRule) -> BalanceResult | None:
    """The plan for balance alone where that is at stake, in case ALBIC finds no better one in the time that is left.

    In an app of 100,000 key groups ALBIC takes several seconds.  Where rules are broken, the better plan is the one
    that leaves fewer broken.  In a drain neither this nor load distances say which is better, and ALBIC is left alone.
    """
    if question.draining[question.owner].any():
        return None
    if problem.evicted is None and evaluate(problem, problem.home).load_distance <= question.max_load_distance:
        return None
    result = _balanced(question, problem, stop)
    return None if isinstance(result, Infeasible) else result


def _collocation(question: Question, problem: "CollocationProblem", allocation: NDArray[np.int64]) -> Collocation:
    """What a plan changes for the tuples between workers, and what that saves."""
    balance = problem.balance
    saved = float(balance.load.sum() - problem.loads(allocation).sum())
    spared = problem.remote(balance.home).astype(np.float64) - problem.remote(allocation)
    skipping = problem.rate if question.flows is None else np.where(question.flows.by_broker, 0.0, problem.rate)
    return Collocation(
        before=problem.collocation(balance.home),
        planned=problem.collocation(allocation),
        saved_pp=saved / float(balance.capacity[balance.kept].sum()),
        spared_s=float((spared * skipping).sum()),
    )


def answer_instead(question: Question, clock: Callable[[], float] = time.monotonic) -> Answer | NoAnswer:
    """What is answered where the solver does not: the plan of Flux, within the same time limit."""
    found = answer(replace(question, method=Method.FLUX), clock)
    return found if isinstance(found, NoAnswer) else replace(found, fallback=True)


def _answer_of(
    rules: PlacingRules | None,
    problem: BalanceProblem,
    result: BalanceResult | Infeasible,
    solve_s: float,
) -> Answer | NoAnswer:
    if isinstance(result, Infeasible):
        return NoAnswer(reason=result.reason)
    moved = np.flatnonzero(result.allocation != problem.home)
    return Answer(
        moves=tuple(zip(moved.tolist(), result.allocation[moved].tolist(), strict=True)),
        status=_status(result),
        before=evaluate(problem, problem.home).load_distance,
        load_distance=result.score.load_distance,
        lower_bound=result.lower_bound,
        solve_s=solve_s,
        stuck=tuple(
            Stuck(
                key_group=alert.key_group,
                worker=alert.node,
                obstacle=_obstacle(rules, problem, alert),
            )
            for alert in result.alerts
        ),
    )


def _obstacle(rules: PlacingRules | None, problem: BalanceProblem, alert: Alert) -> str:
    if rules is not None:
        if rules.frozen[alert.key_group]:
            return FROZEN
        elsewhere = rules.allowed_on(alert.key_group) & problem.kept
        elsewhere[alert.node] = False
        if not elsewhere.any():
            return NO_WORKER_BY_RULES
    return OBSTACLES.get(alert.obstacle, alert.obstacle.value)


def _status(result: BalanceResult) -> str:
    if result.status is PlanStatus.OPTIMAL and result.gap_pp > OPTIMAL_PP:
        return PlanStatus.FEASIBLE.value
    return result.status.value
