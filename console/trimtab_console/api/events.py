"""What happened, and why key groups are where they are."""

from http import HTTPStatus

from fastapi import APIRouter, HTTPException

from trimtab_console.api.person import ReadingRoute
from trimtab_console.api.source import From, Limit, Offset, found, page_of
from trimtab_console.events import event_row
from trimtab_console.why import CannotSayError
from trimtab_controller.loop.events.explanation import explain_plan
from trimtab_controller.loop.why import UnknownKeyGroupError
from trimtab_protocol.console_documents import EventDocument, KeyGroupWhy, Page, PlanExplanation
from trimtab_protocol.messages.decode import BadMessage
from trimtab_protocol.messages.names import parse_key_group

router = APIRouter(route_class=ReadingRoute)


@router.get("/events")
def get_events(
    source: From,
    app: str | None = None,
    kind: str | None = None,
    plan: str | None = None,
    since: float | None = None,
    text: str = "",
    offset: Offset = 0,
    limit: Limit = 100,
) -> Page[EventDocument]:
    """The newest events first, of one app, kind or plan if it is named; `since` = epoch seconds.

    `text` = a part of what they tell, such as a worker's name; upper and lower case are the same.
    """
    sought = text.casefold()
    wanted = [
        event
        for event in reversed(source.watch.events)
        if app in (None, event.app)
        and kind in (None, event.kind)
        and plan in (None, event.plan)
        and (since is None or event.at >= since)
        and sought in event.text.casefold()
    ]
    page = page_of(wanted, offset, limit)
    return Page(items=[event_row(event) for event in page.items], total=page.total, offset=page.offset)


@router.get("/plans/{plan}/explanation")
def get_explanation(source: From, plan: str) -> PlanExplanation:
    """Why each move of a plan was made, its predicted and measured loads, and what one more move would bring."""
    return found(explain_plan(plan, source.watch.events), "event of such a plan among those that are kept")


@router.get("/why/{app}/{operator}/{partition}")
def get_why(source: From, app: str, operator: str, partition: str) -> KeyGroupWhy:
    """Where a key group is, since when and by which plan, and what moving it to each worker would do."""
    if source.explainer is None:
        raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, "this console does not read the topics")
    try:
        return source.explainer.why(parse_key_group(f"{app}/{operator}/{partition}", "key group"))
    except (UnknownKeyGroupError, BadMessage) as error:
        raise HTTPException(HTTPStatus.NOT_FOUND, str(error)) from error
    except CannotSayError as error:
        raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, str(error)) from error
