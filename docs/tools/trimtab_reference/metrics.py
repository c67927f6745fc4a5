"""docs/reference/metrics.md: every metric that agent and controller serve."""

import re
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase

from trimtab_agent.metrics import Metrics as AgentMetrics
from trimtab_controller.leadership.metrics import ProcessMetrics
from trimtab_controller.loop.metrics import Metrics as LoopMetrics
from trimtab_process.metrics_port import refusal_counter
from trimtab_reference.markdown import code, codes, link, table
from trimtab_reference.reasons import RUNBOOKS, alerts

SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}


def render() -> str:
    """The page."""
    port = CollectorRegistry()
    refusal_counter(port)
    return "\n\n".join(
        (
            "# Metrics",
            "Agent and controller serve their metrics for Prometheus on the address in `[metrics] listen`. A worker's "
            "own figures come from the agent of its host. A metric that is not known is absent, not zero. "
            f"{link('Alerts', RUNBOOKS / 'README.md')} and their runbooks use the metrics that are marked.",
            "## Controller",
            "Served by the controller that leads; `trimtab_controller_role` and `trimtab_controller_stood_down_total` "
            "also by those that wait. Figures of the stream are among them.",
            _table([ProcessMetrics().registry, LoopMetrics().registry]),
            "## Agent and its workers",
            _table([AgentMetrics().registry]),
            "## The metrics port, of both",
            _table([port]),
        )
    )


def _table(registries: Iterable[CollectorRegistry]) -> str:
    rows = sorted(row for registry in registries for row in _rows(registry))
    return table(("metric", "meaning", "type", "labels", "alerts"), rows)


def _rows(registry: CollectorRegistry) -> Iterator[tuple[str, str, str, str, str]]:
    for metric in _metrics(registry):
        family = next(iter(metric.describe()))
        name = family.name + ("_total" if family.type == "counter" else "")
        yield code(name), _sentence(family.documentation), family.type, codes(metric._labelnames), _alerts(name)


def _metrics(registry: CollectorRegistry) -> Iterator[MetricWrapperBase]:
    """Collectors, not samples: a metric with labels has none before it is first used."""
    for collector in list(registry._collector_to_names):
        assert isinstance(collector, MetricWrapperBase), collector
        yield collector


def _sentence(text: str) -> str:
    return text if text.endswith(".") else text + "."


def _alerts(name: str) -> str:
    names = [alert for alert, expression in alerts().items() if re.search(rf"\b{name}\b", expression)]
    return ", ".join(link(code(alert), RUNBOOKS / f"{alert}.md") for alert in names)
