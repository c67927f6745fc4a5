"""Floods, and forgetting who asked."""

import asyncio

import pytest
from fastapi.testclient import TestClient
from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send

from trimtab_console.guard import AT_ONCE, MAX_CLIENTS, PER_S, Guard


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    await PlainTextResponse("here")(scope, receive, send)


def ask(guard: Guard, address: str) -> int:
    """The status of the answer to this address."""
    answers: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        answers.append(message)

    scope = {
        "type": "http", "method": "GET", "path": "/", "raw_path": b"/", "query_string": b"",
        "client": (address, 50_000), "headers": [(b"host", b"localhost")],
    }  # fmt: skip
    asyncio.run(guard(scope, receive, send))
    return int(answers[0]["status"])


def test_a_flood_is_refused_and_a_pause_helps() -> None:
    clock = Clock()
    client = TestClient(Guard(app, (), clock), base_url="http://localhost")
    codes = [client.get("/").status_code for _ in range(int(AT_ONCE) + 5)]
    assert codes == [200] * int(AT_ONCE) + [429] * 5
    refused = client.get("/")
    assert (refused.headers["retry-after"], refused.headers["content-type"]) == ("1", "application/problem+json")
    clock.now = 2.0 / PER_S
    assert [client.get("/").status_code for _ in range(3)] == [200, 200, 429]


@pytest.mark.parametrize("per_s", [PER_S, 2 * PER_S, 10 * PER_S], ids=lambda rate: f"{rate:g} per second")
def test_at_no_pace_does_an_address_get_more_than_its_rate_and_others_get_theirs(per_s: float) -> None:
    clock, seconds = Clock(), 4
    guard = Guard(app, (), clock)
    assert [ask(guard, "flooding") for _ in range(int(AT_ONCE))] == [200] * int(AT_ONCE)
    answered = 0
    for number in range(int(per_s * seconds)):
        clock.now = (number + 1) / per_s
        answered += ask(guard, "flooding") == 200
    assert PER_S * seconds - 1 <= answered <= PER_S * seconds
    assert [ask(guard, "another") for _ in range(10)] == [200] * 10


def test_so_many_addresses_are_remembered_and_no_more() -> None:
    guard = Guard(app, (), Clock())
    for number in range(MAX_CLIENTS + 3):
        assert ask(guard, str(number)) == 200
    assert len(guard._requests) == MAX_CLIENTS


def test_a_long_target_is_refused() -> None:
    client = TestClient(Guard(app, ()), base_url="http://localhost")
    assert client.get("/?" + "x" * 3_000).status_code == 414
