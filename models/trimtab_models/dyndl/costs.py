"""The remote costs g_s(n) of all servers at once."""

import math
from collections.abc import Sequence

import numpy as np

from trimtab_models.dyndl.arrays import Floats, Ints
from trimtab_models.instances.scheduling import AffineCost, RemoteCost, TableCost


class RemoteTaskCosts:
    """g_s(n) for arrays of servers; `limit` (S,) = largest n with a finite cost, `inf` if all are finite."""

    def __init__(self, costs: Sequence[RemoteCost]) -> None:
        self._costs = tuple(costs)
        tables = [cost.values if isinstance(cost, TableCost) else () for cost in costs]
        affine = [cost if isinstance(cost, AffineCost) else AffineCost(a=1.0, b=0.0) for cost in costs]
        self._a = np.array([cost.a for cost in affine], np.float64)
        self._b = np.array([cost.b for cost in affine], np.float64)
        self._cap = np.array([math.inf if cost.cap is None else cost.cap for cost in affine], np.float64)
        self._length = np.array([len(table) for table in tables], np.int64)
        self._start = np.cumsum(self._length) - self._length
        self._values = np.array([value for table in tables for value in table], np.float64)
        self.limit: Floats = np.array([_limit(cost) for cost in costs], np.float64)

    def at(self, n: Ints | Floats) -> Floats:
        """(S,) cost of each remote task on server s with n_s of them; n_s below 1 counts as 1."""
        n = np.maximum(n, 1)
        with np.errstate(over="ignore"):
            costs: Floats = self._a + self._b * np.minimum(n, self._cap)
        if len(self._values):
            tabled = self._length > 0
            position = self._start + np.minimum(np.ceil(n).astype(np.int64), np.maximum(self._length, 1)) - 1
            costs[tabled] = self._values[position[tabled]]
        return costs

    def one(self, server: int, n: float) -> float:
        """Cost of each of n >= 1 remote tasks on one server."""
        return self._costs[server].at(n)


def _limit(cost: RemoteCost) -> float:
    if isinstance(cost, TableCost) and cost.values[-1] == math.inf:
        return float(cost.values.index(math.inf))
    return math.inf
