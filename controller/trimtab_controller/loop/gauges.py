"""The gauges of what the last window showed of apps, workers and hosts.

The names of all metrics of a term begin with `trimtab_controller_`; `Declare` declares them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from trimtab_controller.decider.memory.forecasts import ForecastReport
from trimtab_controller.decider.memory.hosts import Host
from trimtab_controller.decider.memory.memory import WindowResult
from trimtab_controller.decider.values.decision import SizeVerdict
from trimtab_controller.decider.window.concerns import WorkerUse
from trimtab_process.metrics_port import Followed
from trimtab_protocol.messages.names import AppId
from trimtab_protocol.messages.snapshot import HostWindow

T = TypeVar("T")

Values: TypeAlias = Mapping[tuple[str, ...], float | None]
"""Values by the labels of their series, in the order of the gauge's labels; None = unknown, and so not shown."""
PREFIX = "trimtab_controller_"
SECONDS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowGauge:
    """A gauge of exactly the `values` that are known.  Names end in `_pp` for percentage points, `_ratio` for 0..1."""

    name: str
    text: str
    labels: tuple[str, ...]
    values: Callable[[WindowResult], Values]


def of_apps(found: Mapping[AppId, T], value: Callable[[T], float | None]) -> Values:
    """A value of each app."""
    return {(app,): value(each) for app, each in found.items()}


def ratio(percent: float | None) -> float | None:
    """Percent as a share."""
    return None if percent is None else percent / 100.0


def show(gauge: Gauge, values: Values) -> None:
    """Set the known values and remove all other labels, in this order: a scrape in between must not miss a value."""
    known = {labels: value for labels, value in values.items() if value is not None}
    for labels, value in known.items():
        gauge.labels(*labels).set(value)
    shown = {tuple(sample.labels.values()) for metric in gauge.collect() for sample in metric.samples}
    for gone in shown - known.keys():
        gauge.remove(*gone)


class Declare:
    """Declares metrics in one registry, by a name without the prefix, a text and the names of the labels."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self.of_apps: list[Counter | Gauge] = []  # those with the label `app`

    def counter(self, name: str, text: str, *labels: str) -> Counter:
        """What this process counts."""
        made = Counter(PREFIX + name, text, labels, registry=self._registry)
        self.of_apps += [made] if "app" in labels else []
        return made

    def followed(self, name: str, text: str, *labels: str) -> Followed:
        """A count that others keep."""
        return Followed(PREFIX + name, text, labels, registry=self._registry)

    def gauge(self, name: str, text: str, *labels: str) -> Gauge:
        """A value that goes up and down."""
        made = Gauge(PREFIX + name, text, labels, registry=self._registry)
        self.of_apps += [made] if "app" in labels else []
        return made

    def seconds(self, name: str, text: str, *labels: str) -> Histogram:
        """A histogram of durations in seconds."""
        return Histogram(PREFIX + name, text, labels, buckets=SECONDS, registry=self._registry)


# --- apps -------------------------------------------------------------------------------------------------------------


APP = ("app",)


def _app(name: str, text: str, values: Callable[[WindowResult], Values]) -> WindowGauge:
    return WindowGauge(name=name, text=text, labels=APP, values=values)


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
        "backlog_tuples",
        "Inputs in Kafka that no agent of the app has begun at the end of the last window; absent while unknown.",
        lambda known: of_apps(known.use.backlogs, lambda growth: float(growth.now)),
    ),
    _app(
        "forecast_cores",
        "Highest demand that is forecast until a worker that starts now will run, in cores; absent while unknown.",
        lambda known: of_apps(known.forecasts, lambda row: row.peak),
    ),
    _app(
        "forecast_used",
        "1 while the number of workers follows the forecast, else 0; absent without a forecast.",
        lambda known: of_apps(_tested(known), lambda row: float(row.used)),
    ),
    WindowGauge(
        name="forecast_error_cores",
        text="Mean absolute error of the forecast, the last value, the value one period before, in cores.",
        labels=("app", "method"),
        values=_errors,
    ),
    _app(
        "desired_workers",
        "Workers that the app should have, for autoscalers; absent while unknown.",
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


# --- workers and hosts ------------------------------------------------------------------------------------------------


def _worker(name: str, text: str, value: Callable[[WorkerUse], float | None]) -> WindowGauge:
    def values(known: WindowResult) -> Values:
        return {(use.app or "", worker): value(use) for worker, use in known.use.workers.items()}

    return WindowGauge(name=name, text=text, labels=("app", "worker"), values=values)


def _window(name: str, text: str, value: Callable[[HostWindow], float | None]) -> WindowGauge:
    def values(known: WindowResult) -> Values:
        return {} if known.snapshot is None else {(row.host,): value(row) for row in known.snapshot.hosts}

    return WindowGauge(name=name, text=text, labels=("host",), values=values)


def _host(name: str, text: str, value: Callable[[Host], float | None]) -> WindowGauge:
    def values(known: WindowResult) -> Values:
        return {(host,): value(row) for host, row in known.capacity.seen.hosts.items()}

    return WindowGauge(name=name, text=text, labels=("host",), values=values)


WORKERS_AND_HOSTS = (
    _worker(
        "worker_demand_ratio",
        "CPU asked of the worker in the last window, with its backlog / its capacity; absent while unknown.",
        lambda use: ratio(use.demand_pct),
    ),
    _host(
        "host_demand_ratio",
        "CPU asked of the host, with what other processes use / its cores; absent while unknown.",
        lambda host: ratio(host.used.get("CPU")),
    ),
    _window("host_used_ratio", "CPU used on the host / its cores.", lambda row: ratio(row.used_pct)),
)
"""Gauges of workers and hosts."""
