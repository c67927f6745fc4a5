"""Intents of operators: drain a worker, restart all of an app, move key groups, scale, pause, add rules, and more.

Operator -> controller.

The topic is compacted; a tombstone revokes an intent.  The controller itself revokes an intent that it has completed.
Intents state what should be, not what to do, so they survive restarts of the controller.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

from trimtab_protocol.messages.codec import (
    Distinct,
    Key,
    Most,
    Name,
    Range,
    Text,
    Wire,
    WrittenAs,
    converted,
    decoded,
    document,
    encoded,
    versioned,
)
from trimtab_protocol.messages.decode import BadMessage, Fault
from trimtab_protocol.messages.names import AppId, HostId, KeyGroupName, WorkerId
from trimtab_protocol.messages.rules import MAX_REASON, Rule

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
TAKEN_BACK_HEADER = "trimtab-taken-back"
MAX_TAKEN_BACK_BYTES = 20_000
"""Size of that header's value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What all intents have."""

    WIRE: ClassVar = Wire(version=VERSION, most_bytes=MAX_BYTES)
    KEY: ClassVar[str]
    """The record key, without what it is about."""
    KIND: ClassVar[str]
    """The same as the console calls it."""
    ABOUT: ClassVar[str | None] = None
    """The field with what it is about."""

    by: Annotated[str, Text(200)]
    """Who wrote it."""
    at: float
    """When (epoch seconds)."""
    reason: Annotated[str, Text(MAX_REASON)]
    """Why; the status shows it."""

    @property
    def about(self) -> str | None:
        """Which worker, app, plan or rule it is about; None: none of them, or all."""
        return None if self.ABOUT is None else getattr(self, self.ABOUT)

    @classmethod
    def key_of(cls, about: str | None) -> str:
        """The record key of what is about this."""
        return cls.KEY if about is None else f"{cls.KEY}/{about}"

    @property
    def key(self) -> str:
        """The record key."""
        return self.key_of(self.about)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain(Said):
    """Empty this worker, then stop it.

    `until`: when that ends, and the worker is started again (epoch seconds); None: when it is taken back.  `host`: for
    whose maintenance the worker stays off.
    """

    KEY, KIND, ABOUT = "drain", "drain", "worker"

    worker: WorkerId
    until: float | None = None
    host: HostId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause(Said):
    """Start no new plan; a plan in flight is finished."""

    KEY, KIND, ABOUT = PAUSE_KEY, "pause", None

    @property
    def told(self) -> str:
        """Who has paused the controller, and why, in words."""
        return f"paused by {self.by}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop(Said):
    """End the plan in flight of this app, or of all apps (None).

    Hand-overs that are released are finished, all others are abandoned.
    """

    KEY, KIND, ABOUT = "stop", "stop", "app"

    WIRE: ClassVar = Wire(version=VERSION, most_bytes=MAX_BYTES, derived=("stop_all",))

    app: Annotated[AppId | None, Key("stop_app")]

    @property
    def stop_all(self) -> str | None:
        """What says on the wire that it is about all apps."""
        return ALL if self.app is None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptJournal(Said):
    """End the hold with this id, and no other: go on without the content of the journal."""

    KEY, KIND, ABOUT = ACCEPT_KEY, "accept journal", None

    hold: Name


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetApp(Said):
    """The app is gone for good: revoke its placement and do not wait for it."""

    KEY, KIND, ABOUT = "forget/app", "forget app", "app"

    app: Annotated[AppId, Key("forget_app")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetWorker(Said):
    """The worker is gone for good: do not wait for it, start it or drain it."""

    KEY, KIND, ABOUT = "forget/worker", "forget worker", "worker"

    worker: Annotated[WorkerId, Key("forget_worker")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale(Said):
    """The app should have this many workers, whatever its demand is."""

    KEY, KIND, ABOUT = "scale", "scale", "app"

    app: Annotated[AppId, Key("scale_app")]
    workers: Annotated[int, Range(1, MAX_WORKERS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Undrain(Said):
    """Do not drain this worker to make its app smaller: it takes key groups again.  Said once."""

    KEY, KIND, ABOUT = "undrain", "undrain", "worker"

    worker: Annotated[WorkerId, Key("undrain")]


@dataclass(frozen=True, slots=True, kw_only=True)
class RollingRestart(Said):
    """Restart these workers of an app, host by host: drain, stop and start them."""

    KEY, KIND, ABOUT = "restart", "rolling restart", "app"

    app: Annotated[AppId, Key("restart_app")]
    workers: Annotated[tuple[WorkerId, ...], Key("restart_workers"), Most(MAX_WORKERS, 1), Distinct()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Approve(Said):
    """Carry this plan out, which waits for approval.  Said once."""

    KEY, KIND, ABOUT = "approve", "approve", "plan"

    plan: Annotated[Name, Key("approve_plan")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reject(Said):
    """Do not carry this plan out, which waits for approval.  Said once."""

    KEY, KIND, ABOUT = "reject", "reject", "plan"

    plan: Annotated[Name, Key("reject_plan")]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedMove:
    """A key group, and the worker to which it should move."""

    WIRE: ClassVar = Wire(row=True)

    key_group: KeyGroupName
    worker: WorkerId


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveKeyGroups(Said):
    """Move these key groups of one app in a plan of their own.  Said once.

    `undoes` = the plan whose moves these take back; None: an operator has chosen them.
    """

    KEY, KIND, ABOUT = "move", "move", "app"

    moves: Annotated[tuple[RequestedMove, ...], Most(MAX_MOVES)]
    undoes: Name | None = None

    def __post_init__(self) -> None:
        names = {each.key_group for each in self.moves}
        if not 1 <= len(self.moves) <= MAX_MOVES:
            raise BadMessage(Fault.RANGE, "moves", f"{len(self.moves)} of them", f"1 to {MAX_MOVES}")
        if len(names) < len(self.moves):
            raise BadMessage(Fault.RANGE, "moves", f"{len(self.moves)} of {len(names)} names", "each of them once")
        if len(apps := {each.key_group.app for each in self.moves}) > 1:
            raise BadMessage(Fault.RANGE, "moves", f"key groups of {len(apps)} apps", "those of one")

    @property
    def app(self) -> AppId:
        """The app of the key groups."""
        return self.moves[0].key_group.app

    @property
    def key(self) -> str:
        """The record key: the same for the same moves."""
        text = "\n".join(f"{each.key_group} {each.worker}" for each in self.moves)
        return self.key_of(hashlib.sha256(text.encode()).hexdigest()[:16])


def _without_reason(rule: Rule) -> dict[str, Any]:
    return {name: value for name, value in document(rule).items() if name != "reason"}


def _with_any_reason(found: Any) -> Rule:
    """The rule, whose reason its intent says."""
    return converted({**found, "reason": "-"} if isinstance(found, dict) else found, Rule)


@dataclass(frozen=True, slots=True, kw_only=True)
class AddRule(Said):
    """Keep this rule, whose reason is that of the intent, until it ends or is taken back."""

    KEY, KIND, ABOUT = "rule", "rule", "add_rule"

    WIRE: ClassVar = Wire(version=VERSION, most_bytes=MAX_BYTES, derived=("add_rule",))

    rule: Annotated[Rule, WrittenAs(Any, _without_reason, _with_any_reason)]

    def __post_init__(self) -> None:
        if self.rule.reason != self.reason:
            object.__setattr__(self, "rule", replace(self.rule, reason=self.reason))

    @property
    def add_rule(self) -> str:
        """The name of the rule."""
        return self.rule.name


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


KINDS: Mapping[str, type[Intent]] = {
    "worker": Drain,
    "hold": AcceptJournal,
    "stop_app": Stop,
    "stop_all": Stop,
    "forget_app": ForgetApp,
    "forget_worker": ForgetWorker,
    "scale_app": Scale,
    "undrain": Undrain,
    "restart_app": RollingRestart,
    "approve_plan": Approve,
    "reject_plan": Reject,
    "moves": MoveKeyGroups,
    "add_rule": AddRule,
}
"""The field that says which intent a message is; a pause has none of them."""


def decode_intent(key: bytes | None, payload: bytes) -> Intent:
    """The intent in a record; raises BadMessage, also when the key does not match the content."""
    found = versioned(payload, Said)
    kind = next((kind for name, kind in KINDS.items() if found.get(name) is not None), Pause)
    if kind is Pause and key != PAUSE_KEY.encode():
        raise BadMessage(Fault.RANGE, "key", key, "an intent that this version knows")
    intent: Intent = converted(found, kind)
    if key != intent.key.encode():
        raise BadMessage(Fault.RANGE, "key", key, intent.key)
    return intent


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenBack(Said):
    """An intent is not wanted any longer: the header `trimtab-taken-back` of a record without a value."""

    WIRE: ClassVar = Wire(version=VERSION, most_bytes=MAX_TAKEN_BACK_BYTES)


def encode_taken_back(word: TakenBack) -> tuple[str, bytes]:
    """The header."""
    return TAKEN_BACK_HEADER, encoded(word)


def taken_back_in(headers: Iterable[tuple[str, bytes | None]]) -> TakenBack | None:
    """Who has taken it back; None: nobody says.  Raises BadMessage."""
    value = next((value for name, value in headers if name == TAKEN_BACK_HEADER), None)
    return None if value is None else decoded(value, TakenBack)
