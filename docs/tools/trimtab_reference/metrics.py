"""docs/reference/metrics.md: every metric that agent and controller serve."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase

from trimtab_agent.metrics import AgentMetrics
from trimtab_controller.decider.values.reasons import ConcernKind
from trimtab_controller.leadership.machine import CandidateRole
from trimtab_controller.leadership.metrics import ProcessMetrics
from trimtab_controller.loop.metrics import ControllerMetrics as LoopMetrics
from trimtab_process.metrics_port import refusal_counter
from trimtab_protocol.messages.names import Topics, WorkerId
from trimtab_reference.markdown import code, entries, link, table
from trimtab_reference.reasons import RUNBOOKS
from trimtab_reference.rules import alerts

MANY = 3
"""Alerts of one metric that are not named any more."""


def render() -> str:
    """The page."""
    port = CollectorRegistry()
    refusal_counter(port)
    return "\n\n".join(
        (
            "# Metrics",
            "Agent and controller serve their metrics for Prometheus on the address in `[metrics] listen`, with the "
            "usual `process_*` among them. A metric that is not known is absent, not zero. Names that end in `_total` "
            "are counters, from zero on; all others but histograms are gauges. Every series has the label `cluster`, "
            "those of an agent also `host`; further labels stand in braces.",
            "## Number of series",
            table(("served by", "series", "per app", "per worker", "per host"), _series()),
            "## Controller",
            "Served by the controller that leads; `trimtab_controller_info`, `trimtab_controller_role` and "
            "`trimtab_controller_stood_down_total` also by those that wait. Figures of the stream are among them.",
            _listed([ProcessMetrics().registry, LoopMetrics().registry]),
            "## Agent and its workers",
            _listed([AgentMetrics().registry]),
            "## The metrics port, of both",
            _listed([port]),
        )
    )


def _series() -> Iterator[tuple[str, str, str, str, str]]:
    """How many series there are; those of a worker or host that is gone go with it."""
    process, loop = ProcessMetrics(), LoopMetrics()
    process.see(CandidateRole.LEADING)
    loop.messages.read_from(Topics("c"))
    loop.handovers.see_rounds(())
    both = (process.registry, loop.registry)
    found = Counter(metric._labelnames for registry in both for metric in _metrics(registry))
    per_app = found["app",] + found["app", "kind"] * len(ConcernKind)
    per_host = found["host",] + found["host", "direction"] * len(("received", "sent"))
    alone = sum(map(_shown, both))
    yield "the controller that leads", str(alone), str(per_app), str(found["app", "worker"]), str(per_host)
    bare, one = AgentMetrics(), AgentMetrics([WorkerId("w")])
    one.see_worker(WorkerId("w"))
    alone = _shown(bare.registry)
    yield "each agent", str(alone), "–", str(_shown(one.registry) - alone), "–"


def _shown(registry: CollectorRegistry) -> int:
    """Series of a process that has seen nothing yet."""
    return sum(not sample.name.endswith("_created") for metric in registry.collect() for sample in metric.samples)


def _listed(registries: Iterable[CollectorRegistry]) -> str:
    return entries(sorted(row for registry in registries for row in _rows(registry)))


def _rows(registry: CollectorRegistry) -> Iterator[tuple[str, str]]:
    for metric in _metrics(registry):
        family = next(iter(metric.describe()))
        name = family.name + ("_total" if family.type == "counter" else "")
        words = [_sentence(family.documentation.removesuffix(".").removesuffix("; absent while unknown"))]
        words += ["Histogram."] * (family.type == "histogram")
        words += _alerts(name)
        labels = f"{{{','.join(metric._labelnames)}}}" if metric._labelnames else ""
        yield code(name + labels), " ".join(words)


def _metrics(registry: CollectorRegistry) -> Iterator[MetricWrapperBase]:
    """Collectors, not samples: a metric with labels has none before it is first used."""
    for collector in list(registry._collector_to_names):
        assert isinstance(collector, MetricWrapperBase), collector
        yield collector


def _sentence(text: str) -> str:
    return text if text.endswith(".") else text + "."


def _alerts(name: str) -> list[str]:
    """The alerts that use a metric."""
    named = {alert.name: alert.runbook for alert in alerts() if re.search(rf"\b{name}\b", alert.expression)}
    if len(named) > MANY:
        return [f"Of {len(named)} {link('alerts', RUNBOOKS / 'README.md')}."]
    links = [link(code(alert), RUNBOOKS / f"{runbook or 'README'}.md") for alert, runbook in named.items()]
    return [f"Alert: {', '.join(links)}."] if links else []
