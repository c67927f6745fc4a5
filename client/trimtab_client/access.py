"""Where the console is, and what it is asked with."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from trimtab_client.errors import BadAccess
from trimtab_process.private_files import read_private

ADDRESS, TOKEN, TOKEN_FILE, CA = (
    "TRIMTAB_CONSOLE",
    "TRIMTAB_CONSOLE_TOKEN",
    "TRIMTAB_CONSOLE_TOKEN_FILE",
    "TRIMTAB_CONSOLE_CA",
)
"""Names of environment variables."""
MAX_TOKEN = 4_000
"""Characters of a token; a reverse proxy may expect longer ones than the console's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """An address such as `https://console.example:8750`, a token, and the CA that signed the console's certificate.

    `token` None: none is sent; such a console only reads.  `ca` = PEM file, None: the CAs of the system.  Raises
    BadAccess.
    """

    address: str
    token: str | None = field(default=None, repr=False)
    ca: Path | None = None

    def __post_init__(self) -> None:
        try:
            found = urlsplit(self.address)
            host, _ = found.hostname, found.port
        except ValueError as error:
            raise BadAccess(f"address: found {self.address[:200]!r}: {error}") from error
        if found.scheme not in ("http", "https") or not host or found.query or found.fragment or "@" in found.netloc:
            expected = "expected one like https://console.example:8750"
            raise BadAccess(f"address: found {_without_user(self.address)[:200]!r}, {expected}")
        if self.token is None:
            return
        if not 1 <= len(self.token) <= MAX_TOKEN or not self.token.isascii() or not self.token.isprintable():
            expected = f"1 to {MAX_TOKEN} printable ASCII characters"
            raise BadAccess(f"token: found {len(self.token)} characters, expected {expected}")
        if found.scheme == "http" and not _is_loopback(host):
            raise BadAccess(
                f"address: found {self.address[:200]!r}: a token is sent by https only, except on this machine"
            )


def token_in(path: Path) -> str:
    """The token in a file that only its owner can use, without white space around it.  Raises BadAccess."""
    try:
        return read_private(path).strip()
    except OSError as error:
        raise BadAccess(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise BadAccess(f"{path}: not text: {error}") from error


def access_from(environment: Mapping[str, str]) -> Access:
    """The access that these environment variables name, `os.environ` for example.  Raises BadAccess.

    TRIMTAB_CONSOLE = the address; TRIMTAB_CONSOLE_TOKEN_FILE or TRIMTAB_CONSOLE_TOKEN; TRIMTAB_CONSOLE_CA = a PEM file.
    """
    given = {name: environment[name] for name in (ADDRESS, TOKEN, TOKEN_FILE, CA) if environment.get(name)}
    if ADDRESS not in given:
        raise BadAccess(f"{ADDRESS}: found nothing, expected the address of a console")
    if TOKEN in given and TOKEN_FILE in given:
        raise BadAccess(f"found {TOKEN} and {TOKEN_FILE}, expected one of them")
    token = token_in(Path(given[TOKEN_FILE])) if TOKEN_FILE in given else given.get(TOKEN)
    return Access(address=given[ADDRESS], token=token, ca=Path(given[CA]) if CA in given else None)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _without_user(address: str) -> str:
    """The address without the password that it may have."""
    before, at, after = address.rpartition("@")
    return f"{before.partition('//')[0]}//...@{after}" if at else address
