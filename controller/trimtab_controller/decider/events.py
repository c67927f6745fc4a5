"""Events and actions of the decider."""

from dataclasses import dataclass

from trimtab_controller.decider.decision import Decision
from trimtab_controller.decider.predictions import MispredictedWorker
from trimtab_controller.decider.view import AppView
from trimtab_controller.execution.state import Execution
from trimtab_controller.solver.answer import Answer, NoAnswer
from trimtab_protocol.messages.intents import Intent
from trimtab_protocol.messages.names import KeyGroup, WorkerId
from trimtab_protocol.messages.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotArrived:
    """The stream published a window."""

    snapshot: Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class IntentsChanged:
    """All intents that hold now."""

    intents: tuple[Intent, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionChanged:
    """What the execution published last."""

    execution: Execution


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldChanged:
    """Why the journal cannot be trusted; None: it can again."""

    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverAnswered:
    """The answer to the last `Solve`."""

    answer: Answer | NoAnswer


Event = SnapshotArrived | IntentsChanged | ExecutionChanged | HoldChanged | SolverAnswered


@dataclass(frozen=True, slots=True, kw_only=True)
class Solve:
    """Ask the solver about this view."""

    view: AppView


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """Log the decision, count it, and carry it out when acting."""

    decision: Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundMeasured:
    """The first whole window after a round: its load distance (pp), or why that says nothing about the plan.

    `missed` = the workers that were mispredicted, worst first, when the plan was not kept.
    """

    plan: str
    planned: float
    load_distance: float | None
    incomparable: str | None = None
    missed: tuple[MispredictedWorker, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainBlocked:
    """Key groups that cannot leave a worker that is being drained, and why not."""

    worker: WorkerId
    key_groups: tuple[KeyGroup, ...]
    obstacle: str


Action = Solve | Decided | RoundMeasured | DrainBlocked
