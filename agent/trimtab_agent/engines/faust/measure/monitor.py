"""Faust's own monitor, after partitions have left without a rebalance.

It empties what it knows of partitions at each rebalance.  Else a worker would go on exporting the last offsets of what
it has given away, beside those of the new owner: a lag that never ends (Prometheus, `/stats`).
"""

import contextlib
from collections.abc import Collection
from typing import Any

from faust.types import TP

GAUGES = ("messages_received_per_topics_partition", "topic_partition_end_offset", "topic_partition_offset_commited")
"""Of Faust's Prometheus monitor, with the labels topic and partition."""


def leave_out(monitor: Any, tps: Collection[TP]) -> None:
    """Forget these partitions."""
    by_partition = (
        monitor.tp_committed_offsets,
        monitor.tp_read_offsets,
        monitor.tp_end_offsets,
        monitor.stream_inbound_time,
    )
    for tp in tps:
        for known in by_partition:
            known.pop(tp, None)
    metrics = getattr(monitor, "_metrics", None)
    for gauge in filter(None, (getattr(metrics, name, None) for name in GAUGES)):
        for tp in tps:
            with contextlib.suppress(KeyError):
                gauge.remove(tp.topic, tp.partition)
