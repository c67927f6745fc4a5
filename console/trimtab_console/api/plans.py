"""Plans, and what they move."""

from typing import Annotated

from fastapi import APIRouter, Query

from trimtab_console.api.person import ReadingRoute
from trimtab_console.api.source import From, Limit, Offset, found, page_of
from trimtab_console.plans import by_worker, moves_of, plan_document
from trimtab_controller.loop.events.explanation import explain_plan
from trimtab_protocol.console_documents import MovesByWorker, Moving, Page, PlanReport
from trimtab_protocol.messages.status import ProposalStatus

MAX_NAMED = 100
"""Workers on each side of a plan's moves that one answer names."""

router = APIRouter(route_class=ReadingRoute)


@router.get("/proposals")
def get_proposals(source: From, app: str | None = None, offset: Offset = 0, limit: Limit = 100) -> Page[ProposalStatus]:
    """Plans that wait for approval, and those that were rejected a short while ago."""
    rows = [row for row in source.status.proposals if app in (None, row.app)]
    return page_of(sorted(rows, key=lambda row: (row.rejected is not None, row.at)), offset, limit)


@router.get("/plans")
def get_plans(source: From, app: str | None = None, offset: Offset = 0, limit: Limit = 100) -> Page[PlanReport]:
    """Plans in flight and past ones, newest first."""
    rows = [row for row in source.status.rounds if app in (None, row.app)]
    return page_of([plan_document(row) for row in sorted(rows, key=lambda row: -row.started_at)], offset, limit)


@router.get("/plans/{plan}")
def get_plan(source: From, plan: str) -> PlanReport:
    """One plan."""
    row = next((row for row in source.status.rounds if row.plan == plan), None)
    return plan_document(found(row, "such plan"))


@router.get("/plans/{plan}/moves")
def get_moves(source: From, plan: str, offset: Offset = 0, limit: Limit = 100) -> Page[Moving]:
    """What a plan moves, by the journal: the plans in flight, the last one of each app, and those seen before."""
    row = source.watch.known.rounds.get(plan)
    return page_of(moves_of(found(row, "journal entry of this plan since the console started")), offset, limit)


@router.get("/plans/{plan}/moves/by-worker")
def get_moves_by_worker(source: From, plan: str, most: Annotated[int, Query(ge=1, le=MAX_NAMED)] = 12) -> MovesByWorker:
    """What a plan moves from worker to worker; `most` workers on each side are named, the others count together."""
    row = source.watch.known.rounds.get(plan)
    summed = by_worker(plan, row, explain_plan(plan, source.watch.events), most)
    return found(summed, "such plan in the journal or in the events that are kept")
