"""What agent and controller serve on /metrics."""

import re

from prometheus_client import CollectorRegistry

from trimtab_agent.metrics import AgentMetrics
from trimtab_controller.leadership.metrics import ProcessMetrics
from trimtab_controller.loop.metrics import ControllerMetrics
from trimtab_process.metrics_port import refusal_counter


def own_labels(text: str, *constant: str) -> str:
    """The text of /metrics without the labels that the port adds to every series: `cluster`, and of agents `host`."""
    for label in constant:
        text = re.sub(rf'(?<=[{{,]){label}="[^"]*",?', "", text)
    return text.replace(",}", "}").replace("{}", "")


def metrics() -> set[str]:
    """Names of all metrics; those of histograms without `_bucket` and so on."""
    port = CollectorRegistry()
    refusal_counter(port)
    registries = (AgentMetrics().registry, ControllerMetrics().registry, ProcessMetrics().registry, port)
    families = [family for registry in registries for family in registry.collect()]
    return {family.name + ("_total" if family.type == "counter" else "") for family in families}


def metrics_in(expression: str) -> set[str]:
    """Our metrics in an expression; those of histograms without `_bucket` and so on.  Recorded series are not ours."""
    found = set(re.findall(r"(?<![\w:])trimtab_\w+(?![\w:])", expression))
    return {re.sub("(_bucket|_sum|_count)$", "", name) for name in found}
