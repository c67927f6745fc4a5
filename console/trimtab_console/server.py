"""The web application: API, pages, errors as problem details."""

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from importlib import metadata
from pathlib import Path
from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp

from trimtab_console.api import apps, changes, cluster, events, live, plans, session
from trimtab_console.api.person import viewer
from trimtab_console.api.source import Source
from trimtab_console.guard import Guard, problem
from trimtab_console.pages import Pages
from trimtab_protocol.console_documents import API, PROBLEM_TYPE, Problem

WEB = Path(__file__).with_name("web")
READING = (401, 404, 422, 429, 503)
"""Codes of the problems that every resource can answer with."""
COMPRESSED_FROM = 2_000
"""Bytes from which an answer is compressed."""


class Guarded(FastAPI):
    """With the guard before everything, also before what answers when a request fails."""

    hosts: tuple[str, ...] = ()

    def build_middleware_stack(self) -> ASGIApp:
        """All that a request passes."""
        return Guard(super().build_middleware_stack(), hosts=self.hosts)


def application(source: Source, hosts: Iterable[str] = ()) -> FastAPI:
    """The application for what this source knows; `hosts` = further names that a Host header may have."""
    web = Guarded(
        title="Trimtab console",
        version=metadata.version("trimtab"),
        openapi_url=f"{API}/openapi.json",
        docs_url=None,  # its page loads scripts from elsewhere
        redoc_url=None,
    )
    web.state.source = source
    for router in (cluster.router, apps.router, plans.router, events.router, live.router):
        web.include_router(router, prefix=API, responses=_problems(*READING), dependencies=[Depends(viewer)])
    web.include_router(changes.router, prefix=API, responses=_problems(*READING, 400, 403, 409, 413))
    web.include_router(session.router, prefix=API, responses=_problems(401, 403, 422, 429))
    web.mount("/", Pages(WEB))
    web.add_exception_handler(HTTPException, _refused)
    web.add_exception_handler(RequestValidationError, _invalid)
    web.add_exception_handler(Exception, _failed)
    web.add_middleware(GZipMiddleware, minimum_size=COMPRESSED_FROM, compresslevel=1)
    web.hosts = tuple(hosts)
    return web


def _problems(*codes: int) -> dict[int | str, dict[str, Any]]:
    """How the API's description names the errors with these codes."""
    return {code: {"model": Problem, "content": {PROBLEM_TYPE: {}}} for code in codes}


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _problem(HTTPStatus(error.status_code), str(error.detail), error.headers)


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    told = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()[:5])
    return _problem(HTTPStatus.UNPROCESSABLE_ENTITY, told[:1_000])


async def _failed(request: Request, error: Exception) -> Response:
    return _problem(HTTPStatus.INTERNAL_SERVER_ERROR, "see the log of the console")


def _problem(status: HTTPStatus, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    return Response(problem(status, detail), status_code=status, headers=headers, media_type=PROBLEM_TYPE)
