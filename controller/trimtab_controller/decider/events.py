"""Events and actions of the decider."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from trimtab_controller.decider.memory.predictions import RoundMeasured
from trimtab_controller.decider.policies.judgement import DrainBlocked
from trimtab_controller.decider.values.decision import Decision, Skip
from trimtab_controller.decider.window.view import PlannableView
from trimtab_controller.execution.restore_costs import LearnedRestores
from trimtab_controller.execution.state import Execution
from trimtab_controller.solver.answer import Answer, NoAnswer
from trimtab_protocol.messages.intents import Intent, TakenBack
from trimtab_protocol.messages.names import AppId, HostId
from trimtab_protocol.messages.snapshot import Snapshot

CLOCK_TOLERANCE_S = 60.0
"""How far in the future a message may be dated; beyond that its sender's clock is wrong."""


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


Action = Solve | Decided | RoundMeasured | DrainBlocked
