"""Who asks: by a bearer token, or by the session of a browser."""

from collections.abc import Callable, Coroutine
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import Depends, HTTPException, Request, Response
from fastapi.routing import APIRoute
from fastapi.security import APIKeyCookie, HTTPAuthorizationCredentials, HTTPBearer

from trimtab_console.access.entrance import ANYBODY, NotLetIn, Person, TooManyFailures
from trimtab_console.api.source import From, Source, source_of

COOKIE = "trimtab-session"
CHALLENGE = {"www-authenticate": "Bearer"}
NO_TOKENS = "without a token file, see [access] in console.toml, the console only reads"
NO_RIGHT = "found the role viewer, expected operator"

BEARER = HTTPBearer(auto_error=False, description="a token of `trimtab console token`")
SESSION = APIKeyCookie(name=COOKIE, auto_error=False, description="the session of a browser")
Bearer = Annotated[HTTPAuthorizationCredentials | None, Depends(BEARER)]
Cookie = Annotated[str | None, Depends(SESSION)]


def address_of(request: Request) -> str:
    """The address of the client."""
    return request.client.host if request.client else ""


async def known_person(request: Request, source: From, bearer: Bearer, cookie: Cookie) -> Person | None:
    """Who asks; None: nobody that is known.  A token that is not accepted is refused."""
    if not source.entrance.asks_for_tokens:
        return ANYBODY
    if bearer is not None:
        try:
            return source.entrance.by_token(bearer.credentials, address_of(request))
        except NotLetIn as error:
            raise refused(error) from error
    return source.entrance.by_session(cookie) if cookie else None


def refused(error: NotLetIn) -> HTTPException:
    """The answer to somebody who is not let in."""
    if isinstance(error, TooManyFailures):
        return HTTPException(HTTPStatus.TOO_MANY_REQUESTS, str(error), headers={"retry-after": "5"})
    return HTTPException(HTTPStatus.UNAUTHORIZED, str(error), headers=CHALLENGE)


Known = Annotated[Person | None, Depends(known_person)]


def knows(source: Source, bearer: Bearer, cookie: Cookie) -> bool:
    """Whether who was let in by these still is.  Nothing is counted."""
    entrance = source.entrance
    if not entrance.asks_for_tokens:
        return True
    return entrance.holds(bearer.credentials) if bearer is not None else entrance.by_session(cookie or "") is not None


async def viewer(person: Known) -> Person:
    """Who asks, and may read."""
    if person is None:
        expected = "found no token, expected `Authorization: Bearer TOKEN`, or the session of a browser"
        raise HTTPException(HTTPStatus.UNAUTHORIZED, expected, headers=CHALLENGE)
    return person


def why_not(person: Person) -> str | None:
    """Why this person may change nothing; None if they may."""
    if person.name is None:
        return NO_TOKENS
    return None if person.may_change else NO_RIGHT


async def operator(person: Annotated[Person, Depends(viewer)]) -> Person:
    """Who asks, and may change things."""
    if (why := why_not(person)) is not None:
        raise HTTPException(HTTPStatus.FORBIDDEN, why)
    return person


Operator = Annotated[Person, Depends(operator)]

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class ChangingRoute(APIRoute):
    """Asks who it is before it reads the body."""

    def get_route_handler(self) -> Handler:
        """The handler of a request."""
        handle = super().get_route_handler()

        async def known_first(request: Request) -> Response:
            source, bearer, cookie = await source_of(request), await BEARER(request), await SESSION(request)
            await operator(await viewer(await known_person(request, source, bearer, cookie)))
            return await handle(request)

        return known_first


class ReadingRoute(APIRoute):
    """Waits while so many others read, so that changes and logins never wait for readers."""

    def get_route_handler(self) -> Handler:
        """The handler of a request."""
        handle = super().get_route_handler()

        async def in_turn(request: Request) -> Response:
            async with (await source_of(request)).reading:
                return await handle(request)

        return in_turn
