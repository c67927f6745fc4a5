"""The gauges of what the last window showed of apps, workers and hosts.

The names of all metrics of a term begin with `trimtab_controller_`; `Declare` declares them.
"""

from collections import Counter as Tally
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from trimtab_controller.decider.memory.forecasts import ForecastReport
from trimtab_controller.decider.memory.hosts import Host
from trimtab_controller.decider.memory.memory import WindowResult
from trimtab_controller.decider.values.decision import SizeVerdict
from trimtab_controller.decider.window.collocation import Together
from trimtab_controller.decider.window.concerns import WorkerUse
from trimtab_models.albic.fit import TupleCost
from trimtab_models.elastic.matching import NodeLevel
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


def _worker_levels(known: WindowResult) -> Values:
    workers = known.use.workers
    apps = {workers[worker].app or "" for worker in known.worker_levels}
    counts = Tally((workers[worker].app or "", level) for worker, level in known.worker_levels.items())
    return {(app, level.value): float(counts[app, level]) for app in apps for level in NodeLevel}


def _host_levels(known: WindowResult) -> Values:
    levels = known.host_levels
    counts = Tally(levels.values())
    return {(level.value,): float(counts[level]) for level in NodeLevel if levels}


def _worker_memory(known: WindowResult) -> Values:
    rows = () if known.snapshot is None else known.snapshot.nodes
    return {(row.app or "", row.worker): row.memory_bytes for row in rows}


def _links(known: WindowResult) -> Values:
    rows = () if known.snapshot is None else known.snapshot.hosts
    return {
        (row.host, way): rate
        for row in rows
        for way, rate in (("received", row.received_bytes_s), ("sent", row.sent_bytes_s))
    }


WORKERS_AND_HOSTS = (
    _worker(
        "worker_used_ratio",
        "CPU that the worker's process used in the last window / its capacity; absent while unknown.",
        lambda use: ratio(use.used_pct),
    ),
    _worker(
        "worker_key_groups_ratio",
        "CPU charged to the worker's key groups in the last window / its capacity; absent while unknown.",
        lambda use: ratio(use.load_pct),
    ),
    _worker(
        "worker_demand_ratio",
        "CPU asked of the worker in the last window, with its backlog / its capacity; absent while unknown.",
        lambda use: ratio(use.demand_pct),
    ),
    _worker(
        "worker_backlog_tuples",
        "Inputs in Kafka that no agent of the worker has begun at the end of the last window; absent while unknown.",
        lambda use: None if use.backlog is None else float(use.backlog.now),
    ),
    WindowGauge(
        name="workers_at_level",
        text="Workers of the app by how busy they are: light below 40 % of their capacity, heavy from 80 % on.",
        labels=("app", "level"),
        values=_worker_levels,
    ),
    WindowGauge(
        name="hosts_at_level",
        text="Hosts by how busy their bottleneck is: light below 40 %, heavy from 80 % on.",
        labels=("level",),
        values=_host_levels,
    ),
    WindowGauge(
        name="worker_memory_bytes",
        text="Memory of the worker's process.",
        labels=("app", "worker"),
        values=_worker_memory,
    ),
    _host(
        "host_demand_ratio",
        "CPU asked of the host, with what other processes use / its cores; absent while unknown.",
        lambda host: ratio(host.used.get("CPU")),
    ),
    _host(
        "host_speed_ratio",
        "Speed of a core of the host, relative to other types.",
        lambda host: host.speed,
    ),
    _window("host_used_ratio", "CPU used on the host / its cores.", lambda row: ratio(row.used_pct)),
    _window("host_memory_bytes", "Memory used on the host.", lambda row: row.memory_bytes),
    _window(
        "host_memory_limit_bytes",
        "Memory that the host has, or may use.",
        lambda row: row.memory_limit_bytes,
    ),
    _window(
        "host_disk_free_bytes",
        "Free on the disk of the workers' state; of several disks, on the one with the least free.",
        lambda row: row.disk_free_bytes,
    ),
    _window("host_disk_total_bytes", "Used and free on that disk.", lambda row: row.disk_total_bytes),
    WindowGauge(
        name="host_link_bytes_per_second",
        text="Bytes per second on the host's link, by direction (received, sent).",
        labels=("host", "direction"),
        values=_links,
    ),
)
"""Gauges of workers and hosts."""
