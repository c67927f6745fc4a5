"""Intents of operators: drain a worker, set the size of an app, pause, stop plans, accept a journal, forget.

Operator -> controller.

The topic is compacted; a tombstone revokes an intent.  The controller itself revokes an intent that it has completed.
Intents state what should be, not what to do, so they survive restarts of the controller.  In all of them `by` = who
wrote it, `at` = when (epoch seconds), `reason` = text for the status.
"""

from dataclasses import dataclass

from trimtab_protocol.messages.decode import BadMessage, Fault, encode, parse
from trimtab_protocol.messages.names import AppId, WorkerId

VERSION = 1
PAUSE_KEY = "pause"
ACCEPT_KEY = "accept-journal"
ALL = "all"
MAX_WORKERS = 10_000
"""The most workers that an operator can ask for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """Empty this worker, then stop it."""

    worker: WorkerId
    by: str
    at: float
    reason: str

    @property
    def key(self) -> str:
        """The record key."""
        return drain_key(self.worker)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Start no new plan; a plan in flight is finished."""

    by: str
    at: float
    reason: str

    @property
    def key(self) -> str:
        """The record key."""
        return PAUSE_KEY


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """End the plan in flight of this app, or of all apps (None).

    Hand-overs that are released are finished, all others are abandoned.
    """

    app: AppId | None
    by: str
    at: float
    reason: str

    @property
    def key(self) -> str:
        """The record key."""
        return "stop" if self.app is None else f"stop/{self.app}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptJournal:
    """End the hold with this id, and no other: go on without the content of the journal."""

    hold: str
    by: str
    at: float
    reason: str

    @property
    def key(self) -> str:
        """The record key."""
        return ACCEPT_KEY


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetApp:
    """The app is gone for good: revoke its placement and do not wait for it."""

    app: AppId
    by: str
    at: float
    reason: str

    @property
    def key(self) -> str:
        """The record key."""
        return f"forget/app/{self.app}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetWorker:
    """The worker is gone for good: do not wait for it, start it or drain it."""

    worker: WorkerId
    by: str
    at: float
    reason: str

    @property
    def key(self) -> str:
        """The record key."""
        return f"forget/worker/{self.worker}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The app should have so many workers, whatever its demand is."""

    app: AppId
    workers: int
    by: str
    at: float
    reason: str

    @property
    def key(self) -> str:
        """The record key."""
        return scale_key(self.app)


@dataclass(frozen=True, slots=True, kw_only=True)
class Undrain:
    """Do not drain this worker to make its app smaller: it takes key groups again.  Said once."""

    worker: WorkerId
    by: str
    at: float
    reason: str

    @property
    def key(self) -> str:
        """The record key."""
        return f"undrain/{self.worker}"


Intent = Drain | Pause | Stop | AcceptJournal | ForgetApp | ForgetWorker | Scale | Undrain


def scale_key(app: AppId) -> str:
    """The record key of an app's size."""
    return f"scale/{app}"


def drain_key(worker: WorkerId) -> str:
    """The record key of a worker's drain."""
    return f"drain/{worker}"


def encode_intent(intent: Intent) -> bytes:
    """The message as bytes."""
    document: dict[str, object] = {"v": VERSION, "by": intent.by, "at": intent.at, "reason": intent.reason}
    match intent:
        case Drain(worker=worker):
            document["worker"] = worker
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
        case Pause():
            pass
    return encode(document)


def decode_intent(key: bytes | None, payload: bytes) -> Intent:
    """The intent in a record; raises BadMessage, also when the key does not match the content."""
    fields = parse(payload, version=VERSION, limit=10_000)
    by, at, reason = fields.text("by", limit=200), fields.number("at"), fields.text("reason", limit=2000)
    kinds = ("worker", "hold", "stop_app", "stop_all", "forget_app", "forget_worker", "scale_app", "undrain")
    kind = next((name for name in kinds if fields.has(name)), None)
    name = "" if kind is None else fields.name(kind)
    intent: Intent
    match kind:
        case "worker":
            intent = Drain(worker=WorkerId(name), by=by, at=at, reason=reason)
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
        case _:
            intent = Pause(by=by, at=at, reason=reason)
    if key != intent.key.encode():
        raise BadMessage(Fault.RANGE, "key", key, intent.key)
    return intent
