"""Hosts and zones with their workers, as documents of the API.  Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import fields

from trimtab_console.cluster_view import by_zone, totals, zones_of
from trimtab_protocol.capacity_documents import HostRow, Totals, ZoneRow
from trimtab_protocol.messages.intents import Drain, Intent
from trimtab_protocol.messages.names import HostId
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.status import HostStatus, NodeStatus, Status


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
    return HostRow(
        **{field.name: getattr(row, field.name) for field in fields(HostStatus)},
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
    found = totals(workers, hosts)
    return ZoneRow(zone=zone, **{field.name: getattr(found, field.name) for field in fields(Totals)})
