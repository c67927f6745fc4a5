"""The decisions: values that say what to do about an app or a worker, why to do nothing, or that a plan is wanted.

Each but `Skip` is the event that makes the execution carry it out, with what else is told of it.

Also words for them: a line for operators in logs and status, and the names in metrics.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import assert_never

from trimtab_controller.decider.values.reasons import Concern, NotReady, SkipReason
from trimtab_controller.execution.events import (
    ForgetWanted,
    IntentsAnswered,
    Lacking,
    PlacementWanted,
    PlanDecided,
    PlanProposed,
    ProposalDropped,
    ResizeWanted,
    ScalingWanted,
    StandbysWanted,
    StopWanted,
)
from trimtab_controller.plan import Plan, PlanReason
from trimtab_controller.solver.answer import Answer
from trimtab_protocol.messages.commands import CommandKind
from trimtab_protocol.messages.names import AppId, HostId, WorkerId
from trimtab_protocol.wording import counted, first_few


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolWorker:
    """A worker that a START command would start.  `capacity` in cores.

    `adds` = cores that the app would then have more, in the unit of loads: less where the workers of a host share it.
    None = unknown; then its capacity stands for it.
    """

    worker: WorkerId
    host: HostId
    capacity: float
    adds: float | None = None

    @property
    def gain(self) -> float:
        """Cores that it adds."""
        return self.capacity if self.adds is None else self.adds


class SizeDirection(StrEnum):
    """How the number of workers should change."""

    STAY = "stay"
    OUT = "out"
    IN = "in"


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeQuestion:
    """What a size depends on: the potential plan for an app on the workers that `remain`.

    `load_distance` = the one to stay within (pp); None: the band.
    """

    remain: frozenset[WorkerId]
    load_distance: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeVerdict:
    """What should become of the number of workers.

    `workers` = how many stay now, `wanted` = how many there should be; None = unknown.  `desired` = the number for
    whoever adds and removes workers from outside: it changes when a change is `due`, and does not fall before the
    workers that leave are empty.  `asked` and `capacity` in cores.  `detail` = the reason.  A change that is due keeps
    workers that were to leave (`keep`), starts some of the pool (`start`), or drains some (`drain`); `short` = how many
    more are wanted than can be kept or started, and `crowded` = workers of the pool that would not help, because their
    hosts have no CPU left.  `in_vain`: the last scale-out did not raise the rate.  `asks` = the question to the solver
    that a change, which nothing else stands against, waits for.
    `restart_s` = the configured time until a started worker runs, `measured_restart_s` = the one that was seen.
    `own` = the app's own settings, as text.
    """

    app: AppId
    detail: str
    direction: SizeDirection = SizeDirection.STAY
    workers: int | None = None
    wanted: int | None = None
    desired: int | None = None
    asked: float | None = None
    capacity: float | None = None
    rate: float | None = None
    by_word: bool = False
    due: bool = False
    keep: tuple[WorkerId, ...] = ()
    start: tuple[PoolWorker, ...] = ()
    drain: tuple[WorkerId, ...] = ()
    short: int = 0
    crowded: tuple[WorkerId, ...] = ()
    in_vain: bool = False
    asks: SizeQuestion | None = None
    restart_s: float | None = None
    measured_restart_s: float | None = None
    own: tuple[str, ...] = ()

    @property
    def urgent(self) -> bool:
        """Whether the change cannot wait: the app is asked for more than it can do, or it starts and stops nobody."""
        overloaded = self.asked is not None and self.capacity is not None and self.asked > self.capacity
        return self.direction is SizeDirection.OUT and (overloaded or not (self.start or self.short))


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """Do nothing.  `app` None: in the whole cluster; the detail names it too, so it makes no difference of its own."""

    reason: SkipReason
    detail: str
    app: AppId | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class NextOwners:
    """What stands behind a decision about orphans: the workers that it could choose from, and those that are lost.

    `crowd` = what operators are told where no worker had room.
    """

    offered: frozenset[WorkerId] = frozenset()
    lost: frozenset[WorkerId] = frozenset()
    crowd: Concern | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmForecast:
    """Seconds until all new standbys are warm by the model of restores, and what no other workers can beat."""

    seconds: float
    bound_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned(PlanDecided):
    """Carry out a plan.  `added` and `warm` as in StandbysPlaced."""

    lacking: Lacking = field(default_factory=dict, compare=False)
    added: int = field(default=0, compare=False, repr=False)
    warm: WarmForecast | None = field(default=None, compare=False, repr=False)
    next_owners: NextOwners | None = field(default=None, compare=False, repr=False)


Proposed = PlanProposed


class ProposalOutcome(StrEnum):
    """Why a plan does not wait for approval any longer; events use these names."""

    REJECTED = "rejected"
    WITHDRAWN = "withdrawn"  # it does not fit any more
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalEnded(ProposalDropped):
    """A plan does not wait for approval any longer."""

    outcome: ProposalOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class IntentRefused(IntentsAnswered):
    """What an operator asked for (`what` = move, undo, approve, reject or forget) is not done, as `detail` says."""

    what: str
    detail: str
    app: AppId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted(PlacementWanted):
    """Change the placement to what the reports show.  `added` and `warm` as in StandbysPlaced."""

    detail: str
    lacking: Lacking = field(default_factory=dict, compare=False)
    added: int = field(default=0, compare=False, repr=False)
    warm: WarmForecast | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbysPlaced(StandbysWanted):
    """Change the standbys of these key groups.

    `added` = how many were chosen, those of key groups that move at the same time included.  `warm`: when they are
    warm; None if there are none.
    """

    detail: str
    lacking: Lacking = field(default_factory=dict, compare=False)
    added: int = field(default=0, compare=False, repr=False)
    warm: WarmForecast | None = field(default=None, compare=False, repr=False)
    next_owners: NextOwners | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanEnded(StopWanted):
    """End the plan in flight of an app early, for the sake of restores."""

    app: AppId
    next_owners: NextOwners | None = field(default=None, compare=False, repr=False)

    @property
    def detail(self) -> str:
        """Why."""
        return self.reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaled(ScalingWanted):
    """Stop or start a worker."""

    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgotten(ForgetWanted):
    """Forget an app or a worker, as an operator wants."""

    what: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resized(ResizeWanted):
    """Change the number of workers of an app; `short` = how many more the hook is to add."""

    detail: str
    short: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarted(IntentsAnswered):
    """A rolling restart has ended."""

    app: AppId
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceEnded(IntentsAnswered):
    """The time of a host's maintenance is over."""

    detail: str
    app: AppId | None = None


Decision = (
    Skip
    | Planned
    | Proposed
    | ProposalEnded
    | IntentRefused
    | Adopted
    | StandbysPlaced
    | Restarted
    | MaintenanceEnded
    | PlanEnded
    | Scaled
    | Resized
    | Forgotten
)


def not_ready(found: NotReady) -> Skip:
    """The decision to do nothing until the missing facts are known."""
    where = f"{found.app}: " if found.app else ""
    return Skip(reason=found.reason, detail=f"{where}{found.reason}: {found.detail}", app=found.app)


REFUSED = ("move", "undo", "approve", "reject", "forget")
"""What an operator may ask for that is refused."""
ALL_NAMES = (
    *(("skip", str(reason)) for reason in SkipReason),
    *(("plan", str(reason)) for reason in PlanReason),
    *(("propose", str(reason)) for reason in PlanReason if reason.may_wait),
    *(("proposal", str(outcome)) for outcome in ProposalOutcome),
    *(("refuse", what) for what in REFUSED),
    ("adopt", "ownership"),
    ("standbys", "standbys"),
    *(("end", what) for what in ("loss", "restart", "maintenance")),
    *((str(kind), why) for kind in (CommandKind.START, CommandKind.STOP) for why in ("drain", "size")),
    *(("resize", change) for change in ("in", "out", "keep")),
    *(("forget", what) for what in ("app", "worker")),
)
"""All pairs that `names_of` gives."""


def describe(decision: Decision) -> str:
    """One line for the operator."""
    match decision:
        case Skip():
            return f"nothing: {decision.detail}"
        case Planned(plan=plan):
            return f"{plan.app}: {describe_plan(plan)}"
        case Proposed(plan=plan):
            return f"{plan.app}: waits for approval: {describe_plan(plan)}"
        case ProposalEnded(plan=name):
            return f"{decision.app}: plan {name} {decision.outcome}: {decision.detail}"
        case IntentRefused():
            return f"refused: {decision.what}: {decision.detail}"
        case Adopted() | StandbysPlaced() | PlanEnded() | Restarted():
            return f"{decision.app}: {decision.detail}"
        case MaintenanceEnded():
            return decision.detail
        case Scaled():
            return f"{decision.kind} {decision.worker} on {decision.host}: {decision.detail}"
        case Resized(app=app):
            return f"{app or 'size'}: {_changes(decision)}: {decision.detail}"
        case Forgotten():
            return f"forget {decision.what}: {decision.detail}"
    assert_never(decision)


def describe_plan(plan: Plan) -> str:
    """What a plan does, and why, without its app."""
    if plan.lost:
        return plan.detail
    return (
        f"{_moves(plan)}, load distance {plan.before:.1f} -> "
        f"{plan.planned:.1f} (bound {plan.lower_bound:.1f}){collocation_of(plan)}, "
        f"because {plan.detail}{method_of(plan)}"
        f"{'; ' if plan.note else ''}{plan.note}"
    )


def app_of(decision: Decision) -> AppId | None:
    """The app that a decision is about; None: the cluster, or an operator's wish."""
    return decision.plan.app if isinstance(decision, Planned | Proposed) else decision.app


def _moves(plan: Plan) -> str:
    count = len(plan.moves)
    nearer = {"standbys": plan.to_standbys, "copies on disk": plan.to_copies}
    told = ", ".join(f"{count} to {what}" for what, count in nearer.items() if count)
    warm = f" ({told})" if told else ""
    return f"{counted(count, 'move')}{warm}"


def names_of(decision: Decision) -> tuple[str, str]:
    """The kind and reason of a decision, as metrics and status name them."""
    match decision:
        case Skip():
            return "skip", str(decision.reason)
        case Planned(plan=plan):
            return "plan", str(plan.reason)
        case Proposed(plan=plan):
            return "propose", str(plan.reason)
        case ProposalEnded(outcome=outcome):
            return "proposal", str(outcome)
        case IntentRefused(what=what):
            return "refuse", what
        case Adopted():
            return "adopt", "ownership"
        case StandbysPlaced():
            return "standbys", "standbys"
        case PlanEnded():
            return "end", "loss"
        case Restarted():
            return "end", "restart"
        case MaintenanceEnded():
            return "end", "maintenance"
        case Scaled():
            wanted = "drain" if decision.app is None else "size"
            return str(decision.kind), "restart" if decision.owning else wanted
        case Resized(start=start, drain=drain, short=short):
            return "resize", "in" if drain else "out" if start or short else "keep"
        case Forgotten(app=app):
            return "forget", "worker" if app is None else "app"
    assert_never(decision)


def _changes(found: Resized) -> str:
    parts = {
        "start": [f"{worker} on {host}" for worker, host in found.start.items()],
        "drain and stop": found.drain,
        "keep": found.keep,
    }
    said = [f"{what} {first_few(names)}" for what, names in parts.items() if names]
    if found.short:
        said.append(f"run the hook for {found.short} more")
    return ", ".join(said) or "nothing to change"


def collocation_of(found: Answer | Plan) -> str:
    """The gain in collocation, if the answer or plan is about that; else empty."""
    if found.collocation is None:
        return ""
    change = found.collocation
    return (
        f", collocation {change.before:.1%} -> {change.planned:.1%}, saving {change.saved_pp:.1f} pp of load, "
        f"and the broker {change.spared_s:.0f} tuples/s"
    )


def method_of(found: Answer | Plan) -> str:
    """How the answer or plan was found, if it was not by the solver; else empty."""
    return ", by Flux as the solver gave no answer" if found.fallback else ""
