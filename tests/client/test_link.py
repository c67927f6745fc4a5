"""Faults between client and console: what is tried again, what is not, and what is said."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.console.fleet import CLUSTER, Fleet, source_of, watching
from tests.console.setup import certificate, serving
from trimtab_client import Access, BadAccess, BadAnswer, Client, ProblemError, Unreachable, access_from, link, token_in
from trimtab_client.link import Link
from trimtab_console.server import application
from trimtab_protocol.console_documents import ChangeDocument, ClusterDocument, LiveChange


@dataclass
class Played:
    """A server that gives answers in the order in which a test lists them, and keeps the requests with their bodies."""

    address: str
    requests: list[str] = field(default_factory=list)

    def header(self, name: str) -> list[str | None]:
        """The header of each request."""
        found = []
        for request in self.requests:
            rows = dict(line.split(": ", 1) for line in request.partition("\r\n\r\n")[0].split("\r\n")[1:])
            found.append(rows.get(name))
        return found


def answer(status: int, body: str, *headers: str, kind: str = "application/json") -> bytes:
    lines = [f"HTTP/1.1 {status} Text", f"content-type: {kind}", f"content-length: {len(body)}", "connection: close"]
    return "\r\n".join([*lines, *headers, "", body]).encode()


def problem(status: int, detail: str, *headers: str) -> bytes:
    body = f'{{"type": "about:blank", "title": "Title", "status": {status}, "detail": "{detail}", "further": 1}}'
    return answer(status, body, *headers, kind="application/problem+json")


@contextmanager
def playing(*answers: bytes | None) -> Iterator[Played]:
    """The server; b"" closes the connection without an answer, None says nothing and keeps it open."""
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        played = Played(address=f"http://127.0.0.1:{listening.getsockname()[1]}")

        def run() -> None:
            with ExitStack() as silent:
                for each in answers:
                    connection, _ = listening.accept()
                    if ended.is_set():
                        connection.close()
                        return
                    played.requests.append(_request(connection))
                    if each is None:
                        silent.enter_context(connection)
                    else:
                        with connection:
                            connection.sendall(each)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield played
        finally:
            ended.set()
            while thread.is_alive():  # it may still wait for a request that did not come
                with socket.create_connection(listening.getsockname()):
                    thread.join(0.1)


def _request(connection: socket.socket) -> str:
    received = b""
    while b"\r\n\r\n" not in received:
        received += connection.recv(65_536)
    head, _, body = received.partition(b"\r\n\r\n")
    lengths = [int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    while len(body) < sum(lengths):
        body += connection.recv(65_536)
    return (head + b"\r\n\r\n" + body).decode()


# --- what a link does with its answers


GOOD = answer(200, json.dumps({"cluster": "prod", "version": 1, "at": 1.5, "read": True, "fault": None, "newer": {}}))
CHANGE = {"action": "pause", "text": "t", "caveats": [], "intents": ["pause"], "written": True, "by": "ann"}
EVENT = 'event: change\ndata: {"version": 7, "at": 3}\n\n'


class Time:
    """A clock that only waiting moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waits: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def linked(time: Time) -> Callable[..., Link]:
    def made(address: str, **access: object) -> Link:
        return Link(Access(address=address, **access), patience_s=10.0, clock=time, sleep=time.sleep)

    return made


def test_a_read_is_tried_again_and_what_it_does_not_know_is_ignored(linked: Callable[..., Link], time: Time) -> None:
    with playing(b"", problem(503, "not yet"), problem(429, "too many", "retry-after: 3"), GOOD) as played:
        found = linked(played.address, token="secret").get(ClusterDocument, "cluster")
    assert found == ClusterDocument(cluster="prod", version=1, at=1.5, read=True, fault=None)
    assert time.waits == [0.5, 1.0, 3.0]
    assert played.header("authorization") == ["Bearer secret"] * 4


def test_a_change_is_sent_again_with_its_key(linked: Callable[..., Link]) -> None:
    with playing(b"", problem(503, "not stored"), answer(200, json.dumps(CHANGE))) as played:
        body = {"reason": "x", "dry_run": False}
        done = linked(played.address).post(ChangeDocument, "intents", "pause", body=body, key="k1")
    assert done.written
    assert played.header("idempotency-key") == ["k1"] * 3
    assert len(set(played.requests)) == 1


@pytest.mark.parametrize("code", [400, 401, 403, 404, 409, 422, 500])
def test_what_would_be_refused_again_is_not_tried_again(linked: Callable[..., Link], time: Time, code: int) -> None:
    with playing(problem(code, "no")) as played, pytest.raises(ProblemError, match=f"{code} Title: no"):
        linked(played.address).get(ClusterDocument, "cluster")
    assert time.waits == []


def test_patience_has_an_end(linked: Callable[..., Link], time: Time) -> None:
    with playing(*[problem(503, "not yet")] * 9) as played, pytest.raises(ProblemError, match="503"):
        linked(played.address).get(ClusterDocument, "cluster")
    assert time.waits == [0.5, 1.0, 2.0, 5.0]
    with playing(problem(429, "no", "retry-after: 3600")) as played, pytest.raises(ProblemError) as refused:
        linked(played.address).get(ClusterDocument, "cluster")
    assert (refused.value.retry_after_s, len(time.waits)) == (3600.0, 4)


def test_nobody_there_and_no_answer(linked: Callable[..., Link], time: Time, monkeypatch: pytest.MonkeyPatch) -> None:
    with playing() as played:
        pass
    with pytest.raises(Unreachable, match=played.address):
        linked(played.address).get(ClusterDocument, "cluster")
    assert time.waits == [0.5, 1.0, 2.0, 5.0]
    monkeypatch.setattr(link, "ANSWER_LIMIT_S", 0.2)
    with playing(None, *[GOOD] * 4) as played:  # on a busy machine the first answer may come too late as well
        assert linked(played.address).get(ClusterDocument, "cluster").version == 1
    assert time.waits[4:5] == [0.5]


def test_the_key_of_a_change_without_an_answer_is_told() -> None:
    with (
        playing(b"") as played,
        Client(Access(address=played.address), patience_s=0) as client,
        pytest.raises(Unreachable) as lost,
    ):
        client.pause(reason="x")
    assert [lost.value.key] == played.header("idempotency-key")


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (answer(200, "<html>"), "answer: found b'<html>', expected JSON"),
        (answer(200, "[]"), "answer: found an array, expected an object"),
        (answer(200, '{"cluster": "c"}'), "answer.version: missing, expected"),
        (
            answer(200, '{"cluster": "c", "version": true, "at": 1, "read": true, "fault": null}'),
            "answer.version: found true or false, expected a whole number",
        ),
        (answer(502, "<html>", kind="text/html"), "502 Text: the answer has no problem details"),
        (answer(404, "{}", kind="application/problem+json"), "404 Text: the answer has no problem details"),
        (answer(307, "", "location: http://elsewhere.example/"), "307 Text"),
    ],
)
def test_an_answer_of_something_else_is_named(sent: bytes, told: str) -> None:
    with (
        playing(sent) as played,
        Client(Access(address=played.address), patience_s=0) as client,
        pytest.raises((BadAnswer, ProblemError)) as refused,
    ):
        client.cluster()
    assert told in str(refused.value)


def test_an_answer_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "MAX_ANSWER_BYTES", 50)
    with (
        playing(GOOD) as played,
        Client(Access(address=played.address), patience_s=0) as client,
        pytest.raises(BadAnswer, match="more than 50 bytes"),
    ):
        client.cluster()


def test_a_stream_that_breaks_is_opened_again(linked: Callable[..., Link], time: Time) -> None:
    stream = answer(200, EVENT, kind="text/event-stream")
    with playing(stream, problem(503, "32 browsers"), b"", stream, problem(401, "no")) as played:
        changes = linked(played.address).changes()
        assert [next(changes), next(changes)] == [LiveChange(version=7, at=3)] * 2
        assert time.waits == [0.5, 1.0, 2.0]
        with pytest.raises(ProblemError, match="401"):
            next(changes)
    assert time.waits == [0.5, 1.0, 2.0, 0.5]


def test_only_a_certificate_of_the_named_ca_is_trusted(
    linked: Callable[..., Link], time: Time, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "CONNECT_LIMIT_S", 240.0)  # a handshake on a machine that is busy with others
    own, other = certificate(tmp_path, "own"), certificate(tmp_path, "other")
    with serving(application(source_of(watching(Fleet()))), own) as address:
        assert linked(address, ca=own.certificate).get(ClusterDocument, "cluster").cluster == CLUSTER
        for access in ({}, {"ca": other.certificate}):
            with pytest.raises(Unreachable, match="certificate verify failed"):
                linked(address, **access).get(ClusterDocument, "cluster")
    assert time.waits == [], "the same would happen again"


def test_a_ca_that_cannot_be_read_is_named(linked: Callable[..., Link], tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    with pytest.raises(BadAccess, match=r"ca\.pem: No such file"):
        linked("https://localhost", ca=path)
    path.write_text("x")
    with pytest.raises(BadAccess, match=r"ca\.pem: .*expected certificates as PEM"):
        linked("https://localhost", ca=path)


def test_proxies_of_the_environment_see_nothing(linked: Callable[..., Link], monkeypatch: pytest.MonkeyPatch) -> None:
    with playing() as elsewhere:
        pass
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, elsewhere.address)
    with playing(GOOD) as played:
        assert linked(played.address, token="secret").get(ClusterDocument, "cluster").version == 1


# ---- address, token and CA: from arguments, files and the environment


@pytest.mark.parametrize(
    "address", ["https://console.example", "https://console.example:8750/", "http://127.0.0.1:8750", "http://[::1]:1"]
)
def test_a_token_goes_by_tls_or_stays_on_this_machine(address: str) -> None:
    assert "secret" not in repr(Access(address=address, token="secret"))


@pytest.mark.parametrize(
    ("address", "token", "told"),
    [
        ("http://console.example:8750", "secret", "a token is sent by https only"),
        ("http://localhost.example", "secret", "a token is sent by https only"),
        ("console.example:8750", None, "expected one like https://console.example:8750"),
        ("ftp://console.example", None, "expected one like"),
        ("https://", None, "expected one like"),
        ("https://console.example:x", None, "address: found"),
        ("https://console.example/?q", None, "expected one like"),
        ("https://ann:hunter2@console.example", None, "expected one like"),
        ("https://console.example", "", "token: found 0 characters"),
        ("https://console.example", "a\r\nb: c", "token: found 7 characters"),
        ("https://console.example", "ä", "expected 1 to 4000 printable ASCII characters"),
    ],
)
def test_what_cannot_be_used_is_said_without_its_secrets(address: str, token: str | None, told: str) -> None:
    with pytest.raises(BadAccess) as refused:
        Access(address=address, token=token)
    assert told in str(refused.value)
    assert "secret" not in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_a_token_file_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "token"
    with pytest.raises(BadAccess, match=r"token: No such file"):
        token_in(path)
    path.write_text("trimtab_x\n")
    path.chmod(0o640)
    with pytest.raises(BadAccess, match="found mode 0640, expected 0600"):
        token_in(path)
    path.chmod(0o600)
    assert token_in(path) == "trimtab_x"
    path.write_bytes(b"\xff")
    with pytest.raises(BadAccess, match="not text"):
        token_in(path)


def test_the_environment_names_all_of_it(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("from file")
    path.chmod(0o600)
    console = {"TRIMTAB_CONSOLE": "https://console.example", "TRIMTAB_CONSOLE_CA": "/ca.pem"}
    expected = Access(address="https://console.example", ca=Path("/ca.pem"))
    assert access_from(console) == expected
    assert access_from({**console, "TRIMTAB_CONSOLE_TOKEN": "t", "TRIMTAB_CONSOLE_TOKEN_FILE": ""}).token == "t"
    assert access_from({**console, "TRIMTAB_CONSOLE_TOKEN_FILE": str(path)}).token == "from file"
    with pytest.raises(BadAccess, match="TRIMTAB_CONSOLE: found nothing"):
        access_from({})
    with pytest.raises(BadAccess, match="expected one of them"):
        access_from({**console, "TRIMTAB_CONSOLE_TOKEN": "t", "TRIMTAB_CONSOLE_TOKEN_FILE": "f"})
