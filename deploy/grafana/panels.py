"""What the panels of all dashboards have in common."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from grafana_foundation_sdk.builders import dashboard, stat, table, timeseries
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DataSourceRef,
    Threshold,
    VariableRefresh,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
OF_CLUSTER = 'cluster=~"$cluster"'
OF_APP = 'cluster=~"$cluster", app=~"$app"'
TAG = "trimtab"
COLUMNS, LINES = 24, 8
"""Width of a dashboard, and height of a panel, in Grafana's units."""

PanelBuilder = timeseries.Panel | stat.Panel | table.Panel


@dataclass(frozen=True, slots=True)
class Query:
    """A PromQL expression, and the name of each of its lines."""

    expression: str
    legend: str = ""


def lines(
    title: str, meaning: str, unit: str, *queries: Query, least: float | None = 0, limit: float | None = None
) -> timeseries.Panel:
    """Lines over time; what is above `limit` is red."""
    panel = timeseries.Panel().title(title).description(meaning).unit(unit).height(LINES).datasource(SOURCE)
    if least is not None:
        panel = panel.min(least)
    if limit is not None:
        panel = panel.thresholds(_colours(limit, worse="above"))
    for place, query in enumerate(queries):
        panel = panel.with_target(_query(query, place))
    return panel


def figure(
    title: str, meaning: str, unit: str, query: Query, *, limit: float | None = None, worse: str = "above"
) -> stat.Panel:
    """One large figure; red `above` or `below` the limit."""
    panel = stat.Panel().title(title).description(meaning).unit(unit).height(LINES // 2).datasource(SOURCE)
    if limit is not None:
        panel = panel.thresholds(_colours(limit, worse=worse))
    return panel.no_value("unknown").with_target(_query(query, 0).instant())


def rows(title: str, meaning: str, query: Query) -> table.Panel:
    """The labels of all series of an expression, now."""
    shown = _query(query, 0).instant().format(PromQueryFormat.TABLE)
    return table.Panel().title(title).description(meaning).height(LINES).datasource(SOURCE).with_target(shown)


def board(
    title: str, name: str, meaning: str, sections: Sequence[tuple[str, Sequence[PanelBuilder]]], *, per_app: bool
) -> dashboard.Dashboard:
    """A dashboard for chosen clusters, and if `per_app` chosen apps; the panels of a section share its width."""
    made = (
        dashboard.Dashboard(title)
        .uid(name)
        .description(meaning)
        .tags([TAG])
        .refresh("30s")
        .time("now-3h", "now")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .with_variable(dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
        .with_variable(_choice("cluster", "label_values(trimtab_controller_info, cluster)"))
    )
    if per_app:
        found = f"label_values(trimtab_controller_load_distance_pp{{{OF_CLUSTER}}}, app)"
        made = made.with_variable(_choice("app", found))
    numbers = count(1)
    for heading, panels in sections:
        made = made.with_row(dashboard.Row(heading).id(next(numbers)))
        for panel in panels:
            made = made.with_panel(panel.id(next(numbers)).span(COLUMNS // len(panels)))
    return made


def _query(query: Query, place: int) -> Dataquery:
    return Dataquery().expr(query.expression).legend_format(query.legend).ref_id("ABCDEFGH"[place])


def _choice(label: str, query: str) -> dashboard.QueryVariable:
    return (
        dashboard.QueryVariable(label)
        .datasource(SOURCE)
        .query(query)
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .multi(True)
        .include_all(True)
        .all_value(".*")
    )


def _colours(limit: float, *, worse: str) -> dashboard.ThresholdsConfig:
    below, above = ("green", "red") if worse == "above" else ("red", "green")
    return dashboard.ThresholdsConfig().steps([Threshold(None, below), Threshold(limit, above)])
