"""The collocation problem of one period of a job."""

from dataclasses import replace

import numpy as np

from trimtab_models.albic.problem import CollocationProblem
from trimtab_models.balance.problem import Ints, Problem
from trimtab_models.workloads.jobs import Job, Period


def problem_at(job: Job, period: Period, placement: Ints) -> CollocationProblem:
    """The problem of `period` with key groups at `placement`, measured exactly, without budgets."""
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
