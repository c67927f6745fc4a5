"""Lets in who has a token or a session, and says what they may do."""

import logging
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from trimtab_console.access.tokens import Token, TokenFile, TokenRole, digest_of
from trimtab_process.logs import fields
from trimtab_protocol.messages.rate_limit import RateLimits

SESSION_S = 8 * 3600.0
"""How long a browser stays logged in."""
MAX_SESSIONS = 500
"""Browsers that are logged in at the same time; one more logs the oldest out."""
MAX_OF_TOKEN = 50
"""Browsers that are logged in with one token; one more logs the oldest of these out, and nobody else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """`digest` = the token's; `until` in epoch seconds."""

    digest: str
    until: float


class Sessions:
    """The open sessions."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._open: OrderedDict[str, Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def open(self, digest: str) -> tuple[str, Session]:
        """A new session of the token with this digest: its id and itself."""
        session = Session(digest=digest, until=self._clock() + SESSION_S)
        name = secrets.token_urlsafe(32)
        with self._lock:
            same = [each for each, opened in self._open.items() if opened.digest == digest]
            if len(same) >= MAX_OF_TOKEN:
                del self._open[same[0]]
            self._open[name] = session
            while len(self._open) > MAX_SESSIONS:
                self._open.popitem(last=False)
        return name, session

    def find(self, name: str) -> Session | None:
        """The session with this id, unless it has ended."""
        with self._lock:
            session = self._open.get(name)
            if session is not None and self._clock() >= session.until:
                del self._open[name]
                return None
            return session

    def close(self, name: str) -> None:
        """End a session."""
        with self._lock:
            self._open.pop(name, None)


log = logging.getLogger(__name__)

FAILURES_PER_S, FAILURES_AT_ONCE = 0.2, 5
"""Failed logins of one address that are answered and logged; more are only counted, and told to wait.

A right token is always let in: behind a proxy all browsers have one address, and a stranger must not lock them out.
"""
MAX_ADDRESSES = 1_000
MAX_SECRET = 200
"""Characters of a token."""


class NotLetIn(Exception):
    """There is no token, or none that may be used; the message says what is expected."""


class TooManyFailures(NotLetIn):
    """Too many logins from one address failed lately."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """Who asks; `name` None: anybody on this machine, where no token file is configured."""

    name: str | None
    role: TokenRole
    until: float | None = None

    @property
    def may_change(self) -> bool:
        """Whether they may do more than read."""
        return self.role is TokenRole.OPERATOR


ANYBODY = Person(name=None, role=TokenRole.VIEWER)


class Entrance:
    """Knows tokens and sessions.  `tokens` None: everybody may read, and nobody may change anything."""

    def __init__(self, tokens: TokenFile | None, clock: Callable[[], float]) -> None:
        self._tokens = tokens
        self._clock = clock
        self._sessions = Sessions(clock)
        self._lock = threading.Lock()
        self._failures = RateLimits(rate=FAILURES_PER_S, burst=FAILURES_AT_ONCE, most=MAX_ADDRESSES)
        self.failed = 0
        """Logins that failed since the start."""

    @property
    def asks_for_tokens(self) -> bool:
        """Whether there is a token file."""
        return self._tokens is not None

    def by_token(self, secret: str, address: str) -> Person:
        """Who has this token.  Raises NotLetIn."""
        token = self._token(secret, address)
        return Person(name=token.name, role=token.role, until=token.expires)

    def holds(self, secret: str) -> bool:
        """Whether this token may still be used."""
        return self._tokens is not None and self._tokens.find(digest_of(secret)) is not None

    def by_session(self, name: str) -> Person | None:
        """Whose session this is; None if it has ended, or its token may no longer be used."""
        session = self._sessions.find(name)
        token = self._tokens.find(session.digest) if session is not None and self._tokens is not None else None
        return None if session is None or token is None else _of(token, session)

    def log_in(self, secret: str, address: str) -> tuple[str, Person]:
        """Open a session: its id, and whose it is.  Raises NotLetIn."""
        token = self._token(secret, address)
        name, session = self._sessions.open(token.digest)
        log.info("logged in", **fields(who=token.name, role=token.role, address=address))
        return name, _of(token, session)

    def log_out(self, name: str) -> None:
        """End a session."""
        self._sessions.close(name)

    def _token(self, secret: str, address: str) -> Token:
        if self._tokens is None:
            raise NotLetIn("no token is known: the console has no token file, see [access]")
        token = self._tokens.find(digest_of(secret)) if len(secret) <= MAX_SECRET else None
        if token is not None:
            return token
        with self._lock:
            self.failed += 1
            told = self._failures.spend(address, self._clock())
        if not told:
            raise TooManyFailures(f"more than {FAILURES_AT_ONCE} failed logins: wait {1 / FAILURES_PER_S:g} s")
        log.warning("login failed", **fields(address=address, failed=self.failed))
        raise NotLetIn("found a token that is unknown or has expired, expected one of `trimtab console token`")


def _of(token: Token, session: Session) -> Person:
    return Person(name=token.name, role=token.role, until=session.until)
