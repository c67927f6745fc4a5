"""What is known of restores when their targets are chosen: costs, copies on disks, and what hosts restore already."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from trimtab_controller.decider.window.copies import Held
from trimtab_controller.execution.restore_costs import LearnedRestores, slots_of
from trimtab_controller.execution.state import Execution, HandoverPhase
from trimtab_models.dyndl.targets import pace_of
from trimtab_protocol.messages.names import HostId
from trimtab_protocol.messages.snapshot import Snapshot

TARGET_OPERATIONS = 150_000
"""Trials of a restore on a worker in one decision: `benchmarks/orphan_restores.py --time` shows what they cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restores:
    """What is known of restores: their costs, copies on disks, cores of hosts, and what hosts restore already.

    `running` = bytes that each restore on a host has still to read.  `band` = how far a worker may get from the mean
    use, in percent of its capacity.
    """

    learned: LearnedRestores = field(default_factory=LearnedRestores)
    held: Held = field(default_factory=Held)
    cores: Mapping[HostId, float] = field(default_factory=dict)
    running: Mapping[HostId, Sequence[int]] = field(default_factory=dict)
    band: float = 0.0

    def slots(self, host: HostId) -> int:
        """How many restores the host runs at the same time at most."""
        return slots_of(self.cores.get(host), self.learned.most_at_once)

    def pace(self, host: HostId) -> float:
        """Time per unit of size of the host, at its best number of restores at a time."""
        return pace_of(self.learned.cost(host), self.slots(host))

    def beside(self, more: Iterable[tuple[HostId, int]]) -> "Restores":
        """The same, where hosts have to restore so many more bytes first."""
        running = defaultdict(list, {host: list(sizes) for host, sizes in self.running.items()})
        for host, size in more:
            running[host].append(size)
        return replace(self, running=running)


def what_restores(
    snapshot: Snapshot | None, execution: Execution, learned: LearnedRestores, held: Held, band: float = 0.0
) -> Restores:
    """What the newest window, the plans in flight and the new standbys show."""
    running = {host: list(sizes) for host, sizes in learned.building.items()}
    for handover in (each for row in execution.in_flight for each in row.handovers):
        if handover.phase is HandoverPhase.PREPARING:
            running.setdefault(handover.target_host, []).append(handover.to_restore())
    hosts = snapshot.hosts if snapshot else ()
    cores = {row.host: row.cores for row in hosts if row.cores}
    return Restores(learned=learned, held=held, cores=cores, running=running, band=band)
