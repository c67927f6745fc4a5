"""What the last snapshot showed, for decisions and the status."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from trimtab_controller.decider.collocation.worth import Together
from trimtab_controller.decider.concerns import NO_USE, ClusterUse, Concern, WorkerUse
from trimtab_controller.decider.decision import PoolWorker, SizeVerdict
from trimtab_controller.decider.forecast.rounds import ForecastReport
from trimtab_controller.decider.hosts.headroom import NO_CAPACITY, Capacity
from trimtab_controller.decider.hosts.hosts import HostsSeen
from trimtab_controller.decider.hosts.resources import DISK
from trimtab_controller.decider.observing.evaluate import Evaluation
from trimtab_controller.decider.observing.unknown_load import Gaps
from trimtab_controller.decider.observing.view import NotReady, SmoothedView
from trimtab_controller.decider.reasons import SkipReason
from trimtab_controller.decider.rules.known import KnownRule
from trimtab_controller.decider.standbys.choice import Survival
from trimtab_models.elastic.matching import NodeLevel, level_of
from trimtab_protocol.messages.names import AppId, HostId, WorkerId
from trimtab_protocol.messages.snapshot import Snapshot

NOTHING_SEEN = NotReady(reason=SkipReason.NO_SNAPSHOT, detail="the stream has not published a window")


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """The levels that are known."""

    workers: Mapping[WorkerId, NodeLevel] = field(default_factory=dict)
    hosts: Mapping[HostId, NodeLevel] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "workers", MappingProxyType(dict(self.workers)))
        object.__setattr__(self, "hosts", MappingProxyType(dict(self.hosts)))


def levels_of(use: ClusterUse, seen: HostsSeen) -> Levels:
    """How busy all workers and hosts are: light, moderate or heavy, by the resource of which most is used.

    The levels are those of the Elastic Allocator.  A worker has one resource, its CPU: what is asked of it, or what its
    process uses where that is unknown.  A host has CPU, memory and link, as far as its agent measures them.  A disk is
    full or not, but never busy.
    """
    busy = {worker: _busy_pct(found) for worker, found in use.workers.items()}
    used = {name: [pct for what, pct in host.used.items() if what != DISK] for name, host in seen.hosts.items()}
    return Levels(
        workers={worker: level_of(pct) for worker, pct in busy.items() if pct is not None},
        hosts={name: level_of(max(found)) for name, found in used.items() if found},
    )


def _busy_pct(use: WorkerUse) -> float | None:
    return max((pct for pct in (use.used_pct, use.demand_pct) if pct is not None), default=None)


@dataclass(slots=True)
class WindowResult:
    """What the last snapshot showed, for the status.

    `not_ready`: why nothing is known of any app.  `gaps`: per app, what is not known of it.  `missing_standbys`: per
    app, the number of key groups that have fewer standbys than the app asks for.  `pool`: per app, the workers that can
    be started.  `survivals`: per app, what the loss of any one host leads to.  `sizes`: what should become of the
    number of workers of each app.  `capacity`: hosts, and how much more fits.  `local_sends`: per app, the share of the
    tuples between key groups that skipped the broker; missing while unknown.  `together`: per app, what collocation can
    bring.  `following`: per app, what following a key group costs, as a share of its load; missing while unmeasured.
    `forecasts`: the demand to come of each app.  `rules`: those of controller.toml and of operators.  `awaited`: the
    owners in placements that are away and may come back any moment.  `revoked`: hosts whose key is revoked, so that
    what is said for them is dropped.
    """

    snapshot: Snapshot | None = None
    views: dict[AppId, SmoothedView | NotReady] = field(default_factory=dict)
    evaluations: dict[AppId, Evaluation] = field(default_factory=dict)
    use: ClusterUse = NO_USE
    concerns: tuple[Concern, ...] = ()
    not_ready: NotReady | None = NOTHING_SEEN
    missing_standbys: dict[AppId, int] = field(default_factory=dict)
    pool: dict[AppId, tuple[PoolWorker, ...]] = field(default_factory=dict)
    gaps: dict[AppId, Gaps] = field(default_factory=dict)
    survivals: dict[AppId, Survival] = field(default_factory=dict)
    sizes: dict[AppId, SizeVerdict] = field(default_factory=dict)
    capacity: Capacity = NO_CAPACITY
    local_sends: dict[AppId, float] = field(default_factory=dict)
    together: dict[AppId, Together] = field(default_factory=dict)
    following: dict[AppId, float] = field(default_factory=dict)
    forecasts: dict[AppId, ForecastReport] = field(default_factory=dict)
    rules: tuple[KnownRule, ...] = ()
    awaited: frozenset[WorkerId] = frozenset()
    revoked: frozenset[HostId] = frozenset()

    @property
    def levels(self) -> Levels:
        """How busy workers and hosts are."""
        return levels_of(self.use, self.capacity.seen)

    @property
    def hosts(self) -> frozenset[HostId]:
        """The hosts that report, and whose word counts."""
        found = (row.host for row in self.snapshot.hosts) if self.snapshot is not None else ()
        return frozenset(found) - self.revoked

    def without_news(self, now: float) -> NotReady:
        """Why nothing is known of any app when no window has arrived for long; `now` in epoch seconds."""
        if self.snapshot is None:
            return NOTHING_SEEN
        age_s = now - self.snapshot.end_ms / 1000.0
        return NotReady(reason=SkipReason.STALE_SNAPSHOT, detail=f"the last window ended {age_s:.0f} s ago")
