"""The status: what the controller sees and does, for `trimtab status` and dashboards.  Controller -> operator.

The topic has one record with key `controller` for the acting controller and one with key `dry-run` for a dry run.
Loads are in percent of the worker's capacity, load distances in percentage points (pp), times in epoch seconds.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, ClassVar

from trimtab_protocol.messages.codec import Most, Name, Range, Text, Wire, WrittenAs, decoded, encoded
from trimtab_protocol.messages.names import AppId, Epoch, HostId, WorkerId
from trimtab_protocol.messages.proposals import MAX_PROPOSALS, ProposalStatus
from trimtab_protocol.messages.refused_hosts import RefusedHosts
from trimtab_protocol.messages.report import Absence, WorkerState
from trimtab_protocol.messages.round_status import RoundStatus
from trimtab_protocol.messages.status_balance import BalanceStatus as BalanceStatus
from trimtab_protocol.messages.status_capacity import CapacityStatus
from trimtab_protocol.messages.status_capacity import HostStatus as HostStatus
from trimtab_protocol.messages.status_collocation import CollocationStatus
from trimtab_protocol.messages.status_disruption import DisruptionStatus
from trimtab_protocol.messages.status_forecast import ForecastStatus
from trimtab_protocol.messages.status_restart import RestartStatus
from trimtab_protocol.messages.status_rules import MAX_TOLD, RuleStatus
from trimtab_protocol.messages.status_signatures import SignatureStatus
from trimtab_protocol.messages.status_size import SizeStatus

VERSION = 1
MAX_NODES = 100_000
"""Workers, and hosts, of one status."""
MAX_ROUNDS = 1_000
"""Rounds of one status."""
MAX_FIXED = 100_000
"""Fixed workers of one app."""
MAX_CONCERNS = 100_000
"""Concerns of one status."""
MAX_INTENTS = 100_000
"""Intents of one status."""
Line = Annotated[str, Text(4000)]
Share = Annotated[float, Range(0.0, 1.0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """A worker in the last snapshot; None = unknown.

    `capacity` in cores; `load_pct` = demand of its key groups (smoothed), as plans balance it; `used_pct` = load of its
    process, `demand_pct` = what is asked of that process, both in the last window; all in percent of the capacity.
    `backlog` = inputs that wait; `memory_bytes` = memory of the process; `key_groups` = how many it owns; `steering` =
    whether it takes commands; `reason` = why it does not, or, while it does, what it lacks; of a worker that is
    away, how it ended; `absence` = why a worker that its agent can start is away; `startable` = whether its agent can
    start it for the app that it runs.  `level` = light, moderate or heavy,
    by what is asked of it.
    """

    worker: WorkerId
    host: HostId
    app: AppId | None
    state: WorkerState
    capacity: float
    load_pct: float | None
    key_groups: int
    draining: bool
    steering: bool
    used_pct: float | None = None
    demand_pct: float | None = None
    backlog: int | None = None
    memory_bytes: int | None = None
    reason: Annotated[str | None, Text(200)] = None
    absence: Absence | None = None
    level: Name | None = None
    startable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedStatus:
    """A worker that plans are made around; `reason` = a name from the reasons to do nothing, `text` = more about it."""

    worker: WorkerId
    reason: Name
    text: Annotated[str, Text(200, least=0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class AppStatus:
    """One app; None = unknown, for the reason in `not_ready`.

    `load_distance` (pp) and `mean_load` (percent) are smoothed; `noise` = how much of the load distance may be noise,
    estimated from the prediction errors of the last windows (pp); `collocation` = share of the tuples between key
    groups that stay within a worker, `local_sends` = that skipped the broker in the last window; `missing_standbys` =
    key groups with fewer standbys than the app asks for; `fixed` = workers that take no part in plans;
    `stale_key_groups` = key groups whose load the last window did not measure, `unknown_load` = their share of the
    app's load; `size` None: the controller does not judge it; `capacity` = how much more fits; `mode` of its
    plans: dry-run, approve or act; `remote_costs` = what tuples between workers cost; `restart` = how far its
    rolling restart is; `disruption` = for how long its key groups have paused; `forecast` None: nothing is forecast.

    N-1: after the loss of the workers `n_minus_1_lost` (all of one host), `n_minus_1_worker` has the highest load that
    any one loss leads to, `n_minus_1_pct`; no choice of standbys has a lower one than `n_minus_1_bound_pct` (percent of
    the capacity).  Fixed workers count as they are placed.  Unknown while a key group lacks a standby.
    `following_share` = what following a key group costs, as a share of its load; None = not measured.
    """

    app: AppId
    key_groups: int | None
    load_distance: float | None
    mean_load: float | None
    not_ready: Line | None
    noise: float | None = None
    collocation: Share | None = None
    missing_standbys: int | None = None
    n_minus_1_pct: float | None = None
    n_minus_1_bound_pct: float | None = None
    n_minus_1_worker: WorkerId | None = None
    n_minus_1_lost: Annotated[tuple[WorkerId, ...], Most(MAX_NODES)] = ()
    fixed: Annotated[tuple[FixedStatus, ...], Most(MAX_FIXED)] = ()
    stale_key_groups: int | None = None
    unknown_load: Share | None = None
    size: SizeStatus | None = None
    capacity: CapacityStatus | None = None
    mode: Name | None = None
    local_sends: Share | None = None
    restart: RestartStatus | None = None
    remote_costs: CollocationStatus | None = None
    disruption: DisruptionStatus | None = None
    following_share: float | None = None
    forecast: ForecastStatus | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionStatus:
    """One decision: `kind` is plan, propose, skip, adopt, standbys, stop, start, resize and so on; `reason` one word;
    `text` one line.

    `app` None: it is about the cluster, or not known.
    """

    at: float
    kind: Name
    reason: Name
    text: Line
    app: AppId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConcernStatus:
    """A problem of an app that an operator should know of; `kind` is the name of its runbook."""

    kind: Name
    app: AppId
    text: Line


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStatus:
    """A worker that its agent declares for the app, that does not run, and that can be started; `capacity` in cores."""

    app: AppId
    worker: WorkerId
    host: HostId
    capacity: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldStatus:
    """The controller waits for an operator to accept that the content of the journal is lost; `id` names this hold."""

    id: Name
    text: Line


@dataclass(frozen=True, slots=True)
class IntentTime:
    """When the intent with this record key was written."""

    key: Annotated[str, Text(500)]
    at: float


def _times(intents: Mapping[str, float]) -> list[IntentTime]:
    return [IntentTime(key, at) for key, at in intents.items()]


def _by_key(rows: Iterable[IntentTime]) -> dict[str, float]:
    return {row.key: row.at for row in rows}


IntentTimes = Annotated[tuple[IntentTime, ...], Most(MAX_INTENTS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The status of a controller at the time `at`.

    `acting` False = dry run; `paused` = who paused it, and why; `window_end` = end of the last window; `coverage` =
    hosts seen / expected in it; `decisions` and `rounds` oldest first; `rejected` = refused messages by `topic.fault`.
    `intents` = when each intent in force was written, by record key; None: not known.  `proposals` = plans that wait
    for approval, at most one per app.  `signatures` None: nobody looks at the hosts' signatures.
    `rules` None: no window is known yet.  `refused_hosts` = in whose name
    reports and acks of `rejected` came, as far as they name a host.
    """

    WIRE: ClassVar = Wire(version=VERSION, whole=True)

    cluster: Name
    at: float
    acting: bool
    epoch: Epoch
    paused: Line | None
    window_end: float | None
    coverage: float | None
    nodes: Annotated[tuple[NodeStatus, ...], Most(MAX_NODES)] = ()
    apps: Annotated[tuple[AppStatus, ...], Most(MAX_NODES)] = ()
    decisions: Annotated[tuple[DecisionStatus, ...], Most(MAX_ROUNDS)] = ()
    rounds: Annotated[tuple[RoundStatus, ...], Most(MAX_ROUNDS)] = ()
    rejected: Annotated[Mapping[str, int], Most(10_000)] = field(default_factory=dict)
    hold: HoldStatus | None = None
    concerns: Annotated[tuple[ConcernStatus, ...], Most(MAX_CONCERNS)] = ()
    hosts: Annotated[tuple[HostStatus, ...], Most(MAX_NODES)] = ()
    pool: Annotated[tuple[PoolStatus, ...], Most(MAX_NODES)] = ()
    intents: Annotated[Mapping[str, float] | None, WrittenAs(IntentTimes, _times, _by_key)] = None
    balance: BalanceStatus | None = None
    proposals: Annotated[tuple[ProposalStatus, ...], Most(MAX_PROPOSALS)] = ()
    signatures: SignatureStatus | None = None
    rules: Annotated[tuple[RuleStatus, ...] | None, Most(MAX_TOLD)] = None
    refused_hosts: RefusedHosts = field(default_factory=RefusedHosts)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rejected", MappingProxyType(dict(self.rejected)))
        if self.intents is not None:
            object.__setattr__(self, "intents", MappingProxyType(dict(self.intents)))

    @property
    def plans_in_flight(self) -> tuple[RoundStatus, ...]:
        """The rounds in flight, at most one per app."""
        return tuple(row for row in self.rounds if row.ended_at is None)


def status_key(*, acting: bool) -> bytes:
    """The record key."""
    return b"controller" if acting else b"dry-run"


def encode_status(status: Status) -> bytes:
    """The message as bytes."""
    return encoded(status)


def decode_status(payload: bytes | None) -> Status:
    """A status from the wire; raises BadMessage."""
    return decoded(payload, Status)
