"""What the console's HTTP API answers with, where that is not a part of a message.

Console <-> programs and browsers, as JSON.  Loads in percent of the capacity, load distances in pp, times in epoch
seconds; None = unknown.  Readers ignore fields that they do not know: a newer console may add some.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, TypeVar

from trimtab_protocol.messages.events import EventLoad
from trimtab_protocol.messages.refused_hosts import RefusedHosts
from trimtab_protocol.messages.status import HostStatus

T = TypeVar("T")

API = "/api/v1"
"""With which the path of every resource begins."""
PROBLEM_TYPE = "application/problem+json"
"""Content-Type of an error (RFC 9457)."""
MAX_PAGE = 1_000
"""Items of one answer of the console's API."""


class WorkerOrder(StrEnum):
    """How workers are ordered; loads with the highest first, unknown ones last."""

    NAME = "name"
    LOAD = "load"
    DEMAND = "demand"
    USED = "used"


class KeyGroupOrder(StrEnum):
    """How key groups are ordered; loads with the highest first."""

    PARTITION = "partition"
    LOAD = "load"


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """Some of `total` items, from `offset` on."""

    items: Sequence[T]
    total: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """A controller in the group, according to the broker."""

    name: str
    leads: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Some workers together, and the hosts that they are on.

    `used_cores`, `demand_cores` of `capacity_cores`: sums over the `running` of `workers` as far as they are known,
    None if none is; `unknown` = running workers without one of them.
    """

    hosts: int
    workers: int
    running: int
    capacity_cores: float
    used_cores: float | None
    demand_cores: float | None
    unknown: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDocument:
    """The cluster as a whole.

    `state` = silent, hold, paused, acting or dry run; `runbook` = what to open first; `rejected` = refused messages by
    `topic.fault`; `refused_hosts` = which hosts such messages name, which are not proven to have sent them;
    `fault` = why the console cannot read Kafka now.  `version` grows with each change of anything.
    """

    cluster: str
    version: int
    at: float
    read: bool
    fault: str | None
    state: str | None = None
    runbook: str | None = None
    silent_s: float | None = None
    snapshot_age_s: float | None = None
    coverage: float | None = None
    epoch: str | None = None
    paused: str | None = None
    hold: str | None = None
    hold_id: str | None = None
    controllers: Sequence[Controller] | None = None
    totals: Totals | None = None
    rejected: Mapping[str, int] = field(default_factory=dict)
    refused_hosts: RefusedHosts = field(default_factory=RefusedHosts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """An app at the end of a window, `at` in epoch seconds; None = unknown.

    `load_distance` in pp; `bound` = the lower bound of the app's last plan, in pp; `mean_load` in percent of the
    capacity; `demand_cores` of `capacity_cores` are asked of the workers.
    """

    at: float
    load_distance: float | None
    bound: float | None
    mean_load: float | None
    demand_cores: float | None
    capacity_cores: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """An operator in the last window; sums over the key groups whose value is known."""

    app: str
    operator: str
    key_groups: int
    workers: int
    cpu_cores: float | None
    tuples_in_s: float | None
    backlog: int | None
    state_bytes: int | None
    unmeasured: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """What an operator sends to another one of its app, per second, in the last window; `pairs` = of key groups.

    `collocation` = share of the tuples that stay within a worker, of those whose key groups both have a known owner;
    `local_sends` = share that skipped the broker, None if a plug-in that sent some does not tell.  0 to 1.
    """

    source: str
    target: str
    pairs: int
    tuples_s: float
    bytes_s: float
    collocation: float | None
    local_sends: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyGroupMap:
    """The key groups of an operator as columns, one entry per cell, each of at most `per_cell` consecutive partitions.

    `first` and `last` = its partitions; `peak` and `mean` in percent of a core; `hottest` = the partition with the
    highest load, `worker` = its owner.
    """

    app: str
    operator: str
    key_groups: int
    per_cell: int
    workers: Sequence[str]
    first: Sequence[int]
    last: Sequence[int]
    peak: Sequence[float | None]
    mean: Sequence[float | None]
    hottest: Sequence[int]
    worker: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyGroupRow:
    """A key group in the last window: rates per second, `load_pct` in percent of a core."""

    partition: int
    worker: str
    load_pct: float | None
    tuples_in_s: float | None
    backlog: int | None
    state_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementRow:
    """Who owns a key group, and who keeps a standby of it, by the published placement."""

    operator: str
    partition: int
    owner: str | None
    standbys: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """Some of the `total` rows of an app's placement, from `offset` on; it was published under `epoch`."""

    items: Sequence[PlacementRow]
    total: int
    offset: int
    epoch: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanReport:
    """A plan in flight (`ended_at` is None) or a past one; the fields are those of `RoundStatus`.

    Load distances in pp.  `handovers` = number per phase; pauses in seconds, over the hand-overs that are done.
    """

    plan: str
    app: str
    reason: str
    status: str
    fallback: bool
    started_at: float
    ended_at: float | None
    before: float
    planned: float
    after: float | None
    lower_bound: float
    incomparable: str | None
    migrations: int
    failed: int
    bytes_moved: int
    handovers: Mapping[str, int]
    pause_median_s: float | None
    pause_longest_s: float | None
    stopped: str | None
    recovery_planned_s: float | None
    recovery_bound_s: float | None
    recovery_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Moving:
    """Key groups that move together, by the journal; `phase` = waiting, preparing, releasing, resolving or an end."""

    id: str
    key_groups: Sequence[str]
    source: str
    target: str
    phase: str
    state_bytes: int
    pause_s: float | None
    detail: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerMoves:
    """What moves from one worker to another; None = all workers that are not named, together.

    `load_pct` in percent of a core, without the `unknown_loads` key groups whose load is not known.  `phases` = number
    of key groups by phase as in `Moving`; or, by the events alone, by outcome: done, failed, unresolved or planned.
    """

    source: str | None
    target: str | None
    key_groups: int
    load_pct: float | None
    unknown_loads: int
    phases: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class MovesByWorker:
    """The moves of a plan by source and target, the most key groups first.

    They are of `key_groups` of the plan's `key_groups_total`: events name only the first moves of a large plan.
    `sources_total` and `targets_total` = number of workers, also of those that are not named.
    """

    plan: str
    key_groups: int
    key_groups_total: int
    sources_total: int
    targets_total: int
    items: Sequence[WorkerMoves]


@dataclass(frozen=True, slots=True, kw_only=True)
class IntentDocument:
    """What an operator asked for; `about` = a worker, an app, or nothing.

    `until` = when it ends by itself (epoch seconds); None: when it is done or taken back.  `host` = for whose
    maintenance a worker is drained.
    """

    kind: str
    about: str | None
    workers: int | None
    by: str
    at: float
    reason: str
    until: float | None = None
    host: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleDocument:
    """A rule, with the keys of `[[rule]]` in controller.toml; `until` in epoch seconds, None: it has no end.

    `by`, `at` = the operator who has added it, and when; None: it stands in controller.toml.  `ignored` = why it is not
    kept; None: it is.
    """

    name: str
    kind: str
    reason: str
    app: str
    operator: str
    key_groups: str | None
    workers: Sequence[str]
    hosts: Sequence[str]
    zones: Sequence[str]
    priority: int
    until: float | None
    by: str | None
    at: float | None
    ignored: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionDocument:
    """Who asks, and what they may do.

    `name` None: nobody is logged in, or no login is needed.  `login` = whether a token is needed to read.  `until` =
    end of the session or of the token.  `why_not` = why this person may change nothing, None if they may.
    `failed_logins` = since the console started, told to operators.
    """

    name: str | None
    role: str | None
    login: bool
    may_change: bool
    why_not: str | None
    until: float | None = None
    failed_logins: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeDocument:
    """What a change is, or would be in a dry run.

    `text` = what follows; `caveats` = why it does not at once, or not in full; `intents` = the record keys that are
    written or revoked, none if there is nothing to do; `written` = whether the broker has stored them; `by` = whom the
    intent names.
    """

    action: str
    text: str
    caveats: Sequence[str]
    intents: Sequence[str]
    written: bool
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveChange:
    """Something changed, or about five seconds went by; `version` is that of `cluster`."""

    version: int
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Runbook:
    """A runbook, as Markdown."""

    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """An error, as RFC 9457 has it."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str


# --- workers together, as bars, by host and zone ----------------------------------------------


class HostOrder(StrEnum):
    """How hosts are ordered; demands with the highest first, unknown ones last."""

    NAME = "name"
    DEMAND = "demand"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """Workers as columns, one entry per bar, ordered by zone and host; a bar stands for `workers_per_bar` at most.

    `host` and `zone` = those of the `first` of its workers; `zone` None: it is not known.
    `load`, `used`, `demand` = the highest of its workers, `used_mean` = their mean, in percent of a worker's capacity;
    `remark` = what the first of them that is not running and steered is.  `mean_use` = the use of all workers together,
    in percent of their capacity.
    """

    total: int
    workers_per_bar: int
    mean_use: float | None
    first: Sequence[str]
    host: Sequence[str]
    count: Sequence[int]
    load: Sequence[float | None]
    used: Sequence[float | None]
    used_mean: Sequence[float | None]
    demand: Sequence[float | None]
    remark: Sequence[str | None]
    zone: Sequence[str | None] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRow(HostStatus):
    """A host: what it reports, and its workers.

    `workers` are known there, of which `running` run and `draining` are drained; `key_groups` = what they own together.
    `maintenance_until` = when its maintenance ends; None: it is in none.
    """

    workers: int = 0
    running: int = 0
    draining: int = 0
    key_groups: int = 0
    maintenance_until: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneRow(Totals):
    """The hosts that may fail together, as agents name them; `zone` None: those whose zone is not known."""

    zone: str | None


# --- what happened, and why plans and key groups are as they are ------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class EventDocument:
    """Something that happened; kinds, phases and reasons are those of the topic of events.

    `by` = the operator or controller whose doing it is.  Of plans: the number of `moves`, load distances `before`, as
    `planned` and as `measured` (pp).
    """

    id: str
    at: float
    kind: str
    phase: str
    text: str
    reason: str | None
    app: str | None
    plan: str | None
    worker: str | None
    by: str | None
    moves: int | None
    before: float | None
    planned: float | None
    measured: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedMove:
    """A move of a plan: `why` in words, `reason` and `warm` as in the plan's event; `outcome` None: not known yet.

    `load_pct` in percent of a core, as planned, `measured_pct` after the plan; `pause_s` measured.  `paid` = whether
    its workers were nearer to the mean load then than without it; None: not known, or the plan was not for balance.
    """

    key_group: str
    source: str
    target: str
    why: str | None
    reason: str | None
    warm: str | None
    load_pct: float | None
    outcome: str | None
    pause_s: float | None
    measured_pct: float | None = None
    paid: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanExplanation:
    """Why a plan was made as it was, by its events.

    `moves` are the first of `moves_total`.  `proposed_at`: of a plan that began after its approval, when the load
    distance `planned` was predicted; all other loads are of the time when it began.
    """

    plan: str
    app: str | None
    text: str
    mean_load: float | None
    planned: float | None
    measured: float | None
    moves: Sequence[PlannedMove]
    moves_total: int
    loads: Sequence[EventLoad]
    proposed_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WhyTarget:
    """What moving a key group to a worker would do; None = unknown.

    `load_distance` after the move and its `change` (pp); `load_pct` = the worker's load then, in percent of its
    capacity.  `owner`: it has the key group now; `standby`: it follows it.  `forbidden` = the limit that forbids the
    move.
    """

    worker: str
    host: str
    load_distance: float | None
    change: float | None
    load_pct: float | None
    owner: bool
    standby: bool
    forbidden: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WhyMove:
    """A move of the key group that a plan made or tried; `at` = when the plan ended, or began (`outcome` None)."""

    at: float
    plan: str | None
    source: str
    target: str
    why: str | None
    outcome: str | None
    load_pct: float | None = None
    measured_pct: float | None = None
    paid: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyGroupWhy:
    """Where a key group is and why, and what moving it would do; None = unknown.

    `owner` and `standbys` by the published placement, `reported` = its owner by the last window, whose end is
    `window_end`.  `since` = when it came there, by the plan `plan`; `story` = that in words.  `load_pct` in percent of
    a core.  `stays` = why it cannot be moved now.  `targets`, the best first, are some of `targets_total`; `moves`,
    newest first, as far back as events are kept.  `rules` = those about it, in words.
    """

    key_group: str
    owner: str | None
    standbys: Sequence[str]
    reported: str | None
    since: float | None
    plan: str | None
    story: str
    load_pct: float | None
    state_bytes: int | None
    window_end: float | None
    load_distance: float | None
    mean_load: float | None
    stays: str | None
    targets: Sequence[WhyTarget]
    targets_total: int
    moves: Sequence[WhyMove]
    rules: Sequence[str] = ()
