"""Carries out what operators ask: once per idempotency key, with a line in the log for each."""

import hashlib
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Generic, TypeVar

from trimtab_console.watch import Watch
from trimtab_controller.intents.change import Asked, Change, ChangeRefused, Record, RefusalKind
from trimtab_controller.kafka.intents import NotWrittenError
from trimtab_process.logs import fields
from trimtab_protocol.console_documents import ChangeDocument
from trimtab_protocol.messages.decode import BadMessage

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


log = logging.getLogger(__name__)

SEEN_LIMIT_S = 3.0
"""How long an answer waits until the console has read what it wrote, so that the next request finds it."""
LOOK_EVERY_S = 0.02
AT_ONCE = 8
"""Changes that are carried out at the same time; each holds a thread while it waits for the broker."""
MAX_TOLD = 5_000
"""Characters of a request's arguments in the line of the log; a request may name a thousand key groups."""
STATUS = {
    RefusalKind.INVALID: HTTPStatus.UNPROCESSABLE_ENTITY,
    RefusalKind.UNKNOWN: HTTPStatus.NOT_FOUND,
    RefusalKind.CONFLICT: HTTPStatus.CONFLICT,
}

Write = Callable[[Sequence[Record]], int]
"""Stores intents, and returns the offset of the last.  Raises NotWrittenError, BadMessage."""
Decide = Callable[[Asked], Change]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A change that somebody asks for.

    `arguments` = what it is about, as JSON; `key` None: only in a dry run.
    """

    action: str
    arguments: str
    reason: str
    dry_run: bool
    key: str | None
    by: str
    address: str


class RequestRefused(Exception):
    """The request is not carried out."""

    def __init__(self, status: HTTPStatus, detail: str) -> None:
        self.status = status
        self.detail = detail
        super().__init__(detail)


Answer = ChangeDocument | RequestRefused


class Desk:
    """Carries changes out with what the watch knows."""

    def __init__(self, watch: Watch, write: Write, clock: Callable[[], float]) -> None:
        self._watch = watch
        self._write = write
        self._clock = clock
        self._once: Once[Answer] = Once(time.monotonic)  # a step of the clock must not forget what was written
        self._room = threading.BoundedSemaphore(AT_ONCE)

    def carry_out(self, request: Request, decide: Decide) -> ChangeDocument:
        """The answer, after the broker has stored the change.  Raises Refused."""
        if request.dry_run:
            return _document(request, self._decided(request, decide), written=False)
        if request.key is None:
            raise RequestRefused(
                HTTPStatus.BAD_REQUEST, "found no header Idempotency-Key, expected one: any text that is new"
            )
        kept = self._begin(request, request.key)
        told = kept or self._first(request, request.key, decide)
        if isinstance(told, RequestRefused):
            raise RequestRefused(told.status, told.detail)
        return told

    def _begin(self, request: Request, key: str) -> Answer | None:
        text = "\n".join((request.action, request.arguments, request.reason))
        contents = hashlib.sha256(text.encode(errors="surrogatepass")).digest()
        try:
            return self._once.begin(request.by, key, contents)
        except AnotherRequest:
            detail = f"found the Idempotency-Key {key!r} of another request, expected a new one"
            raise RequestRefused(HTTPStatus.UNPROCESSABLE_ENTITY, detail) from None
        except StillRunning:
            detail = f"the first request with the Idempotency-Key {key!r} is still being carried out"
            raise RequestRefused(HTTPStatus.CONFLICT, detail) from None

    def _first(self, request: Request, key: str, decide: Decide) -> Answer:
        """Carry it out.  The answer is kept unless another try may go better."""
        answer: Answer | None = None
        try:
            change = self._decided(request, decide)
            if change.records:
                self._store(change.records)
            answer = _document(request, change, written=bool(change.records))
        except RequestRefused as refused:
            answer = refused
        except BadMessage as error:
            answer = RequestRefused(HTTPStatus.UNPROCESSABLE_ENTITY, str(error))
        except NotWrittenError as error:
            answer = RequestRefused(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        finally:
            if answer is None or (
                isinstance(answer, RequestRefused) and answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR
            ):
                self._once.drop(request.by, key)
            else:
                self._once.end(request.by, key, answer)
            _tell(request, key, answer)
        return answer

    def _decided(self, request: Request, decide: Decide) -> Change:
        known, now = self._watch.known, self._clock()
        if not known.read or known.fault is not None:
            why = known.fault or "the topics are still being read"
            raise RequestRefused(HTTPStatus.SERVICE_UNAVAILABLE, f"the state of the cluster is not known now: {why}")
        seen = known.seen(now)
        asked = Asked(
            by=request.by, at=now, reason=request.reason, status=seen.status if seen else None, intents=known.asked
        )
        try:
            return decide(asked)
        except ChangeRefused as refusal:
            raise RequestRefused(STATUS[refusal.fault], str(refusal)) from refusal

    def _store(self, records: Sequence[Record]) -> None:
        if not self._room.acquire(blocking=False):
            raise RequestRefused(HTTPStatus.SERVICE_UNAVAILABLE, f"{AT_ONCE} changes are being carried out already")
        try:
            self._wait_until_seen(self._write(records))
        finally:
            self._room.release()

    def _wait_until_seen(self, offset: int) -> None:
        deadline = time.monotonic() + SEEN_LIMIT_S
        while time.monotonic() < deadline:
            read = self._watch.known.intents_read
            if read is not None and read >= offset:
                return
            time.sleep(LOOK_EVERY_S)


def _document(request: Request, change: Change, *, written: bool) -> ChangeDocument:
    return ChangeDocument(
        action=request.action,
        text=change.text,
        caveats=list(change.caveats),
        intents=[key for key, _ in change.records],
        written=written,
        by=request.by,
    )


def _short(text: str) -> str:
    return text if len(text) <= MAX_TOLD else f"{text[:MAX_TOLD]}... ({len(text)} characters)"


def _tell(request: Request, key: str, answer: Answer | None) -> None:
    """The line of the log that says who changed what."""
    match answer:
        case ChangeDocument():
            result, text = "written" if answer.written else "nothing to do", answer.text
        case RequestRefused():
            result, text = f"refused {answer.status:d}", answer.detail
        case None:
            result, text = "failed", "see the traceback"
    log.info(
        "change",
        **fields(
            who=request.by, address=request.address, action=request.action, arguments=_short(request.arguments),
            reason=request.reason, key=key, result=result, text=text,
        ),
    )  # fmt: skip
