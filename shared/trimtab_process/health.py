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
    place = f"{listen.address}:{listen.port}"
    try:
        status, body = answer_on(listen, path, limit_s=ASK_LIMIT_S, most=10_000)
    except OSError as error:
        return HealthVerdict(False, f"not ok: no answer on {place}: {error or type(error).__name__}")
    said = body.decode(errors="replace").strip()
    if not said.startswith(WORDS.get(status, "\n")):
        return HealthVerdict(False, f"not ok: {place} answers {status} and no verdict: an agent or controller?")
    return HealthVerdict(status == OK, said)


def answer_on(listen: Listen, path: str, *, limit_s: float, most: int) -> tuple[int, bytes]:
    """What a port of this host answers within `limit_s`: status code, and `most` bytes of the body.  Raises OSError.

    Not by urllib, which would use a proxy from the environment.
    """
    connection = http.client.HTTPConnection(_own_address(listen.address), listen.port, timeout=limit_s)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read(most)
    except http.client.HTTPException as error:
        raise OSError(str(error) or type(error).__name__) from error
    finally:
        connection.close()


def _own_address(address: str) -> str:
    """An address to connect to; one that stands for all addresses becomes the loopback address."""
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if not found.is_unspecified:
        return address
    return "127.0.0.1" if found.version == 4 else "::1"
