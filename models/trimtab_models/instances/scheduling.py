"""Tasks with their data on some of the servers: the instance of the DynDL methods (dyndl-off, dyndl-on, hadoop, ...).

Times are in units of one local task.  In documents "inf" stands for a core that is never free and for an infinite
remote cost; in values this is `math.inf`.
"""

import math
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from trimtab_models.instances.reading import BadInstance, check_distinct, is_finite
from trimtab_protocol.messages.codec import FILE, FINITE, Needed, Range, Wire, WrittenAs, converted, document
from trimtab_protocol.messages.decode import as_json

VERSION = 1
LOCAL_COST = 1.0
DEFAULT_WAIT = 3.0
AMOUNT = 'a finite number >= 0, or "inf"'


def _read_amount(found: Any) -> float:
    if found == "inf":
        return math.inf
    if type(found) not in (int, float) or not 0 <= found <= FINITE.high:
        raise BadInstance("", as_json(found), AMOUNT)
    return float(found)


Amount = Annotated[float, WrittenAs(Any, lambda amount: "inf" if amount == math.inf else amount, _read_amount)]


@dataclass(frozen=True, slots=True, kw_only=True)
class AffineCost:
    """g(n) = a + b * min(n, cap); `cap` None = no cap.  A remote task costs at least as much as a local one."""

    kind: Annotated[str, Needed()] = "affine"
    """Tells it from the other form of a cost."""
    a: Annotated[float, Range(-FINITE.high, FINITE.high, "a finite number")]
    """Cost without other remote tasks, less `b`."""
    b: float
    """What each remote task adds to the cost of all."""
    cap: Annotated[float | None, Needed()] = None
    """At most this many remote tasks slow each other down; null: any number."""

    def __post_init__(self) -> None:
        if not self.at(1) >= LOCAL_COST:
            raise BadInstance("", f"a cost of {self.at(1)} for one remote task", "at least 1, what a local task costs")

    def at(self, n: float) -> float:
        """The cost of each of `n` remote tasks."""
        return float(self.a) + float(self.b) * (n if self.cap is None else min(n, self.cap))


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCost:
    """g(n) = values[n - 1], constant beyond the end; non-decreasing, at least 1, `inf` allowed."""

    kind: Annotated[str, Needed()] = "table"
    """Tells it from the other form of a cost."""
    values: tuple[Amount, ...]
    """Cost of each remote task where 1, 2, ... of them run."""

    def __post_init__(self) -> None:
        if not self.values:
            raise BadInstance("values", "an empty list", "at least g(1)")
        least = LOCAL_COST
        for position, value in enumerate(self.values):
            if not value >= least:
                expected = f"at least {least}: " + ("g never decreases" if position else "what a local task costs")
                raise BadInstance(f"values[{position}]", as_json(value), expected)
            least = value

    def at(self, n: float) -> float:
        """The cost of each of `n` remote tasks; `n` is rounded up."""
        return self.values[min(math.ceil(n), len(self.values)) - 1]


RemoteCost = AffineCost | TableCost
KINDS = {"affine": AffineCost, "table": TableCost}


def _read_cost(found: dict[str, Any]) -> RemoteCost:
    if "kind" not in found:
        raise BadInstance("kind", "nothing", "this key")
    kind = found["kind"]
    if not isinstance(kind, str) or kind not in KINDS:
        raise BadInstance("kind", as_json(kind), '"affine" or "table"')
    return converted(found, KINDS[kind], defaults=FILE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingServer:
    """`cores` = time when each core becomes free, `inf` = never; `g` = cost of a remote task on this server."""

    id: str
    """Name of the server."""
    cores: tuple[Amount, ...]
    """When each core is free."""
    g: Annotated[RemoteCost, WrittenAs(dict[str, Any], document, _read_cost)]
    """Cost of a remote task, by how many of them the server runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A unit of work; `replicas` = servers that hold its data."""

    id: str
    """Name of the task."""
    replicas: tuple[str, ...]
    """Servers that hold its data."""

    def __post_init__(self) -> None:
        if len(set(self.replicas)) < len(self.replicas):
            first = {id_: at for at, id_ in reversed(list(enumerate(self.replicas)))}
            position = next(at for at, id_ in enumerate(self.replicas) if first[id_] < at)
            raise BadInstance(
                f"replicas[{position}]", as_json(self.replicas[position]), "a server named once in this list"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingInstance:
    """Servers and their tasks; `wait` = time that a core waits under the waiting policies."""

    WIRE: ClassVar = Wire(version=VERSION, version_key="version")

    servers: tuple[SchedulingServer, ...]
    """Where tasks can run."""
    tasks: tuple[Task, ...]
    """What is to be done."""
    wait: float = DEFAULT_WAIT
    """How long `delay` holds an idle core back from remote tasks; `dyndl-on` at least as long."""

    def __post_init__(self) -> None:
        check_distinct("servers", (server.id for server in self.servers))
        check_distinct("tasks", (task.id for task in self.tasks))
        self._check_sums()
        known = {server.id for server in self.servers}
        for position, task in enumerate(self.tasks):
            for at, replica in enumerate(task.replicas):
                if replica not in known:
                    raise BadInstance(f"tasks[{position}].replicas[{at}]", as_json(replica), "the id of a server")

    def _check_sums(self) -> None:
        """Raises BadInstance if a sum of finite numbers overflows."""
        loads = sum(load for server in self.servers for load in server.cores if load < math.inf)
        if not is_finite(loads):
            raise BadInstance("servers", "a sum of loads beyond every number", "a finite sum")
        tasks = max(1, len(self.tasks))
        for position, server in enumerate(self.servers):
            if not is_finite(loads + tasks * _largest(server.g, tasks)):
                raise BadInstance(f"servers[{position}].g", "a sum of costs beyond every number", "a finite sum")


def _largest(cost: RemoteCost, n: int) -> float:
    """The largest finite cost of up to `n` remote tasks."""
    if isinstance(cost, TableCost):
        return max((value for value in cost.values if value < math.inf), default=0.0)
    return cost.at(n)
