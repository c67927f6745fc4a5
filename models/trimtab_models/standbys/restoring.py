"""Other workers for new standbys, so that all are warm sooner, at nearly the same loads after a loss.

`solve` chooses standbys by loads alone.  Until they are restored, key groups lack a standby.  A host restores one after
another, or several that share what it can do, so the host with the most to restore decides how long that takes.

This is DynDL's problem (Jin, An, Zhou, Tang, Xiong, Applied Sciences 8(11), 2018, 2216, section 3) for tasks of
different sizes that may not run everywhere: a standby is not beside its owner, nor beside another standby.  The search
is the one for targets of restores (`dyndl.targets`).  What a worker would carry after each loss is a resource there.
So no loss leads to a load that is higher by more than SLACK than without this.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from trimtab_models.dyndl.targets import OPERATIONS, TargetsProblem, choose_targets, makespan_of
from trimtab_models.solving import StopRule
from trimtab_models.standbys.improve import TABLE
from trimtab_models.standbys.problem import UNPLACED, Bools, Floats, Ints, StandbyProblem, is_new, losses

SLACK = 1.0
"""How much higher the load after a loss may be, in percent of a worker."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RestoreTimes:
    """What restores take on S servers; times and sizes in units of a restore that lacks nothing.

    `less` = key group -> worker -> size > 0, where a part of the state is there.  The others as in `TargetsProblem`.
    """

    server: Ints  # (N,)
    size: Floats  # (K,) > 0
    less: Mapping[int, Mapping[int, float]]
    pace: Floats  # (S,)
    alone: Floats  # (S,)
    running: Floats  # (S,)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RestoredStandbys:
    """The standbys (K, wanted), and the time until those that may change are warm: before, now, and a bound.

    No choice has an earlier makespan than the bound, whatever the loads; 0 where none may change.
    """

    assignment: Ints
    before: float
    makespan: float
    lower_bound: float


def restored_sooner(
    problem: StandbyProblem,
    assignment: Ints,
    times: RestoreTimes,
    *,
    stop: StopRule,
    operations: int = OPERATIONS,
    slack: float = SLACK,
) -> RestoredStandbys:
    """The assignment with other workers for new standbys; never later, and within all limits and budgets.

    Of a key group with several new standbys all stay.  So do all where the table of losses would be too large.
    """
    new = is_new(problem, assignment)
    new[new.sum(axis=1) > 1] = False
    if problem.domains * (int(new.sum()) + len(problem.capacity)) > TABLE:
        new[:] = False
    key_group, rank = np.nonzero(new)
    asked = _targets_problem(problem, assignment, times, key_group, rank, slack)
    found = choose_targets(asked, stop=stop, operations=operations)
    sooner = assignment.copy()
    sooner[key_group, rank] = found.worker
    return RestoredStandbys(
        assignment=sooner,
        before=makespan_of(asked, asked.given),
        makespan=found.makespan,
        lower_bound=found.lower_bound,
    )


def _targets_problem(
    problem: StandbyProblem, assignment: Ints, times: RestoreTimes, key_group: Ints, rank: Ints, slack: float
) -> TargetsProblem:
    """The restores of these new standbys; those of all other new ones run already."""
    rest = assignment.copy()
    rest[key_group, rank] = UNPLACED
    running = times.running.copy()
    for each, at in zip(*np.nonzero(is_new(problem, rest)), strict=True):
        worker = int(rest[each, at])
        size = times.less.get(int(each), {}).get(worker, float(times.size[each]))
        running[times.server[worker]] += size * times.pace[times.server[worker]]
    allowed = _allowed(problem, rest, key_group)
    less = [
        {worker: size for worker, size in times.less.get(each, {}).items() if may[worker]}
        for each, may in zip(key_group.tolist(), allowed, strict=True)
    ]
    demand, used, per_unit, most = _resources(problem, assignment, rest, key_group, rank, slack)
    return TargetsProblem(
        server=times.server,
        size=times.size[key_group],
        less=less,
        pace=times.pace,
        alone=times.alone,
        running=running,
        demand=demand,
        per_unit=per_unit,
        used=used,
        least=np.full_like(most, -np.inf),
        most=most,
        given=assignment[key_group, rank],
        allowed=allowed,
    )


def _allowed(problem: StandbyProblem, rest: Ints, key_group: Ints) -> Bools:
    """(T, N) the workers that may stand by, beside the owner and the standbys that stay, and do not do so already."""
    allowed = np.empty((len(key_group), len(problem.capacity)), np.bool_)
    for row, each in zip(allowed, key_group.tolist(), strict=True):
        names = problem.levels[problem.apart[problem.owner[each]]]
        others = rest[each][rest[each] != UNPLACED]
        row[:] = ~problem.removing & ~problem.beside(each) & ~np.isin(names, names[others])
        row[problem.present[each][problem.present[each] != UNPLACED]] = False
    return allowed


def _resources(
    problem: StandbyProblem, assignment: Ints, rest: Ints, key_group: Ints, rank: Ints, slack: float
) -> tuple[Floats, Floats, Floats, Floats]:
    """What these standbys ask of workers, what is used without them, the share per unit, and the most.

    One row for the loss of each domain, in percent of capacity; then the limits, and the budget of a worker.
    """
    domains, workers = problem.domains, len(problem.capacity)
    inherited, domain = problem.load - problem.follow, problem.domain[problem.owner]
    demand = np.tile(problem.follow[key_group], (domains, 1))
    first = np.flatnonzero(rank == 0)
    demand[domain[key_group[first]], first] += inherited[key_group[first]]
    used = np.tile(problem.loads(rest), (domains, 1))
    heirs = rest[:, 0] if rest.shape[1] else np.full(len(rest), UNPLACED)
    placed = np.flatnonzero(heirs != UNPLACED)
    np.add.at(used, (domain[placed], heirs[placed]), inherited[placed])
    most = np.repeat((losses(problem, assignment).highest + slack)[:, None], workers, axis=1)
    most[problem.domain, np.arange(workers)] = np.inf  # it is lost itself
    per_unit = np.tile(1.0 / problem.capacity, (domains, 1))
    ones, state = np.ones(len(problem.owner)), problem.state_bytes
    begun = np.where(is_new(problem, rest), rest, UNPLACED)
    rows = [
        *((usage, limit, rest) for usage, limit in zip(problem.usage, problem.limit, strict=True)),
        (ones, np.full(workers, problem.budget.worker_changes), begun),
        (state, np.full(workers, problem.budget.worker_bytes), begun),
    ]
    usages = np.array([usage[key_group] for usage, _, _ in rows])
    followed = np.array([problem.followed(of, usage) for usage, _, of in rows])
    return (
        np.concatenate((demand, usages)),
        np.concatenate((used * per_unit, followed)),
        np.concatenate((per_unit, np.ones_like(followed))),
        np.concatenate((most, np.array([limit for _, limit, _ in rows]))),
    )
