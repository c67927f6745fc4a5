"""Who may use the console, and who may change something."""

import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.console.setup import BASE, SECRETS, Setup, bearer, told
from trimtab_console.access.entrance import (
    FAILURES_AT_ONCE,
    FAILURES_PER_S,
    MAX_OF_TOKEN,
    MAX_SESSIONS,
    SESSION_S,
    Entrance,
    NotLetIn,
    Sessions,
    TooManyFailures,
)
from trimtab_console.access.tokens import (
    Token,
    TokenFile,
    TokenRole,
    decode_tokens,
    digest_of,
    new_secret,
    to_table,
)
from trimtab_controller.cli import main
from trimtab_process.toml_files import BadConfiguration

NOW = 1_800_000_000.0
SECRET = new_secret()
ANN = Token(name="ann", role=TokenRole.OPERATOR, digest=digest_of(SECRET))
HERE = "127.0.0.1"


class Clock:
    now = NOW

    def __call__(self) -> float:
        return self.now


def write(path: Path, *tokens: Token, mode: int = 0o600) -> Path:
    path.write_text("\n".join(map(to_table, tokens)))
    path.chmod(mode)
    return path


def test_a_secret_has_256_bits_and_is_not_in_the_file() -> None:
    assert len({new_secret() for _ in range(100)}) == 100
    assert len(SECRET) == len("trimtab_") + 43
    assert SECRET not in to_table(ANN)


def test_tokens_are_read_as_they_were_written() -> None:
    until = Token(name="bot", role=TokenRole.VIEWER, digest=digest_of("x"), expires=NOW)
    text = to_table(ANN) + to_table(until)
    assert decode_tokens(tomllib.loads(text)) == (ANN, until)
    assert tomllib.loads(text)["token"][1]["expires"] == datetime.fromtimestamp(NOW, UTC)
    assert decode_tokens({}) == ()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            to_table(ANN) + to_table(ANN).replace(ANN.digest, digest_of("y")),
            "token[1].name: found 'ann', expected each",
        ),
        (to_table(ANN) + to_table(ANN).replace("ann", "bob"), "token[1].sha256: found"),
        (to_table(ANN).replace("operator", "admin"), "role: found 'admin', expected one of viewer, operator"),
        (to_table(ANN).replace(ANN.digest, "secret"), "sha256: found '6 characters', expected 64 hexadecimal digits"),
        (to_table(ANN) + "expires = 2027-01-01", "expires: found a date, expected a date and time with its zone"),
        (to_table(ANN) + "word = 1", "token[0].word: found a whole number, expected no such field"),
        ("token = 3", "token: found a whole number, expected an array"),
        ("[[", "not TOML"),
    ],
)
def test_a_file_that_is_wrong_is_refused_and_its_secrets_are_not_shown(text: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(BadConfiguration) as refused:
        TokenFile(path, Clock())
    assert told in str(refused.value)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644])
def test_a_file_that_others_can_read_is_refused(mode: int, tmp_path: Path) -> None:
    path = write(tmp_path / "tokens.toml", ANN, mode=mode)
    with pytest.raises(BadConfiguration, match=rf"tokens.toml: found mode 0{mode:o}, expected 0600: others can use it"):
        TokenFile(path, Clock())


def test_a_change_of_the_file_counts_at_once_and_a_wrong_one_shuts_everybody_out(tmp_path: Path) -> None:
    path = write(tmp_path / "tokens.toml", ANN)
    file, bob = TokenFile(path, Clock()), Token(name="bob", role=TokenRole.VIEWER, digest=digest_of("b" * 43))
    assert file.find(ANN.digest) == ANN
    write(path, bob)
    assert (file.find(ANN.digest), file.find(bob.digest)) == (None, bob)
    path.write_text("token = 'what'")
    assert file.find(bob.digest) is None
    write(path, ANN, bob)
    assert file.find(ANN.digest) == ANN
    path.chmod(0o644)
    assert file.find(ANN.digest) is None
    path.unlink()
    assert file.find(bob.digest) is None


def test_a_token_ends_when_it_says(tmp_path: Path) -> None:
    clock = Clock()
    path = write(tmp_path / "tokens.toml", Token(name="a", role=TokenRole.VIEWER, digest=ANN.digest, expires=NOW + 10))
    entrance = Entrance(TokenFile(path, clock), clock)
    session, person = entrance.log_in(SECRET, HERE)
    assert (entrance.by_token(SECRET, HERE).name, person.role) == ("a", TokenRole.VIEWER)
    clock.now = NOW + 10
    assert entrance.by_session(session) is None
    with pytest.raises(NotLetIn):
        entrance.by_token(SECRET, HERE)


def test_a_session_ends_with_its_time_its_token_or_by_logging_out(tmp_path: Path) -> None:
    clock = Clock()
    path = write(tmp_path / "tokens.toml", ANN)
    entrance = Entrance(TokenFile(path, clock), clock)
    first, person = entrance.log_in(SECRET, HERE)
    second, _ = entrance.log_in(SECRET, HERE)
    third, _ = entrance.log_in(SECRET, HERE)
    assert (person.name, person.may_change, person.until) == ("ann", True, NOW + SESSION_S)
    entrance.log_out(first)
    assert [entrance.by_session(each) is not None for each in (first, second, third, "none")] == [
        False, True, True, False,
    ]  # fmt: skip
    clock.now = NOW + SESSION_S
    assert entrance.by_session(second) is None
    clock.now = NOW
    write(path)
    assert entrance.by_session(third) is None


def test_so_many_sessions_and_no_more() -> None:
    sessions = Sessions(Clock())
    names = [sessions.open(str(number))[0] for number in range(MAX_SESSIONS + 1)]
    assert len(sessions) == MAX_SESSIONS
    assert sessions.find(names[0]) is None
    assert sessions.find(names[-1]) is not None


def test_who_logs_in_again_and_again_logs_out_nobody_else() -> None:
    sessions = Sessions(Clock())
    of_ann, _ = sessions.open(ANN.digest)
    of_vera = [sessions.open("vera")[0] for _ in range(2 * MAX_SESSIONS)]
    assert sessions.find(of_ann) is not None
    assert [each for each in of_vera if sessions.find(each)] == of_vera[-MAX_OF_TOKEN:]


def test_failed_logins_are_counted_and_told_to_wait_but_a_right_token_is_let_in(tmp_path: Path) -> None:
    clock = Clock()
    entrance = Entrance(TokenFile(write(tmp_path / "tokens.toml", ANN), clock), clock)
    found: list[type[Exception]] = []
    for guess in ("", "wrong", "\ud800", "x" * 1_000, ANN.digest, *[new_secret() for _ in range(3)]):
        with pytest.raises(NotLetIn) as refused:
            entrance.log_in(guess, HERE)
        found.append(refused.type)
    assert found == [NotLetIn] * FAILURES_AT_ONCE + [TooManyFailures] * (8 - FAILURES_AT_ONCE)
    assert entrance.failed == 8
    assert entrance.by_token(SECRET, HERE).name == "ann"
    with pytest.raises(NotLetIn) as refused:
        entrance.by_token("wrong", "10.0.0.1")
    assert refused.type is NotLetIn, "another address"
    clock.now += 1 / FAILURES_PER_S
    with pytest.raises(NotLetIn) as refused:
        entrance.by_token("wrong", HERE)
    assert refused.type is NotLetIn


def test_without_a_file_no_token_is_right() -> None:
    with pytest.raises(NotLetIn, match="the console has no token file"):
        Entrance(None, Clock()).log_in(SECRET, HERE)


def configuration(folder: Path, access: str) -> Path:
    path = folder / "console.toml"
    path.write_text(f'[console]\ncluster = "a"\n{access}\n[kafka]\nbootstrap_servers = "127.0.0.1:1"\n')
    return path


def test_the_command_makes_a_token_that_is_let_in(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "tokens.toml"
    config = configuration(tmp_path, f'[access]\ntokens = "{file}"')
    call = ["console", "token", "--config", str(config)]
    assert main([*call, "ann", "--role", "operator"]) == 0
    first = capsys.readouterr()
    assert main([*call, "bot", "--days", "30"]) == 0
    second = capsys.readouterr()
    assert (file.stat().st_mode & 0o777, list(tmp_path.iterdir())) == (0o600, [config, file])
    clock = Clock()
    clock.now = 0.0
    entrance = Entrance(TokenFile(file, clock), clock)
    ann, bot = (entrance.by_token(each.out.strip(), HERE) for each in (first, second))
    assert [(each.name, each.role, each.until is None) for each in (ann, bot)] == [
        ("ann", TokenRole.OPERATOR, True),
        ("bot", TokenRole.VIEWER, False),
    ]
    assert first.out.strip() not in file.read_text()
    assert main([*call, "ann"]) == 1
    assert "found 'ann', expected each only once" in capsys.readouterr().err
    file.chmod(0o644)
    assert main([*call, "eve"]) == 1
    assert "found mode 0644, expected 0600" in capsys.readouterr().err


def test_the_command_says_what_it_lacks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = configuration(tmp_path, "")
    assert main(["console", "token", "ann", "--config", str(config)]) == 2
    assert "access.tokens: found nothing" in capsys.readouterr().err
    config = configuration(tmp_path, f'[access]\ntokens = "{tmp_path}/none/tokens.toml"')
    assert main(["console", "token", "ann", "--config", str(config)]) == 1
    assert main(["console", "token", 'a"b', "--config", str(config)]) == 2
    assert "NAME: found 'a\"b', expected a name of letters" in capsys.readouterr().err
    assert main(["console"]) == 2
    assert "--config console.toml" in capsys.readouterr().err


# --- who may change ---------------------------------------------------------------------------------------------------


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
