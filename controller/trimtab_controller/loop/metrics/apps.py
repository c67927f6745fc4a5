"""What the last window showed of each app."""

from collections.abc import Callable, Iterator, Mapping

from trimtab_controller.decider.memory.forecasts import ForecastReport
from trimtab_controller.decider.memory.memory import WindowResult
from trimtab_controller.decider.values.decision import SizeVerdict
from trimtab_controller.decider.window.collocation import Together
from trimtab_controller.loop.metrics.shown import Values, WindowGauge, of_apps, ratio
from trimtab_models.albic.fit import TupleCost
from trimtab_protocol.messages.names import AppId

APP = ("app",)


def _app(name: str, text: str, values: Callable[[WindowResult], Values]) -> WindowGauge:
    return WindowGauge(name=name, text=text, labels=APP, values=values)


def _costs(together: Mapping[AppId, Together]) -> Iterator[tuple[tuple[str, str, str], TupleCost]]:
    """The fitted costs, by app, operator and end."""
    for app, found in together.items():
        for operator, fit in found.fits.items():
            for end, cost in (("sending", fit.sending), ("receiving", fit.receiving)):
                if isinstance(cost, TupleCost):
                    yield (app, str(operator), end), cost


def _sizes(known: WindowResult) -> dict[AppId, SizeVerdict]:
    return {app: row for app, row in known.sizes.items() if row.desired is not None}


def _tested(known: WindowResult) -> dict[AppId, ForecastReport]:
    return {app: row for app, row in known.forecasts.items() if row.near is not None}


def _errors(known: WindowResult) -> Values:
    return {
        (app, method): error.mae
        for app, row in known.forecasts.items()
        if row.near is not None
        for method, error in (
            ("forecast", row.near.model),
            ("last_value", row.near.last),
            ("seasonal_naive", row.near.seasonal),
        )
        if error is not None
    }


APPS = (
    _app(
        "load_distance_pp",
        "Smoothed load distance in percentage points; absent while unknown.",
        lambda known: of_apps(known.evaluations, lambda found: found.load_distance),
    ),
    _app(
        "collocation_ratio",
        "Share of the tuples between key groups that stay within a worker; absent while unknown.",
        lambda known: of_apps(known.evaluations, lambda found: found.collocation),
    ),
    _app(
        "local_sends_ratio",
        "Share of the tuples between key groups that skipped the broker in the last window; absent while unknown.",
        lambda known: of_apps(known.local_sends, float),
    ),
    _app(
        "key_groups_without_standby",
        "Key groups with fewer standbys than the app asks for; absent while unknown.",
        lambda known: of_apps(known.missing_standbys, float),
    ),
    _app(
        "n_minus_1_ratio",
        "Highest load of a worker after the loss of any one host / its capacity; absent while unknown.",
        lambda known: of_apps(known.survivals, lambda found: ratio(found.worst_pct)),
    ),
    _app(
        "n_minus_1_bound_ratio",
        "Bound of trimtab_controller_n_minus_1_ratio: no choice of standbys has a lower one.",
        lambda known: of_apps(known.survivals, lambda found: ratio(found.bound_pct)),
    ),
    _app(
        "following_ratio",
        "What following a key group costs / its load, as measured; absent until then.",
        lambda known: of_apps(known.following, float),
    ),
    _app(
        "fixed_workers",
        "Workers that take no part in plans for the app: away, not running, not steering, not measured.",
        lambda known: of_apps(known.gaps, lambda found: float(len(found.fixed))),
    ),
    _app(
        "stale_key_groups",
        "Key groups whose load the last window did not measure; their last known load stands in for it.",
        lambda known: of_apps(known.gaps, lambda found: float(found.stale)),
    ),
    _app(
        "unknown_load_ratio",
        "Share of the app's load that the last window did not measure; absent while unknown.",
        lambda known: of_apps(known.gaps, lambda found: found.share),
    ),
    _app(
        "headroom_ratio",
        "Times the present input that fits until a worker or host is full, as placed; absent while unknown.",
        lambda known: of_apps(known.capacity.headrooms, lambda found: found.as_placed),
    ),
    _app(
        "headroom_potential_ratio",
        "Times the present input that fits with free moves; absent while unknown.",
        lambda known: of_apps(known.capacity.headrooms, lambda found: found.potential),
    ),
    _app(
        "headroom_bound_ratio",
        "Bound of trimtab_controller_headroom_potential_ratio: no placement carries more.",
        lambda known: of_apps(known.capacity.headrooms, lambda found: found.bound),
    ),
    _app(
        "prediction_accuracy_ratio",
        "Share of the workers' CPU that the fitted costs predict; absent while unknown.",
        lambda known: of_apps(known.capacity.accuracies, lambda found: found),
    ),
    WindowGauge(
        name="remote_tuple_cpu_seconds",
        text="CPU seconds that a tuple costs more because it goes to another worker, at its end (sending, receiving).",
        labels=("app", "operator", "end"),
        values=lambda known: {labels: cost.value for labels, cost in _costs(known.together)},
    ),
    WindowGauge(
        name="remote_tuple_cpu_error_seconds",
        text="Standard error of trimtab_controller_remote_tuple_cpu_seconds.",
        labels=("app", "operator", "end"),
        values=lambda known: {labels: cost.error for labels, cost in _costs(known.together)},
    ),
    _app(
        "collocation_obtainable_ratio",
        "Share of the tuples between key groups that could stay within a worker at most; absent while unknown.",
        lambda known: of_apps(known.together, lambda found: found.obtainable),
    ),
    _app(
        "collocation_worth_cores",
        "Cores that collocation would save in addition, by the costs that are significant; absent while unknown.",
        lambda known: of_apps(known.together, lambda found: found.worth),
    ),
    _app(
        "backlog_tuples",
        "Inputs in Kafka that no agent of the app has begun at the end of the last window; absent while unknown.",
        lambda known: of_apps(known.use.backlogs, lambda growth: float(growth.now)),
    ),
    _app(
        "forecast_cores",
        "Highest demand forecast until a worker that is started now runs, in cores; absent while unknown.",
        lambda known: of_apps(known.forecasts, lambda row: row.peak),
    ),
    _app(
        "forecast_used",
        "1 while the number of workers follows the forecast, else 0; absent without a forecast.",
        lambda known: of_apps(_tested(known), lambda row: float(row.used)),
    ),
    WindowGauge(
        name="forecast_error_cores",
        text="Mean absolute error that far ahead: of the forecast, the last value, the value one period before.",
        labels=("app", "method"),
        values=_errors,
    ),
    _app(
        "pool_workers",
        "Workers that agents declare for the app, that do not run, and that can be started.",
        lambda known: of_apps(known.pool, lambda workers: float(len(workers))),
    ),
    _app(
        "desired_workers",
        "Workers that the app should have, for programs that add and remove them from outside; absent while unknown.",
        lambda known: of_apps(_sizes(known), lambda row: row.desired),
    ),
    _app(
        "demand_cores",
        "CPU asked of the workers of the app that stay, with their backlogs, in cores; absent while unknown.",
        lambda known: of_apps(_sizes(known), lambda row: row.asked),
    ),
    _app(
        "capacity_cores",
        "Capacity of the workers of the app that stay, in cores; absent while unknown.",
        lambda known: of_apps(_sizes(known), lambda row: row.capacity),
    ),
)
"""Gauges of apps."""
