"""What the last window showed of each worker and host."""

from collections import Counter as Tally
from collections.abc import Callable

from trimtab_controller.decider.memory.hosts import Host
from trimtab_controller.decider.memory.memory import WindowResult
from trimtab_controller.decider.window.concerns import WorkerUse
from trimtab_controller.loop.metrics.shown import Values, WindowGauge, ratio
from trimtab_models.elastic import NodeLevel
from trimtab_protocol.messages.snapshot import HostWindow


def _worker(name: str, text: str, value: Callable[[WorkerUse], float | None]) -> WindowGauge:
    def values(known: WindowResult) -> Values:
        return {(use.app or "", worker): value(use) for worker, use in known.use.workers.items()}

    return WindowGauge(name=name, text=text, labels=("app", "worker"), values=values)


def _window(name: str, text: str, value: Callable[[HostWindow], float | None]) -> WindowGauge:
    def values(known: WindowResult) -> Values:
        return {} if known.snapshot is None else {(row.host,): value(row) for row in known.snapshot.hosts}

    return WindowGauge(name=name, text=text, labels=("host",), values=values)


def _host(name: str, text: str, value: Callable[[Host], float | None]) -> WindowGauge:
    def values(known: WindowResult) -> Values:
        return {(host,): value(row) for host, row in known.capacity.seen.hosts.items()}

    return WindowGauge(name=name, text=text, labels=("host",), values=values)


def _worker_levels(known: WindowResult) -> Values:
    workers = known.use.workers
    apps = {workers[worker].app or "" for worker in known.worker_levels}
    counts = Tally((workers[worker].app or "", level) for worker, level in known.worker_levels.items())
    return {(app, level.value): float(counts[app, level]) for app in apps for level in NodeLevel}


def _host_levels(known: WindowResult) -> Values:
    levels = known.host_levels
    counts = Tally(levels.values())
    return {(level.value,): float(counts[level]) for level in NodeLevel if levels}


def _worker_memory(known: WindowResult) -> Values:
    rows = () if known.snapshot is None else known.snapshot.nodes
    return {(row.app or "", row.worker): row.memory_bytes for row in rows}


def _links(known: WindowResult) -> Values:
    rows = () if known.snapshot is None else known.snapshot.hosts
    return {
        (row.host, way): rate
        for row in rows
        for way, rate in (("received", row.received_bytes_s), ("sent", row.sent_bytes_s))
    }


WORKERS_AND_HOSTS = (
    _worker(
        "worker_used_ratio",
        "CPU that the worker's process used in the last window / its capacity; absent while unknown.",
        lambda use: ratio(use.used_pct),
    ),
    _worker(
        "worker_key_groups_ratio",
        "CPU charged to the worker's key groups in the last window / its capacity; absent while unknown.",
        lambda use: ratio(use.load_pct),
    ),
    _worker(
        "worker_demand_ratio",
        "CPU asked of the worker in the last window, with its backlog / its capacity; absent while unknown.",
        lambda use: ratio(use.demand_pct),
    ),
    _worker(
        "worker_backlog_tuples",
        "Inputs in Kafka that no agent of the worker has begun at the end of the last window; absent while unknown.",
        lambda use: None if use.backlog is None else float(use.backlog.now),
    ),
    WindowGauge(
        name="workers_at_level",
        text="Workers of the app by how busy they are: light below 40 % of their capacity, heavy from 80 % on.",
        labels=("app", "level"),
        values=_worker_levels,
    ),
    WindowGauge(
        name="hosts_at_level",
        text="Hosts by how busy their bottleneck is: light below 40 %, heavy from 80 % on.",
        labels=("level",),
        values=_host_levels,
    ),
    WindowGauge(
        name="worker_memory_bytes",
        text="Memory of the worker's process.",
        labels=("app", "worker"),
        values=_worker_memory,
    ),
    _host(
        "host_demand_ratio",
        "CPU asked of the host, with what other processes use / its cores; absent while unknown.",
        lambda host: ratio(host.used.get("CPU")),
    ),
    _host(
        "host_speed_ratio",
        "Speed of a core of the host, relative to other types.",
        lambda host: host.speed,
    ),
    _window("host_used_ratio", "CPU used on the host / its cores.", lambda row: ratio(row.used_pct)),
    _window("host_memory_bytes", "Memory used on the host.", lambda row: row.memory_bytes),
    _window(
        "host_memory_limit_bytes",
        "Memory that the host has, or may use.",
        lambda row: row.memory_limit_bytes,
    ),
    _window(
        "host_disk_free_bytes",
        "Free on the disk of the workers' state; of several disks, on the one with the least free.",
        lambda row: row.disk_free_bytes,
    ),
    _window("host_disk_total_bytes", "Used and free on that disk.", lambda row: row.disk_total_bytes),
    WindowGauge(
        name="host_link_bytes_per_second",
        text="Bytes per second on the host's link, by direction (received, sent).",
        labels=("host", "direction"),
        values=_links,
    ),
)
"""Gauges of workers and hosts."""
