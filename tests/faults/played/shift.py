"""Which key groups have to grow, and by how much, so that a round must begin; pure.

The load of a key group follows its traffic, so what a shift will lead to can be computed from the last window: the load
at speed 1 is what was measured, divided by the speed at which it was measured.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from trimtab_protocol.messages.names import WorkerId
from trimtab_protocol.messages.snapshot import Snapshot

FACTORS = (2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0)
SHARE = 3
"""One in so many of a worker's partitions grows: enough of them to be spread over the others again."""


class NoShift(Exception):
    """No shift of the load is large enough, or the loads are not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """These partitions are to flow `factor` times as fast as at speed 1, all others at speed 1.

    `load_distance` = what that leads to at the owners of the window, in percentage points.
    """

    worker: WorkerId
    partitions: tuple[int, ...]
    factor: float
    load_distance: float

    def speed_of(self, partition: int) -> float:
        """The speed of a partition."""
        return self.factor if partition in self.partitions else 1.0


def choose_shift(
    snapshot: Snapshot, speeds: Mapping[int, float], *, at_least: float, avoid: WorkerId | None = None
) -> Shift:
    """The smallest shift that overloads one worker so far that the load distance is `at_least` so many points.

    `speeds` = of each partition in the window.  `avoid` = not this worker, if another one will do.  Raises NoShift.
    """
    calm = _loads_at_speed_1(snapshot, speeds)
    workers = sorted({node.worker for node in snapshot.nodes}, key=lambda worker: (worker == avoid, worker))
    choices = [
        shift
        for factor in FACTORS
        for worker in workers
        if (shift := _shift(snapshot, calm, worker, factor)).load_distance >= at_least
    ]
    if not choices:
        raise NoShift(f"no shift by up to {FACTORS[-1]:g} leads to a load distance of {at_least:.1f}")
    return choices[0]


def load_distance(snapshot: Snapshot, loads: Mapping[tuple[WorkerId, int], float]) -> float:
    """Percentage points, of loads in cores by (worker, partition), as the controller computes it."""
    cores: dict[WorkerId, float] = defaultdict(float)
    for (worker, _), load in loads.items():
        cores[worker] += load
    mean = sum(cores.values()) / sum(node.capacity for node in snapshot.nodes)
    return 100.0 * max(abs(cores[node.worker] / node.capacity - mean) for node in snapshot.nodes)


def _shift(snapshot: Snapshot, calm: Mapping[tuple[WorkerId, int], float], worker: WorkerId, factor: float) -> Shift:
    own = sorted((place for place in calm if place[0] == worker), key=lambda place: -calm[place])
    partitions = tuple(partition for _, partition in own[: max(2, len(own) // SHARE)])
    loads = {place: load * (factor if place[1] in partitions else 1.0) for place, load in calm.items()}
    return Shift(worker=worker, partitions=partitions, factor=factor, load_distance=load_distance(snapshot, loads))


def _loads_at_speed_1(snapshot: Snapshot, speeds: Mapping[int, float]) -> dict[tuple[WorkerId, int], float]:
    """Cores by (worker, partition), of all operators together: a partition flows through all of them."""
    loads: dict[tuple[WorkerId, int], float] = defaultdict(float)
    for row in snapshot.key_groups:
        if row.cpu is None:
            raise NoShift(f"the load of {row.key_group} is not known")
        partition = row.key_group.partition
        loads[row.worker, partition] += row.cpu / speeds.get(partition, 1.0)
    return dict(loads)
