"""What every resource starts from: the newest state, or a problem that says why there is none."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Annotated, TypeVar

from fastapi import Depends, HTTPException, Query, Request

from trimtab_console.access.entrance import Entrance
from trimtab_console.desk import Desk
from trimtab_console.watch import Watch
from trimtab_console.why import Explainer
from trimtab_protocol.console_documents import MAX_PAGE, Page
from trimtab_protocol.messages.names import AppId
from trimtab_protocol.messages.snapshot import Snapshot
from trimtab_protocol.messages.status import AppStatus, Status

T = TypeVar("T")

READS_AT_ONCE = 24
"""Requests that read at the same time; more wait.  Changes and logins have the rest of the server's 40 threads."""

Offset = Annotated[int, Query(ge=0, le=100_000_000)]
Limit = Annotated[int, Query(ge=1, le=MAX_PAGE)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The cluster, what is known of it, who may ask, who carries changes out, the time, and whether the process ends.

    `desk` None: nothing can be changed.  `explainer` None: nobody says why a key group is where it is.
    """

    cluster: str
    watch: Watch
    clock: Callable[[], float]
    stopping: Callable[[], bool]
    entrance: Entrance
    desk: Desk | None
    explainer: Explainer | None = None
    streams: Counter[str | None] = field(default_factory=Counter)
    """How many browsers of each person are told of changes now."""
    reading: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(READS_AT_ONCE))

    @property
    def status(self) -> Status:
        """The status that tells most.  Raises HTTPException."""
        seen = self.watch.known.seen(self.clock())
        if seen is None:
            raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, "no controller has reported on this cluster yet")
        return seen.status

    @property
    def snapshot(self) -> Snapshot:
        """The last window.  Raises HTTPException."""
        snapshot = self.watch.known.snapshot
        if snapshot is None:
            raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, "no window has been published lately")
        return snapshot

    def app(self, name: str) -> AppStatus:
        """The status of an app.  Raises HTTPException."""
        return found(next((row for row in self.status.apps if row.app == AppId(name)), None), f"app {name[:200]!r}")


async def source_of(request: Request) -> Source:
    """The source of the application.  It is asynchronous so that it needs no thread."""
    source = request.app.state.source
    assert isinstance(source, Source)
    return source


From = Annotated[Source, Depends(source_of)]


def found(value: T | None, what: str) -> T:
    """The value.  Raises HTTPException if there is none."""
    if value is None:
        raise HTTPException(HTTPStatus.NOT_FOUND, f"there is no {what}")
    return value


def page_of(items: Sequence[T], offset: int, limit: int) -> Page[T]:
    """Some of these items."""
    return Page(items=items[offset : offset + limit], total=len(items), offset=offset)
