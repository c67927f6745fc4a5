"""Decisions as values: what can be done about an app or a worker, and every reason to do nothing."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from trimtab_controller.decider.view import Lack, NotReady
from trimtab_controller.plan import Plan
from trimtab_protocol.messages.commands import CommandKind
from trimtab_protocol.messages.names import AppId, HostId, KeyGroup, WorkerId
from trimtab_protocol.messages.placement import Owners


class SkipReason(StrEnum):
    """Why nothing is done."""

    NOT_READY = "not_ready"
    HOLD = "hold"
    PAUSED = "paused"
    PLAN_IN_FLIGHT = "plan_in_flight"
    SCALING_IN_FLIGHT = "scaling_in_flight"
    TOO_SOON = "too_soon"
    INSIDE_BAND = "inside_band"
    INSIDE_NOISE = "inside_noise"
    ALL_DRAINING = "all_draining"
    NOTHING_BETTER = "nothing_better"
    SOLVER_FAILED = "solver_failed"
    PLANS_MISS = "plans_miss"


OF_BALANCE = frozenset(
    {SkipReason.TOO_SOON, SkipReason.INSIDE_BAND, SkipReason.INSIDE_NOISE, SkipReason.NOTHING_BETTER}
)
"""Nothing is done because the loads of an app do not ask for it, or not yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """Nothing is done; `lack` says what is missing when the reason is NOT_READY or HOLD."""

    reason: SkipReason
    detail: str
    lack: Lack | None = None


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
    """The skip that follows from a lack."""
    reason = SkipReason.HOLD if found.lack is Lack.HOSTS_LOST else SkipReason.NOT_READY
    where = f"{found.app}: " if found.app else ""
    return Skip(reason=reason, detail=f"{where}{found.lack}: {found.detail}", lack=found.lack)
