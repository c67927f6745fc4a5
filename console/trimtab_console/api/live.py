"""What is live: a server-sent event whenever something changed.  Pages then ask for what they show."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import asdict
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from trimtab_console.access.entrance import Person
from trimtab_console.api.person import Bearer, Cookie, knows, viewer
from trimtab_console.api.source import From, Source
from trimtab_protocol.console_documents import LiveChange
from trimtab_protocol.messages.decode import encode

MAX_STREAMS, MAX_OF_PERSON = 32, 16
"""Browsers that are told of changes at the same time, and those with the token of one person."""
LOOK_EVERY_S, BEAT_EVERY_S = 0.25, 5.0
"""How often a stream looks for changes, and how long it says nothing at most."""

router = APIRouter()


@router.get("/live", response_class=StreamingResponse)
async def get_live(
    source: From, person: Annotated[Person, Depends(viewer)], bearer: Bearer, cookie: Cookie
) -> StreamingResponse:
    """Events `change`, with the newest version; about every five seconds at least, as a sign of life."""
    most = MAX_STREAMS if person.name is None else MAX_OF_PERSON
    if source.streams.total() >= MAX_STREAMS or source.streams[person.name] >= most:
        told = f"{source.streams.total()} browsers follow the cluster already, {source.streams[person.name]} of yours"
        raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, told)
    return Stream(source, person.name, lambda: knows(source, bearer, cookie))


class Stream(StreamingResponse):
    """The answer that goes on.  It is counted from the moment it is allowed to its end."""

    def __init__(self, source: Source, name: str | None, is_known: Callable[[], bool]) -> None:
        super().__init__(changes(source, is_known), media_type="text/event-stream")
        self._source, self._name = source, name
        source.streams[name] += 1

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._source.streams[self._name] -= 1


async def changes(source: Source, is_known: Callable[[], bool]) -> AsyncGenerator[bytes]:
    """The events of one stream; it ends with the process, with the session, and with the token."""
    told, silent_s = -1, 0.0
    while not source.stopping() and is_known():
        version = source.watch.known.version
        if version != told or silent_s >= BEAT_EVERY_S:
            told, silent_s = version, 0.0
            change = LiveChange(version=version, at=source.clock())
            yield b"event: change\ndata: %b\n\n" % encode(asdict(change))
        await asyncio.sleep(LOOK_EVERY_S)
        silent_s += LOOK_EVERY_S
