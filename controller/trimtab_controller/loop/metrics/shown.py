"""Declares metrics, whose names all begin with `trimtab_controller_`, most as gauges of what a window showed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from trimtab_controller.decider.memory.memory import WindowResult
from trimtab_process.metrics_port import Followed
from trimtab_protocol.messages.names import AppId

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
