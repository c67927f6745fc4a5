"""The web application around the API: pages, TLS, and the stream of changes."""

import asyncio
import hashlib
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import urllib.request
from contextlib import closing
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from fastapi.testclient import TestClient

from tests.console.fleet import TOPICS, Fleet, source_of, watching
from tests.console.setup import Setup, bearer, client_of, running, serving
from tests.console.setup import certificate as make
from tests.kafka_record import Record
from tests.paths import ROOT
from trimtab_console.api.live import MAX_OF_PERSON, MAX_STREAMS, changes
from trimtab_console.command import check_tls, in_a_line, settings_of
from trimtab_console.configuration import ConsoleTls, load
from trimtab_console.server import WEB, application
from trimtab_console.watch import Known
from trimtab_controller.cli import main
from trimtab_process.toml_files import BadConfiguration
from trimtab_protocol.messages.intents import PAUSE_KEY
from trimtab_sandbox.broker import free_ports

OURS = sorted(path for path in WEB.rglob("*") if path.suffix in (".js", ".css", ".html") and "vendor" not in path.parts)


def test_the_vendored_files_are_those_of_the_checksums() -> None:
    vendor = WEB / "vendor"
    lines = (vendor / "SHA256SUMS").read_text().splitlines()
    sums = {name: digest for digest, name in (line.split() for line in lines)}
    assert set(sums) == {path.name for path in vendor.iterdir()} - {"SHA256SUMS"}
    for name, digest in sums.items():
        assert hashlib.sha256((vendor / name).read_bytes()).hexdigest() == digest, name


def test_nothing_is_inline_and_nothing_comes_from_elsewhere() -> None:
    html = (WEB / "index.html").read_text()
    assert re.findall(r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\bon[a-z]+=", html) == []
    for path in OURS:
        assert re.findall(r"https?://|innerHTML|insertAdjacentHTML|\beval\(", path.read_text()) == [], path.name


def test_all_modules_of_the_first_page_are_asked_for_at_once() -> None:
    """Else the browser finds them one after the other, as their importers arrive."""
    found, waiting = set[str](), ["main.js", "cluster.js"]
    while waiting:
        name = waiting.pop()
        found.add(name)
        imported = re.findall(r'^import .* from "\./([^"]+)"', (WEB / "js" / name).read_text(), re.MULTILINE)
        waiting += [each for each in imported if each not in found]
    preloaded = re.findall(r'<link rel="modulepreload" href="js/([^"]+)">', (WEB / "index.html").read_text())
    assert sorted(preloaded) == sorted(found - {"main.js"})


def test_every_page_is_a_module_with_a_function_of_its_name() -> None:
    main = (WEB / "js" / "main.js").read_text()
    (titles,) = re.findall(r"^const TITLES = \{(.+)\};$", main, re.MULTILINE)
    pages = re.findall(r"(\w+): ", titles)
    assert pages == re.findall(r'href="#/(\w+)"', (WEB / "index.html").read_text())
    for page in pages:
        assert f"export function {page}(" in (WEB / "js" / f"{page}.js").read_text(), page


@pytest.fixture
def client() -> TestClient:
    return client_of(watching(Fleet()))


@pytest.mark.parametrize(
    ("path", "file", "kind"),
    [
        ("/", "index.html", "text/html; charset=utf-8"),
        ("/js/main.js", "js/main.js", "text/javascript; charset=utf-8"),
        ("/icon.svg", "icon.svg", "image/svg+xml"),
        ("/vendor/uPlot.LICENSE", "vendor/uPlot.LICENSE", "text/plain; charset=utf-8"),
    ],
)
def test_a_file_is_served_as_it_is_and_kept_by_browsers(client: TestClient, path: str, file: str, kind: str) -> None:
    for encoding in ("gzip, br", "identity"):
        answer = client.get(path, headers={"accept-encoding": encoding})
        assert (answer.status_code, answer.content) == (200, (WEB / file).read_bytes())
        assert (answer.headers.get("content-encoding") == "gzip") == encoding.startswith("gzip")
        assert (answer.headers["content-type"], answer.headers["cache-control"]) == (kind, "no-cache")
        assert "content-security-policy" in answer.headers
    again = client.get(path, headers={"if-none-match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert client.get(path, headers={"if-none-match": '"older"'}).status_code == 200


@pytest.mark.parametrize(
    "path", ["/nothing", "/js", "/js/", "/../server.py", "/js/..%2f..%2fserver.py", "//etc/passwd"]
)
def test_nothing_else_is_served(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")
    assert client.post("/", headers={"authorization": "Bearer x"}).status_code == 405


def test_every_module_that_is_imported_exists() -> None:
    for path in OURS:
        for name in re.findall(r'(?:from |import\()"(\.[^"]+)"', path.read_text()):
            assert (path.parent / name).resolve().is_file(), f"{path.name}: {name}"


def test_every_action_says_where_to_watch_it_and_is_one_of_the_api(client: TestClient) -> None:
    texts = {path.name: path.read_text() for path in OURS if path.suffix == ".js"}
    actions = {name for text in texts.values() for name in re.findall(r'\baction: "([a-z-]+)"', text)}
    watched = re.search(r"const WATCH = {(.*?)^};", texts["actions.js"], re.MULTILINE | re.DOTALL)
    assert watched is not None
    assert set(re.findall(r'^  "?([a-z-]+)"?: \[', watched[1], re.MULTILINE)) == actions
    paths = client.get("/api/v1/openapi.json").json()["paths"]
    assert {path.rpartition("/")[2] for path in paths if path.startswith("/api/v1/intents/")} == actions


# --- tls --------------------------------------------------------------------------------------------------------------


def told(files: ConsoleTls) -> str:
    with pytest.raises(BadConfiguration) as refused:
        check_tls(files)
    return str(refused.value)


def test_files_that_cannot_be_used_are_refused_before_it_listens(tmp_path: Path) -> None:
    one, other = make(tmp_path, "one"), make(tmp_path, "other")
    check_tls(one)
    assert "expected a certificate and its key" in told(ConsoleTls(certificate=one.certificate, key=other.key))
    assert "expected a certificate and its key" in told(ConsoleTls(certificate=one.key, key=one.key))
    assert "not encrypted" in told(make(tmp_path, "sealed", password=b"secret"))
    assert (
        told(ConsoleTls(certificate=tmp_path / "none", key=one.key))
        == f"{tmp_path / 'none'}: No such file or directory"
    )
    one.key.chmod(0o640)
    assert told(one) == f"{one.key}: found mode 0640, expected 0600: others can use it"


def test_browsers_reach_it_by_tls(tmp_path: Path) -> None:
    files, (port,) = make(tmp_path, "one"), free_ports(1)
    path = tmp_path / "console.toml"
    path.write_text(
        f'[console]\ncluster = "prod"\naddress = "0.0.0.0"\nport = {port}\nhosts = ["localhost"]\n'
        f'[access]\ntokens = "{tmp_path}/tokens.toml"\n'
        f'[tls]\ncertificate = "{files.certificate}"\nkey = "{files.key}"\n'
        '[kafka]\nbootstrap_servers = "127.0.0.1:1"\n'
    )
    configuration = load(path)
    assert configuration.url == f"https://0.0.0.0:{port}/"
    server = uvicorn.Server(settings_of(configuration, source_of(watching(Fleet()))))
    with running(server):
        context = ssl.create_default_context(cafile=str(files.certificate))
        with urllib.request.urlopen(f"https://localhost:{port}/api/v1/cluster", context=context, timeout=10) as answer:
            assert answer.status == 200


# --- live -------------------------------------------------------------------------------------------------------------


def test_a_change_is_told_with_its_version() -> None:
    watch = watching(Fleet())
    source = source_of(watch)

    async def read() -> list[bytes]:
        stream = changes(source, lambda: True)
        first = await anext(stream)
        watch.take(Record(TOPICS.intents, None, PAUSE_KEY.encode()))
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


# ---- `trimtab console` as a process under a service manager


LIMIT_S = 60.0
PROGRAM = "from trimtab_controller.cli import main; raise SystemExit(main())"


def test_it_tells_systemd_when_it_serves_and_ends_on_sigterm(tmp_path: Path) -> None:
    [port] = free_ports(1)
    (tmp_path / "console.toml").write_text(
        f'[console]\ncluster = "c"\nport = {port}\n[kafka]\nbootstrap_servers = "127.0.0.1:9"\n'
    )
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(LIMIT_S)
        command = [sys.executable, "-c", PROGRAM, "console", "--config", str(tmp_path / "console.toml")]
        environment = {**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "4000000"}
        with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as process:
            try:
                told = [manager.recv(4096).decode() for _ in range(2)]
                opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
                assert opener.open(f"http://127.0.0.1:{port}/", timeout=LIMIT_S).status == 200
                process.send_signal(signal.SIGTERM)
                assert process.wait(LIMIT_S) == 0
            finally:
                process.kill()
    assert all(message.startswith("READY=1\nWATCHDOG=1\nSTATUS=") for message in told)
    assert "cluster c" in told[0]


def test_what_systemd_shows_of_it() -> None:
    known = watching(Fleet()).known
    seen = known.seen(0.0)
    assert seen
    assert in_a_line("c", Known(), 0.0) == "reads the topics of cluster c"
    assert in_a_line("c", Known(read=True), 0.0) == "no controller has reported on cluster c yet"
    away = Known(fault="Connection refused")
    assert in_a_line("c", away, 0.0) == "the topics of cluster c cannot be read: Connection refused"
    text = in_a_line("c", replace(known, read=True), seen.status.at + 3.0)
    assert text == "shows cluster c; the last status is 3 s old"


# ---- console.toml: what is refused, and with which words


KAFKA = '[kafka]\nbootstrap_servers = "127.0.0.1:1"\n'


def write(folder: Path, console: str) -> Path:
    path = folder / "console.toml"
    path.write_text(f"[console]\n{console}\n{KAFKA}")
    return path


def test_the_sample_is_accepted_as_it_stands() -> None:
    found = load(ROOT / "deploy" / "samples" / "console.toml")
    assert (found.cluster, found.address, found.port) == ("demo", "127.0.0.1", 8750)
    assert (found.hosts, found.trust_file) == ((), None)


@pytest.mark.parametrize(
    ("console", "told"),
    [
        ('cluster = "a"\naddress = "0.0.0.0"', "console.address: found '0.0.0.0', expected 127.0.0.1 or ::1"),
        ('cluster = "a"\naddress = "example.com"', "console.address: found 'example.com', expected an IP address"),
        ('cluster = "a"\naddress = "0.0.0.0"\n[access]\ntokens = "t"', "any other address needs [tls] and [access]"),
        ('cluster = "a"\n[access]', "access.tokens: missing"),
        ('cluster = "a"\n[access]\ntokens = "/nowhere/t"', "/nowhere/t: No such file or directory"),
        ('cluster = "a"\n[tls]\ncertificate = "c"', "tls.key: missing"),
        ('cluster = "a"\n[tls]\ncertificate = "c"\nkey = "/nowhere/k"', "/nowhere/k: No such file or directory"),
        ('cluster = "a"\nport = 0', "console.port: found 0, expected"),
        ('cluster = "a"\nhosts = ["a:80"]', "console.hosts[0]: found 'a:80', expected the name of a host"),
        ('cluster = "a"\ntokens = 1', "console.tokens: found a whole number"),
        ("", "console.cluster: missing"),
    ],
)
def test_what_cannot_be_used_is_refused_with_exit_code_2(
    console: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, console)
    assert main(["console", "--config", str(path)]) == 2
    assert told in capsys.readouterr().err


def test_ipv6_and_further_names(tmp_path: Path) -> None:
    found: Any = load(write(tmp_path, 'cluster = "a"\naddress = "::1"\nport = 80\nhosts = ["OPS.example.com"]'))
    assert (found.address, found.port, found.hosts) == ("::1", 80, ("ops.example.com",))
