"""Tasks with their data on some of the servers: the instance of the DynDL methods (dyndl-off, dyndl-on, hadoop, ...).

Times are in units of one local task.  In documents "inf" stands for a core that is never free and for an infinite
remote cost; in values this is `math.inf`.
"""

import math
from dataclasses import dataclass

from trimtab_models.instances.reading import (
    BadInstance,
    check_distinct,
    check_number,
    check_text,
    check_version,
    is_finite,
    located,
    parse_document,
    read_each,
    read_list,
    read_object,
    shown,
)

VERSION = 1
LOCAL_COST = 1.0
DEFAULT_WAIT = 3.0
AMOUNT = 'a finite number >= 0, or "inf"'


@dataclass(frozen=True, slots=True, kw_only=True)
class AffineCost:
    """g(n) = a + b * min(n, cap); `cap` None = no cap.  A remote task costs at least as much as a local one."""

    a: float
    """Cost without other remote tasks, less `b`."""
    b: float
    """What each remote task adds to the cost of all."""
    cap: float | None = None
    """At most this many remote tasks slow each other down; null: any number."""

    def __post_init__(self) -> None:
        if not _is_number(self.a):
            raise BadInstance(".a", shown(self.a), "a finite number")
        check_number(".b", self.b)
        if self.cap is not None:
            check_number(".cap", self.cap)
        if not self.at(1) >= LOCAL_COST:
            raise BadInstance("", f"a cost of {self.at(1)} for one remote task", "at least 1, what a local task costs")

    def at(self, n: float) -> float:
        """The cost of each of `n` remote tasks."""
        return float(self.a) + float(self.b) * (n if self.cap is None else min(n, self.cap))


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCost:
    """g(n) = values[n - 1], constant beyond the end; non-decreasing, at least 1, `inf` allowed."""

    values: tuple[float, ...]
    """Cost of each remote task where 1, 2, ... of them run."""

    def __post_init__(self) -> None:
        if not self.values:
            raise BadInstance(".values", "an empty list", "at least g(1)")
        least = LOCAL_COST
        for position, value in enumerate(self.values):
            if not value >= least:
                expected = f"at least {least}: " + ("g never decreases" if position else "what a local task costs")
                raise BadInstance(f".values[{position}]", shown(value), expected)
            least = value

    def at(self, n: float) -> float:
        """The cost of each of `n` remote tasks; `n` is rounded up."""
        return self.values[min(math.ceil(n), len(self.values)) - 1]


RemoteCost = AffineCost | TableCost


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingServer:
    """`cores` = time when each core becomes free, `inf` = never; `g` = cost of a remote task on this server."""

    id: str
    """Name of the server."""
    cores: tuple[float, ...]
    """When each core is free."""
    g: RemoteCost
    """Cost of a remote task, by how many of them the server runs."""

    def __post_init__(self) -> None:
        check_text(".id", self.id)
        for position, load in enumerate(self.cores):
            if not load >= 0:
                raise BadInstance(f".cores[{position}]", shown(load), AMOUNT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A unit of work; `replicas` = servers that hold its data."""

    id: str
    """Name of the task."""
    replicas: tuple[str, ...]
    """Servers that hold its data."""

    def __post_init__(self) -> None:
        check_text(".id", self.id)
        if len(set(self.replicas)) < len(self.replicas):
            first = {id_: at for at, id_ in reversed(list(enumerate(self.replicas)))}
            position = next(at for at, id_ in enumerate(self.replicas) if first[id_] < at)
            raise BadInstance(
                f".replicas[{position}]", shown(self.replicas[position]), "a server named once in this list"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingInstance:
    """Servers and their tasks; `wait` = time that a core waits under the waiting policies."""

    servers: tuple[SchedulingServer, ...]
    """Where tasks can run."""
    tasks: tuple[Task, ...]
    """What is to be done."""
    wait: float = DEFAULT_WAIT
    """How long `delay` holds an idle core back from remote tasks; `dyndl-on` at least as long."""

    def __post_init__(self) -> None:
        check_distinct(".servers", (server.id for server in self.servers))
        check_distinct(".tasks", (task.id for task in self.tasks))
        check_number(".wait", self.wait)
        self._check_sums()
        known = {server.id for server in self.servers}
        for position, task in enumerate(self.tasks):
            for at, replica in enumerate(task.replicas):
                if replica not in known:
                    raise BadInstance(f".tasks[{position}].replicas[{at}]", shown(replica), "the id of a server")

    def _check_sums(self) -> None:
        """Raises BadInstance if a sum of finite numbers overflows."""
        loads = sum(load for server in self.servers for load in server.cores if load < math.inf)
        if not is_finite(loads):
            raise BadInstance(".servers", "a sum of loads beyond every number", "a finite sum")
        tasks = max(1, len(self.tasks))
        for position, server in enumerate(self.servers):
            if not is_finite(loads + tasks * _largest(server.g, tasks)):
                raise BadInstance(f".servers[{position}].g", "a sum of costs beyond every number", "a finite sum")


def parse_scheduling(text: str | bytes) -> SchedulingInstance:
    """The instance in a JSON text. Raises `BadInstance`."""
    return decode_scheduling(parse_document(text))


def decode_scheduling(document: object) -> SchedulingInstance:
    """The instance in a decoded JSON document. Raises `BadInstance`."""
    with located("$"):
        entry = read_object(document, ("version", "servers", "tasks"), ("wait",))
        check_version(".version", entry["version"], VERSION)
        return SchedulingInstance(
            servers=read_each(entry["servers"], ".servers", _read_server),
            tasks=read_each(entry["tasks"], ".tasks", _read_task),
            wait=entry.get("wait", DEFAULT_WAIT),
        )


def _read_server(value: object) -> SchedulingServer:
    entry = read_object(value, ("id", "cores", "g"), ())
    with located(".g"):
        cost = _read_cost(entry["g"])
    return SchedulingServer(id=entry["id"], cores=_read_amounts(entry["cores"], ".cores"), g=cost)


def _read_cost(value: object) -> RemoteCost:
    match read_object(value, ("kind",), ("a", "b", "cap", "values"))["kind"]:
        case "affine":
            entry = read_object(value, ("kind", "a", "b", "cap"), ())
            return AffineCost(a=entry["a"], b=entry["b"], cap=entry["cap"])
        case "table":
            entry = read_object(value, ("kind", "values"), ())
            return TableCost(values=_read_amounts(entry["values"], ".values"))
        case other:
            raise BadInstance(".kind", shown(other), '"affine" or "table"')


def _read_task(value: object) -> Task:
    entry = read_object(value, ("id", "replicas"), ())
    with located(".replicas"):
        replicas = read_list(entry["replicas"])
    for position, replica in enumerate(replicas):
        check_text(f".replicas[{position}]", replica)
    return Task(id=entry["id"], replicas=tuple(replicas))


def _read_amounts(value: object, path: str) -> tuple[float, ...]:
    """A list of numbers or "inf"."""
    with located(path):
        entries = read_list(value)
    amounts: list[float] = []
    for position, entry in enumerate(entries):
        if entry == "inf":
            amounts.append(math.inf)
        elif _is_number(entry) and entry >= 0:
            amounts.append(float(entry))
        else:
            raise BadInstance(f"{path}[{position}]", shown(entry), AMOUNT)
    return tuple(amounts)


def _largest(cost: RemoteCost, n: int) -> float:
    """The largest finite cost of up to `n` remote tasks."""
    if isinstance(cost, TableCost):
        return max((value for value in cost.values if value < math.inf), default=0.0)
    return cost.at(n)


def _is_number(value: object) -> bool:
    """Whether `value` is a finite number; true and false are not."""
    return (type(value) is float or type(value) is int) and is_finite(value)
