"""Operators with their costs, and the available machines: the instance of the sizing methods (hetero, round-robin).

Rates are in tuples per second. `cost` (the paper's e) is percent of a machine per tuple/s, `fixed` (MET) percent per
instance, both by machine type; `alpha` is tuples out per tuple in.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from trimtab_models.instances.reading import AtLeastOne, BadInstance, Positive, check_distinct
from trimtab_models.instances.topology import Edge, check_edges, check_total
from trimtab_protocol.messages.codec import Needed, NotSent, Wire
from trimtab_protocol.messages.decode import as_json, as_step

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A worker node, all of whose CPU is available."""

    id: str
    """Name of the machine."""
    type: str
    """Machines of one type cost an operator the same."""


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
    instances: AtLeastOne | None = None
    """How many run; `round-robin` needs it, `hetero` finds it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnkeyedEdge(Edge):
    """An edge of a file that does not say whether the key of a tuple chooses the instance."""

    keyed: Annotated[bool, NotSent()] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SizingInstance:
    """A job whose size is sought.  Every source emits `source_rate`; `max_instances` None = no limit."""

    WIRE: ClassVar = Wire(version=VERSION, version_key="version")

    machines: tuple[Machine, ...]
    """Where instances can run."""
    source_rate: Positive
    """Tuples per second that every source is to emit."""
    operators: tuple[CostedOperator, ...]
    """What the job consists of."""
    edges: Annotated[tuple[UnkeyedEdge, ...], Needed()] = ()
    """Which operator sends to which."""
    max_instances: AtLeastOne | None = None
    """Of all operators together."""

    def __post_init__(self) -> None:
        check_distinct("machines", (machine.id for machine in self.machines))
        check_distinct("operators", (operator.id for operator in self.operators))
        check_total("operators", (operator.instances for operator in self.operators))
        check_edges("edges", self.edges, [operator.id for operator in self.operators])
        self._check_sources()
        self._check_costs()

    def _check_sources(self) -> None:
        sources = {operator.id for operator in self.operators if operator.source}
        if not sources:
            raise BadInstance("operators", "no source", "at least one operator that is a source")
        for position, edge in enumerate(self.edges):
            if edge.target in sources:
                raise BadInstance(f"edges[{position}].to", as_json(edge.target), "an operator that is no source")

    def _check_costs(self) -> None:
        types = list(dict.fromkeys(machine.type for machine in self.machines))
        for position, operator in enumerate(self.operators):
            for name, amounts in (("cost", operator.cost), ("fixed", operator.fixed)):
                for type_ in types:
                    if type_ not in amounts:
                        path = f"operators[{position}].{name}{as_step(type_)}"
                        raise BadInstance(path, "nothing", "a number for this type of machine")
