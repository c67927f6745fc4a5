"""Collocated key groups as units of the balance problem."""

from dataclasses import dataclass, replace

import numpy as np

from trimtab_models.albic.keep import Members
from trimtab_models.balance.problem import BalanceProblem, Bools, Floats, Ints

FULL_SHARE = 1 + 1e-9  # of both budgets, with a tolerance for rounding


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KeyGroupParts:
    """`of` (K,) = part of every key group; `problem` = the balance problem with the parts as its key groups.

    A part costs as many migrations as it has members, but the balance problem counts one per unit.  Unless all parts
    are single, its budget of bytes therefore stands for the budget that binds: migrations, bytes, or the larger share
    of both.  In the last case a little of one budget may stay unspent; none is ever overspent.
    """

    of: Ints
    size: Ints  # (P,)
    problem: BalanceProblem

    def expand(self, allocation: Ints) -> Ints:
        """(K,) nodes of the key groups when the parts are at `allocation`."""
        expanded: Ints = allocation[self.of]
        return expanded

    def mobile(self, problem: BalanceProblem) -> Bools:
        """(P,) whether each part may move within the budgets of `problem`, the problem of single key groups."""
        prices = np.array([self.summed(row) for row in problem.prices]).reshape(-1, len(self.size))
        payable: Bools = np.logical_and.reduce(prices <= problem.allowances[:, None])
        return self.problem.movable & payable

    def summed(self, amounts: Floats) -> Floats:
        """(P,) sums over the members of each part."""
        return np.bincount(self.of, amounts, len(self.size)).astype(np.float64)


def parts_of(problem: BalanceProblem, members: list[Members]) -> KeyGroupParts:
    """The parts for `members`, a sorted partition of the key groups; all members of a part have the same home."""
    of = np.empty(len(problem.load), np.int64)
    for at, part in enumerate(members):
        of[part] = at
    size = np.array([len(part) for part in members], np.int64)
    if len(members) == len(of):  # all single, in order: the problem stays the same
        return KeyGroupParts(of=of, size=size, problem=problem)
    first = np.array([part[0] for part in members], np.int64)
    cost, allowance = _combined_cost(problem)
    return KeyGroupParts(
        of=of,
        size=size,
        problem=replace(
            problem,
            load=_summed(of, problem.load, len(size)),
            cost_bytes=_summed(of, cost, len(size)),
            home=problem.home[first],
            pinned=_any(of, ~problem.movable, len(size)),
            in_flight=_any(of, problem.in_flight, len(size)),
            allowed=None if problem.allowed is None else problem.allowed.merged(of, len(size)),
            evicted=None if problem.evicted is None else _any(of, problem.evicted, len(size)),
            usage=np.array([_summed(of, row, len(size)) for row in problem.usage]).reshape(-1, len(size)),
            spared=None if problem.spared is None else problem.spared.merged(of, len(size)),
            max_migrations=None,
            max_cost_bytes=allowance,
        ),
    )


def _combined_cost(problem: BalanceProblem) -> tuple[Floats, float | None]:
    """(K,) cost of each key group, and the budget, that represent both budgets."""
    count, cost = problem.max_migrations, problem.max_cost_bytes
    if count is None:
        return problem.cost_bytes, cost
    if cost is None or count == 0:
        return np.ones(len(problem.load)), float(count)
    if cost == 0:
        return problem.cost_bytes, 0.0
    return np.maximum(1 / count, problem.cost_bytes / cost), FULL_SHARE


def _summed(of: Ints, amounts: Floats, count: int) -> Floats:
    return np.bincount(of, amounts, count).astype(np.float64)


def _any(of: Ints, flags: Bools, count: int) -> Bools:
    found: Bools = np.bincount(of, flags, count) > 0
    return found
