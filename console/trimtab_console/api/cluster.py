"""Cluster, workers, hosts, decisions, concerns, intents, rules."""

from collections.abc import Callable
from operator import attrgetter
from typing import Annotated

from fastapi import APIRouter, Query

from trimtab_console.api.person import ReadingRoute
from trimtab_console.api.source import From, Limit, Offset, found, page_of
from trimtab_console.cluster_view import bars, cluster_document, host_rows, zone_rows
from trimtab_console.intents import intent_document, rule_row
from trimtab_process.shipped import shipped
from trimtab_protocol.console_documents import (
    Bars,
    ClusterDocument,
    HostOrder,
    HostRow,
    IntentDocument,
    Page,
    RuleDocument,
    Runbook,
    WorkerOrder,
    ZoneRow,
)
from trimtab_protocol.messages.decode import NAME_PATTERN
from trimtab_protocol.messages.names import AppId
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.status import ConcernStatus, DecisionStatus, NodeStatus, PoolStatus

MAX_BARS = 4_000
"""Bars of one answer."""

router = APIRouter(route_class=ReadingRoute)


def _place(order: WorkerOrder) -> Callable[[NodeStatus], tuple[float, str]]:
    """The sort key."""
    if order is WorkerOrder.NAME:
        return lambda row: (0.0, row.worker)
    value = attrgetter(
        {WorkerOrder.LOAD: "load_pct", WorkerOrder.DEMAND: "demand_pct", WorkerOrder.USED: "used_pct"}[order]
    )
    return lambda row: (1.0 if (found := value(row)) is None else -found, row.worker)


@router.get("/cluster")
def get_cluster(source: From) -> ClusterDocument:
    """The state, who leads, and the sums over all workers."""
    return cluster_document(source.cluster, source.watch.known, source.clock())


@router.get("/workers")
def get_workers(
    source: From,
    app: str | None = None,
    host: str | None = None,
    state: WorkerState | None = None,
    name: Annotated[str, Query(max_length=200)] = "",
    order: WorkerOrder = WorkerOrder.NAME,
    offset: Offset = 0,
    limit: Limit = 100,
) -> Page[NodeStatus]:
    """The workers, of one app, host or state if it is named; `name` = a part of their names."""
    rows = [
        row
        for row in source.status.nodes
        if app in (None, row.app) and host in (None, row.host) and state in (None, row.state) and name in row.worker
    ]
    return page_of(sorted(rows, key=_place(order)), offset, limit)


@router.get("/workers/bars")
def get_bars(source: From, app: str | None = None, most: Annotated[int, Query(ge=1, le=MAX_BARS)] = 1_000) -> Bars:
    """All workers as at most `most` bars, ordered by zone and host."""
    return bars(source.status, None if app is None else AppId(app), most)


@router.get("/workers/{worker}")
def get_worker(source: From, worker: str) -> NodeStatus:
    """One worker."""
    return found(next((row for row in source.status.nodes if row.worker == worker), None), "such worker")


@router.get("/hosts")
def get_hosts(
    source: From,
    zone: str | None = None,
    name: Annotated[str, Query(max_length=200)] = "",
    order: HostOrder = HostOrder.NAME,
    offset: Offset = 0,
    limit: Limit = 100,
) -> Page[HostRow]:
    """The hosts with their workers, of one zone if it is named; `name` = a part of their names."""
    rows = host_rows(source.status, source.watch.known.intents)
    rows = [row for row in rows if zone in (None, row.zone) and name in row.host]
    if order is HostOrder.DEMAND:
        rows.sort(key=lambda row: 1.0 if row.demand_pct is None else -row.demand_pct)
    return page_of(rows, offset, limit)


@router.get("/zones")
def get_zones(source: From, offset: Offset = 0, limit: Limit = 100) -> Page[ZoneRow]:
    """The zones with the sums over their workers; none if no agent names its zone."""
    return page_of(zone_rows(source.status), offset, limit)


@router.get("/pool")
def get_pool(source: From, offset: Offset = 0, limit: Limit = 100) -> Page[PoolStatus]:
    """The workers that can be started."""
    return page_of(source.status.pool, offset, limit)


@router.get("/decisions")
def get_decisions(source: From, offset: Offset = 0, limit: Limit = 100) -> Page[DecisionStatus]:
    """The last decisions, newest first."""
    return page_of(source.status.decisions[::-1], offset, limit)


@router.get("/concerns")
def get_concerns(source: From, offset: Offset = 0, limit: Limit = 100) -> Page[ConcernStatus]:
    """The problems of apps; `kind` is the name of the runbook."""
    return page_of(source.status.concerns, offset, limit)


@router.get("/intents")
def get_intents(source: From, offset: Offset = 0, limit: Limit = 100) -> Page[IntentDocument]:
    """What operators asked for and has not been revoked."""
    return page_of([intent_document(each) for each in source.watch.known.intents], offset, limit)


@router.get("/rules")
def get_rules(source: From, offset: Offset = 0, limit: Limit = 100) -> Page[RuleDocument]:
    """The rules that the controller knows, those of controller.toml first."""
    return page_of([rule_row(each) for each in source.status.rules or ()], offset, limit)


@router.get("/runbooks/{name}")
def get_runbook(name: str) -> Runbook:
    """What an alert or a reason means, and what to do, as Markdown."""
    path = shipped("runbooks") / f"{name}.md"
    known = path if NAME_PATTERN.fullmatch(name) and path.is_file() else None
    return Runbook(name=name, text=found(known, "such runbook").read_text(encoding="utf-8"))
