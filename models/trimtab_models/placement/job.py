"""The placement problem: a job's operators with their numbers of instances, and the slots that they may use.

Instances are numbered operator by operator (`PO1#0, PO1#1, ..., PO2#0, ...`), slots in the order in which schedulers
use them.  A *placement* is a list: instance -> slot.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from trimtab_models.instances.operator_graph import topological_order
from trimtab_models.instances.topology import Slot, Topology

Amounts = tuple[float, ...]
"""One number per resource, in an order chosen by the caller."""

UNPLACED = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorStream:
    """An edge between operators (by position); `weight` = value of the closeness of one sender, 1 in the paper."""

    source: int
    target: int
    keyed: bool
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The input of a scheduler.

    `demand` (per operator, for one instance) and `capacity` (per slot) are amounts of the same resources; the paper has
    none.  `running` = present slot of each instance, UNPLACED if its slot is gone; None before the first start.
    """

    operators: tuple[str, ...]
    instances: tuple[int, ...]
    streams: tuple[OperatorStream, ...]
    order: tuple[int, ...]  # of operators, senders first
    slots: tuple[Slot, ...]
    demand: tuple[Amounts, ...]
    capacity: tuple[Amounts, ...]
    running: tuple[int, ...] | None = None
    first: tuple[int, ...] = field(init=False)  # (O + 1) index of each operator's first instance
    operator_of: tuple[int, ...] = field(init=False)  # per instance

    def __post_init__(self) -> None:
        object.__setattr__(self, "first", tuple(accumulate(self.instances, initial=0)))
        owners = (operator for operator, count in enumerate(self.instances) for _ in range(count))
        object.__setattr__(self, "operator_of", tuple(owners))
        if self.running is not None and len(self.running) != len(self.operator_of):
            raise ValueError("running must name a slot, or UNPLACED, for every instance")
        widths = {len(amounts) for amounts in (*self.demand, *self.capacity)}
        if len(self.demand) != len(self.operators) or len(self.capacity) != len(self.slots) or len(widths) > 1:
            raise ValueError("every operator needs its demand and every slot its capacity of the same resources")

    def name(self, instance: int) -> str:
        """The name of an instance, such as `PO1#0`."""
        operator = self.operator_of[instance]
        return f"{self.operators[operator]}#{instance - self.first[operator]}"


def job_of(
    topology: Topology,
    *,
    rates: Sequence[float] | None = None,
    demand: Sequence[Amounts] | None = None,
    capacity: Mapping[Slot, Amounts] | None = None,
    running: Mapping[str, Slot] | None = None,
) -> Job:
    """The job of `topology`, with further input that the paper does not have.

    `rates` (tuples/s per edge) weight the edges such that the average sender on the average edge has weight 1; `demand`
    per operator, `capacity` per slot; `running` = instance name -> slot, missing = unplaced.
    """
    ids = tuple(operator.id for operator in topology.operators)
    at = {id_: position for position, id_ in enumerate(ids)}
    instances = tuple(operator.instances for operator in topology.operators)
    slots = sort_slots(topology.slots)[: topology.slots_wanted]
    weights = [1.0] * len(topology.edges)
    if rates is not None and sum(rates) > 0:
        senders = [instances[at[edge.source]] for edge in topology.edges]
        scale = sum(senders) / sum(rates)
        weights = [scale * rate / count for rate, count in zip(rates, senders, strict=True)]
    return Job(
        operators=ids,
        instances=instances,
        streams=tuple(
            OperatorStream(source=at[edge.source], target=at[edge.target], keyed=edge.keyed, weight=weight)
            for edge, weight in zip(topology.edges, weights, strict=True)
        ),
        order=tuple(at[id_] for id_ in topological_order(ids, topology.edges)),
        slots=tuple(slots),
        demand=tuple(demand) if demand is not None else ((),) * len(ids),
        capacity=tuple(capacity[slot] for slot in slots) if capacity is not None else ((),) * len(slots),
        running=None if running is None else _slots_of(running, ids, instances, slots),
    )


def _slots_of(
    running: Mapping[str, Slot], ids: Sequence[str], instances: Sequence[int], slots: Sequence[Slot]
) -> tuple[int, ...]:
    at: dict[Slot | None, int] = {slot: position for position, slot in enumerate(slots)}
    names = (f"{id_}#{number}" for id_, count in zip(ids, instances, strict=True) for number in range(count))
    return tuple(at.get(running.get(name), UNPLACED) for name in names)


def sort_slots(slots: Sequence[Slot]) -> list[Slot]:
    """The paper's Algorithm 1: in each round one slot of every node, nodes with most slots first, ports ascending."""
    ports: defaultdict[str, list[Slot]] = defaultdict(list)
    for slot in sorted(slots):
        ports[slot.node].append(slot)
    rank = {node: at for at, node in enumerate(sorted(ports, key=lambda node: (-len(ports[node]), node)))}
    turns = [(turn, rank[node], slot) for node, group in ports.items() for turn, slot in enumerate(group)]
    return [slot for _, _, slot in sorted(turns)]
