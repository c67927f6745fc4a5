"""The intents in force, and what the decider owes the operators who sent them.

Intents are dated by the clock of whoever sent them, stops and starts by the controller's.  So a restart counts from
when it was heard, if it is dated later than that.
"""

from dataclasses import replace

from trimtab_controller.decider.decision import (
    Decision,
    Forgotten,
    MaintenanceEnded,
    Planned,
    ProposalEnded,
    Refused,
    Restarted,
)
from trimtab_controller.decider.known import Known
from trimtab_controller.decider.observing.view import PlannableView
from trimtab_controller.decider.operators.forgetting import to_forget
from trimtab_controller.decider.operators.maintenance import maintenance_over
from trimtab_controller.decider.operators.modes import PlanSettings
from trimtab_controller.decider.operators.proposals import answer_to, any_at_once, wanted_by_operators
from trimtab_controller.decider.operators.rolling import draining, restarted
from trimtab_controller.decider.operators.undrained import Allowed, to_stop_undrained
from trimtab_controller.execution.budget import Budget
from trimtab_controller.execution.state import Execution
from trimtab_protocol.messages.intents import Intent, MoveKeyGroups, Pause, RollingRestart
from trimtab_protocol.messages.names import AppId, WorkerId
from trimtab_protocol.messages.snapshot import Snapshot


class OperatorIntents:
    """The intents `in_force`; those that a decision answers end with it (`done_with`)."""

    def __init__(self) -> None:
        self.in_force: tuple[Intent, ...] = ()
        self._heard_at: dict[RollingRestart, float] = {}

    @property
    def paused(self) -> str | None:
        """Who paused the controller and why, or None."""
        return next((each.told for each in self.in_force if isinstance(each, Pause)), None)

    def change(self, now: float, intents: tuple[Intent, ...]) -> bool:
        """Take the intents that are in force now; whether one of them wants an answer before the next window."""
        known, heard_at = self.in_force, self._heard_at
        self._heard_at = {each: heard_at.get(each, now) for each in intents if isinstance(each, RollingRestart)}
        self.in_force = tuple(map(self._dated, intents))
        return any_at_once(known, intents)

    def _dated(self, intent: Intent) -> Intent:
        if not isinstance(intent, RollingRestart):
            return intent
        return replace(intent, at=min(intent.at, self._heard_at[intent]))

    def draining(self, execution: Execution, snapshot: Snapshot | None) -> frozenset[WorkerId]:
        """The workers to empty and stop: those that operators drain or restart, and those that leave."""
        return draining(self.in_force, execution, snapshot)

    def apps_to_move(self) -> set[AppId]:
        """The apps of which an operator wants key groups moved."""
        return {each.app for each in self.in_force if isinstance(each, MoveKeyGroups)}

    def to_forget(self, execution: Execution, known: Known) -> Forgotten | Refused | None:
        """What an operator wants forgotten, or why it is not; the intent ends with it."""
        found = to_forget(self.in_force, execution, known.snapshot, known.not_ready)
        self.done_with(found)
        return found

    def answer(self, now: float, execution: Execution, known: Known, plans: PlanSettings) -> Decision | None:
        """Answer what operators say of plans, as far as that needs no plan, and end restarts that are done.

        The intents end with it.
        """
        found = (
            answer_to(now, self.in_force, execution, plans)
            or restarted(self.in_force, execution, known.snapshot)
            or maintenance_over(now, self.in_force)
        )
        self.done_with(found)
        return found

    def to_stop(
        self, now: float, execution: Execution, known: Known, plans: PlanSettings, budget: Budget
    ) -> Decision | None:
        """The next worker that is stopped with its key groups, since no host of its app can be drained."""
        return to_stop_undrained(now, self.in_force, execution, known, Allowed(plans=plans, budget=budget))

    def plan(
        self, now: float, view: PlannableView, execution: Execution, plans: PlanSettings, *, band: float
    ) -> Decision | None:
        """The plan that an operator wants or approves, or what becomes of one that waits; `band` in pp."""
        waiting = execution.proposals.get(view.app)
        return wanted_by_operators(now, view, waiting, self.in_force, plans, band=band)

    def done_with(self, found: Decision | None) -> None:
        """End the intents that a decision answers."""
        match found:
            case Planned() | ProposalEnded() | Refused() | Restarted() | MaintenanceEnded() | Forgotten():
                self.in_force = tuple(intent for intent in self.in_force if intent.key not in found.answered)
            case _:
                pass
