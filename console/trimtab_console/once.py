"""Idempotency keys: a request that is repeated is carried out once and answered the same."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

KEPT_S = 24 * 3600.0
"""How long an answer is kept."""
MAX_KEPT = 2_000
"""Answers that are kept; the oldest is forgotten."""


class AnotherRequest(Exception):
    """The key belongs to a request with other contents."""


class StillRunning(Exception):
    """The first request with this key has no answer yet."""


@dataclass(slots=True)
class _Entry(Generic[T]):
    contents: bytes
    at: float
    answer: T | None = None


class Once(Generic[T]):
    """Answers by sender and key, as draft-ietf-httpapi-idempotency-key-header has it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._entries: OrderedDict[tuple[str, str], _Entry[T]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def begin(self, sender: str, key: str, contents: bytes) -> T | None:
        """The kept answer, or None: the request is to be carried out, then `end` or `drop` called.

        Raises AnotherRequest, StillRunning.
        """
        with self._lock:
            self._forget()
            entry = self._entries.get((sender, key))
            if entry is None:
                self._entries[sender, key] = _Entry(contents=contents, at=self._clock())
                return None
            if entry.contents != contents:
                raise AnotherRequest
            if entry.answer is None:
                raise StillRunning
            return entry.answer

    def end(self, sender: str, key: str, answer: T) -> None:
        """Keep the answer."""
        with self._lock:
            self._entries[sender, key].answer = answer

    def drop(self, sender: str, key: str) -> None:
        """Forget the request: it may be tried again."""
        with self._lock:
            self._entries.pop((sender, key), None)

    def _forget(self) -> None:
        """Forget what is old, and the oldest answers beyond the limit."""
        now = self._clock()
        done = [name for name, entry in self._entries.items() if entry.answer is not None]
        old = sum(now - self._entries[name].at > KEPT_S for name in done)
        for name in done[: max(old, len(self._entries) - MAX_KEPT + 1)]:
            del self._entries[name]
