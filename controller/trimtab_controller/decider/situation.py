"""What decisions depend on: the settings, what windows have shown, what is in flight, and what operators want."""

from dataclasses import dataclass, field

from trimtab_controller.decider.decision import Skip
from trimtab_controller.decider.known import Known
from trimtab_controller.decider.observations import Observations
from trimtab_controller.decider.operators.intents import OperatorIntents
from trimtab_controller.decider.operators.modes import PlanMode, PlanSettings
from trimtab_controller.decider.planning.admission import admit_app, admit_cluster
from trimtab_controller.decider.settings import Settings
from trimtab_controller.execution.budget import BudgetUse
from trimtab_controller.execution.restores.costs import LearnedRestores
from trimtab_controller.execution.state import Execution
from trimtab_protocol.messages.names import AppId, WorkerId


@dataclass(slots=True, kw_only=True)
class Situation:
    """The present one: events change it.

    `acting`: decisions are carried out, unless `held` says why the journal cannot be trusted.  `execution` = the state
    as last published.  `learned` = what restores cost.
    """

    settings: Settings
    plans: PlanSettings
    acting: bool
    seen: Observations
    execution: Execution
    operators: OperatorIntents = field(default_factory=OperatorIntents)
    held: str | None = None
    learned: LearnedRestores = field(default_factory=LearnedRestores)

    @property
    def known(self) -> Known:
        """What the last snapshot showed."""
        return self.seen.known

    @property
    def acts(self) -> bool:
        """Whether decisions are carried out now."""
        return self.acting and self.held is None

    @property
    def paused(self) -> str | None:
        """Who paused the controller and why, or None."""
        return self.operators.paused

    @property
    def draining(self) -> frozenset[WorkerId]:
        """The workers to empty and stop: those that operators drain or restart, and those that leave."""
        return self.operators.draining(self.execution, self.known.snapshot)

    def admit_cluster(self) -> Skip | None:
        """Why nothing is planned for any app; None if something may be."""
        return admit_cluster(paused=self.paused, held=self.held)

    def admit_app(self, app: AppId) -> Skip | None:
        """Why nothing is planned for an app whose last change is still in flight; None if something may be."""
        return admit_app(app, self.execution, self.seen.liveness.may_run)

    def is_only_told(self, app: AppId) -> bool:
        """Whether decisions about the app are told and not carried out, although those about others are."""
        return self.acting and self.plans.of(app) is PlanMode.DRY_RUN

    def budget_use(self, now: float, app: AppId) -> BudgetUse:
        """What is used of the app's disruption budget."""
        return self.seen.budget.use(now, self.execution, app)
