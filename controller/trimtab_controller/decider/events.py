"""Events and actions of the decider."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from trimtab_controller.decider.decision import Decision, Skip
from trimtab_controller.decider.observing.view import PlannableView
from trimtab_controller.execution.restore_costs import LearnedRestores
from trimtab_controller.execution.state import Execution
from trimtab_controller.solver.answer import Answer, NoAnswer
from trimtab_protocol.messages.intents import Intent, TakenBack
from trimtab_protocol.messages.names import AppId, HostId, KeyGroup, WorkerId
from trimtab_protocol.messages.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotArrived:
    """The stream published a window."""

    snapshot: Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class IntentsChanged:
    """All intents in force now; `taken_back` = who has taken others back, by key, as far as that is said."""

    intents: tuple[Intent, ...]
    taken_back: Mapping[str, TakenBack] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostsRevoked:
    """All hosts whose key is revoked now, so that what is said for them is dropped; none unless that is enforced."""

    hosts: frozenset[HostId]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionChanged:
    """The execution state as last published."""

    execution: Execution


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldChanged:
    """The reason why the journal cannot be trusted; None: it is trusted again."""

    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverAnswered:
    """The answer to the last `Solve`."""

    answer: Answer | NoAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class HookEnded:
    """The program that adds workers to an app from outside has ended; `failure` None: with exit code 0."""

    app: AppId
    failure: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoresLearned:
    """What restores cost, as far as the execution has measured it."""

    learned: LearnedRestores


Event = (
    SnapshotArrived
    | IntentsChanged
    | HostsRevoked
    | ExecutionChanged
    | RestoresLearned
    | HoldChanged
    | SolverAnswered
    | HookEnded
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Solve:
    """Ask the solver about this view."""

    view: PlannableView


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """Log the decision, count it, and carry it out when acting."""

    decision: Decision
    others: tuple[Skip, ...] = ()
    """Beside the decision to do nothing about the app that needs a plan most: why the other apps get none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """By how much a round was to lower the mean load by collocation, and has (pp of capacity); None = not known."""

    planned_pp: float
    measured_pp: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredMove:
    """A move after its round: what the key group uses at its new owner (percent of a core), and whether it has paid.

    None: not known.
    """

    key_group: KeyGroup
    source: WorkerId
    target: WorkerId
    load_pct: float | None
    paid: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MispredictedWorker:
    """A worker's load as the plan predicted it and as it was measured, in percent of its capacity."""

    worker: WorkerId
    planned: float
    measured: float

    def __str__(self) -> str:
        return f"{self.worker} {self.planned:.1f} % planned, {self.measured:.1f} % measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundMeasured:
    """The result of a round, from the first whole window after it.

    `load_distance` (pp) is the measured one.  `incomparable` says why it cannot be compared with the plan.  `missed`
    names the mispredicted workers, worst first; it is empty when the plan met its prediction.  `worker_loads` = the
    measured load of each worker, in percent of its capacity.  `saving` None: the plan was not about collocation.
    `moves` = what each move has brought.
    """

    plan: str
    app: AppId
    planned: float
    load_distance: float | None
    incomparable: str | None = None
    missed: tuple[MispredictedWorker, ...] = ()
    worker_loads: Mapping[WorkerId, float] = field(default_factory=dict, compare=False)
    saving: Saving | None = None
    moves: tuple[MeasuredMove, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainBlocked:
    """Key groups that cannot leave a worker being drained, and the obstacle."""

    worker: WorkerId
    key_groups: tuple[KeyGroup, ...]
    obstacle: str


Action = Solve | Decided | RoundMeasured | DrainBlocked
