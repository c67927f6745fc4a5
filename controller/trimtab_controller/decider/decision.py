"""Decisions as values: what can be done about an app or a worker, or nothing."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from trimtab_controller.decider.reasons import SkipReason
from trimtab_controller.decider.view import NotReady
from trimtab_controller.plan import Plan
from trimtab_protocol.messages.commands import CommandKind
from trimtab_protocol.messages.names import AppId, HostId, KeyGroup, WorkerId
from trimtab_protocol.messages.placement import Owners


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """Nothing is done."""

    reason: SkipReason
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A plan to carry out; `standbys` = new rows of key groups that it does not move."""

    plan: Plan
    standbys: Mapping[KeyGroup, Owners] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted:
    """The placement is to say what the reports show; `standbys` = rows in which other workers stand by than before."""

    app: AppId
    owners: Mapping[KeyGroup, WorkerId]
    detail: str
    standbys: Mapping[KeyGroup, Owners] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbysPlaced:
    """Other workers are to keep the state of these key groups warm; their owners stay."""

    app: AppId
    rows: Mapping[KeyGroup, Owners]
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaled:
    """A worker is to be stopped or started."""

    kind: CommandKind
    worker: WorkerId
    host: HostId
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgotten:
    """The answer to an operator: an app or a worker is forgotten, or, when both are None, it cannot be.

    `answered`: the keys of the intents that end with it.
    """

    what: str
    answered: tuple[str, ...]
    detail: str
    app: AppId | None = None
    worker: WorkerId | None = None


Decision = Skip | Planned | Adopted | StandbysPlaced | Scaled | Forgotten


def not_ready(found: NotReady) -> Skip:
    """The decision to do nothing until what is missing is known."""
    where = f"{found.app}: " if found.app else ""
    return Skip(reason=found.reason, detail=f"{where}{found.reason}: {found.detail}")
