"""What decisions depend on: the settings, what windows have shown, what is in flight, and what operators want.

Also in which order the apps of a window have their turn.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from trimtab_controller.decider.decision import Skip
from trimtab_controller.decider.known import WindowResult
from trimtab_controller.decider.observations import Observations
from trimtab_controller.decider.observing.evaluate import Evaluation
from trimtab_controller.decider.observing.view import NotReady, SmoothedView
from trimtab_controller.decider.operators.intents import OperatorIntents
from trimtab_controller.decider.operators.modes import PlanMode, PlanSettings
from trimtab_controller.decider.planning.admission import admit_app, admit_cluster
from trimtab_controller.decider.settings import Settings
from trimtab_controller.execution.budget import BudgetUse
from trimtab_controller.execution.restore_costs import LearnedRestores
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
    def known(self) -> WindowResult:
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


class AppOrder:
    """Each app has one decision per window.  Apps for which the solver was last asked in vain come last.

    `in_vain` = when the solver was last asked about an app without a plan as result (epoch seconds).  `spoken`: the
    window has led to a decision, so that a skip would tell nothing more.
    """

    def __init__(self) -> None:
        self.in_vain: dict[AppId, float] = {}
        self.spoken = False
        self._decided: set[AppId] = set()

    def new_window(self) -> None:
        """Every app has a turn again."""
        self._decided.clear()
        self.spoken = False

    def keep(self, apps: Collection[AppId]) -> None:
        """Forget all apps but these."""
        self.in_vain = {app: at for app, at in self.in_vain.items() if app in apps}

    def again(self, apps: Iterable[AppId]) -> None:
        """These apps have a turn again, since an operator has just said something about them."""
        self._decided.difference_update(apps)

    def decided(self, app: AppId) -> None:
        """The app has its decision from this window."""
        self._decided.add(app)

    def answered(self, now: float, app: AppId, *, planned: bool) -> None:
        """The solver's answer about an app has led to a decision; `planned`: to a plan."""
        if planned:
            self.in_vain.clear()  # otherwise an app that gains in every round would always come before the others
        else:
            self.in_vain[app] = now
        self._decided.add(app)
        self.spoken = True

    def by_urgency(
        self, views: Mapping[AppId, SmoothedView | NotReady], evaluations: Mapping[AppId, Evaluation]
    ) -> list[AppId]:
        """The apps without a decision from this window.

        Those with a drain, or with key groups that break a rule, come first; then those with the largest load distance.
        Those that are not ready come last.
        """

        def rank(app: AppId) -> tuple[bool, float, AppId]:
            view, evaluation = views[app], evaluations.get(app)
            if evaluation is None or not isinstance(view, SmoothedView):
                return False, -1.0, app
            return bool(view.to_empty) or bool(view.misplaced.any()), evaluation.load_distance or 0.0, app

        return sorted(views.keys() - self._decided, key=rank, reverse=True)

    def in_turn(self, apps: Iterable[AppId]) -> list[AppId]:
        """The apps in the order in which to ask about them: where a plan was last sought in vain, after the others."""
        return sorted(apps, key=lambda app: self.in_vain.get(app, 0.0))
