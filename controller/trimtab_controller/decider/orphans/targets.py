"""Where orphans restore: DynDL's own targets, as far as the Elastic Allocator's placement leaves that open.

The Elastic Allocator levels what is asked of workers.  Within the band in which nothing moves anyway, another target is
as good for the load, and may be better for the restore: its host has less to restore, restores faster, or has a copy of
the state on its disk.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trimtab_controller.decider.observing.owned import OwnedTable
from trimtab_controller.decider.observing.view import Worker
from trimtab_controller.decider.orphans.restores import Restores
from trimtab_models.dyndl.problem import Floats, Ints
from trimtab_models.dyndl.targets import (
    OnlineRestore,
    TargetsProblem,
    choose_online,
    choose_targets,
    makespan_of,
    targets_bound,
)
from trimtab_models.elastic.matching import HEAVY_FROM, ROUNDING, ResourceDemands
from trimtab_models.solving import Never

OPERATIONS = 150_000
"""Trials of a key group on a worker in one decision: `benchmarks/orphan_restores.py --time` shows what they cost."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Chosen:
    """`node` (K,) = the worker of each key group; seconds until all are warm, there and with the given targets.

    No targets take less than `lower_bound_s`, whatever the loads.
    """

    node: Ints
    seconds: float
    given_s: float
    lower_bound_s: float


def choose(
    table: OwnedTable, workers: Sequence[Worker], demands: ResourceDemands, node: Ints, restores: Restores
) -> Chosen:
    """Other targets than `node` where all are warm sooner, and the use of workers stays within the band."""
    problem = _problem(table, workers, demands, node, restores)
    unit_s = restores.learned.unit_s
    before = makespan_of(problem, node)
    if len(table) == 1:
        worker = np.array([choose_online(_single(problem, workers, restores))])
        if makespan_of(problem, worker) > before:
            worker = node
    else:
        worker = choose_targets(problem, stop=Never(), operations=OPERATIONS).worker
    after = makespan_of(problem, worker)
    return Chosen(
        node=worker,
        seconds=after * unit_s,
        given_s=before * unit_s,
        lower_bound_s=min(targets_bound(problem), after) * unit_s,
    )


def _problem(
    table: OwnedTable, workers: Sequence[Worker], demands: ResourceDemands, node: Ints, restores: Restores
) -> TargetsProblem:
    learned, held = restores.learned, restores.held
    hosts = sorted({worker.host for worker in workers})
    server = {host: place for place, host in enumerate(hosts)}
    places = {worker.id: place for place, worker in enumerate(workers)}
    sizes = table.assumed_state_bytes
    least, most = _limits(demands, node, restores.band)
    pace = np.array([restores.pace(host) for host in hosts])
    begun = np.array([sum(map(learned.size, restores.running.get(host, ()))) for host in hosts])
    return TargetsProblem(
        server=np.array([server[worker.host] for worker in workers], np.int64),
        size=np.array([learned.size(float(size)) for size in sizes]),
        less=[
            {
                places[name]: learned.size(share * float(size))
                for name, share in held.lacking(key_group).items()
                if name in places
            }
            for key_group, size in zip(table.owners, sizes.tolist(), strict=True)
        ],
        pace=pace,
        alone=np.array([learned.cost(host).at(1) for host in hosts]),
        running=begun * pace,
        demand=demands.demand,
        per_unit=demands.per_unit,
        used=demands.used,
        least=least,
        most=most,
        given=node,
        spared=demands.spared,
    )


def _limits(demands: ResourceDemands, node: Ints, band: float) -> tuple[Floats, Floats]:
    """How little and how much of each resource of a worker may be used: its CPU is the first one."""
    busy = demands.together(np.arange(len(node)), node)
    capacity = 1.0 / demands.per_unit[0]
    mean = float((busy[0] * capacity).sum() / capacity.sum())
    least, most = np.full_like(busy, -np.inf), np.full_like(busy, HEAVY_FROM)
    least[0], most[0] = mean - band, min(HEAVY_FROM, mean + band)
    return np.minimum(least, busy), np.maximum(most, busy)


def _single(problem: TargetsProblem, workers: Sequence[Worker], restores: Restores) -> OnlineRestore:
    """The only restore of a problem, as DynDLOn sees it."""
    hosts = sorted({worker.host for worker in workers})
    beside = np.array([len(restores.running.get(host, ())) for host in hosts], np.int64)
    free = np.array([restores.slots(host) for host in hosts]) > beside
    after = problem.used + problem.added([0], np.arange(len(workers)))
    most = np.maximum(problem.most, problem.used)
    given = int(problem.given[0])
    free_to_leave = bool((problem.used[:, given] >= problem.least[:, given] - ROUNDING).all())
    return OnlineRestore(
        server=problem.server,
        size=float(problem.size[0]),
        less=problem.less[0],
        costs=[restores.learned.cost(host) for host in hosts],
        free_in=np.where(free, 0.0, problem.running),
        beside=beside,
        allowed=(after <= most + ROUNDING).all(axis=0) & (free_to_leave | (np.arange(len(workers)) == given)),
        preferred=dict(enumerate(after[0].tolist())),
    )
