"""The balance problem with flows: loads depend on which key groups share a node.

Serialising and shipping a tuple between nodes costs CPU at both ends:
`load_k = work_k + c_s * (rate sent to remote key groups) + c_d * (rate received from remote ones)`. The given load
belongs to the given placement, so `work_k` is what remains of it there.  Flows of an unplaced key group are remote;
flows of a key group to itself never are.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from trimtab_models.balance.problem import UNPLACED, BalanceProblem, Bools, Floats, Ints
from trimtab_models.balance.problem import problem_of as balance_problem_of
from trimtab_models.instances.snapshot import BalanceInstance

RESTORED_BYTES_S = 10e6
"""State that a node restores per second where nothing is measured: somewhat less than a tenth of a link of 1 Gbit/s."""
PAY_BACK_S = 1800.0
"""How long a move may take to save what it costs: loads change within the hour."""
PERCENT = 100.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CollocationProblem:
    """K key groups with F flows between them; rates in tuples/s, costs in percent of a capacity-1 node per tuple/s.

    Loads and `max_partition_load` (the paper's maxPL) in percent of a capacity-1 node; maxLD is in `balance`.
    `send_cost` and `receive_cost` are the costs of each flow where flows differ, instead of c_s and c_d.  `charge` =
    the load that the move of each key group must save at least; None: `repaid_charge` of its bytes if costs are given.
    """

    balance: BalanceProblem
    operator: Ints  # (K,)
    source: Ints  # (F,)
    target: Ints  # (F,)
    rate: Floats  # (F,)
    serialise_cost: float = 0.0  # c_s
    deserialise_cost: float = 0.0  # c_d
    max_partition_load: float = 25.0
    partition_step: float = 5.0  # stepPL
    score_factor: float = 1.5  # sF
    send_cost: Floats | None = None  # (F,)
    receive_cost: Floats | None = None  # (F,)
    charge: Floats | None = None  # (K,)
    sending: Floats = field(init=False)  # (F,) load that each flow takes at its sender while it is remote
    receiving: Floats = field(init=False)  # (F,) the same at its receiver
    work: Floats = field(init=False)  # (K,) load without remote tuples

    def __post_init__(self) -> None:
        flows = (len(self.rate),)
        if self.source.shape != flows or self.target.shape != flows:
            raise ValueError("every flow needs a source, a target and a rate")
        if self.operator.shape != self.balance.load.shape:
            raise ValueError("operator must have one entry per key group")
        if self.partition_step <= 0:
            raise ValueError("partition_step must be above 0, or maxPL would never decrease")
        for name, own, cost in (
            ("sending", self.send_cost, self.serialise_cost),
            ("receiving", self.receive_cost, self.deserialise_cost),
        ):
            if own is not None and own.shape != flows:
                raise ValueError("costs of flows need one entry per flow")
            object.__setattr__(self, name, self.rate * (cost if own is None else own))
        object.__setattr__(self, "work", self.balance.load - self._remote_load(self.balance.home))

    def remote(self, allocation: Ints) -> Bools:
        """(F,) the flows that cross between nodes."""
        source, target = allocation[self.source], allocation[self.target]
        apart = (source != target) | (source == UNPLACED)
        crossing: Bools = apart & (self.source != self.target)
        return crossing

    def _remote_load(self, allocation: Ints) -> Floats:
        remote = self.remote(allocation)
        count = len(self.balance.load)
        sent = np.bincount(self.source, self.sending * remote, count)
        received = np.bincount(self.target, self.receiving * remote, count)
        return (sent + received).astype(np.float64)

    @property
    def costly(self) -> bool:
        """Whether any remote tuple costs anything."""
        return bool(self.sending.any() or self.receiving.any())

    @property
    def charges(self) -> Floats:
        """(K,) the load that the move of each key group must save at least, for what it costs by itself."""
        if self.charge is not None:
            return self.charge
        return repaid_charge(self.balance.cost_bytes) if self.costly else np.zeros(len(self.balance.load))

    def loads(self, allocation: Ints) -> Floats:
        """(K,) the loads predicted for `allocation`."""
        return self.work + self._remote_load(allocation)

    def predicted(self, allocation: Ints) -> BalanceProblem:
        """The balance problem with the loads predicted for `allocation`; homes and budgets stay."""
        if not self.costly:
            return self.balance
        return replace(self.balance, load=self.loads(allocation))

    def collocation(self, allocation: Ints) -> float:
        """Local rate / total rate, 0 without flows."""
        total = float(self.rate.sum())
        return 1.0 - float(self.rate[self.remote(allocation)].sum()) / total if total else 0.0

    def moved_to(self, allocation: Ints) -> "CollocationProblem":
        """The problem after the moves to `allocation`, with the loads predicted there."""
        balance, evicted = self.balance, self.balance.evicted
        if evicted is not None:
            evicted = evicted & (allocation == balance.home)
        return replace(self, balance=replace(balance, home=allocation, load=self.loads(allocation), evicted=evicted))

    def unlimited(self) -> "CollocationProblem":
        """The problem without budgets."""
        return replace(self, balance=replace(self.balance, max_migrations=None, max_cost_bytes=None))


def repaid_charge(state_bytes: Floats, *, bytes_s: float = RESTORED_BYTES_S, unit_s: float = 0.0) -> Floats:
    """(K,) load that repays within `PAY_BACK_S` the restore of so many bytes: a core for all the time that it takes.

    A restore takes `unit_s` seconds, and reads `bytes_s` bytes per second.
    """
    charge: Floats = PERCENT * (unit_s + state_bytes / bytes_s) / PAY_BACK_S
    return charge


def load_index(problem: CollocationProblem, allocation: Ints, start_load: float) -> float:
    """100 * average node load predicted for `allocation` / that at the start (total load `start_load`)."""
    return 100.0 * float(problem.loads(allocation).sum()) / start_load if start_load else 100.0


def problem_of(instance: BalanceInstance) -> CollocationProblem:
    """The arrays of `instance`, in its order."""
    key_group_at = {key_group.id: position for position, key_group in enumerate(instance.key_groups)}
    names = {name: at for at, name in enumerate(sorted({each.operator for each in instance.key_groups}))}
    options = instance.options
    return CollocationProblem(
        balance=balance_problem_of(instance),
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
