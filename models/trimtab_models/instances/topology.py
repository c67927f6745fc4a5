"""The topology of a job and the slots that it may use: the instance of the placement methods (even, lf).

Its graph of operators has no cycle, and not too many instances.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from trimtab_models.instances.reading import AtLeastOne, BadInstance, check_distinct
from trimtab_protocol.messages.codec import Key, Needed, Wire
from trimtab_protocol.messages.decode import as_json

MOST_INSTANCES = 1_000_000
VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """A stream from one operator to another; `keyed` = the key chooses the receiving instance."""

    source: Annotated[str, Key("from")]
    """Operator that sends."""
    target: Annotated[str, Key("to")]
    """Operator that receives."""
    keyed: bool = False
    """The key of a tuple chooses the instance that receives it, so that place makes no difference."""


def check_total(path: str, counts: Iterable[int | None]) -> None:
    """Raises BadInstance if the operators (a list at `path`) together have too many instances for a plan."""
    total = sum(count or 0 for count in counts)
    if total > MOST_INSTANCES:
        raise BadInstance(path, f"{as_json(total)} instances", f"at most {MOST_INSTANCES} in all")


def check_edges(path: str, edges: Sequence[Edge], operators: Collection[str]) -> None:
    """Raises BadInstance for an edge (of a list at `path`) with an unknown operator, or one that closes a cycle."""
    known = set(operators)
    for position, edge in enumerate(edges):
        for end, id_ in (("from", edge.source), ("to", edge.target)):
            if id_ not in known:
                raise BadInstance(f"{path}[{position}].{end}", as_json(id_), "the id of an operator")
    order = topological_order(operators, edges)
    if len(order) < len(known):
        position = _last_edge_of_cycle(edges, known - set(order))
        raise BadInstance(f"{path}[{position}]", "an edge that closes a cycle", "a graph of operators without cycles")


def topological_order(operators: Collection[str], edges: Sequence[Edge]) -> list[str]:
    """`operators`, each after all that send to it; without those on a cycle and all downstream of them."""
    waits = dict.fromkeys(operators, 0)
    targets: dict[str, list[str]] = {id_: [] for id_ in waits}
    for edge in edges:
        waits[edge.target] += 1
        targets[edge.source].append(edge.target)
    order = [id_ for id_, count in waits.items() if not count]
    for id_ in order:  # grows during the loop
        for target in targets[id_]:
            waits[target] -= 1
            if not waits[target]:
                order.append(target)
    return order


def _last_edge_of_cycle(edges: Sequence[Edge], left: Collection[str]) -> int:
    """Position of the last edge of a cycle among `left`, all of which receive from another one of them."""
    into: dict[str, int] = {}  # operator -> first edge to it from one of `left`
    for position, edge in enumerate(edges):
        if edge.source in left:
            into.setdefault(edge.target, position)
    id_ = next(iter(into))
    walked: dict[str, int] = {}
    while id_ not in walked:
        walked[id_] = into[id_]
        id_ = edges[into[id_]].source
    positions = list(walked.values())
    return max(positions[list(walked).index(id_) :])


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelOperator:
    """An operator and its number of instances."""

    id: str
    """Name of the operator."""
    instances: AtLeastOne
    """How many of it run."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Slot:
    """A process that runs instances, on a port of a node."""

    node: str
    """Name of the node."""
    port: int
    """Tells the slots of a node apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """A job and the free slots; at most `slots_wanted` of them are used, None = no limit."""

    WIRE: ClassVar = Wire(version=VERSION, version_key="version")

    operators: tuple[ParallelOperator, ...]
    """What the job consists of."""
    edges: Annotated[tuple[Edge, ...], Needed()] = ()
    """Which operator sends to which."""
    slots: tuple[Slot, ...]
    """The free slots."""
    slots_wanted: int | None = None
    """Use no more slots than these."""

    def __post_init__(self) -> None:
        ids = [operator.id for operator in self.operators]
        check_distinct("operators", ids)
        check_total("operators", (operator.instances for operator in self.operators))
        check_edges("edges", self.edges, ids)
        _check_distinct_slots(self.slots)


def _check_distinct_slots(slots: Sequence[Slot]) -> None:
    seen: set[Slot] = set()
    for position, slot in enumerate(slots):
        if slot in seen:
            raise BadInstance(
                f"slots[{position}]", f"port {as_json(slot.port)} of this node a second time", "each slot once"
            )
        seen.add(slot)
