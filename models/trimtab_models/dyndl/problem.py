"""The DynDL problem as arrays, the input of every algorithm in this package.

Servers and their cores are in the order of the document, tasks in the order of their ids.  Where a rule says "lowest
id", the position decides. Times are in units of one local task. An *assignment* is an int array: task -> core.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from trimtab_models.instances.scheduling import DEFAULT_WAIT, AffineCost, RemoteCost, SchedulingInstance, TableCost

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

TOLERANCE = 1e-9  # for comparing times
NO_CORE = "no usable core"


class RemoteTaskCosts:
    """The remote costs g_s(n) for arrays of servers.

    `limit` (S,) = largest n with a finite cost, `inf` if all are finite.
    """

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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScheduleProblem:
    """T tasks, S servers, P cores; the cores of a server are contiguous.  Nobody writes to the arrays.

    `replicas` = the distinct servers that hold a task's data, ascending; `holders` = those of them with a usable core,
    one that becomes free some time.  A task without holders is *forced*: it can only be remote.
    """

    core_load: Floats  # (P,) initial loads, inf for an unusable core
    server_of: Ints  # (P,) ascending
    replicas: tuple[tuple[int, ...], ...]  # per task
    costs: RemoteTaskCosts  # of S servers
    wait: float = DEFAULT_WAIT
    first: Ints = field(init=False)  # (S + 1,): the cores of server s are first[s] .. first[s + 1] - 1
    usable: Bools = field(init=False)  # (S,)
    holders: tuple[tuple[int, ...], ...] = field(init=False)
    forced: Ints = field(init=False)  # positions of the forced tasks
    copy_task: Ints = field(init=False)  # (C,) the task of each replica
    copy_server: Ints = field(init=False)  # (C,) the server of each replica

    def __post_init__(self) -> None:
        servers = len(self.costs.limit)
        if self.core_load.shape != self.server_of.shape or (np.diff(self.server_of) < 0).any():
            raise ValueError("every core needs a load, and the cores of a server must be contiguous")
        if len(self.server_of) and not (self.server_of[0] >= 0 and self.server_of[-1] < servers):
            raise ValueError("every core must belong to a server")
        if not (self.core_load >= 0).all():
            raise ValueError("loads must be numbers >= 0, or inf")
        usable = np.bincount(self.server_of[np.isfinite(self.core_load)], minlength=servers) > 0
        holders = self.replicas
        if not usable.all():
            holders = tuple(tuple(server for server in each if usable[server]) for each in self.replicas)
        object.__setattr__(self, "first", np.searchsorted(self.server_of, np.arange(servers + 1)))
        object.__setattr__(self, "usable", usable)
        object.__setattr__(self, "holders", holders)
        object.__setattr__(self, "forced", np.array([t for t, each in enumerate(holders) if not each], np.int64))
        copies = np.fromiter(map(len, self.replicas), np.int64, count=self.tasks)
        object.__setattr__(self, "copy_task", np.repeat(np.arange(self.tasks), copies))
        object.__setattr__(self, "copy_server", np.fromiter(chain.from_iterable(self.replicas), np.int64))

    @property
    def tasks(self) -> int:
        """T."""
        return len(self.replicas)

    @property
    def servers(self) -> int:
        """S."""
        return len(self.usable)

    def cores_of(self, server: int) -> range:
        """Positions of the cores of `server`."""
        return range(int(self.first[server]), int(self.first[server + 1]))


def problem_of(instance: SchedulingInstance) -> ScheduleProblem:
    """The arrays of `instance`, with servers in its order and tasks in the order of `task_ids`."""
    server_at = {server.id: position for position, server in enumerate(instance.servers)}
    replicas = {task.id: tuple(sorted(map(server_at.__getitem__, task.replicas))) for task in instance.tasks}
    cores = [len(server.cores) for server in instance.servers]
    return ScheduleProblem(
        core_load=np.fromiter(
            chain.from_iterable(server.cores for server in instance.servers), np.float64, count=sum(cores)
        ),
        server_of=np.repeat(np.arange(len(cores)), np.array(cores, np.int64)),
        replicas=tuple(replicas[id_] for id_ in task_ids(instance)),
        costs=RemoteTaskCosts([server.g for server in instance.servers]),
        wait=instance.wait,
    )


def task_ids(instance: SchedulingInstance) -> Sequence[str]:
    """The ids of the tasks, in the order of a `ScheduleProblem`."""
    return sorted(task.id for task in instance.tasks)


def infeasible(problem: ScheduleProblem) -> str | None:
    """Why there is no assignment with a finite makespan, or None."""
    if not problem.usable.any():
        return NO_CORE
    room = float(problem.costs.limit[problem.usable].sum())
    if len(problem.forced) > room:
        return (
            f"{NO_CORE} for {len(problem.forced)} tasks without a usable replica: "
            f"the servers take {room:.0f} remote tasks at a finite cost"
        )
    return None
