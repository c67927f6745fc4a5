"""What the agent's metrics show before anything has happened."""

import re

from tests.paths import ROOT
from trimtab_agent.metrics import CLOSED, AgentMetrics
from trimtab_protocol.messages.commands import Refusal
from trimtab_protocol.messages.decode import Fault
from trimtab_protocol.messages.names import WorkerId

AGENT = ROOT / "agent" / "trimtab_agent"


def labels(metrics: AgentMetrics, name: str, label: str) -> set[str]:
    """The values of a label, of series that stand at zero."""
    samples = [sample for metric in metrics.registry.collect() for sample in metric.samples]
    found = [sample for sample in samples if sample.name == f"trimtab_agent_{name}"]
    assert {sample.value for sample in found} == {0.0}
    return {sample.labels[label] for sample in found}


def test_counters_of_what_alerts_watch_stand_at_zero_before_the_first_event() -> None:
    metrics = AgentMetrics([WorkerId("w0"), WorkerId("w1")])
    assert labels(metrics, "bad_commands_total", "reason") == set(Fault)
    assert labels(metrics, "command_refusals_total", "reason") == set(Refusal)
    assert labels(metrics, "worker_state_breaches_total", "worker") == {"w0", "w1"}
    assert labels(metrics, "worker_crashes_total", "worker") == {"w0", "w1"}
    metrics.see_worker(WorkerId("w9"))
    assert labels(metrics, "worker_refused_records_total", "worker") == {"w9"}


def test_the_values_of_labels_are_those_of_the_code() -> None:
    server = (AGENT / "plugin_server.py").read_text()
    assert set(re.findall(r'(?:_ClosedError\(|frame_refused\(\w+, )"(\w+)"', server)) == set(CLOSED)
