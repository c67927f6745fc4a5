"""The settings of the decider: [balance] of the configuration."""

from dataclasses import dataclass, replace

from trimtab_controller.decider.collocation.worth import may_lower
from trimtab_controller.decider.observing.view import AppView, EndCosts, NotReady
from trimtab_controller.solver.answer import Method

NO_SAVING = "collocation: not used, no significant saving is measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The configuration's [balance]; distances in pp, times in seconds.

    Nothing moves while the load distance is within the band `load_distance`, or for a gain below `min_gain`.  A drain
    may raise the load distance of the other workers up to `drain_load_distance`.  That is higher than the band, since
    otherwise one heavy key group would block the drain.  Loads and flows are smoothed over windows (`smoothing` =
    weight of the newest) and used after `min_windows`.

    A load is the demand: where inputs wait for CPU, it includes working the backlog off within `catch_up_s`.  After a
    restart of 30 s, 300 s ask for 10 % more than the input alone, which moves little; 10 minutes of backlog ask for
    three times as much.

    With ALBIC key groups also move inside the band if that raises collocation by `min_collocation_gain` (pp), lowers
    the mean load by `min_gain`, and pays back the restores of their state within `pay_back_s`.  What a tuple costs only
    because it goes to another worker is measured (`collocation/remote_costs.py`), unless an operator states it
    (`remote_tuple_cpu_s`, both ends together); without a significant cost there are only trials
    (`planning/trial.py`).  Reports do not tell what a tuple costs the broker: an operator may state it
    (`broker_tuple_cpu_s`), and it counts in what pays back.

    `max_disk` = share of a disk that plans and standbys fill at most, `max_link` = share of a host's link, each way,
    that plans fill at most: traffic comes in bursts.
    """

    method: Method = Method.ALBIC
    max_migrations: int = 13
    load_distance: float = 5.0
    min_interval_s: float = 30.0
    smoothing: float = 0.5
    min_windows: int = 3
    min_gain: float = 0.5
    drain_load_distance: float = 25.0
    min_collocation_gain: float = 2.0
    remote_tuple_cpu_s: float | None = None
    broker_tuple_cpu_s: float = 0.0
    pay_back_s: float = 1800.0
    trial_pairs: int = 12
    catch_up_s: float = 300.0
    max_disk: float = 0.9
    max_link: float = 0.9

    def planned_with(self, view: AppView) -> Method:
        """The method that plans for this app are made with."""
        costs = view.remote_costs if self.remote_tuple_cpu_s is None else self.remote_tuple_cpu_s
        return self.method if costs else Method.MILP

    def may_gain(self, view: AppView) -> bool:
        """Whether collocation could lower the mean load of this app by `min_gain`, with every tuple on its worker."""
        albic = self.planned_with(view) is Method.ALBIC
        return albic and may_lower(self.with_stated_costs(view), self.min_gain)

    @property
    def learns_by_trial(self) -> bool:
        """Whether key groups may move to learn what remote tuples cost."""
        return self.method is Method.ALBIC and self.remote_tuple_cpu_s is None and self.trial_pairs > 0

    def with_stated_costs(self, view: AppView) -> AppView:
        """The view with what an operator says that remote tuples cost, if one does: half of it at each end."""
        if self.remote_tuple_cpu_s is None:
            return view
        end = self.remote_tuple_cpu_s / 2.0
        stated = dict.fromkeys(view.sizes, EndCosts(sending=end, receiving=end)) if end else {}
        return view if view.remote_costs == stated else replace(view, remote_costs=stated)

    def moves_for(self, view: AppView) -> int:
        """How many key groups a plan for this app may move."""
        return self.max_migrations if view.max_moves is None else min(self.max_migrations, view.max_moves)

    def note(self, view: AppView | NotReady | None) -> str:
        """Why plans are not made with `method`; empty if they are, or if key groups do not talk to each other."""
        if not isinstance(view, AppView) or not view.flows or self.planned_with(view) is self.method:
            return ""
        return NO_SAVING
