"""The order in which the decider takes up the apps of a window."""

from collections.abc import Collection, Iterable, Mapping

from trimtab_controller.decider.observing.evaluate import Evaluation
from trimtab_controller.decider.observing.view import NotReady, SmoothedView
from trimtab_protocol.messages.names import AppId


class Turns:
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
