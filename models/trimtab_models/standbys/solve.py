"""Chooses standbys: keep, fill the gaps, improve; where that stays above the bound, align peaks and improve again."""

from dataclasses import dataclass, replace

import numpy as np

from trimtab_models.solving import Never, StopRule
from trimtab_models.standbys.align import aligned, is_affordable
from trimtab_models.standbys.bound import domain_bounds, following_bound
from trimtab_models.standbys.construct import Filling, kept_standbys
from trimtab_models.standbys.evaluate import DomainLosses, StandbyScore, evaluate, is_new, losses
from trimtab_models.standbys.improve import NEGLIGIBLE, Improving
from trimtab_models.standbys.ledger import LossLedger
from trimtab_models.standbys.peaks import AIM, peaks_bound
from trimtab_models.standbys.problem import UNPLACED, Bools, Floats, Ints, StandbyBudget, StandbyProblem

WORTHWHILE = 0.5
"""Least share of `tolerance` by which present standbys must lower the worst load after a loss to be replaced."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StandbyResult:
    """Standbys, what each loss then leads to, and a bound on the worst of it.

    `assignment` (K, wanted) = the standbys in order.  `lower_bound`: no assignment that gives every key group its
    standbys has a lower `score.worst` (percent of a worker).
    """

    assignment: Ints
    score: StandbyScore
    losses: DomainLosses
    lower_bound: float

    @property
    def gap(self) -> float:
        """Worst value - bound, in percent of a worker: how far the plan is from the optimum at most."""
        return max(0.0, self.score.worst - self.lower_bound)


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyParams:
    """Most steps of the search, and how close to its bound a domain is left alone (percent of a worker).

    `peaks`: whether to bound a result by Peaks as well, which takes longer.
    """

    steps: int = 20_000
    precision: float = 0.1
    peaks: bool = True


DEFAULT_PARAMS = StandbyParams()


def solve(
    problem: StandbyProblem, *, stop: StopRule | None = None, params: StandbyParams = DEFAULT_PARAMS
) -> StandbyResult:
    """The standbys.  Deterministic, as long as `stop` does not end the search."""
    stop = stop or Never()
    assignment = kept_standbys(problem)
    gaps = _gaps(problem, assignment)
    bounds = domain_bounds(problem)
    proven: float | None = None
    if gaps.any():
        _fill(problem, assignment, gaps)
        # What is new is cut down to the budget afterwards.
        assignment, proven = _improved(replace(problem, budget=StandbyBudget()), assignment, bounds, stop, params)
        _cut(problem, assignment)
    elif problem.present.size:
        _replace(problem, assignment, bounds, stop, params)
    return rated(problem, assignment, bounds, proven, peaks=params.peaks)


def rated(
    problem: StandbyProblem,
    assignment: Ints,
    bounds: Floats | None = None,
    proven: float | None = None,
    *,
    peaks: bool = True,
) -> StandbyResult:
    """A given assignment with its value and bound; by Peaks as well, where the other bounds are below it by AIM.

    `proven` = the bound by Following, if it is known.
    """
    bounds = domain_bounds(problem) if bounds is None else bounds
    score = evaluate(problem, assignment)
    reached = score.worst if not score.missing else 2.0 * max(float(bounds.max(initial=0.0)), score.worst)
    proven = _fluid_bound(problem, bounds, reached) if proven is None else min(proven, reached)
    if peaks and not score.missing and score.worst - proven > AIM:
        proven = peaks_bound(problem, proven, reached)
    return StandbyResult(assignment=assignment, score=score, losses=losses(problem, assignment), lower_bound=proven)


def _fluid_bound(problem: StandbyProblem, bounds: Floats, reached: float) -> float:
    """The largest of the bounds of the domains, or the one by Following, between them and `reached`."""
    proven = float(bounds.max(initial=0.0))
    return following_bound(problem, proven, reached) if proven < reached else proven


def _improved(
    problem: StandbyProblem, assignment: Ints, bounds: Floats, stop: StopRule, params: StandbyParams
) -> tuple[Ints, float | None]:
    """The assignment with better first standbys, of those that are not present; the bound by Following, if needed."""
    if not assignment.size:
        return assignment, None
    new = is_new(problem, assignment)[:, 0]
    search = Improving(LossLedger(problem, assignment), bounds, new, stop, params.steps)
    search.run(params.precision)
    if not is_affordable(problem, new):
        return assignment, None
    score = evaluate(problem, assignment)
    proven = _fluid_bound(problem, bounds, score.worst)
    if score.worst - proven <= params.precision:
        return assignment, proven
    other = aligned(problem, assignment, new, (proven, score.worst), stop)
    if other is None:
        return assignment, proven
    Improving(LossLedger(problem, other), bounds, new, stop, search.left).run(params.precision)
    return (other if evaluate(problem, other).worst < score.worst - NEGLIGIBLE else assignment), proven


def _gaps(problem: StandbyProblem, assignment: Ints) -> Bools:
    """(K,) whether a key group has fewer standbys than it can have, and may get more."""
    gaps: Bools = ((assignment != UNPLACED).sum(axis=1) < problem.due) & ~problem.frozen
    return gaps


def _fill(problem: StandbyProblem, assignment: Ints, gaps: Bools) -> None:
    """Fill the gaps, or as many as the budget can pay for: those with the largest loads.

    A cold restore stops the load of a key group for a time that grows with its bytes, so what a standby saves per byte
    is its load.
    """
    able = int((~problem.removing).sum())
    most = min(problem.budget.changes, problem.budget.worker_changes * able)
    chosen = np.flatnonzero(gaps)
    if most < len(chosen):
        found = (assignment[chosen] != UNPLACED).sum(axis=1)
        chosen = chosen[np.lexsort((-problem.load[chosen], found))[: max(1, int(most))]]
    Filling(problem, assignment, chosen).fill()


def _cut(problem: StandbyProblem, assignment: Ints) -> None:
    """Drop new standbys beyond the budget: further ones before first ones, and then those of the least load."""
    if not problem.budget.limited:
        return
    budget = problem.budget
    key_group, rank = np.nonzero(is_new(problem, assignment))
    order = np.lexsort((-problem.load[key_group], rank))
    key_group, rank = key_group[order], rank[order]
    target = assignment[key_group, rank]
    count, size = _running(target, np.ones(len(target))), _running(target, problem.state_bytes[key_group])
    fits = (count <= 1) | ((count <= budget.worker_changes) & (size <= budget.worker_bytes))
    in_all, bytes_in_all = np.cumsum(fits), np.cumsum(np.where(fits, problem.state_bytes[key_group], 0.0))
    fits &= (in_all <= 1) | ((in_all <= budget.changes) & (bytes_in_all <= budget.state_bytes))
    assignment[key_group[~fits], rank[~fits]] = UNPLACED
    # Move the others up.
    ranks = np.argsort(assignment == UNPLACED, axis=1, kind="stable")
    assignment[:] = np.take_along_axis(assignment, ranks, axis=1)


def _running(group: Ints, amount: Floats) -> Floats:
    """For each entry, the sum of the amounts of its group up to and with this entry."""
    order = np.argsort(group, kind="stable")
    sums = np.cumsum(amount[order])
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    before = np.repeat(sums[starts] - amount[order][starts], np.diff(np.append(starts, len(group))))
    found = np.empty(len(group))
    found[order] = sums - before
    return found


def _replace(problem: StandbyProblem, assignment: Ints, bounds: Floats, stop: StopRule, params: StandbyParams) -> None:
    """Replace present standbys where that pays: the domains with the largest gain per byte first."""
    slack = max(problem.tolerance, params.precision)
    highest = losses(problem, assignment).highest
    doubtful = np.flatnonzero(highest - bounds > slack)
    if not len(doubtful):
        return
    search = Improving(LossLedger(problem, assignment), bounds, ~problem.frozen, stop, params.steps)
    least = WORTHWHILE * slack
    search.lower_worst_if(float(bounds.max()) + params.precision, least)
    search.limit(float(losses(problem, assignment).highest.max()))
    worth = {}
    for domain in doubtful[np.argsort(-highest[doubtful], kind="stable")].tolist():
        gain, price = search.potential(domain)
        if gain >= least:
            worth[domain] = gain / (price + 1.0)
    for domain in sorted(worth, key=lambda each: (-worth[each], each)):
        search.improve_if(domain, least)
