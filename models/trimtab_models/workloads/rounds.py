"""Rounds of a policy on a job: measure, plan, move, measure again.

Loads and rates that the policy sees may be noisy and smoothed; what is reported is the truth.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from trimtab_models.albic.problem import CollocationProblem
from trimtab_models.balance.evaluate import evaluate
from trimtab_models.balance.problem import Ints, Problem
from trimtab_models.workloads.jobs import Job, Period, periods

Policy = Callable[[CollocationProblem], Ints]
"""(K,) the new node of every key group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Of every round; the default is no limit."""

    max_migrations: int | None = None
    max_cost_bytes: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One round, 1 the first. Load distances in pp with the true loads of the period, before and after the moves.

    `obtained` is the collocation in shares of what can be had: the rate of flows that are keyed alike, 0 without them.
    `load_index` is 100 * load / load at the start, at equal rates: it tells what collocation saves, not what drifts.
    """

    number: int
    load_distance_before: float
    load_distance: float
    collocation: float
    obtained: float
    load_index: float
    migrations: int


def run_rounds(
    job: Job, policy: Policy, rounds: int, *, budget: Budget, seed: int = 0, noise: float = 0.0, smoothing: float = 1.0
) -> Iterator[Round]:
    """`rounds` rounds of `policy`. `noise` is relative, of every measured load; `smoothing` the newest one's weight."""
    random = np.random.default_rng(seed + 1)
    placement = start = job.placement()
    smoothed = None
    for number, period in enumerate(islice(periods(job, seed), rounds), start=1):
        truth = problem_at(job, period, placement, budget)
        measured = truth.balance.load * np.maximum(0.0, 1 + noise * random.standard_normal(job.size))
        smoothed = measured if smoothed is None else smoothing * measured + (1 - smoothing) * smoothed
        seen = replace(truth, balance=replace(truth.balance, load=smoothed))
        planned = policy(seen)
        yield _judged(job, truth, placement, planned, start, number)
        # What is measured next is another load where a move has made flows local: forget nothing, correct it.
        smoothed = smoothed + truth.loads(planned) - truth.loads(placement)
        placement = planned


def problem_at(job: Job, period: Period, placement: Ints, budget: Budget) -> CollocationProblem:
    """What a perfect measurement of `period` says when the key groups are at `placement`."""
    size, nodes = job.size, job.nodes
    source, target, _ = job.flows()
    unloaded = Problem(
        load=period.work,
        cost_bytes=np.ones(size),
        home=placement,
        pinned=np.zeros(size, np.bool_),
        in_flight=np.zeros(size, np.bool_),
        capacity=np.ones(nodes),
        removing=np.zeros(nodes, np.bool_),
        usage=np.zeros((0, size)),
        limit=np.zeros((0, nodes)),
        max_migrations=budget.max_migrations,
        max_cost_bytes=budget.max_cost_bytes,
    )
    problem = CollocationProblem(
        balance=unloaded,
        operator=np.repeat(np.arange(len(job.operators)), job.key_groups),
        source=source,
        target=target,
        rate=period.rate,
        serialise_cost=period.cost,
        deserialise_cost=period.cost,
    )
    loads = 2 * period.work - problem.work  # remote tuples on top of the work
    return replace(problem, balance=replace(unloaded, load=loads))


def _judged(job: Job, truth: CollocationProblem, before: Ints, after: Ints, start: Ints, number: int) -> Round:
    _, _, alike = job.flows()
    obtainable = float(truth.rate[alike].sum())
    local = float(truth.rate[alike & ~truth.remote(after)].sum())
    at_start = float(truth.loads(start).sum())
    return Round(
        number=number,
        load_distance_before=evaluate(truth.balance, before).load_distance,
        load_distance=evaluate(truth.predicted(after), after).load_distance,
        collocation=truth.collocation(after),
        obtained=local / obtainable if obtainable else 0.0,
        load_index=100.0 * float(truth.loads(after).sum()) / at_start if at_start else 100.0,
        migrations=int((after != before).sum()),
    )
