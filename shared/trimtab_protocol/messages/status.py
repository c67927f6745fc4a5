"""The status: what the controller sees and does, for `trimtab status` and dashboards.  Controller -> operator.

The topic has one record with key `controller` for the acting controller and one with key `dry-run` for a dry run.
Loads are in percent of the worker's capacity, load distances in percentage points (pp), times in epoch seconds.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import TypeVar

from trimtab_protocol.messages.decode import Fields, check_integer, check_name, check_text, encode, parse
from trimtab_protocol.messages.names import AppId, Epoch, HostId, WorkerId, decode_epoch
from trimtab_protocol.messages.proposals import MAX_PROPOSALS, ProposalStatus, proposal_document, read_proposal
from trimtab_protocol.messages.refused_hosts import RefusedHosts, read_refused_hosts
from trimtab_protocol.messages.report import Absence, WorkerState
from trimtab_protocol.messages.round_status import RoundStatus, read_round, round_document
from trimtab_protocol.messages.status_balance import BalanceStatus as BalanceStatus
from trimtab_protocol.messages.status_balance import read_balance
from trimtab_protocol.messages.status_capacity import CapacityStatus, read_capacity, read_host
from trimtab_protocol.messages.status_capacity import HostStatus as HostStatus
from trimtab_protocol.messages.status_collocation import CollocationStatus, read_collocation
from trimtab_protocol.messages.status_disruption import DisruptionStatus, read_disruption
from trimtab_protocol.messages.status_forecast import ForecastStatus, read_forecast_status
from trimtab_protocol.messages.status_restart import RestartStatus, read_restart
from trimtab_protocol.messages.status_rules import MAX_TOLD, RuleStatus, read_rule_status
from trimtab_protocol.messages.status_signatures import SignatureStatus, read_signatures
from trimtab_protocol.messages.status_size import SizeStatus, read_size

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
T = TypeVar("T")


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
    reason: str | None = None
    absence: Absence | None = None
    level: str | None = None
    startable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedStatus:
    """A worker that plans are made around; `reason` = a name from the reasons to do nothing, `text` = more about it."""

    worker: WorkerId
    reason: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AppStatus:
    """One app; None = unknown, for the reason in `not_ready`.

    `load_distance` (pp) and `mean_load` (percent) are smoothed; `noise` = how much of the load distance may be noise,
    estimated from the prediction errors of the last windows (pp); `collocation` = share of the tuples between key
    groups that stay within a worker, `local_sends` = that skipped the broker in the last window; `missing_standbys` =
    key groups with fewer standbys than the app asks for; `fixed` = workers that take no part in plans;
    `stale_key_groups` = key groups whose load the last window did not measure, `unknown_load` = their share of the
    app's load; `size` None: the controller does not judge it; `capacity` = how much more fits; `mode` = what becomes of
    its plans: dry-run, approve or act; `remote_costs` = what tuples between workers cost; `restart` = how far its
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
    not_ready: str | None
    noise: float | None = None
    collocation: float | None = None
    missing_standbys: int | None = None
    n_minus_1_pct: float | None = None
    n_minus_1_bound_pct: float | None = None
    n_minus_1_worker: WorkerId | None = None
    n_minus_1_lost: tuple[WorkerId, ...] = ()
    fixed: tuple[FixedStatus, ...] = ()
    stale_key_groups: int | None = None
    unknown_load: float | None = None
    size: SizeStatus | None = None
    capacity: CapacityStatus | None = None
    mode: str | None = None
    local_sends: float | None = None
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
    kind: str
    reason: str
    text: str
    app: AppId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConcernStatus:
    """A problem of an app that an operator should know of; `kind` is the name of its runbook."""

    kind: str
    app: AppId
    text: str


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

    id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The status of a controller at the time `at`.

    `acting` False = dry run; `paused` = who paused it, and why; `window_end` = end of the last window; `coverage` =
    hosts seen / expected in it; `decisions` and `rounds` oldest first; `rejected` = refused messages by `topic.fault`.
    `intents` = when each intent in force was written, by record key; None: not known.  `proposals` = plans that wait
    for approval, at most one per app.  `signatures` None: nobody looks at the hosts' signatures.
    `rules` None: no window is known yet, or an older controller does not tell them.  `refused_hosts` = in whose name
    reports and acks of `rejected` came, as far as they name a host.
    """

    cluster: str
    at: float
    acting: bool
    epoch: Epoch
    paused: str | None
    window_end: float | None
    coverage: float | None
    nodes: tuple[NodeStatus, ...] = ()
    apps: tuple[AppStatus, ...] = ()
    decisions: tuple[DecisionStatus, ...] = ()
    rounds: tuple[RoundStatus, ...] = ()
    rejected: Mapping[str, int] = field(default_factory=dict)
    hold: HoldStatus | None = None
    concerns: tuple[ConcernStatus, ...] = ()
    hosts: tuple[HostStatus, ...] = ()
    pool: tuple[PoolStatus, ...] = ()
    intents: Mapping[str, float] | None = None
    balance: BalanceStatus | None = None
    proposals: tuple[ProposalStatus, ...] = ()
    signatures: SignatureStatus | None = None
    rules: tuple[RuleStatus, ...] | None = None
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
    return encode(
        {
            "v": VERSION,
            "cluster": status.cluster,
            "at": status.at,
            "acting": status.acting,
            "epoch": list(status.epoch),
            "paused": status.paused,
            "window_end": status.window_end,
            "coverage": status.coverage,
            "nodes": [asdict(row) for row in status.nodes],
            "apps": [asdict(row) for row in status.apps],
            "decisions": [asdict(row) for row in status.decisions],
            "rounds": [round_document(row) for row in status.rounds],
            "rejected": dict(status.rejected),
            "hold": asdict(status.hold) if status.hold else None,
            "concerns": [asdict(row) for row in status.concerns],
            "hosts": [asdict(row) for row in status.hosts],
            "pool": [asdict(row) for row in status.pool],
            "balance": asdict(status.balance) if status.balance else None,
            "proposals": [proposal_document(row) for row in status.proposals],
            "signatures": status.signatures.document if status.signatures else None,
            "refused_hosts": status.refused_hosts.document,
            "rules": None if status.rules is None else [row.document for row in status.rules],
            "intents": None
            if status.intents is None
            else [{"key": key, "at": at} for key, at in status.intents.items()],
        }
    )


def decode_status(payload: bytes | None) -> Status:
    """A status from the wire; raises BadMessage."""
    fields = parse(payload, version=VERSION)
    return Status(
        cluster=fields.name("cluster"),
        at=fields.number("at"),
        acting=fields.flag("acting"),
        epoch=decode_epoch(fields.take("epoch"), "epoch"),
        paused=fields.optional("paused", lambda name: fields.text(name, limit=4000)),
        window_end=fields.optional("window_end", fields.number),
        coverage=fields.optional("coverage", fields.number),
        nodes=_rows(fields, "nodes", MAX_NODES, _read_node),
        apps=_rows(fields, "apps", MAX_NODES, _read_app),
        decisions=_rows(fields, "decisions", MAX_ROUNDS, _read_decision),
        rounds=_rows(fields, "rounds", MAX_ROUNDS, read_round),
        rejected={
            name: check_integer(count, path, 0, 2**63 - 1)
            for name, path, count in fields.members("rejected", limit=10_000)
        },
        hold=fields.optional("hold", lambda name: _read_hold(fields.fields(name))),
        concerns=fields.optional("concerns", lambda name: _rows(fields, name, MAX_CONCERNS, _read_concern)) or (),
        hosts=fields.optional("hosts", lambda name: _rows(fields, name, MAX_NODES, read_host)) or (),
        pool=fields.optional("pool", lambda name: _rows(fields, name, MAX_NODES, _read_pool)) or (),
        balance=fields.optional("balance", lambda name: read_balance(fields.fields(name))),
        proposals=fields.optional("proposals", lambda name: _rows(fields, name, MAX_PROPOSALS, read_proposal)) or (),
        signatures=fields.optional("signatures", lambda name: read_signatures(fields.fields(name))),
        refused_hosts=fields.optional("refused_hosts", lambda name: read_refused_hosts(fields.fields(name)))
        or RefusedHosts(),
        rules=fields.optional("rules", lambda name: _rows(fields, name, MAX_TOLD, read_rule_status)),
        intents=fields.optional("intents", lambda name: dict(_rows(fields, name, MAX_INTENTS, _read_intent))),
    )


def _rows(fields: Fields, name: str, limit: int, read: Callable[[Fields], T]) -> tuple[T, ...]:
    return tuple(read(row) for row in fields.objects(name, limit=limit))


def _read_hold(fields: Fields) -> HoldStatus:
    return HoldStatus(id=fields.name("id"), text=fields.text("text", limit=4000))


def _read_intent(row: Fields) -> tuple[str, float]:
    return row.text("key", limit=500), row.number("at")


def _read_concern(row: Fields) -> ConcernStatus:
    return ConcernStatus(kind=row.name("kind"), app=AppId(row.name("app")), text=row.text("text", limit=4000))


def _read_pool(row: Fields) -> PoolStatus:
    return PoolStatus(
        app=AppId(row.name("app")),
        worker=WorkerId(row.name("worker")),
        host=HostId(row.name("host")),
        capacity=row.number("capacity"),
    )


def _read_node(row: Fields) -> NodeStatus:
    app = row.optional("app", row.name)
    return NodeStatus(
        worker=WorkerId(row.name("worker")),
        host=HostId(row.name("host")),
        app=AppId(app) if app else None,
        state=row.choice("state", WorkerState),
        capacity=row.number("capacity"),
        load_pct=row.optional("load_pct", row.number),
        key_groups=row.integer("key_groups"),
        draining=row.flag("draining"),
        steering=row.flag("steering"),
        used_pct=row.optional("used_pct", row.number),
        demand_pct=row.optional("demand_pct", row.number),
        backlog=row.optional("backlog", row.integer),
        memory_bytes=row.optional("memory_bytes", row.integer),
        reason=row.optional("reason", lambda name: row.text(name, limit=200)),
        absence=row.optional("absence", lambda name: row.choice(name, Absence)),
        level=row.optional("level", row.name),
        startable=row.optional("startable", row.flag) or False,
    )


def _read_app(row: Fields) -> AppStatus:
    return AppStatus(
        app=AppId(row.name("app")),
        key_groups=row.optional("key_groups", row.integer),
        load_distance=row.optional("load_distance", row.number),
        mean_load=row.optional("mean_load", row.number),
        not_ready=row.optional("not_ready", lambda name: row.text(name, limit=4000)),
        noise=row.optional("noise", row.number),
        collocation=row.optional("collocation", lambda name: row.number(name, high=1.0)),
        missing_standbys=row.optional("missing_standbys", row.integer),
        n_minus_1_pct=row.optional("n_minus_1_pct", row.number),
        n_minus_1_bound_pct=row.optional("n_minus_1_bound_pct", row.number),
        n_minus_1_worker=WorkerId(worker) if (worker := row.optional("n_minus_1_worker", row.name)) else None,
        n_minus_1_lost=row.optional("n_minus_1_lost", lambda name: _read_workers(row, name)) or (),
        fixed=row.optional("fixed", lambda name: _rows(row, name, MAX_FIXED, _read_fixed)) or (),
        stale_key_groups=row.optional("stale_key_groups", row.integer),
        unknown_load=row.optional("unknown_load", lambda name: row.number(name, high=1.0)),
        size=row.optional("size", lambda name: read_size(row.fields(name))),
        capacity=row.optional("capacity", lambda name: read_capacity(row.fields(name))),
        mode=row.optional("mode", row.name),
        local_sends=row.optional("local_sends", lambda name: row.number(name, high=1.0)),
        remote_costs=row.optional("remote_costs", lambda name: read_collocation(row.fields(name))),
        restart=row.optional("restart", lambda name: read_restart(row.fields(name))),
        disruption=row.optional("disruption", lambda name: read_disruption(row.fields(name))),
        following_share=row.optional("following_share", row.number),
        forecast=row.optional("forecast", lambda name: read_forecast_status(row.fields(name))),
    )


def _read_workers(row: Fields, name: str) -> tuple[WorkerId, ...]:
    return tuple(WorkerId(check_name(value, path)) for path, value in row.items(name, limit=MAX_NODES))


def _read_fixed(row: Fields) -> FixedStatus:
    text = row.take("text")
    return FixedStatus(
        worker=WorkerId(row.name("worker")),
        reason=row.name("reason"),
        text="" if text == "" else check_text(text, row.at("text"), 200),  # empty where the reason says it all
    )


def _read_decision(row: Fields) -> DecisionStatus:
    app = row.optional("app", row.name)
    return DecisionStatus(
        at=row.number("at"),
        kind=row.name("kind"),
        reason=row.name("reason"),
        text=row.text("text", limit=4000),
        app=AppId(app) if app else None,
    )
