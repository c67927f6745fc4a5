"""Operators with their costs, and the available machines: the instance of the sizing methods (hetero, round-robin).

Rates are in tuples per second. `cost` (the paper's e) is percent of a machine per tuple/s, `fixed` (MET) percent per
instance, both by machine type; `alpha` is tuples out per tuple in.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from trimtab_models.instances.reading import (
    BadInstance,
    check_amounts,
    check_count,
    check_distinct,
    check_flag,
    check_number,
    check_text,
    check_version,
    located,
    parse_document,
    read_each,
    read_object,
    shown,
    step,
)
from trimtab_models.instances.topology import Edge, check_edges, check_total

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A worker node, all of whose CPU is available."""

    id: str
    """Name of the machine."""
    type: str
    """Machines of one type cost an operator the same."""

    def __post_init__(self) -> None:
        check_text(".id", self.id)
        check_text(".type", self.type)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostedOperator:
    """An operator, its cost per machine type, and its number of instances if given."""

    id: str
    """Name of the operator."""
    alpha: float
    """Tuples out per tuple in."""
    cost: Mapping[str, float]
    """Type of machine to percent of it per tuple/s (the paper's e)."""
    fixed: Mapping[str, float]
    """Type of machine to percent of it per instance (the paper's MET)."""
    source: bool = False
    """It emits tuples and receives none."""
    instances: int | None = None
    """How many run; `round-robin` needs it, `hetero` finds it."""

    def __post_init__(self) -> None:
        check_text(".id", self.id)
        check_number(".alpha", self.alpha)
        check_amounts(".cost", self.cost)
        check_amounts(".fixed", self.fixed)
        check_flag(".source", self.source)
        if self.instances is not None:
            check_count(".instances", self.instances, least=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class SizingInstance:
    """A job whose size is sought.  Every source emits `source_rate`; `max_instances` None = no limit."""

    machines: tuple[Machine, ...]
    """Where instances can run."""
    source_rate: float
    """Tuples per second that every source is to emit."""
    operators: tuple[CostedOperator, ...]
    """What the job consists of."""
    edges: tuple[Edge, ...] = ()
    """Which operator sends to which."""
    max_instances: int | None = None
    """Of all operators together."""

    def __post_init__(self) -> None:
        check_distinct(".machines", (machine.id for machine in self.machines))
        check_number(".source_rate", self.source_rate, positive=True)
        if self.max_instances is not None:
            check_count(".max_instances", self.max_instances, least=1)
        check_distinct(".operators", (operator.id for operator in self.operators))
        check_total(".operators", (operator.instances for operator in self.operators))
        check_edges(".edges", self.edges, [operator.id for operator in self.operators])
        self._check_sources()
        self._check_costs()

    def _check_sources(self) -> None:
        sources = {operator.id for operator in self.operators if operator.source}
        if not sources:
            raise BadInstance(".operators", "no source", "at least one operator that is a source")
        for position, edge in enumerate(self.edges):
            if edge.target in sources:
                raise BadInstance(f".edges[{position}].to", shown(edge.target), "an operator that is no source")

    def _check_costs(self) -> None:
        types = list(dict.fromkeys(machine.type for machine in self.machines))
        for position, operator in enumerate(self.operators):
            for name, amounts in (("cost", operator.cost), ("fixed", operator.fixed)):
                for type_ in types:
                    if type_ not in amounts:
                        path = f".operators[{position}].{name}{step(type_)}"
                        raise BadInstance(path, "nothing", "a number for this type of machine")


def parse_sizing(text: str | bytes) -> SizingInstance:
    """The instance in a JSON text. Raises `BadInstance`."""
    return decode_sizing(parse_document(text))


def decode_sizing(document: object) -> SizingInstance:
    """The instance in a decoded JSON document. Raises `BadInstance`."""
    with located("$"):
        keys = ("version", "machines", "source_rate", "operators", "edges")
        entry = read_object(document, keys, ("max_instances",))
        check_version(".version", entry["version"], VERSION)
        machines = read_each(entry["machines"], ".machines", _read_machine)
        operators = read_each(entry["operators"], ".operators", _read_operator)
        edges = read_each(entry["edges"], ".edges", _read_edge)
        if "max_instances" in entry:  # in a document, an absent key means no limit
            check_count(".max_instances", entry["max_instances"], least=1)
        return SizingInstance(
            machines=machines,
            source_rate=entry["source_rate"],
            operators=operators,
            edges=edges,
            max_instances=entry.get("max_instances"),
        )


def _read_machine(value: object) -> Machine:
    return Machine(**read_object(value, ("id", "type"), ()))


def _read_operator(value: object) -> CostedOperator:
    entry = read_object(value, ("id", "alpha", "cost", "fixed"), ("source", "instances"))
    if "instances" in entry:
        check_count(".instances", entry["instances"], least=1)
    return CostedOperator(**entry)


def _read_edge(value: object) -> Edge:
    entry = read_object(value, ("from", "to"), ())
    return Edge(source=entry["from"], target=entry["to"])
