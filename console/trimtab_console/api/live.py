"""What is live: a server-sent event whenever something changed.  Pages then ask for what they show."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import asdict
from http import HTTPStatus

from fastapi import APIRouter, HTTPException
from fastapi.responses import StreamingResponse

from trimtab_console.api.source import From, Source
from trimtab_protocol.console_documents import LiveChange
from trimtab_protocol.messages.decode import encode

MAX_STREAMS = 32
"""Browsers that are told of changes at the same time."""
LOOK_EVERY_S, BEAT_EVERY_S = 0.25, 5.0
"""How often a stream looks for changes, and how long it says nothing at most."""

router = APIRouter()


@router.get("/live", response_class=StreamingResponse)
async def get_live(source: From) -> StreamingResponse:
    """Events `change`, with the newest version; about every five seconds at least, as a sign of life."""
    if source.streams.open >= MAX_STREAMS:
        raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, f"{MAX_STREAMS} browsers are told of changes already")
    return StreamingResponse(changes(source), media_type="text/event-stream")


async def changes(source: Source) -> AsyncGenerator[bytes]:
    """The events of one stream; it ends with the process."""
    told, silent_s = -1, 0.0
    source.streams.open += 1
    try:
        while not source.stopping():
            version = source.watch.known.version
            if version != told or silent_s >= BEAT_EVERY_S:
                told, silent_s = version, 0.0
                change = LiveChange(version=version, at=source.clock())
                yield b"event: change\ndata: %b\n\n" % encode(asdict(change))
            await asyncio.sleep(LOOK_EVERY_S)
            silent_s += LOOK_EVERY_S
    finally:
        source.streams.open -= 1
