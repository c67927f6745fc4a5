"""What the agent's metrics show before anything has happened."""

import re

from tests.paths import ROOT
from trimtab_agent.metrics import CLAMPED, CLOSED, REACHED, SENT, AgentMetrics
from trimtab_protocol.messages.commands import CommandKind, Refusal
from trimtab_protocol.messages.decode import Fault
from trimtab_protocol.messages.names import AppId, KeyGroup, OperatorId, WorkerId
from trimtab_protocol.messages.report import PairSample

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


def test_sends_between_key_groups_are_counted_by_whether_they_skipped_the_broker() -> None:
    metrics = AgentMetrics()
    one, other = KeyGroup(AppId("a"), OperatorId("o"), 0), KeyGroup(AppId("a"), OperatorId("p"), 1)
    known = PairSample(source=one, target=other, tuples=10, bytes=1, direct=7)
    unknown = PairSample(source=other, target=one, tuples=5, bytes=1)
    metrics.see_sends(WorkerId("w0"), [known, known])
    metrics.see_sends(WorkerId("w1"), [unknown])
    found = {
        (worker, way): metrics.registry.get_sample_value(
            "trimtab_agent_worker_sends_total", {"worker": worker, "way": way}
        )
        for worker in ("w0", "w1")
        for way in SENT
    }
    assert found == {
        ("w0", "local"): 14.0,
        ("w0", "remote"): 6.0,
        ("w0", "unknown"): 0.0,
        ("w1", "local"): 0.0,
        ("w1", "remote"): 0.0,
        ("w1", "unknown"): 5.0,
    }


def test_the_values_of_labels_are_those_of_the_code() -> None:
    server = (AGENT / "plugin_server.py").read_text()
    assert set(re.findall(r'(?:_ClosedError\(|frame_refused\(\w+, )"(\w+)"', server)) == set(CLOSED)
    derived = (AGENT / "sampler" / "derive.py").read_text()
    assert {*re.findall(r'_clamp\("(\w+)"', derived), "worker_cpu"} == set(CLAMPED)
    assert set(REACHED) == set(CommandKind)
