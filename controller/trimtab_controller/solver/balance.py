"""Asks the models; only here does the controller meet numpy."""

import time
from collections.abc import Callable
from dataclasses import replace

from trimtab_controller.plan import Collocation
from trimtab_controller.solver.answer import Answer, Method, NoAnswer, Question
from trimtab_models.balance import (
    BalanceResult,
    Effort,
    Params,
    Problem,
    describe_alert,
    evaluate,
    problem_of,
    solve,
    solve_greedily,
)
from trimtab_models.solving import Deadline, Infeasible, Status, Stop
from trimtab_protocol.messages.names import WorkerId, parse_key_group

PRECISION_PP = 0.1
"""Loads are measured, not known: the last hundredths of a percentage point would cost time and moves for nothing."""
POLISH = Effort(steps=60)
"""For the side that does not set the load distance: a tenth of a second, not all of the time limit.  While a worker is
emptied, polish is also what lowers the load distance afterwards: then it keeps its own effort."""
OPTIMAL_PP = 0.01
"""What the file contract calls optimal."""


def answer(question: Question, clock: Callable[[], float] = time.monotonic) -> Answer | NoAnswer:
    """The best plan that the method finds within the time limit."""
    started = clock()
    stop = Deadline(clock, started + question.time_limit_s)
    if question.method is Method.ALBIC:
        return _collocating(question, stop, lambda: clock() - started)
    problem = problem_of(question.instance)
    params = Params(tolerance=PRECISION_PP)
    if not problem.removing.any():
        params = replace(params, polish=POLISH)
    result = solve(problem, stop=stop, seed=question.seed, params=params)
    return _answer_of(question, problem, result, clock() - started, fallback=False)


def _collocating(question: Question, stop: Stop, passed_s: Callable[[], float]) -> Answer | NoAnswer:
    from trimtab_models import albic  # who balances only need not load it

    problem = albic.problem_of(question.instance)
    result = albic.solve(problem, stop=stop, seed=question.seed)
    if isinstance(result, Infeasible):
        return NoAnswer(reason=result.reason)
    found = _answer_of(question, problem.balance, result.balance, passed_s(), fallback=False)
    balance = problem.balance
    saved = float(balance.load.sum()) - result.predicted_load
    collocation = Collocation(
        before=problem.collocation(balance.home),
        planned=result.collocation,
        saved_pp=saved / float(balance.capacity[balance.kept].sum()),
    )
    return replace(found, collocation=collocation) if isinstance(found, Answer) else found


def answer_greedily(question: Question, clock: Callable[[], float] = time.monotonic) -> Answer | NoAnswer:
    """A plan without a search, within the same time limit."""
    started = clock()
    problem = problem_of(question.instance)
    result = solve_greedily(problem, stop=Deadline(clock, started + question.time_limit_s), seed=question.seed)
    return _answer_of(question, problem, result, clock() - started, fallback=True)


def _answer_of(
    question: Question, problem: Problem, result: BalanceResult | Infeasible, solve_s: float, *, fallback: bool
) -> Answer | NoAnswer:
    if isinstance(result, Infeasible):
        return NoAnswer(reason=result.reason)
    nodes = [WorkerId(node.id) for node in question.instance.nodes]
    moved = (result.allocation != problem.home).nonzero()[0].tolist()
    return Answer(
        moves=tuple(
            (
                parse_key_group(question.instance.key_groups[index].id),
                nodes[int(problem.home[index])],
                nodes[int(result.allocation[index])],
            )
            for index in moved
        ),
        status=_status(result),
        before=evaluate(problem, problem.home).load_distance,
        load_distance=result.score.load_distance,
        lower_bound=result.lower_bound,
        solve_s=solve_s,
        fallback=fallback,
        alerts=tuple(describe_alert(question.instance, alert) for alert in result.alerts),
    )


def _status(result: BalanceResult) -> str:
    if result.status is Status.OPTIMAL and result.gap_pp > OPTIMAL_PP:
        return Status.FEASIBLE.value
    return result.status.value
