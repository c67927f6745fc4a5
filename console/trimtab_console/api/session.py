"""Log a browser in and out, and say who asks and what they may do."""

from http import HTTPStatus
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from trimtab_console.access.entrance import MAX_SECRET, SESSION_S, NotLetIn, Person
from trimtab_console.api.person import COOKIE, Cookie, Known, address_of, refused, why_not
from trimtab_console.api.source import From, Source
from trimtab_protocol.console_documents import SessionDocument

router = APIRouter(tags=["session"])
NOT_LOGGED_IN = "nobody is logged in"


class LogIn(BaseModel):
    """A token of `trimtab console token`."""

    token: Annotated[str, Field(min_length=1, max_length=MAX_SECRET)]


@router.get("/session")
def get_session(source: From, person: Known) -> SessionDocument:
    """Who asks, and what they may do; also answered when nobody is logged in."""
    return _document(source, person)


@router.post("/session")
def post_session(body: LogIn, source: From, request: Request, response: Response) -> SessionDocument:
    """Log a browser in: it gets a session in a cookie that scripts cannot read."""
    try:
        name, person = source.entrance.log_in(body.token, address_of(request))
    except NotLetIn as error:
        raise refused(error) from error
    response.set_cookie(
        COOKIE, name, max_age=int(SESSION_S), httponly=True, samesite="strict", secure=_is_encrypted(request), path="/"
    )
    return _document(source, person)


@router.delete("/session", status_code=HTTPStatus.NO_CONTENT)
def delete_session(source: From, response: Response, cookie: Cookie) -> None:
    """Log the browser out."""
    if cookie:
        source.entrance.log_out(cookie)
    response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")


def _is_encrypted(request: Request) -> bool:
    """Whether the browser speaks TLS, with the console or with a proxy before it."""
    return request.url.scheme == "https" or urlsplit(request.headers.get("origin", "")).scheme == "https"


def _document(source: Source, person: Person | None) -> SessionDocument:
    return SessionDocument(
        name=person.name if person else None,
        role=str(person.role) if person else None,
        login=source.entrance.asks_for_tokens,
        may_change=person is not None and person.may_change,
        why_not=why_not(person) if person else NOT_LOGGED_IN,
        until=person.until if person else None,
        failed_logins=source.entrance.failed if person is not None and person.may_change else None,
    )
