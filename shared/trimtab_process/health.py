"""Health of a daemon: what its metrics port answers on `/healthz` and `/readyz`, and how a command asks for it."""

import http.client
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address

from trimtab_protocol.settings.listen import Listen

LIVE = "/healthz"
"""Does the process turn its loop?  If not, it is to be started again."""
READY = "/readyz"
"""Does it do its work?"""
OK, UNAVAILABLE = 200, 503
WORDS = {OK: "ok: ", UNAVAILABLE: "not ok: "}
"""Status code of an answer -> how its one line begins."""
ASK_LIMIT_S = 4.0
"""How long a command waits for the answer of a health check."""


@dataclass(frozen=True, slots=True)
class HealthVerdict:
    """Whether all is well, and one line that says why."""

    well: bool
    text: str


Check = Callable[[], HealthVerdict]
"""Called by a thread of the metrics port."""


def answer_of(verdict: HealthVerdict) -> tuple[int, bytes]:
    """Status code and body of the answer."""
    code = OK if verdict.well else UNAVAILABLE
    return code, f"{WORDS[code]}{verdict.text}\n".encode()


def ask(listen: Listen, path: str) -> HealthVerdict:
    """Ask the daemon that listens there on this host."""
    connection = http.client.HTTPConnection(_own_address(listen.address), listen.port, timeout=ASK_LIMIT_S)
    place = f"{listen.address}:{listen.port}"
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        said = response.read(10_000).decode(errors="replace").strip()
    except (OSError, http.client.HTTPException) as error:
        return HealthVerdict(False, f"not ok: no answer on {place}: {error or type(error).__name__}")
    finally:
        connection.close()
    if not said.startswith(WORDS.get(response.status, "\n")):
        return HealthVerdict(
            False, f"not ok: {place} answers {response.status} and no verdict: an agent or controller?"
        )
    return HealthVerdict(response.status == OK, said)


def _own_address(address: str) -> str:
    """An address to connect to; one that stands for all addresses becomes the loopback address."""
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if not found.is_unspecified:
        return address
    return "127.0.0.1" if found.version == 4 else "::1"
