"""Apps, their operators, key groups, placement, size; plans and what they move."""

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, HTTPException, Query

from trimtab_console import key_groups
from trimtab_console.api.person import ReadingRoute
from trimtab_console.api.source import From, Limit, Offset, Source, found, page_of
from trimtab_console.flows import OperatorFlows
from trimtab_protocol.console_documents import (
    Flow,
    KeyGroupMap,
    KeyGroupOrder,
    KeyGroupRow,
    Operator,
    Page,
    Placed,
    Point,
)
from trimtab_protocol.messages.key_group_table import KeyGroupBlock
from trimtab_protocol.messages.names import AppId, OperatorId
from trimtab_protocol.messages.status import AppStatus, CapacityStatus, SizeStatus

MAX_CELLS = 16_384
"""Cells of one map of key groups."""

router = APIRouter(route_class=ReadingRoute)


@router.get("/apps")
def get_apps(source: From, offset: Offset = 0, limit: Limit = 100) -> Page[AppStatus]:
    """The apps of the cluster."""
    return page_of(source.status.apps, offset, limit)


@router.get("/apps/{app}")
def get_app(source: From, app: str) -> AppStatus:
    """One app."""
    return source.app(app)


@router.get("/apps/{app}/size")
def get_size(source: From, app: str) -> SizeStatus:
    """How many workers the app has and should have; 404: the controller does not judge it."""
    return found(source.app(app).size, "size of this app: the controller does not judge it")


@router.get("/apps/{app}/headroom")
def get_headroom(source: From, app: str) -> CapacityStatus:
    """How many times its present input fits into the app's workers."""
    return found(source.app(app).capacity, "headroom of this app: it is unknown")


@router.get("/apps/{app}/history")
def get_history(source: From, app: str, offset: Offset = 0, limit: Limit = 1_000) -> Page[Point]:
    """The figures of the app over time, newest first: what the console has seen."""
    return page_of(source.watch.history(AppId(app))[::-1], offset, limit)


@router.get("/apps/{app}/operators")
def get_operators(source: From, app: str) -> list[Operator]:
    """The operators of the app in the last window."""
    return key_groups.operators(source.snapshot, AppId(app))


@router.get("/apps/{app}/flows")
def get_flows(source: From, app: str, offset: Offset = 0, limit: Limit = 100) -> Page[Flow]:
    """What the operators of the app send to each other, the largest flows first; at most 1,000 of them are kept."""
    _ = source.snapshot
    flows = source.watch.known.flows.get(AppId(app), OperatorFlows())
    return Page(items=flows.largest[offset : offset + limit], total=flows.total, offset=offset)


def _block(source: Source, app: str, operator: str) -> KeyGroupBlock:
    block = key_groups.block_of(source.snapshot, AppId(app), OperatorId(operator))
    return found(block, f"operator {operator[:200]!r} of app {app[:200]!r} in the last window")


@router.get("/apps/{app}/operators/{operator}/map")
def get_map(
    source: From, app: str, operator: str, cells: Annotated[int, Query(ge=1, le=MAX_CELLS)] = 4_096
) -> KeyGroupMap:
    """All key groups of an operator in at most `cells` cells."""
    return key_groups.map_of(_block(source, app, operator), cells)


@router.get("/apps/{app}/operators/{operator}/key-groups")
def get_key_groups(
    source: From,
    app: str,
    operator: str,
    order: KeyGroupOrder = KeyGroupOrder.PARTITION,
    offset: Offset = 0,
    limit: Limit = 100,
) -> Page[KeyGroupRow]:
    """Key groups of an operator in the last window."""
    block = _block(source, app, operator)
    rows = key_groups.rows_of(block, offset, limit, by_load=order is KeyGroupOrder.LOAD)
    return Page(items=rows, total=len(block), offset=offset)


@router.get("/apps/{app}/placement")
def get_placement(
    source: From, app: str, operator: str | None = None, offset: Offset = 0, limit: Limit = 100
) -> Placed:
    """The published placement of the app: owners and standbys."""
    placement = source.watch.known.placements.get(AppId(app))
    if placement is None or placement.is_taken_back:
        raise HTTPException(HTTPStatus.NOT_FOUND, "there is no placement of this app: workers assign by their own rule")
    return key_groups.placed(placement, None if operator is None else OperatorId(operator), offset, limit)
