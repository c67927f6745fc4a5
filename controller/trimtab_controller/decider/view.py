"""What the decider knows of one app in one window, or why it does not know enough."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from types import MappingProxyType

from trimtab_controller.decider.owned import Owned, OwnedTable
from trimtab_controller.decider.reasons import NOT_READY, SkipReason
from trimtab_protocol.messages.names import AppId, HostId, KeyGroup, WorkerId

NAMED = 5
"""So many names are shown in a line; the others are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotReady:
    """Too little is known to plan; `app` None = of the whole cluster."""

    reason: SkipReason
    detail: str
    app: AppId | None = None

    def __post_init__(self) -> None:
        if self.reason not in NOT_READY:
            raise ValueError(f"{self.reason} says nothing about what is missing")


def first_few(names: Iterable[object], count: int | None = None) -> str:
    """The first names, and how many more there are; `count` = of how many, where not all are given."""
    if count is None:
        names = list(names)
        count = len(names)
    first = ", ".join(map(str, islice(names, NAMED)))
    return first + (f" and {count - NAMED} more" if count > NAMED else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A worker: `capacity` in cores; `draining`: it is to be emptied."""

    id: WorkerId
    host: HostId
    capacity: float
    draining: bool


@dataclass(frozen=True, kw_only=True)
class AppView:
    """One app, completely known: every key group with its owner and load, every owner a running worker.

    `start_s`, `end_s` bound the window (epoch seconds); `flows` are tuples per second between key groups.  `key_groups`
    becomes an `OwnedTable`, whatever sequence is given.  `standbys` = how many each key group should have;
    None = not known, older agents do not say it.
    """

    app: AppId
    start_s: float
    end_s: float
    workers: tuple[Worker, ...]
    key_groups: Sequence[Owned]
    flows: Mapping[tuple[KeyGroup, KeyGroup], float]
    standbys: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "key_groups", OwnedTable.of(self.app, self.key_groups))
        object.__setattr__(self, "flows", MappingProxyType(dict(self.flows)))

    @property
    def owned(self) -> OwnedTable:
        """`key_groups` as a table."""
        return OwnedTable.of(self.app, self.key_groups)

    @property
    def owners(self) -> dict[KeyGroup, WorkerId]:
        """Who owns which key group; large, and built at each call."""
        return self.owned.owners

    @cached_property
    def hosts(self) -> dict[WorkerId, HostId]:
        """The host of every worker."""
        return {worker.id: worker.host for worker in self.workers}

    @property
    def draining(self) -> tuple[WorkerId, ...]:
        """The workers that are to be emptied."""
        return tuple(worker.id for worker in self.workers if worker.draining)

    def owned_by(self, worker: WorkerId) -> int:
        """How many key groups the worker owns."""
        return self.owned.owned_by(worker)
