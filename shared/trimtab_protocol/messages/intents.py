"""Intents of operators: drain a worker, restart all of an app, move key groups, scale, pause, add rules, and more.

Operator -> controller.

The topic is compacted; a tombstone revokes an intent.  The controller itself revokes an intent that it has completed.
Intents state what should be, not what to do, so they survive restarts of the controller.
"""

import hashlib
from dataclasses import dataclass

from trimtab_protocol.messages.columns import read_names
from trimtab_protocol.messages.decode import BadMessage, Fault, Fields, check_name, encode, parse
from trimtab_protocol.messages.names import AppId, HostId, KeyGroup, WorkerId, parse_key_group
from trimtab_protocol.messages.rules import MAX_REASON, Rule, read_rule, rule_document

VERSION = 1
PAUSE_KEY = "pause"
ACCEPT_KEY = "accept-journal"
MOVE_KEY = "move/"
"""How the key of a request to move key groups begins; what follows is a digest of it."""
ALL = "all"
MAX_WORKERS = 10_000
"""The most workers that an operator can ask for."""
MAX_MOVES = 1_000
"""The most key groups of one request to move some."""
MAX_BYTES = 500_000
"""Size of one intent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What all intents have."""

    by: str
    """Who wrote it."""
    at: float
    """When (epoch seconds)."""
    reason: str
    """Why; the status shows it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain(Said):
    """Empty this worker, then stop it.

    `until`: when that ends, and the worker is started again (epoch seconds); None: when it is taken back.  `host`: for
    whose maintenance the worker stays off.
    """

    worker: WorkerId
    until: float | None = None
    host: HostId | None = None

    @property
    def key(self) -> str:
        """The record key."""
        return drain_key(self.worker)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause(Said):
    """Start no new plan; a plan in flight is finished."""

    @property
    def told(self) -> str:
        """Who has paused the controller, and why, in words."""
        return f"paused by {self.by}: {self.reason}"

    @property
    def key(self) -> str:
        """The record key."""
        return PAUSE_KEY


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop(Said):
    """End the plan in flight of this app, or of all apps (None).

    Hand-overs that are released are finished, all others are abandoned.
    """

    app: AppId | None

    @property
    def key(self) -> str:
        """The record key."""
        return "stop" if self.app is None else f"stop/{self.app}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptJournal(Said):
    """End the hold with this id, and no other: go on without the content of the journal."""

    hold: str

    @property
    def key(self) -> str:
        """The record key."""
        return ACCEPT_KEY


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetApp(Said):
    """The app is gone for good: revoke its placement and do not wait for it."""

    app: AppId

    @property
    def key(self) -> str:
        """The record key."""
        return f"forget/app/{self.app}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetWorker(Said):
    """The worker is gone for good: do not wait for it, start it or drain it."""

    worker: WorkerId

    @property
    def key(self) -> str:
        """The record key."""
        return f"forget/worker/{self.worker}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale(Said):
    """The app should have so many workers, whatever its demand is."""

    app: AppId
    workers: int

    @property
    def key(self) -> str:
        """The record key."""
        return scale_key(self.app)


@dataclass(frozen=True, slots=True, kw_only=True)
class Undrain(Said):
    """Do not drain this worker to make its app smaller: it takes key groups again.  Said once."""

    worker: WorkerId

    @property
    def key(self) -> str:
        """The record key."""
        return f"undrain/{self.worker}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RollingRestart(Said):
    """Restart these workers of an app, host by host: drain, stop and start them."""

    app: AppId
    workers: tuple[WorkerId, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.workers) <= MAX_WORKERS:
            raise ValueError(f"found {len(self.workers)} workers, expected 1 to {MAX_WORKERS}")
        if len(set(self.workers)) < len(self.workers):
            raise ValueError("found a worker twice, expected each once")

    @property
    def key(self) -> str:
        """The record key."""
        return restart_key(self.app)


@dataclass(frozen=True, slots=True, kw_only=True)
class Approve(Said):
    """Carry this plan out, which waits for approval.  Said once."""

    plan: str

    @property
    def key(self) -> str:
        """The record key."""
        return f"approve/{self.plan}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reject(Said):
    """Do not carry this plan out, which waits for approval.  Said once."""

    plan: str

    @property
    def key(self) -> str:
        """The record key."""
        return f"reject/{self.plan}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Placing:
    """A key group, and the worker to which it should move."""

    key_group: KeyGroup
    worker: WorkerId


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveKeyGroups(Said):
    """Move these key groups of one app in a plan of their own.  Said once.

    `undoes` = the plan whose moves these take back; None: an operator has chosen them.
    """

    moves: tuple[Placing, ...]
    undoes: str | None = None

    def __post_init__(self) -> None:
        if not 1 <= len(self.moves) <= MAX_MOVES:
            raise ValueError(f"found {len(self.moves)} key groups, expected 1 to {MAX_MOVES}")
        if len({each.key_group.app for each in self.moves}) > 1:
            raise ValueError("found key groups of several apps, expected those of one")
        if len({each.key_group for each in self.moves}) < len(self.moves):
            raise ValueError("found a key group twice, expected each once")

    @property
    def app(self) -> AppId:
        """The app of the key groups."""
        return self.moves[0].key_group.app

    @property
    def key(self) -> str:
        """The record key: the same for the same moves."""
        text = "\n".join(f"{each.key_group} {each.worker}" for each in self.moves)
        return f"{MOVE_KEY}{hashlib.sha256(text.encode()).hexdigest()[:16]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AddRule(Said):
    """Keep this rule, whose reason is that of the intent, until it ends or is taken back."""

    rule: Rule

    @property
    def key(self) -> str:
        """The record key."""
        return rule_key(self.rule.name)


Intent = (
    Drain
    | Pause
    | Stop
    | AcceptJournal
    | ForgetApp
    | ForgetWorker
    | Scale
    | Undrain
    | RollingRestart
    | Approve
    | Reject
    | MoveKeyGroups
    | AddRule
)


def restart_key(app: AppId) -> str:
    """The record key of an app's rolling restart."""
    return f"restart/{app}"


def rule_key(name: str) -> str:
    """The record key of an operator's rule."""
    return f"rule/{name}"


def scale_key(app: AppId) -> str:
    """The record key of an app's size."""
    return f"scale/{app}"


def drain_key(worker: WorkerId) -> str:
    """The record key of a worker's drain."""
    return f"drain/{worker}"


KINDS = (
    "worker",
    "hold",
    "stop_app",
    "stop_all",
    "forget_app",
    "forget_worker",
    "scale_app",
    "undrain",
    "restart_app",
    "approve_plan",
    "reject_plan",
    "moves",
    "add_rule",
)
"""The field that says which intent a message is; a pause has none of them."""


def encode_intent(intent: Intent) -> bytes:
    """The message as bytes."""
    document: dict[str, object] = {"v": VERSION, "by": intent.by, "at": intent.at, "reason": intent.reason}
    match intent:
        case Drain(worker=worker, until=until, host=host):
            document |= {"worker": worker, "until": until, "host": host} if until is not None else {"worker": worker}
        case AcceptJournal(hold=hold):
            document["hold"] = hold
        case Stop(app=None):
            document["stop_all"] = ALL
        case Stop(app=app):
            document["stop_app"] = app
        case ForgetApp(app=app):
            document["forget_app"] = app
        case ForgetWorker(worker=worker):
            document["forget_worker"] = worker
        case Scale(app=app, workers=workers):
            document |= {"scale_app": app, "workers": workers}
        case Undrain(worker=worker):
            document["undrain"] = worker
        case RollingRestart(app=app, workers=names):
            document |= {"restart_app": app, "restart_workers": list(names)}
        case Approve(plan=plan):
            document["approve_plan"] = plan
        case Reject(plan=plan):
            document["reject_plan"] = plan
        case MoveKeyGroups(moves=moves, undoes=undoes):
            document["moves"] = [[str(each.key_group), each.worker] for each in moves]
            document |= {} if undoes is None else {"undoes": undoes}
        case AddRule(rule=rule):
            document |= {"add_rule": rule.name, "rule": rule_document(rule)}
        case Pause():
            pass
    return encode(document)


def decode_intent(key: bytes | None, payload: bytes) -> Intent:
    """The intent in a record; raises BadMessage, also when the key does not match the content."""
    fields = parse(payload, version=VERSION, limit=MAX_BYTES)
    by, at, reason = fields.text("by", limit=200), fields.number("at"), fields.text("reason", limit=MAX_REASON)
    kind = next((name for name in KINDS if fields.has(name)), None)
    name = "" if kind in (None, "moves") else fields.name(kind)
    intent: Intent
    match kind:
        case "worker":
            until, host = fields.optional("until", fields.number), fields.optional("host", fields.name)
            on = HostId(host) if host is not None else None
            intent = Drain(worker=WorkerId(name), by=by, at=at, reason=reason, until=until, host=on)
        case "hold":
            intent = AcceptJournal(hold=name, by=by, at=at, reason=reason)
        case "stop_app":
            intent = Stop(app=AppId(name), by=by, at=at, reason=reason)
        case "stop_all":
            intent = Stop(app=None, by=by, at=at, reason=reason)
        case "forget_app":
            intent = ForgetApp(app=AppId(name), by=by, at=at, reason=reason)
        case "forget_worker":
            intent = ForgetWorker(worker=WorkerId(name), by=by, at=at, reason=reason)
        case "scale_app":
            workers = fields.integer("workers", low=1, high=MAX_WORKERS)
            intent = Scale(app=AppId(name), workers=workers, by=by, at=at, reason=reason)
        case "undrain":
            intent = Undrain(worker=WorkerId(name), by=by, at=at, reason=reason)
        case "restart_app":
            names = tuple(map(WorkerId, read_names(fields, "restart_workers", limit=MAX_WORKERS)))
            try:
                intent = RollingRestart(app=AppId(name), workers=names, by=by, at=at, reason=reason)
            except ValueError as error:
                raise BadMessage(Fault.RANGE, "restart_workers", f"{len(names)} names", str(error)) from error
        case "approve_plan":
            intent = Approve(plan=name, by=by, at=at, reason=reason)
        case "reject_plan":
            intent = Reject(plan=name, by=by, at=at, reason=reason)
        case "moves":
            undoes = fields.optional("undoes", fields.name)
            try:
                intent = MoveKeyGroups(moves=_read_moves(fields), by=by, at=at, reason=reason, undoes=undoes)
            except ValueError as error:
                raise BadMessage(Fault.RANGE, "moves", "moves that do not fit together", str(error)) from error
        case "add_rule":
            rule = read_rule(fields.fields("rule"), reason)
            intent = AddRule(rule=rule, by=by, at=at, reason=reason)
        case _ if key == PAUSE_KEY.encode():
            intent = Pause(by=by, at=at, reason=reason)
        case _:
            raise BadMessage(Fault.RANGE, "key", key, "an intent that this version knows")
    if key != intent.key.encode():
        raise BadMessage(Fault.RANGE, "key", key, intent.key)
    return intent


def _read_moves(fields: Fields) -> tuple[Placing, ...]:
    found = []
    for path, row in fields.items("moves", limit=MAX_MOVES):
        if not isinstance(row, list) or len(row) != 2 or not isinstance(row[0], str):
            raise BadMessage(Fault.TYPE, path, row, "[key group, worker]")
        worker = WorkerId(check_name(row[1], f"{path}[1]"))
        found.append(Placing(key_group=parse_key_group(row[0], f"{path}[0]"), worker=worker))
    return tuple(found)
