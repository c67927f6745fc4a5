"""The token file: names, roles and the hashes of secrets that only their owners have.

A secret is 256 random bits that this module makes, so nobody can guess it from its hash, at any speed. A slow hash as
for passwords would add nothing to that, but would let a stranger keep the console busy with wrong tokens.
"""

import hashlib
import logging
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from trimtab_process.logs import fields
from trimtab_process.private_files import mark_of
from trimtab_process.toml_files import BadConfiguration, read_toml
from trimtab_protocol.messages.codec import CONFIGURATION, Key, Most, Name, Text, WrittenAs, converted
from trimtab_protocol.messages.decode import BadMessage, Fault

log = logging.getLogger(__name__)

MAX_TOKENS = 1_000
SECRET_BYTES = 32
PREFIX = "trimtab_"
"""With which every secret begins, so that scanners of source code find one that was committed."""
DIGEST = re.compile(r"[0-9a-f]{64}")


class TokenRole(StrEnum):
    """What the owner of a token may do."""

    VIEWER = "viewer"  # read
    OPERATOR = "operator"  # read and change


def _read_time(found: Any) -> float:
    if not isinstance(found, datetime) or found.tzinfo is None:
        raise BadMessage(Fault.TYPE, "", found, "a date and time with its zone: 2027-01-31T00:00:00Z")
    return found.timestamp()


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """`digest` = SHA-256 of the secret in hexadecimal; `expires` in epoch seconds, None: never."""

    name: Name
    role: TokenRole
    digest: Annotated[str, Key("sha256"), Text(64)]
    expires: Annotated[float | None, WrittenAs(Any, str, _read_time)] = None

    def __post_init__(self) -> None:
        if not DIGEST.fullmatch(self.digest):
            raise BadMessage(Fault.RANGE, "digest", f"{len(self.digest)} characters", "64 hexadecimal digits")

    def is_valid(self, now: float) -> bool:
        """Whether it may still be used."""
        return self.expires is None or now < self.expires


def new_secret() -> str:
    """A new secret, of 256 random bits."""
    return PREFIX + secrets.token_urlsafe(SECRET_BYTES)


def digest_of(secret: str) -> str:
    """What the token file has of a secret."""
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()


def to_table(token: Token) -> str:
    """The token as a table of the file."""
    lines = ["[[token]]", f'name = "{token.name}"', f'role = "{token.role}"', f'sha256 = "{token.digest}"']
    if token.expires is not None:
        lines.append(f"expires = {datetime.fromtimestamp(token.expires, UTC):%Y-%m-%dT%H:%M:%SZ}")
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class _Tokens:
    """The file."""

    token: Annotated[tuple[Token, ...], Most(MAX_TOKENS)] = ()

    def __post_init__(self) -> None:
        names, digests = [row.name for row in self.token], [row.digest for row in self.token]
        for values, what in ((names, "name"), (digests, "sha256")):
            for number, value in enumerate(values):
                if value in values[:number]:
                    raise BadMessage(Fault.RANGE, f"token[{number}].{what}", value, "each only once")


def decode_tokens(found: Mapping[str, Any]) -> tuple[Token, ...]:
    """The tokens of a file.  Raises BadMessage."""
    return converted(dict(found), _Tokens, defaults=CONFIGURATION).token


def load_tokens(path: Path) -> tuple[Token, ...]:
    """The tokens of a file of mode 0600.  Raises BadConfiguration."""
    return read_toml(path, decode_tokens, private=True)


class TokenFile:
    """The tokens of a file, read again when it changes; while it cannot be read, there are none."""

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        """Raises BadConfiguration."""
        self._path = path
        self._clock = clock
        self._seen = mark_of(path)
        self._tokens = self._by_digest()

    def find(self, digest: str) -> Token | None:
        """The token with this digest, if it may be used now."""
        self._refresh()
        token = self._tokens.get(digest)
        return token if token is not None and token.is_valid(self._clock()) else None

    def _refresh(self) -> None:
        mark = mark_of(self._path)
        if mark == self._seen:
            return
        self._seen = mark
        try:
            self._tokens = self._by_digest()
        except BadConfiguration as error:
            self._tokens = {}
            log.error("no token is accepted any more", **fields(reason=str(error)))
        else:
            log.info("token file read again", **fields(tokens=len(self._tokens)))

    def _by_digest(self) -> Mapping[str, Token]:
        return {token.digest: token for token in load_tokens(self._path)}
