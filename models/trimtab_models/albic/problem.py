"""The balance problem with flows: loads depend on which key groups share a node.

Serialising and shipping a tuple between nodes costs CPU at both ends:
`load_k = work_k + c_s * (rate sent to remote key groups) + c_d * (rate received from remote ones)`. The given load
belongs to the given placement, so `work_k` is what remains of it there.  Flows of an unplaced key group are remote;
flows of a key group to itself never are.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from trimtab_models.balance.problem import UNPLACED, Bools, Floats, Ints, Problem
from trimtab_models.balance.problem import problem_of as balance_problem_of
from trimtab_models.instances import BalanceInstance


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CollocationProblem:
    """K key groups with F flows between them; rates in tuples/s, costs in percent of a capacity-1 node per tuple/s.

    Loads and `max_partition_load` (the paper's maxPL) in percent of a capacity-1 node; maxLD is in `balance`.
    """

    balance: Problem
    operator: Ints  # (K,)
    source: Ints  # (F,)
    target: Ints  # (F,)
    rate: Floats  # (F,)
    serialise_cost: float = 0.0  # c_s
    deserialise_cost: float = 0.0  # c_d
    max_partition_load: float = 25.0
    partition_step: float = 5.0  # stepPL
    score_factor: float = 1.5  # sF
    work: Floats = field(init=False)  # (K,) load without remote tuples

    def __post_init__(self) -> None:
        flows = (len(self.rate),)
        if self.source.shape != flows or self.target.shape != flows:
            raise ValueError("every flow needs a source, a target and a rate")
        if self.operator.shape != self.balance.load.shape:
            raise ValueError("operator must have one entry per key group")
        if self.partition_step <= 0:
            raise ValueError("partition_step must be above 0, or maxPL would never decrease")
        object.__setattr__(self, "work", self.balance.load - self._remote_load(self.balance.home))

    def remote(self, allocation: Ints) -> Bools:
        """(F,) the flows that cross between nodes."""
        source, target = allocation[self.source], allocation[self.target]
        apart = (source != target) | (source == UNPLACED)
        crossing: Bools = apart & (self.source != self.target)
        return crossing

    def _remote_load(self, allocation: Ints) -> Floats:
        remote = self.rate * self.remote(allocation)
        count = len(self.balance.load)
        sent = np.bincount(self.source, remote, count)
        received = np.bincount(self.target, remote, count)
        return self.serialise_cost * sent + self.deserialise_cost * received

    def loads(self, allocation: Ints) -> Floats:
        """(K,) the loads predicted for `allocation`."""
        return self.work + self._remote_load(allocation)

    def predicted(self, allocation: Ints) -> Problem:
        """The balance problem with the loads predicted for `allocation`; homes and budgets stay."""
        if not self.serialise_cost and not self.deserialise_cost:
            return self.balance
        return replace(self.balance, load=self.loads(allocation))

    def collocation(self, allocation: Ints) -> float:
        """Local rate / total rate, 0 without flows."""
        total = float(self.rate.sum())
        return 1.0 - float(self.rate[self.remote(allocation)].sum()) / total if total else 0.0

    def moved_to(self, allocation: Ints) -> "CollocationProblem":
        """The problem after the moves to `allocation`, with the loads predicted there."""
        return replace(self, balance=replace(self.balance, home=allocation, load=self.loads(allocation)))

    def unlimited(self) -> "CollocationProblem":
        """The problem without budgets."""
        return replace(self, balance=replace(self.balance, max_migrations=None, max_cost_bytes=None))


def load_index(problem: CollocationProblem, allocation: Ints, start_load: float) -> float:
    """100 * average node load predicted for `allocation` / that at the start (total load `start_load`)."""
    return 100.0 * float(problem.loads(allocation).sum()) / start_load if start_load else 100.0


def problem_of(instance: BalanceInstance, in_flight: Mapping[str, str] | None = None) -> CollocationProblem:
    """The arrays of `instance`, in its order; for `in_flight` see `balance.problem_of`."""
    key_group_at = {key_group.id: position for position, key_group in enumerate(instance.key_groups)}
    names = {name: at for at, name in enumerate(sorted({each.operator for each in instance.key_groups}))}
    options = instance.options
    return CollocationProblem(
        balance=balance_problem_of(instance, in_flight),
        operator=np.array([names[each.operator] for each in instance.key_groups], np.int64),
        source=np.array([key_group_at[flow.source] for flow in instance.flows], np.int64),
        target=np.array([key_group_at[flow.target] for flow in instance.flows], np.int64),
        rate=np.array([flow.rate for flow in instance.flows], np.float64),
        serialise_cost=float(options.serialise_cost),
        deserialise_cost=float(options.deserialise_cost),
        max_partition_load=float(options.max_partition_load),
        partition_step=float(options.partition_step),
        score_factor=float(options.score_factor),
    )
