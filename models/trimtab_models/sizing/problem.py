"""The sizing problem as arrays: the use of every machine by every instance, per rate and fixed.

Rates propagate: a source emits its rate, every operator alpha times its input.  Each downstream operator receives all
of that, split evenly over its instances; several inputs add up.  All rates are therefore `relative` to the rate of the
sources, and the use of a machine is linear in that rate:

    use(m) = sum over o of count(o, m) * (per_rate(o, m) * input(o) / instances(o) + per_instance(o, m))
    input(o) = relative(o) * source rate

`per_rate` is the paper's e, `per_instance` its MET, in percent of the CPU.  A *placement* is an int array (O, M) of
counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from trimtab_models.instances.reading import BadInstance, is_finite
from trimtab_models.instances.sizing import CostedOperator, SizingInstance
from trimtab_models.instances.topology import MOST_INSTANCES, Edge, topological_order

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

FULL = 100.0  # percent
ROUNDING = 1e-12  # relative tolerance for sums of floats in different order


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SizingProblem:
    """O operators, M machines.  Nobody writes to the arrays."""

    operators: tuple[str, ...]
    machines: tuple[str, ...]
    relative: Floats  # (O,) input rate per unit of source rate
    per_rate: Floats  # (O, M) use per tuple/s
    per_instance: Floats  # (O, M)
    capacity: Floats  # (M,)
    source_rate: float
    max_instances: int | None = None
    instances: tuple[int, ...] | None = None  # if given
    classes: tuple[Ints, ...] = field(init=False)  # groups of equal machines, in order

    def __post_init__(self) -> None:
        shape = (len(self.operators), len(self.machines))
        if self.per_rate.shape != shape or self.per_instance.shape != shape or self.relative.shape != shape[:1]:
            raise ValueError("every operator needs its use of every machine")
        if self.capacity.shape != shape[1:] or not (self.capacity > 0).all():
            raise ValueError("every machine needs a capacity above 0")
        groups: dict[bytes, list[int]] = {}
        for machine in range(shape[1]):
            column = (self.per_rate[:, machine], self.per_instance[:, machine], self.capacity[machine])
            groups.setdefault(b"".join(part.tobytes() for part in column), []).append(machine)
        object.__setattr__(self, "classes", tuple(np.array(group) for group in groups.values()))

    @property
    def throughput(self) -> float:
        """The sum of all operators' input rates per unit of source rate."""
        return float(self.relative.sum())


def problem_of(instance: SizingInstance) -> SizingProblem:
    """The arrays of `instance`.  Raises BadInstance if rates overflow, or if no finite rate fills a machine."""
    operators, machines = instance.operators, instance.machines
    shape = (len(operators), len(machines))
    cost = np.array([[each.cost[machine.type] for machine in machines] for each in operators], np.float64)
    fixed = np.array([[each.fixed[machine.type] for machine in machines] for each in operators], np.float64)
    relative = relative_rates(operators, instance.edges)
    if machines:
        with np.errstate(divide="ignore", over="ignore"):
            most = FULL * len(machines) / (relative * cost.min(axis=1)).sum() * max(1.0, relative.sum())
        if not is_finite(float(most)):
            found = "no cost that fills a machine at a finite source rate"
            raise BadInstance("$.operators", found, "an operator with a larger cost")
    counts = [each.instances for each in operators if each.instances is not None]
    return SizingProblem(
        operators=tuple(each.id for each in operators),
        machines=tuple(machine.id for machine in machines),
        relative=relative,
        per_rate=cost.reshape(shape),
        per_instance=fixed.reshape(shape),
        capacity=np.full(len(machines), FULL),
        source_rate=instance.source_rate,
        max_instances=None if instance.max_instances is None else min(instance.max_instances, MOST_INSTANCES),
        instances=tuple(counts) if len(counts) == len(operators) else None,
    )


def relative_rates(operators: Sequence[CostedOperator], edges: Sequence[Edge]) -> Floats:
    """(O,) the input rate of every operator per unit of source rate."""
    by_id = {operator.id: operator for operator in operators}
    rate = {operator.id: 1.0 if operator.source else 0.0 for operator in operators}
    outgoing: dict[str, list[str]] = {id_: [] for id_ in by_id}
    for edge in edges:
        outgoing[edge.source].append(edge.target)
    for id_ in topological_order(by_id, edges):
        for target in outgoing[id_]:
            rate[target] += by_id[id_].alpha * rate[id_]
    for position, each in enumerate(operators):
        costliest = max((*each.cost.values(), 1.0))
        if not is_finite(rate[each.id] * costliest * MOST_INSTANCES):
            raise BadInstance(f"$.operators[{position}]", "an input rate beyond every number", "a finite rate")
    return np.array([rate[each.id] for each in operators], np.float64)


def use_of(problem: SizingProblem, placement: Ints, rate: float) -> Floats:
    """(M,) use of every machine at source rate `rate`."""
    slope, base = _lines(problem, placement)
    return slope * rate + base


def max_rate(problem: SizingProblem, placement: Ints) -> float:
    """The largest source rate at which no machine is over its capacity; negative if there is none."""
    slope, base = _lines(problem, placement)
    room = problem.capacity * (1 - ROUNDING) - base
    if (room < -2 * ROUNDING * problem.capacity).any():
        return -1.0
    with np.errstate(over="ignore"):
        return float((np.maximum(0, room[slope > 0]) / slope[slope > 0]).min(initial=np.inf))


def sustains_start(problem: SizingProblem, rate: float) -> bool:
    """Whether `rate` reaches the given source rate, up to rounding."""
    return rate >= problem.source_rate * (1 - 1e-9)


def _lines(problem: SizingProblem, placement: Ints) -> tuple[Floats, Floats]:
    share = placement * (problem.relative / np.maximum(1, placement.sum(axis=1)))[:, None]
    return (problem.per_rate * share).sum(axis=0), (problem.per_instance * placement).sum(axis=0)
