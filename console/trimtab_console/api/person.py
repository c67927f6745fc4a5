"""Who asks: by a bearer token, or by the session of a browser."""

from http import HTTPStatus
from typing import Annotated

from fastapi import Depends, HTTPException, Request
from fastapi.security import APIKeyCookie, HTTPAuthorizationCredentials, HTTPBearer

from trimtab_console.access.entrance import ANYBODY, NotLetIn, Person, TooManyFailures
from trimtab_console.api.source import From

COOKIE = "trimtab-session"
CHALLENGE = {"www-authenticate": "Bearer"}
NO_TOKENS = "without a token file, see [access] in console.toml, the console only reads"
NO_RIGHT = "found the role viewer, expected operator"

Bearer = Annotated[
    HTTPAuthorizationCredentials | None,
    Depends(HTTPBearer(auto_error=False, description="a token of `trimtab console token`")),
]
Cookie = Annotated[
    str | None, Depends(APIKeyCookie(name=COOKIE, auto_error=False, description="the session of a browser"))
]


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
