"""Floods, who sends nothing, who claims to be somebody else, and forgetting who asked."""

import asyncio
import json
import logging
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path

import pytest
import uvicorn
from fastapi.testclient import TestClient
from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send

from tests.console.fleet import APP
from tests.console.setup import Setup, bearer, certificate, running
from trimtab_console import connection
from trimtab_console.command import settings_of
from trimtab_console.configuration import ConsoleTls, load
from trimtab_console.connection import MAX_CONNECTIONS
from trimtab_console.guard import AT_ONCE, MAX_CLIENTS, PER_S, Guard
from trimtab_console.why import AT_ONCE as LOOKS_AT_ONCE
from trimtab_console.why import CannotSayError
from trimtab_sandbox.broker import free_ports


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


@contextmanager
def served(setup: Setup, folder: Path, tls: ConsoleTls | None = None) -> Iterator[int]:
    """The port of the console as `trimtab console` serves it."""
    (port,) = free_ports(1)
    path = folder / "console.toml"
    text = f'[console]\ncluster = "prod"\nport = {port}\n[kafka]\nbootstrap_servers = "127.0.0.1:1"\n'
    text += f'[tls]\ncertificate = "{tls.certificate}"\nkey = "{tls.key}"\n' if tls else ""
    path.write_text(text)
    source = setup.client.app.state.source  # type: ignore[attr-defined]
    with running(uvicorn.Server(settings_of(load(path), source))):
        yield port


def status(port: int, path: str = "/", **headers: str) -> int:
    with closing(HTTPConnection("127.0.0.1", port, timeout=60)) as link:
        link.request("GET", path, headers=headers)
        return link.getresponse().status


def test_who_sends_nothing_keeps_nobody_out_and_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = Setup(tmp_path)
    with served(setup, tmp_path) as port, ExitStack() as silent:
        links = []
        for number in range(MAX_CONNECTIONS + 10):
            begun = b"" if number % 2 else b"GET / HTTP/1.1\r\nHost: localhost\r\nX-A: "
            source = (f"127.0.0.{2 + number % 3}", 0)
            links.append(silent.enter_context(socket.create_connection(("127.0.0.1", port), 60, source)))
            links[-1].sendall(begun)
        assert [status(port) for _ in range(3)] == [200] * 3
    monkeypatch.setattr(connection, "RECEIVE_LIMIT_S", 0.2)
    with served(setup, tmp_path) as port:
        for begun in (
            b"",
            b"GET / HT",
            b"POST /api/v1/session HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{",
            b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\nPOST /api/v1/session HTTP/1.1\r\nHost: localhost\r\n"
            b"X-Requested-With: trimtab\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{",
        ):
            with socket.create_connection(("127.0.0.1", port), 60) as link:
                link.sendall(begun)
                while ended(link) is False:
                    pass


def test_who_begins_no_handshake_keeps_nobody_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("MAX_CONNECTIONS", "MAX_PER_ADDRESS"):
        monkeypatch.setattr(connection, limit, 4)
    monkeypatch.setattr(connection, "RECEIVE_LIMIT_S", 600.0)  # on a slow machine the last one would be ended for that
    files = certificate(tmp_path, "tls")
    trusted = ssl.create_default_context(cafile=str(files.certificate))
    with served(Setup(tmp_path), tmp_path, files) as port, ExitStack() as silent:
        asked = silent.enter_context(closing(HTTPSConnection("localhost", port, timeout=60, context=trusted)))
        asked.connect()
        links = [silent.enter_context(socket.create_connection(("localhost", port), 60)) for _ in range(6)]
        assert all(map(ended, links[:2])), "those that have waited longest"
        asked.request("GET", "/")
        assert asked.getresponse().status == 200, "whoever has finished a handshake is not ended for it"
        links[-1].setblocking(False)
        with pytest.raises(BlockingIOError):
            links[-1].recv(1)


def ended(link: socket.socket) -> bool:
    try:
        return link.recv(1_000) == b""
    except ConnectionResetError:
        return True


def test_who_is_not_known_is_refused_before_the_body_arrives(tmp_path: Path) -> None:
    head = "POST /api/v1/intents/pause HTTP/1.1\r\nHost: localhost\r\nAuthorization: {}\r\nContent-Length: 99\r\n\r\n{{"
    with served(Setup(tmp_path), tmp_path) as port:
        for token, code in (("Bearer x", b"401"), (bearer("vera")["authorization"], b"403")):
            with socket.create_connection(("127.0.0.1", port), 60) as link:
                link.sendall(head.format(token).encode())
                assert link.recv(100).startswith(b"HTTP/1.1 " + code)


def test_the_address_is_that_of_the_connection(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with served(Setup(tmp_path), tmp_path) as port, closing(HTTPConnection("127.0.0.1", port, timeout=60)) as link:
        headers = {**bearer("ann"), "content-type": "application/json", "idempotency-key": "1"}
        headers["X-Forwarded-For"] = "10.9.8.7"
        link.request("POST", "/api/v1/intents/pause", json.dumps({"reason": "test"}), headers)
        assert link.getresponse().status == 200
    told = [record.fields["address"] for record in caplog.records if hasattr(record, "fields")]
    assert told == ["127.0.0.1"], "it chooses the limits, and stands in the log"


def test_readers_who_wait_for_the_topics_are_few_and_changes_do_not_wait_for_them(tmp_path: Path) -> None:
    setup = Setup(tmp_path)
    source, goes_on = setup.client.app.state.source, threading.Event()  # type: ignore[attr-defined]
    looks = []

    def look(now: float) -> object:
        looks.append(now)
        goes_on.wait(60)
        raise CannotSayError("the broker is away")

    source.explainer._look = look
    codes: list[int] = []
    with served(setup, tmp_path) as port:
        ask_why = lambda: codes.append(status(port, "/api/v1/why/orders/by/1", **bearer("vera")))  # noqa: E731
        asking = [threading.Thread(target=ask_why) for _ in range(60)]
        for thread in asking:
            thread.start()
        while len(codes) < len(asking) - LOOKS_AT_ONCE:
            assert any(thread.is_alive() for thread in asking)
        with closing(HTTPConnection("127.0.0.1", port, timeout=60)) as link:
            headers = {**bearer("ann"), "content-type": "application/json", "idempotency-key": "1"}
            link.request("POST", "/api/v1/intents/stop", json.dumps({"reason": "test", "pause": True}), headers)
            assert link.getresponse().status == 200
        goes_on.set()
        for thread in asking:
            thread.join(60)
    assert (codes, len(looks)) == ([503] * len(asking), 1), "a failure serves those who wait, too"


def test_an_answer_to_a_fault_of_ours_has_the_headers_of_all_others(tmp_path: Path) -> None:
    setup = Setup(tmp_path)
    setup.watch.history = lambda app: 1 / 0  # type: ignore[assignment, return-value]
    answer = setup.client.get(f"/api/v1/apps/{APP}/history", headers=bearer("vera"))
    assert (answer.status_code, answer.headers["x-content-type-options"]) == (500, "nosniff")


@pytest.mark.parametrize(
    ("headers", "code"),
    [({"origin": "https://localhost:8750"}, 200), ({"origin": "ftp://localhost:8750"}, 403),
     ({"host": "localhost:²"}, 421)],
)  # fmt: skip
def test_what_a_header_may_have(headers: dict[str, str], code: int, tmp_path: Path) -> None:
    told = {key: value.encode("latin-1") for key, value in {**bearer("ann"), **headers}.items()}
    answer = Setup(tmp_path).client.post(
        "/api/v1/intents/pause", json={"reason": "é" * 2, "dry_run": True}, headers=told
    )
    assert answer.status_code == code
