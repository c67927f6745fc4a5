"""The status: what the controller sees and does, for `trimtab status` and dashboards.  Controller -> operator.

The topic has one record with key `controller` for the acting controller and one with key `dry-run` for a dry run.
Loads are in percent of the worker's capacity, load distances in percentage points (pp), times in epoch seconds.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from trimtab_protocol.messages.codec import Inline, Most, Name, Range, Text, Wire, WrittenAs
from trimtab_protocol.messages.decode import MAX_NUMBER
from trimtab_protocol.messages.intents import MAX_WORKERS
from trimtab_protocol.messages.names import AppId, Epoch, HostId, OperatorId, Topic, WorkerId
from trimtab_protocol.messages.refused_hosts import RefusedHosts
from trimtab_protocol.messages.report import Absence, WorkerState
from trimtab_protocol.messages.rules import Rule
from trimtab_protocol.messages.snapshot import MAX_DOUBTED
from trimtab_protocol.wording import time_span

VERSION = 1
MAX_COST_S = 1e6
"""CPU seconds of one tuple, either way."""
MAX_OPERATORS = 1_000
"""Operators of one app."""
MAX_LOCAL_TOPICS = 10
"""Topics of one app that could be local."""
MAX_CAUSES = 20
"""Causes of pauses in a status; a newer controller may know more than this one."""
MAX_TEXT = 1000
"""Largest length of a text, in characters."""
MAX_STATUS_RULES = 1_000
"""Rules of one status: those of controller.toml and of operators, also those that are not followed."""
MAX_REVOKED = 1_000
"""Hosts without a key any more that one status names."""
MAX_LEAVING = 100_000
"""Workers of one app that leave at the same time."""
MAX_SETTING = 1_000
"""Characters of a setting."""
MAX_SETTINGS = 100
"""Settings of one app."""
MAX_PAUSES = 1_000_000
"""Measured pauses of one round."""
MAX_HOSTS = 100_000
"""Hosts of one round whose links are unknown."""
MAX_PROPOSED_MOVES = 100
"""Moves of one plan in the status; events have all of them."""
MAX_PROPOSALS = 10_000
"""Plans of one status that wait: one per app."""
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
BUDGET_WINDOW_S = 3600.0
"""A pause counts for so long."""
SHOWN_FROM_S = 0.05
"""Key-group seconds of a pause from which it is told."""

WorkerCount = Annotated[int, Range(0, MAX_WORKERS)]
Signed = Annotated[float, Range(-MAX_NUMBER, MAX_NUMBER)]
Line = Annotated[str, Text(4000)]
Share = Annotated[float, Range(0.0, 1.0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class BalanceStatus:
    """The settings of [balance] by which loads become what plans are made with: whoever predicts needs the same."""

    smoothing: Share
    catch_up_s: float
    max_disk: Share
    max_link: Share


@dataclass(frozen=True, slots=True, kw_only=True)
class HostStatus:
    """A host in the last snapshot; None = unknown.

    `used_pct` = CPU in percent of its cores; memory in bytes, used and at most; `received_bytes_s` and `sent_bytes_s` =
    use of its link, of `link_bytes_s` each way, in bytes per second.  `demand_pct` = CPU asked of it, with what other
    processes use, in percent of its cores; `bottleneck` = the resource of which most is used; `type` as its agent names
    it, `speed` of a core relative to that of other types; `level` = light, moderate or heavy, by its CPU, memory and
    link.  `disk_free_bytes` of `disk_total_bytes` are free on the disk of its workers' state.
    `zone` = the hosts that may fail together with it, as agents name them.
    """

    host: HostId
    used_pct: float | None = None
    memory_bytes: int | None = None
    memory_limit_bytes: int | None = None
    received_bytes_s: float | None = None
    sent_bytes_s: float | None = None
    link_bytes_s: float | None = None
    demand_pct: float | None = None
    bottleneck: Annotated[str | None, Text(200)] = None
    type: Name | None = None
    speed: float | None = None
    level: Name | None = None
    disk_total_bytes: int | None = None
    disk_free_bytes: int | None = None
    zone: Name | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityStatus:
    """How many times its present input fits into an app's workers; None = unknown.

    `headroom` as placed, until `first` (a worker, or a host) is full; `potential` with free moves; no placement can
    exceed `bound`, which the key group `heaviest` limits if it is named.  `accuracy` = share of the workers' CPU that
    the fitted costs predict.
    """

    headroom: float | None = None
    potential: float | None = None
    bound: float | None = None
    first: Annotated[str | None, Text(300)] = None
    heaviest: str | None = None
    accuracy: Annotated[float | None, Range(0.0, 1.0)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RedundancyStatus:
    """The last time that key groups of an app lacked an owner, or as many warm standbys as the app asks for.

    `since` = the end of the window that showed it first (epoch seconds), `measured_s` = how long it has lasted, by the
    ends of windows; `lacking` = such key groups in the last window, 0 = it is over.  `planned_s` = how long it should
    last by what was decided, `bound_s` = no choice of workers takes less; None = nothing was decided for it.
    """

    since: float
    measured_s: float
    lacking: int
    planned_s: float | None = None
    bound_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteCostStatus:
    """What a tuple costs more at one end because it goes to another worker, CPU seconds of a reference core.

    `value` with its standard `error`, which has `freedom` degrees of freedom; by chance it may be negative.
    `significant`: plans count with it.  `unknown` = why nothing is known.
    """

    value: Annotated[float | None, Range(-MAX_COST_S, MAX_COST_S)] = None
    error: float | None = None
    freedom: float | None = None
    significant: bool = False
    unknown: Annotated[str | None, Text(200)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorCostStatus:
    """The costs of an operator, per tuple that it sends and per tuple that it receives."""

    operator: OperatorId
    sending: RemoteCostStatus
    receiving: RemoteCostStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalTopicStatus:
    """A topic that could be local: `cores` that this would save, with as much collocation as can be had.

    `measured_at` = the operators whose measured costs count, `error` = the standard error that these have; None: an
    operator has stated the cost.  `text` = all of it in words, with what the key groups use now.
    """

    topic: Topic
    source: OperatorId
    target: OperatorId
    text: Line
    cores: float
    error: float | None = None
    measured_at: Annotated[tuple[OperatorId, ...], Most(2)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CollocationStatus:
    """What collocation can bring; None = unknown.

    `obtainable` = share of the tuples between key groups that could stay within a worker at most; `worth_cores` = what
    this would save besides what is saved now, by the costs that are significant.  `topics` = the first ones that could
    be local, where that is known.
    """

    operators: Annotated[tuple[OperatorCostStatus, ...], Most(MAX_OPERATORS)] = ()
    obtainable: Annotated[float | None, Range(0.0, 1.0)] = None
    worth_cores: float | None = None
    topics: Annotated[tuple[LocalTopicStatus, ...], Most(MAX_LOCAL_TOPICS)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseStatus:
    """Paused key-group seconds by one cause, in the last hour."""

    cause: Name
    used_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DisruptionStatus:
    """Paused key-group seconds of an app: `used_s` in the last hour, of which nobody measured `assumed_s`.

    `in_flight_s` = what hand-overs in flight are expected to add.  `limit_s` None: there is no limit.  `fits` = how
    many further key groups may be handed over now, `free_at` = when one may again (epoch seconds); None: no limit, or,
    beside `fits` 0, never.  `since` = from when on pauses were counted (epoch seconds); None: not yet.  `causes` = what
    is used, by cause: moves, starts_and_stops, rebalances, losses.  `unmeasured` = running workers that do not say for
    how long rebalances stop their inputs, which is then unknown; None: an older controller does not say so.
    """

    used_s: float
    assumed_s: float
    in_flight_s: float
    limit_s: float | None = None
    fits: int | None = None
    free_at: float | None = None
    since: float | None = None
    causes: Annotated[tuple[CauseStatus, ...], Most(MAX_CAUSES)] = ()
    unmeasured: int | None = None

    @property
    def by_cause(self) -> dict[str, float]:
        """What is used, in key-group seconds, by cause."""
        return {row.cause: row.used_s for row in self.causes}

    def used_text(self, now: float) -> str:
        """How much is used of how much, for an operator; its causes if they are not only moves."""
        of = "" if self.limit_s is None else f" of {self.limit_s:g}"
        parts = [f"{self.used_s:.1f}{of} paused key-group seconds in the last hour"]
        if self.assumed_s >= SHOWN_FROM_S:
            parts.append(f"{self.assumed_s:.1f} of them not measured")
        causes = {cause: seconds for cause, seconds in self.by_cause.items() if seconds >= SHOWN_FROM_S}
        if causes.keys() - {"moves"}:
            parts += [f"{seconds:.1f} by {cause.replace('_', ' ')}" for cause, seconds in causes.items()]
        if self.in_flight_s >= SHOWN_FROM_S:
            parts.append(f"{self.in_flight_s:.1f} more under way")
        if self.since is None:
            parts.append("not counted yet")
        elif now - self.since < BUDGET_WINDOW_S:
            parts.append(f"counted for {time_span(now - self.since)} only")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastStatus:
    """The forecast of an app; None = unknown, for the reason in `text`.

    `peak_cores` = the highest demand until a worker that is started now runs.  It repeats by `period_s`, and was fitted
    `at`.  `known_s` = time of which the demand is known.  `used`: the number of workers follows the forecast.
    """

    text: Annotated[str, Text(4000)]
    used: bool = False
    peak_cores: float | None = None
    period_s: float | None = None
    at: float | None = None
    known_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartStatus:
    """How far the restart of `workers` workers is: `done` have been restarted, those of `host` are restarted now.

    `skipped` = workers that are left out: their agents cannot start them, or they are to stay off.  `differ` = how the
    workers differ, so that they are restarted without a drain; None: they do not.  `waits` = what it waits for, and
    what to do if that does not come; None: nothing stands in its way, or the controller is too old to say.
    """

    workers: WorkerCount
    done: WorkerCount
    host: HostId | None = None
    skipped: Annotated[tuple[WorkerId, ...], Most(MAX_WORKERS)] = ()
    differ: Annotated[str | None, Text(MAX_TEXT)] = None
    waits: Annotated[str | None, Text(MAX_TEXT)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleStatus:
    """A rule that the controller knows.

    `by`, `at` = the operator who has added it, and when (epoch seconds); None: it stands in controller.toml.
    `ignored` = why it is not followed; None: it is.
    """

    rule: Annotated[Rule, Inline()]
    by: Annotated[str | None, Text(200)] = None
    at: float | None = None
    ignored: Annotated[str | None, Text(500)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SignatureStatus:
    """What becomes of reports and acks that their host has not signed: `checking` = warn (used) or enforce (dropped).

    `enrolled` = hosts that have a key.  `unsigned` = reports and acks that were used without a good signature, by
    `topic.fault`.  `doubted` = hosts in whose name such reports came in the last window, used or not, and the fault.
    `revoked` = hosts that had a key and have none any more, at most `MAX_REVOKED`, the last ones first.
    """

    checking: Name
    enrolled: int
    unsigned: Annotated[Mapping[str, int], Most(100)] = field(default_factory=dict)
    doubted: Annotated[Mapping[HostId, Name], Most(MAX_DOUBTED)] = field(default_factory=dict)
    revoked: Annotated[tuple[HostId, ...], Most(MAX_REVOKED)] = ()

    @property
    def enforced(self) -> bool:
        """Whether what a host has not signed is dropped."""
        return self.checking == "enforce"


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeStatus:
    """The number of workers of an app; None = unknown.

    `workers` = how many stay, `wanted` = how many there should be by demand or by an operator's word, `desired` = the
    number for whoever adds and removes workers from outside: it follows `wanted` when a change is due.  `demand_cores`
    of `capacity_cores` are asked of the workers that stay.  `leaving` = workers that the controller drains, to stop
    them.  `restart_s` = the configured time until a started worker runs, `measured_restart_s` = the longest that the
    controller saw one of the last ten take.  `own_settings` = those of `[scaling.apps]` for this app, such as
    `max_workers = 4`.  `text` = the numbers of workers in words, with the reason.
    """

    text: Annotated[str, Text(4000)]
    workers: int | None = None
    wanted: int | None = None
    desired: int | None = None
    demand_cores: float | None = None
    capacity_cores: float | None = None
    leaving: Annotated[tuple[WorkerId, ...], Most(MAX_LEAVING)] = ()
    restart_s: float | None = None
    measured_restart_s: float | None = None
    own_settings: Annotated[tuple[Annotated[str, Text(MAX_SETTING)], ...], Most(MAX_SETTINGS)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundStatus:
    """A round: the execution of one plan, in flight while `ended_at` is None.

    `status` = the solver's (optimal, feasible ...), `fallback` = whether Flux planned as the solver gave no answer;
    load distance `before` the plan, as `planned`, its `lower_bound`, and measured `after` the round (pp),
    `incomparable` = why the last says nothing about the plan; `migrations`, `failed` = key groups moved and not moved;
    `bytes_moved` = state; `handovers` = number per phase; `pauses_s` = pause of each hand-over in seconds, measured by
    the new owner; `stopped` = who stopped it, and why.

    Seconds until the targets of all hand-overs are warm: `recovery_planned_s` (expected), `recovery_bound_s` (no
    schedule is expected to take less) and `recovery_s` (measured, so far).  None = not scheduled, or unknown.
    `unknown_links` = target hosts whose link speed or use is unknown, so that a default stands for what restores there
    cost until some were measured.

    `saved_planned_pp`, `saved_pp` = by how much collocation was to lower the mean load, and has (pp; below 0: it rose).
    """

    plan: Name
    app: AppId
    reason: Line
    status: Name
    fallback: bool
    started_at: float
    ended_at: float | None
    before: float
    planned: float
    after: float | None
    lower_bound: float
    migrations: int
    failed: int
    bytes_moved: int
    handovers: Annotated[Mapping[str, Annotated[int, Range(0, 2**31)]], Most(100)] = field(default_factory=dict)
    pauses_s: Annotated[tuple[float, ...], Most(MAX_PAUSES)] = ()
    incomparable: Line | None = None
    stopped: Line | None = None
    recovery_planned_s: float | None = None
    recovery_bound_s: float | None = None
    recovery_s: float | None = None
    unknown_links: Annotated[tuple[HostId, ...], Most(MAX_HOSTS)] = ()
    saved_planned_pp: Signed | None = None
    saved_pp: Signed | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedMove:
    """A move of a plan that waits; `state_bytes` None = not measured."""

    key_group: Annotated[str, Text(500)]
    source: WorkerId
    target: WorkerId
    state_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalStatus:
    """A plan that waits for approval, since `at` until `expires_at` (epoch seconds).

    Load distances in pp.  `moves` = the first ones of `moves_total`, of which `to_standbys` go to standbys.
    `restore_bytes` = state that the targets have to restore, without what their copies on disk have; `unmeasured` =
    moves whose state is not measured.  `rejected` = by whom it was
    rejected, and why: it is not carried out, and no other plan for balance is proposed until `expires_at`.
    """

    plan: Name
    app: AppId
    reason: Annotated[str, Text(4000)]
    at: float
    expires_at: float
    before: float
    planned: float
    lower_bound: float
    moves: Annotated[tuple[ProposedMove, ...], Most(MAX_PROPOSED_MOVES)]
    moves_total: int
    to_standbys: int
    restore_bytes: int
    unmeasured: int
    rejected: Annotated[str | None, Text(4000)] = None


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
    key groups with fewer standbys than the app asks for; `redundancy` None: no key group has lacked its owner or a warm
    standby since this controller leads, or it is unknown; `fixed` = workers that take no part in plans;
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
    redundancy: RedundancyStatus | None = None
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
    rules: Annotated[tuple[RuleStatus, ...] | None, Most(MAX_STATUS_RULES)] = None
    refused_hosts: RefusedHosts = field(default_factory=RefusedHosts)

    @property
    def plans_in_flight(self) -> tuple[RoundStatus, ...]:
        """The rounds in flight, at most one per app."""
        return tuple(row for row in self.rounds if row.ended_at is None)


def status_key(*, acting: bool) -> bytes:
    """The record key."""
    return b"controller" if acting else b"dry-run"
