"""Gauges that show a part of what the last window showed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from prometheus_client import Gauge

from trimtab_controller.decider.known import Known
from trimtab_protocol.messages.names import AppId

T = TypeVar("T")

Values: TypeAlias = Mapping[tuple[str, ...], float | None]
"""Values by the labels of their series, in the order of the gauge's labels; None = unknown, and so not shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A gauge of exactly the `values` that are known.  Names end in `_pp` for percentage points, `_ratio` for 0..1."""

    name: str
    text: str
    labels: tuple[str, ...]
    values: Callable[[Known], Values]


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
