"""Bounds: loads after a loss that no assignment can stay below.

For the loss of one domain, with survivors that own `L_n` and orphans of loads `l_k`:

- Present: the highest `L_n / c_n`.
- Water: the least level u with `sum of max(0, u c_n - L_n) >= sum of l_k`.  The heir of a key group carries all of its
  load: what following costs it before is a part of that.
- Pieces: of the m largest orphans either two share a worker, or one is on a worker that is not among the m - 1 on which
  the m-th largest leads to the least load.

Following: a standby is followed all the time, so the mean load after a loss contains what all other standbys cost.  It
is an average over several losses, with weights w_D, since one loss alone could have them all at the lost workers: for
any weights `sum over D of w_D (own load of the survivors + orphans) / C_D + sum over k of f_k min over n of (sum over D
without n of w_D / C_D)`, with the capacity `C_D` of the survivors, is a bound (a dual solution of the fluid problem).
"""

import numpy as np

from trimtab_models.standbys.problem import Floats, Ints, Problem

ENTRIES = 4_000_000
"""Most entries of the tables for Pieces, key groups by workers, where capacities differ; with more workers fewer of the
largest orphans are looked at."""
MASSED = 64
"""Most of the largest orphans that Pieces looks at."""


def domain_bounds(problem: Problem) -> Floats:
    """(D,) for each domain, a bound on the highest load of a survivor of its loss (Present, Water, Pieces)."""
    relative = problem.own / problem.capacity
    order = np.argsort(relative, kind="stable")
    able = ~problem.removing
    bounds = np.zeros(problem.domains)
    for domain, orphans in enumerate(orphans_by_domain(problem)):
        survivors = order[problem.domain[order] != domain]
        if not len(survivors):
            continue
        bounds[domain] = relative[survivors[-1]]
        if len(orphans):
            survivors = survivors[able[survivors]]
            own, capacity = problem.own[survivors], problem.capacity[survivors]
            load = problem.load[orphans]
            bounds[domain] = max(
                bounds[domain],
                water_level(own, capacity, float(load.sum())),
                _pieces(own, capacity, load, ENTRIES / problem.domains),
            )
    return bounds


def orphans_by_domain(problem: Problem) -> list[Ints]:
    """For each domain the key groups that lose their owner with it and can have a standby, largest load first."""
    domain = problem.domain[problem.owner]
    known = np.flatnonzero(problem.due[problem.owner] > 0)
    order = known[np.lexsort((-problem.load[known], domain[known]))]
    return np.split(order, np.searchsorted(domain[order], np.arange(1, problem.domains)))[: problem.domains]


def water_level(own: Floats, capacity: Floats, load: float) -> float:
    """The least level that takes `load` above what workers own; `own / capacity` must be ascending."""
    if not len(own):
        return 0.0
    level: Floats = (np.cumsum(own) + load) / np.cumsum(capacity)
    over = level[:-1] * capacity[1:] <= own[1:]  # the next worker is above this level already
    first = int(over.argmax()) if over.any() else len(own) - 1
    return float(level[first])


def _pieces(own: Floats, capacity: Floats, load: Floats, entries: float) -> float:
    """Pieces for orphans in descending order, on workers in ascending order of `own / capacity`."""
    if not len(own):
        return 0.0
    count = min(len(load), MASSED)
    best, alike = own[:1] / capacity[:1], bool((capacity == capacity[0]).all())
    if not alike:
        count = max(1, min(count, int(entries / len(own))))
    largest = load[:count]
    if alike:
        distinct = min(count, len(own))
        apart, least = (own[:distinct] + largest[:distinct]) / capacity[0], own[0] / capacity[0]
        shared = least + (largest[1:] + largest[:-1]) / capacity[0]
    else:
        places = (own + largest[:, None]) / capacity
        apart = np.array([np.partition(row, at)[at] for at, row in enumerate(places[: len(own)])])
        shared = ((own + (largest[1:] + largest[:-1])[:, None]) / capacity).min(axis=1)
    shared = np.append(np.inf, shared)
    apart = np.append(apart, np.full(count - len(apart), np.inf))
    return float(np.minimum(apart, shared).max(initial=float(best[0])))


def following_bound(problem: Problem) -> float:
    """The bound by Following, for weights that are equal over the domains with the highest mean loads."""
    losing = np.bincount(problem.domain, minlength=problem.domains)
    capacity = problem.capacity.sum() - np.bincount(problem.domain, problem.capacity, problem.domains)
    own = problem.own.sum() - np.bincount(problem.domain, problem.own, problem.domains)
    due = problem.due[problem.owner]
    of = problem.domain[problem.owner]
    inherited = np.bincount(of, np.where(due > 0, problem.load - problem.follow, 0.0), problem.domains)
    followed = np.bincount(of, due * problem.follow, problem.domains)
    known = np.flatnonzero((capacity > 0) & (losing > 0))
    if not len(known):
        return 0.0
    level = (own[known] + inherited[known]) / capacity[known]
    known = known[np.argsort(-level, kind="stable")]
    best = 0.0
    for count in sorted({1, 2, 3, 4, *np.geomspace(1, len(known), 40).astype(int).tolist(), len(known)}):
        if count <= len(known):
            best = max(best, _dual(problem, known[:count], capacity, own + inherited, followed))
    return best


def _dual(problem: Problem, chosen: Ints, capacity: Floats, carried: Floats, followed: Floats) -> float:
    """The value of the dual solution with equal weights on `chosen`."""
    price = np.zeros(problem.domains)  # what a unit at a survivor of each domain counts
    price[chosen] = 1.0 / (len(chosen) * capacity[chosen])
    able = np.zeros(problem.domains, np.bool_)
    able[problem.domain[~problem.removing]] = True
    seen = price.sum() - price  # of a worker in each domain: it survives all others
    least = _least_elsewhere(np.where(able, seen, np.inf))
    counted = np.where(np.isfinite(least), least, 0.0)
    return float((price * carried).sum() + (followed * counted).sum())


def _least_elsewhere(values: Floats) -> Floats:
    """For each place, the least of the values at all other places."""
    if len(values) < 2:
        return np.full(len(values), np.inf)
    first, second = np.argsort(values, kind="stable")[:2]
    found = np.full(len(values), values[first])
    found[first] = values[second]
    return found

