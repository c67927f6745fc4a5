"""How busy workers and hosts are: light, moderate or heavy, by the resource of which most is used (Elastic Allocator).

A worker has one resource, its CPU: what is asked of it, or what its process uses where that is unknown.  A host has
CPU, memory and link, as far as its agent measures them.  A disk is full or not, but never busy.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from trimtab_controller.decider.concerns import ClusterUse, WorkerUse
from trimtab_controller.decider.hosts.hosts import HostsSeen
from trimtab_controller.decider.hosts.resources import DISK
from trimtab_models.elastic import NodeLevel, level_of
from trimtab_protocol.messages.names import HostId, WorkerId


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """The levels that are known."""

    workers: Mapping[WorkerId, NodeLevel] = field(default_factory=dict)
    hosts: Mapping[HostId, NodeLevel] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "workers", MappingProxyType(dict(self.workers)))
        object.__setattr__(self, "hosts", MappingProxyType(dict(self.hosts)))


def levels_of(use: ClusterUse, seen: HostsSeen) -> Levels:
    """The levels of all workers and hosts of the last window."""
    busy = {worker: _busy_pct(found) for worker, found in use.workers.items()}
    used = {name: [pct for what, pct in host.used.items() if what != DISK] for name, host in seen.hosts.items()}
    return Levels(
        workers={worker: level_of(pct) for worker, pct in busy.items() if pct is not None},
        hosts={name: level_of(max(found)) for name, found in used.items() if found},
    )


def _busy_pct(use: WorkerUse) -> float | None:
    return max((pct for pct in (use.used_pct, use.demand_pct) if pct is not None), default=None)
