"""What a worker has given away is in its own metrics no more, and what it keeps is."""

import faust
import pytest
from faust.sensors.prometheus import FaustMetrics, PrometheusMonitor
from faust.types import TP
from prometheus_client import CollectorRegistry

from trimtab_agent.engines.faust.measure.monitor import leave_out

MOVED, KEPT, NEVER_READ = TP("orders", 3), TP("orders", 4), TP("orders", 5)


def exported(registry: CollectorRegistry) -> set[str]:
    """The partitions with a metric of their own."""
    samples = [sample for metric in registry.collect() for sample in metric.samples]
    return {sample.labels["partition"] for sample in samples if "partition" in sample.labels}


@pytest.mark.parametrize("prometheus", [False, True])
def test_partitions_that_have_left_are_left_out_of_the_apps_own_metrics(prometheus: bool) -> None:
    registry = CollectorRegistry()
    monitor = PrometheusMonitor(FaustMetrics.create(registry, "shop")) if prometheus else faust.Monitor()
    for tp in (MOVED, KEPT):
        monitor.track_tp_end_offset(tp, 20)
        monitor.on_tp_commit({tp: 10})
        monitor.tp_read_offsets[tp] = 12
        monitor.stream_inbound_time[tp] = 5.0
    assert exported(registry) == ({"3", "4"} if prometheus else set())

    leave_out(monitor, {MOVED, NEVER_READ})

    known = (monitor.tp_committed_offsets, monitor.tp_read_offsets, monitor.tp_end_offsets, monitor.stream_inbound_time)
    assert [set(each) for each in known] == [{KEPT}] * 4
    assert exported(registry) == ({"4"} if prometheus else set())
