"""The cluster as a whole, its workers as bars, its hosts and zones: documents of the API.  Pure."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from trimtab_console.watch import Known
from trimtab_protocol.console_documents import Bars, ClusterDocument, Controller, HostRow, Totals, ZoneRow
from trimtab_protocol.messages.codec import copied
from trimtab_protocol.messages.intents import Drain, Intent
from trimtab_protocol.messages.names import AppId, HostId
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.status import HostStatus, NodeStatus, Status


def cluster_document(name: str, known: Known, now: float) -> ClusterDocument:
    """The state, who leads, and the sums over all workers."""
    seen = known.seen(now)
    if seen is None:
        return ClusterDocument(cluster=name, version=known.version, at=now, read=known.read, fault=known.fault)
    status = seen.status
    told = None if known.controllers is None else [Controller(name=r.name, leads=r.leads) for r in known.controllers]
    return ClusterDocument(
        cluster=name,
        version=known.version,
        at=now,
        read=known.read,
        fault=known.fault,
        state=str(seen.state),
        runbook=seen.runbook,
        silent_s=seen.silent_s,
        snapshot_age_s=seen.snapshot_age_s,
        coverage=status.coverage,
        epoch=str(status.epoch),
        paused=seen.paused,
        hold=status.hold.text if status.hold else None,
        hold_id=status.hold.id if status.hold else None,
        controllers=told,
        totals=totals(status.nodes, len({row.host for row in status.nodes} | {row.host for row in status.hosts})),
        rejected={**known.rejected, **status.rejected},
        refused_hosts=status.refused_hosts,
    )


def totals(workers: Collection[NodeStatus], hosts: int) -> Totals:
    """These workers together, on so many hosts."""
    running = [row for row in workers if row.state is not WorkerState.AWAY]
    return Totals(
        hosts=hosts,
        workers=len(workers),
        running=len(running),
        capacity_cores=sum(row.capacity for row in running),
        used_cores=_cores((row.capacity, row.used_pct) for row in running),
        demand_cores=_cores((row.capacity, row.demand_pct) for row in running),
        unknown=sum(row.used_pct is None or row.demand_pct is None for row in running),
    )


def _cores(workers: Iterable[tuple[float, float | None]]) -> float | None:
    """The sum over (capacity, percent of it) where it is known; None if it is nowhere."""
    known = [capacity * percent / 100.0 for capacity, percent in workers if percent is not None]
    return sum(known) if known else None


def zones_of(status: Status) -> Mapping[HostId, str]:
    """The zone of each host of which it is known."""
    return {row.host: row.zone for row in status.hosts if row.zone is not None}


def by_zone(zone: str | None) -> tuple[bool, str]:
    """Orders zones by name, and what is in none that is known after them."""
    return zone is None, zone or ""


def bars(status: Status, app: AppId | None, most: int) -> Bars:
    """The workers of an app, or of all (None), as at most `most` bars."""
    zones = zones_of(status)
    rows = sorted(
        (row for row in status.nodes if app in (None, row.app)),
        key=lambda row: (by_zone(zones.get(row.host)), row.host, row.worker),
    )
    size = max(1, -(-len(rows) // most))
    groups = [rows[start : start + size] for start in range(0, len(rows), size)]
    return Bars(
        total=len(rows),
        workers_per_bar=size,
        mean_use=_mean_use(rows),
        first=[group[0].worker for group in groups],
        host=[group[0].host for group in groups],
        count=[len(group) for group in groups],
        load=[_highest(row.load_pct for row in group) for group in groups],
        used=[_highest(row.used_pct for row in group) for group in groups],
        used_mean=[_mean([row.used_pct for row in group if row.used_pct is not None]) for group in groups],
        demand=[_highest(row.demand_pct for row in group) for group in groups],
        remark=[next((found for row in group if (found := remark(row))), None) for group in groups],
        zone=[zones.get(group[0].host) for group in groups],
    )


def remark(row: NodeStatus) -> str | None:
    """How a worker differs from one that runs and is steered."""
    if row.state is not WorkerState.RUNNING:
        return str(row.absence or row.state)
    if row.draining:
        return "draining" if row.key_groups else "drained"
    return None if row.steering else "only reports"


def _mean_use(rows: Sequence[NodeStatus]) -> float | None:
    """What all workers together use, in percent of their capacity; None if it is known of none."""
    known = [(row.used_pct, row.capacity) for row in rows if row.used_pct is not None]
    capacity = sum(cores for _, cores in known)
    return sum(used * cores for used, cores in known) / capacity if capacity else None


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _highest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


# --- hosts and zones --------------------------------------------------------------------------------------------------


def host_rows(status: Status, intents: Iterable[Intent]) -> list[HostRow]:
    """The hosts by name: those that report, and those of workers that are known."""
    workers: defaultdict[HostId, list[NodeStatus]] = defaultdict(list)
    for row in status.nodes:
        workers[row.host].append(row)
    told = {row.host: row for row in status.hosts}
    ends = _ends(intents)
    silent = [HostStatus(host=host) for host in workers.keys() - told.keys()]
    rows = sorted([*status.hosts, *silent], key=lambda row: row.host)
    return [_host(row, workers.get(row.host, []), ends.get(row.host)) for row in rows]


def _host(row: HostStatus, workers: list[NodeStatus], until: float | None) -> HostRow:
    return copied(
        HostRow,
        row,
        workers=len(workers),
        running=sum(each.state is not WorkerState.AWAY for each in workers),
        draining=sum(each.draining for each in workers),
        key_groups=sum(each.key_groups for each in workers),
        maintenance_until=until,
    )


def _ends(intents: Iterable[Intent]) -> Mapping[HostId, float]:
    """When the maintenance of each host ends."""
    found: dict[HostId, float] = {}
    for each in intents:
        if isinstance(each, Drain) and each.host is not None and each.until is not None:
            found[each.host] = max(each.until, found.get(each.host, each.until))
    return found


def zone_rows(status: Status) -> list[ZoneRow]:
    """The zones by name, and last the hosts whose zone is not known; none if that holds for all."""
    zones = zones_of(status)
    workers: defaultdict[str | None, list[NodeStatus]] = defaultdict(list)
    hosts: defaultdict[str | None, set[HostId]] = defaultdict(set)
    for node in status.nodes:
        workers[zones.get(node.host)].append(node)
        hosts[zones.get(node.host)].add(node.host)
    for row in status.hosts:
        hosts[row.zone].add(row.host)
    if not zones:
        return []
    names = sorted(hosts, key=by_zone)
    return [_zone(zone, len(hosts[zone]), workers[zone]) for zone in names]


def _zone(zone: str | None, hosts: int, workers: list[NodeStatus]) -> ZoneRow:
    return copied(ZoneRow, totals(workers, hosts), zone=zone)
