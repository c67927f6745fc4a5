"""The pages as files: nothing inline, nothing from elsewhere, the vendored library as it was published."""

import hashlib
import re

import pytest
from fastapi.testclient import TestClient

from tests.console.fleet import Fleet, source_of, watching
from trimtab_console.server import WEB, application

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
    return TestClient(application(source_of(watching(Fleet()))), base_url="http://localhost")


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
