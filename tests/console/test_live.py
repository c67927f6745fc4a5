"""The stream of changes."""

import asyncio
import json
from contextlib import closing
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path

from fastapi.testclient import TestClient

from tests.console.asking import bearer
from tests.console.fleet import TOPICS, Fleet, Record, source_of, watching
from tests.console.setup import Setup, serving
from trimtab_console.api.live import MAX_OF_PERSON, MAX_STREAMS, changes
from trimtab_console.server import application
from trimtab_protocol.messages.intents import PAUSE_KEY


def test_a_change_is_told_with_its_version() -> None:
    watch = watching(Fleet())
    source = source_of(watch)

    async def read() -> list[bytes]:
        stream = changes(source, lambda: True)
        first = await anext(stream)
        watch.take(Record(TOPICS.intents, PAUSE_KEY.encode(), None))
        second = await anext(stream)
        await stream.aclose()
        return [first, second]

    events = asyncio.run(read())
    assert all(event.startswith(b"event: change\ndata: ") and event.endswith(b"\n\n") for event in events)
    versions = [json.loads(event.partition(b"data: ")[2])["version"] for event in events]
    assert versions[1] == versions[0] + 1


def test_a_stream_ends_with_the_process() -> None:
    source = replace(source_of(watching(Fleet())), stopping=lambda: True)

    async def read() -> list[bytes]:
        return [event async for event in changes(source, lambda: True)]

    assert asyncio.run(read()) == []


def test_so_many_streams_and_no_more() -> None:
    source = source_of(watching(Fleet()))
    source.streams[None] = MAX_STREAMS
    assert TestClient(application(source), base_url="http://localhost").get("/api/v1/live").status_code == 503


def test_a_stream_ends_with_the_token_and_one_person_cannot_have_all(tmp_path: Path) -> None:
    setup = Setup(tmp_path)
    source = setup.client.app.state.source  # type: ignore[attr-defined]
    path = f"{setup.client.base_url}/api/v1/live"
    with serving(setup.client.app) as address, closing(HTTPConnection(address.rpartition("/")[2], timeout=60)) as link:
        link.request("GET", "/api/v1/live", headers=bearer("vera"))
        answer = link.getresponse()
        assert (answer.status, answer.readline(), source.streams["vera"]) == (200, b"event: change\n", 1)
        source.streams["vera"] = MAX_OF_PERSON
        assert setup.client.get(path, headers=bearer("vera")).status_code == 503
        (tmp_path / "tokens.toml").write_text("")
        assert b"" in iter(answer.readline, None), "the stream has ended"
    assert source.streams["vera"] == MAX_OF_PERSON - 1
