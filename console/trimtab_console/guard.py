"""Stands before every request: who may ask, how often, and what a browser may do with the answer."""

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trimtab_protocol.actions import ACTIONS
from trimtab_protocol.console_documents import API, PROBLEM_TYPE
from trimtab_protocol.messages.intents import MAX_BYTES
from trimtab_protocol.messages.rate_limit import RateLimits

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
READING = frozenset({"GET"})
CHANGING = frozenset({"POST", "DELETE"})
OWN_PAGES = b"trimtab"
"""X-Requested-With of our own pages: a header that a page of another site cannot send without asking first."""
MAX_BODY = 32_000
"""Bytes of a request's body, where the body is not one of names."""
MAX_LONG_BODY = MAX_BYTES + MAX_BODY
"""Bytes of the body of a request that names key groups or workers: what the largest intent needs."""
MAX_PASSED, PASSED_S = 8_000_000, 10.0
"""Bytes of a body that is too long, and seconds, that are passed over before the answer."""
LONG_BODIES = frozenset(
    f"{API}/intents/{name}" for name, action in ACTIONS.items() if any(each.many for each in action.fields)
)
PER_S, AT_ONCE = 30.0, 150.0
"""Requests per second from one address, and in one burst.

One that is refused costs nothing: the refusal is as cheap as that of a flood, and a page of another site could use up
the budget of its visitor.  However an address asks, it gets this much and no more; so a flood from behind a
proxy does not lock out those who share its address.
"""
MAX_CLIENTS = 1_000
"""Addresses whose requests are counted separately; the one that has been quiet longest is forgotten."""
MAX_REQUEST_TARGET = 2_000
"""Bytes of path and query."""
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = (
    (b"content-security-policy", CSP.encode()),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
)


class Guard:
    """Refuses foreign Host headers (DNS rebinding), changes that another site asks for, long bodies, and floods."""

    def __init__(self, app: ASGIApp, hosts: Iterable[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._app = app
        self._hosts = frozenset({*LOOPBACK, *hosts})
        self._clock = clock
        self._requests = RateLimits(rate=PER_S, burst=AT_ONCE, most=MAX_CLIENTS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":  # lifespan; web sockets are not served
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return

        async def hardened(message: Message) -> None:
            if message["type"] == "http.response.start":
                found = {name.lower() for name, _ in message["headers"]}
                added = [*HEADERS, *([] if b"cache-control" in found else [(b"cache-control", b"no-store")])]
                message["headers"] = [*message["headers"], *added]
            await send(message)

        refusal = self._refusal(scope)
        if refusal is None:
            await self._app(scope, receive, hardened)
        else:
            if refusal[0] is HTTPStatus.REQUEST_ENTITY_TOO_LARGE and self._may_ask(scope):
                await _pass_over(receive)
            await _refuse(hardened, *refusal)

    def _may_ask(self, scope: Scope) -> bool:
        """Whether this address has not asked too often; it has asked once more then."""
        return self._requests.spend((scope.get("client") or ("", 0))[0], self._clock())

    def _refusal(self, scope: Scope) -> tuple[HTTPStatus, str] | None:
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if _without_port(host) not in self._hosts:
            return HTTPStatus.MISDIRECTED_REQUEST, "the Host header names a host that is not in console.hosts"
        if scope["method"] not in READING | CHANGING:
            return HTTPStatus.METHOD_NOT_ALLOWED, f"expected one of {', '.join(sorted(READING | CHANGING))}"
        if scope["method"] in CHANGING and (refusal := _change_refusal(headers, scope)) is not None:
            return refusal
        if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > MAX_REQUEST_TARGET:
            return HTTPStatus.REQUEST_URI_TOO_LONG, f"path and query have more than {MAX_REQUEST_TARGET} bytes"
        if headers.get(b"sec-fetch-site", b"same-origin") not in (b"same-origin", b"none") and not _is_link(headers):
            return HTTPStatus.FORBIDDEN, "another site asked for this"
        if not self._may_ask(scope):
            return HTTPStatus.TOO_MANY_REQUESTS, f"more than {PER_S:g} requests per second"
        return None


def problem(status: HTTPStatus, detail: str) -> bytes:
    """The body of an error, as RFC 9457 has it."""
    return json.dumps({"type": "about:blank", "title": status.phrase, "status": status, "detail": detail}).encode()


async def _pass_over(receive: Receive) -> None:
    """Let a client send its body, or its first part: before that it does not read why it is refused."""
    passed, more = 0, True
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(PASSED_S):
            while more and passed <= MAX_PASSED:
                message = await receive()
                passed += len(message.get("body", b""))
                more = message["type"] == "http.request" and message.get("more_body", False)


async def _refuse(send: Send, status: HTTPStatus, detail: str) -> None:
    headers = [(b"content-type", PROBLEM_TYPE.encode())]
    if status is HTTPStatus.METHOD_NOT_ALLOWED:
        headers.append((b"allow", ", ".join(sorted(READING | CHANGING)).encode()))
    if status is HTTPStatus.TOO_MANY_REQUESTS:
        headers.append((b"retry-after", b"1"))
    await send({"type": "http.response.start", "status": int(status), "headers": headers})
    await send({"type": "http.response.body", "body": problem(status, detail)})


def _change_refusal(headers: Mapping[bytes, bytes], scope: Scope) -> tuple[HTTPStatus, str] | None:
    """Why a request that changes something is refused (CSRF, bodies without end); None if it is not."""
    origin, host = headers.get(b"origin"), headers.get(b"host", b"")
    if headers.get(b"sec-fetch-site", b"same-origin") != b"same-origin":
        return HTTPStatus.FORBIDDEN, "another site asked for this"
    schemes = (b"https",) if scope["scheme"] == "https" else (b"https", b"http")  # a proxy may add the TLS
    if origin is not None and origin.lower() not in [b"%b://%b" % (each, host.lower()) for each in schemes]:
        return HTTPStatus.FORBIDDEN, f"found the Origin {origin[:200].decode('latin-1')!r}, expected this console's own"
    has_token = headers.get(b"authorization", b"").lower().startswith(b"bearer ")
    if not has_token and headers.get(b"x-requested-with") != OWN_PAGES:
        expected = "a bearer token, or the header `X-Requested-With: trimtab` of a browser's session"
        return HTTPStatus.FORBIDDEN, f"found neither, expected {expected}"
    if b"transfer-encoding" in headers:
        return HTTPStatus.LENGTH_REQUIRED, "found a body of unknown length, expected Content-Length"
    length = headers.get(b"content-length", b"0")
    most = MAX_LONG_BODY if scope["path"] in LONG_BODIES else MAX_BODY
    if not length.isdigit() or int(length) > most:
        found = length[:20].decode("latin-1")
        return HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"found a body of {found} bytes, expected at most {most}"
    return None


def _is_link(headers: Mapping[bytes, bytes]) -> bool:
    """Whether somebody follows a link, from an alert or after a login; the other site cannot read the answer."""
    return (headers.get(b"sec-fetch-mode"), headers.get(b"sec-fetch-dest")) == (b"navigate", b"document")


def _without_port(host: str) -> str:
    name, _, port = host.rpartition(":")
    return name if name and port.isascii() and port.isdigit() else host
