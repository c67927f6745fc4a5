"""The paper's heuristic (algorithms 1 and 2), and Storm's round robin.

The paper leaves two cases open.  Among machines with equal TCU the least used one takes an instance, and if an operator
finds no room, the first assignment is repeated at half the rate.  The best plan seen is kept.
"""

import numpy as np

from trimtab_models.sizing.problem import ROUNDING, Floats, Ints, SizingProblem, max_rate, use_of
from trimtab_models.solving import StopRule

LAST_SCALE = 2**20  # ends the search at relative steps of the rate below 1e-6
HALVINGS = 60


def round_robin(instances: Ints, machines: int) -> list[int]:
    """Instance -> machine; instances are numbered operator by operator, and i goes to machine i mod M."""
    return [instance % machines for instance in range(int(instances.sum()))]


def placement_of(problem: SizingProblem, instances: Ints, assignment: list[int]) -> Ints:
    """(O, M) number of instances of each operator that `assignment` puts on each machine."""
    placement = np.zeros((len(problem.operators), len(problem.machines)), np.int64)
    for operator, machine in zip(np.repeat(np.arange(len(instances)), instances).tolist(), assignment, strict=True):
        placement[operator, machine] += 1
    return placement


def first_assignment(problem: SizingProblem, rate: float) -> Ints | None:
    """(O, M) one instance per operator, on the machine with room that it uses least; None without room."""
    placement = np.zeros((len(problem.operators), len(problem.machines)), np.int64)
    used = np.zeros(problem.capacity.shape)
    for operator in range(len(problem.operators)):
        added = _instance_use(problem, operator, 1, rate)
        machine = _cheapest(problem, used, added)
        if machine is None:
            return None
        placement[operator, machine] = 1
        used[machine] += added[machine]
    return placement


def maximize_throughput(problem: SizingProblem, rate: float, limit: int, stop: StopRule) -> Ints | None:
    """(O, M) the placement of at most `limit` instances with the largest rate seen; None without a first one."""
    start = None
    for _ in range(HALVINGS):
        start = first_assignment(problem, rate)
        if start is not None:
            break
        rate /= 2
    else:
        start = first_assignment(problem, 0.0)
    if start is None:
        return None
    best = stable = current = start
    stable_rate, scale = rate, 1
    while scale <= LAST_SCALE and not stop():
        over = np.flatnonzero(use_of(problem, current, rate) > problem.capacity * (1 + ROUNDING))
        if not len(over):
            if max_rate(problem, current) > max_rate(problem, best):
                best = current
            stable, stable_rate = current, rate
            rate += rate / scale
            continue
        grown = _with_instance(problem, current, rate, int(over[0])) if current.sum() < limit else None
        if grown is None:
            scale *= 2
            current, rate = stable, stable_rate * (1 + 1 / scale)
        else:
            current = grown
    return best


def _with_instance(problem: SizingProblem, placement: Ints, rate: float, machine: int) -> Ints | None:
    """`placement` with one more instance of the hottest operator of `machine`, where it costs least."""
    counts = placement.sum(axis=1)
    tcu = problem.per_rate[:, machine] * problem.relative * rate / counts + problem.per_instance[:, machine]
    operator = int(np.where(placement[:, machine] > 0, tcu, -1).argmax())
    added = _instance_use(problem, operator, int(counts[operator]) + 1, rate)
    others = placement.copy()
    others[operator] = 0
    relieved = use_of(problem, others, rate) + placement[operator] * added
    cheapest = _cheapest(problem, relieved, added)
    if cheapest is None:
        return None
    grown = placement.copy()
    grown[operator, cheapest] += 1
    return grown


def _instance_use(problem: SizingProblem, operator: int, instances: int, rate: float) -> Floats:
    """(M,) use of each machine by one of `instances` instances of `operator`."""
    share = problem.relative[operator] * rate / instances
    use: Floats = problem.per_rate[operator] * share + problem.per_instance[operator]
    return use


def _cheapest(problem: SizingProblem, used: Floats, added: Floats) -> int | None:
    room = used + added <= problem.capacity
    if not room.any():
        return None
    cost = np.where(room, added, np.inf)
    return int(np.lexsort((used, cost))[0])
