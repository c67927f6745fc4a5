"""Who may ask for changes over the API: roles, sessions of browsers, and other sites."""

from pathlib import Path
from typing import Any

import pytest

from tests.console.asking import bearer, told
from tests.console.setup import BASE, SECRETS, Setup

OURS = {"x-requested-with": "trimtab", "origin": BASE, "sec-fetch-site": "same-origin"}


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup(tmp_path)


def test_viewers_read_and_others_do_not_even_read(setup: Setup) -> None:
    assert setup.client.get("/api/v1/cluster", headers=bearer("vera")).status_code == 200
    assert told(setup.ask("pause", {}, key="k", who="vera"), 403) == "found the role viewer, expected operator"
    for headers in (
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": "Basic YTpi"},
        {"cookie": "trimtab-session=x"},
    ):
        for path in ("cluster", "live", "apps", "runbooks/paused", "plans"):
            response = setup.client.get(f"/api/v1/{path}", headers=headers)
            if response.status_code != 429:
                told(response, 401)
                assert response.headers["www-authenticate"] == "Bearer"
    assert told(setup.client.post("/api/v1/intents/pause", json={"reason": "x"}, headers=OURS), 401)
    assert setup.topic.written == []


def log_in(setup: Setup, who: str, **further: str) -> Any:
    return setup.client.post("/api/v1/session", json={"token": SECRETS[who]}, headers={**OURS, **further})


def test_a_browser_logs_in_changes_something_and_logs_out(setup: Setup) -> None:
    response = log_in(setup, "ann")
    cookie = response.headers["set-cookie"]
    assert {part.strip() for part in cookie.split(";")} >= {"HttpOnly", "Max-Age=28800", "Path=/", "SameSite=strict"}
    assert "Secure" not in cookie
    assert SECRETS["ann"] not in response.text + cookie
    found = setup.client.get("/api/v1/session").json()
    assert (found["name"], found["may_change"], found["why_not"], found["failed_logins"]) == ("ann", True, None, 0)
    headers = {**OURS, "idempotency-key": "k"}
    assert setup.client.post("/api/v1/intents/pause", json={"reason": "x"}, headers=headers).json()["by"] == "ann"
    assert setup.client.delete("/api/v1/session", headers=OURS).status_code == 204
    assert told(setup.client.get("/api/v1/cluster"), 401)
    setup.client.cookies.set("trimtab-session", cookie.split(";")[0].partition("=")[2])
    assert told(setup.client.get("/api/v1/cluster"), 401), "an old cookie is of no use"
    assert setup.client.get("/api/v1/session").json()["why_not"] == "nobody is logged in"


def test_behind_tls_the_cookie_goes_over_tls_only(tmp_path: Path) -> None:
    setup = Setup(tmp_path)
    setup.client.base_url = "http://localhost"
    response = log_in(setup, "ann", origin="https://localhost", host="localhost")
    assert "Secure" in response.headers["set-cookie"]


def test_wrong_tokens_are_told_to_wait(setup: Setup) -> None:
    codes = [setup.client.post("/api/v1/session", json={"token": "x"}, headers=OURS).status_code for _ in range(7)]
    assert codes == [401] * 5 + [429] * 2
    assert log_in(setup, "ann").json()["failed_logins"] == 7
    assert log_in(setup, "vera").json()["failed_logins"] is None


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"origin": "https://evil.example"}, "found the Origin 'https://evil.example'"),
        ({"origin": "http://localhost:9999"}, "found the Origin"),
        ({"origin": "null"}, "found the Origin 'null'"),
        ({"sec-fetch-site": "cross-site"}, "another site asked for this"),
        ({"sec-fetch-site": "same-site"}, "another site asked for this"),
        ({"sec-fetch-site": "none"}, "another site asked for this"),
        ({"x-requested-with": ""}, "X-Requested-With"),
        ({"x-requested-with": "XMLHttpRequest"}, "X-Requested-With"),
    ],
)
def test_another_site_changes_nothing_through_a_browser(setup: Setup, changed: dict[str, str], text: str) -> None:
    log_in(setup, "ann")
    headers = {**OURS, "idempotency-key": "k", **changed}
    assert text in told(setup.client.post("/api/v1/intents/pause", json={"reason": "x"}, headers=headers), 403)
    assert setup.topic.written == []
    with_token = {**headers, **bearer("ann")}
    if "x-requested-with" not in changed:
        assert text in told(setup.client.post("/api/v1/intents/pause", json={"reason": "x"}, headers=with_token), 403)


def test_a_password_that_a_browser_sends_by_itself_is_no_token(setup: Setup) -> None:
    log_in(setup, "ann")
    headers = {"authorization": "Basic YTpi", "idempotency-key": "k"}
    response = setup.client.post("/api/v1/intents/pause", json={"reason": "x"}, headers=headers)
    assert "X-Requested-With" in told(response, 403)
