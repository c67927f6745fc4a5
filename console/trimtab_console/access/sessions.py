"""Sessions of browsers: a random id in a cookie, in the memory of this process, for a limited time."""

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

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
