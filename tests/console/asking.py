"""How tests ask the console for changes, and read its refusals."""

from typing import Any

from tests.console.setup import SECRETS

PROBLEM = "application/problem+json"


def told(response: Any, code: int) -> str:
    assert (response.status_code, response.headers["content-type"]) == (code, PROBLEM), response.text
    return str(response.json()["detail"])


def bearer(who: str) -> dict[str, str]:
    return {"authorization": f"Bearer {SECRETS[who]}"}
