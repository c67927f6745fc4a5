"""The stream of changes."""

import asyncio
import json
from dataclasses import replace

from fastapi.testclient import TestClient

from tests.console.fleet import TOPICS, Fleet, Record, source_of, watching
from trimtab_console.api.live import MAX_STREAMS, changes
from trimtab_console.server import application
from trimtab_protocol.messages.intents import PAUSE_KEY


def test_a_change_is_told_with_its_version() -> None:
    watch = watching(Fleet())
    source = source_of(watch)

    async def read() -> list[bytes]:
        stream = changes(source)
        first = await anext(stream)
        assert source.streams.open == 1
        watch.take(Record(TOPICS.intents, PAUSE_KEY.encode(), None))
        second = await anext(stream)
        await stream.aclose()
        return [first, second]

    events = asyncio.run(read())
    assert all(event.startswith(b"event: change\ndata: ") and event.endswith(b"\n\n") for event in events)
    versions = [json.loads(event.partition(b"data: ")[2])["version"] for event in events]
    assert versions[1] == versions[0] + 1
    assert source.streams.open == 0


def test_a_stream_ends_with_the_process() -> None:
    source = replace(source_of(watching(Fleet())), stopping=lambda: True)

    async def read() -> list[bytes]:
        return [event async for event in changes(source)]

    assert asyncio.run(read()) == []


def test_so_many_streams_and_no_more() -> None:
    source = source_of(watching(Fleet()))
    source.streams.open = MAX_STREAMS
    assert TestClient(application(source), base_url="http://localhost").get("/api/v1/live").status_code == 503
