"""The topology of a job and the slots that it may use: the instance of the placement methods (even, lf)."""

from collections.abc import Sequence
from dataclasses import dataclass

from trimtab_models.instances.operator_graph import Edge, check_edges, check_total
from trimtab_models.instances.reading import (
    BadInstance,
    check_count,
    check_distinct,
    check_text,
    check_version,
    located,
    parse_document,
    read_each,
    read_object,
    shown,
)

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelOperator:
    """An operator and its number of instances."""

    id: str
    """Name of the operator."""
    instances: int
    """How many of it run."""

    def __post_init__(self) -> None:
        check_text(".id", self.id)
        check_count(".instances", self.instances, least=1)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Slot:
    """A process that runs instances, on a port of a node."""

    node: str
    """Name of the node."""
    port: int
    """Tells the slots of a node apart."""

    def __post_init__(self) -> None:
        check_text(".node", self.node)
        check_count(".port", self.port)


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """A job and the free slots; at most `slots_wanted` of them are used, None = no limit."""

    operators: tuple[ParallelOperator, ...]
    """What the job consists of."""
    edges: tuple[Edge, ...] = ()
    """Which operator sends to which."""
    slots: tuple[Slot, ...]
    """The free slots."""
    slots_wanted: int | None = None
    """Use no more slots than these."""

    def __post_init__(self) -> None:
        ids = [operator.id for operator in self.operators]
        check_distinct(".operators", ids)
        check_total(".operators", (operator.instances for operator in self.operators))
        check_edges(".edges", self.edges, ids)
        _check_distinct_slots(self.slots)
        if self.slots_wanted is not None:
            check_count(".slots_wanted", self.slots_wanted)


def _check_distinct_slots(slots: Sequence[Slot]) -> None:
    seen: set[Slot] = set()
    for position, slot in enumerate(slots):
        if slot in seen:
            raise BadInstance(
                f".slots[{position}]", f"port {shown(slot.port)} of this node a second time", "each slot once"
            )
        seen.add(slot)


def parse_topology(text: str | bytes) -> Topology:
    """The instance in a JSON text. Raises `BadInstance`."""
    return decode_topology(parse_document(text))


def decode_topology(document: object) -> Topology:
    """The instance in a decoded JSON document. Raises `BadInstance`."""
    with located("$"):
        entry = read_object(document, ("version", "operators", "edges", "slots"), ("slots_wanted",))
        check_version(".version", entry["version"], VERSION)
        operators = read_each(entry["operators"], ".operators", _read_operator)
        edges = read_each(entry["edges"], ".edges", _read_edge)
        slots = read_each(entry["slots"], ".slots", _read_slot)
        if "slots_wanted" in entry:  # in a document, an absent key means no limit
            check_count(".slots_wanted", entry["slots_wanted"])
        return Topology(operators=operators, edges=edges, slots=slots, slots_wanted=entry.get("slots_wanted"))


def _read_operator(value: object) -> ParallelOperator:
    return ParallelOperator(**read_object(value, ("id", "instances"), ()))


def _read_edge(value: object) -> Edge:
    entry = read_object(value, ("from", "to"), ("keyed",))
    return Edge(source=entry["from"], target=entry["to"], keyed=entry.get("keyed", False))


def _read_slot(value: object) -> Slot:
    return Slot(**read_object(value, ("node", "port"), ()))
