"""Floods, and forgetting who asked."""

from fastapi.testclient import TestClient
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from trimtab_console.guard import AT_ONCE, MAX_CLIENTS, PER_S, Guard


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    await PlainTextResponse("here")(scope, receive, send)


def test_a_flood_is_refused_and_a_pause_helps() -> None:
    clock = Clock()
    client = TestClient(Guard(app, (), clock), base_url="http://localhost")
    codes = [client.get("/").status_code for _ in range(int(AT_ONCE) + 5)]
    assert codes == [200] * int(AT_ONCE) + [429] * 5
    refused = client.get("/")
    assert (refused.headers["retry-after"], refused.headers["content-type"]) == ("1", "application/problem+json")
    clock.now = 2.0 / PER_S
    assert [client.get("/").status_code for _ in range(3)] == [200, 200, 429]


def test_so_many_addresses_are_remembered_and_no_more() -> None:
    guard = Guard(app, (), Clock())
    for number in range(MAX_CLIENTS + 10):
        assert guard._spend(str(number))
    assert len(guard._clients) == MAX_CLIENTS


def test_a_long_target_is_refused() -> None:
    client = TestClient(Guard(app, ()), base_url="http://localhost")
    assert client.get("/?" + "x" * 3_000).status_code == 414
