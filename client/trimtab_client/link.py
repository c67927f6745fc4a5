"""Sends requests to the console, and tries those again that may be sent twice.

Every request of this package may: reads and dry runs change nothing, and a change has an idempotency key.
"""

import json
import ssl
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from importlib import metadata
from typing import TypeVar
from urllib.parse import quote

import httpx2

from trimtab_client.access import Access
from trimtab_client.errors import BadAccess, BadAnswer, ConsoleError, ProblemError, Unreachable
from trimtab_process.backoff import Backoff
from trimtab_protocol.console_documents import API, PROBLEM_TYPE, LiveChange, Problem
from trimtab_protocol.messages.codec import ANSWER, converted
from trimtab_protocol.messages.decode import BadMessage

T = TypeVar("T")

CONNECT_LIMIT_S = 5.0
"""How long a connection may take to open."""
ANSWER_LIMIT_S = 30.0
"""How long an answer may take to begin, and to go on; the console gives the brokers 10 s to store a change."""
SILENCE_LIMIT_S = 15.0
"""How long the stream of changes may say nothing; the console sends a sign of life every 5 s."""
MAX_ANSWER_BYTES = 64 << 20
"""Size of one answer, unpacked."""
PATIENCE_S = 30.0
"""Default of how long one request is tried again and again."""
WAITS = Backoff((0.5, 1.0, 2.0, 5.0))
AGAIN = frozenset({429, 502, 503, 504})
"""Codes after which the same request may go better."""


class Link:
    """A connection to one console; threads may share it."""

    def __init__(
        self,
        access: Access,
        *,
        patience_s: float = PATIENCE_S,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Raises BadAccess."""
        self._address = access.address.rstrip("/")
        self._patience_s = patience_s
        self._clock = clock
        self._sleep = sleep
        headers = {"user-agent": f"trimtab-client/{metadata.version('trimtab')}", "accept": "application/json"}
        if access.token is not None:
            headers["authorization"] = f"Bearer {access.token}"
        self._http = httpx2.Client(
            headers=headers,
            verify=_trust(access),
            timeout=httpx2.Timeout(ANSWER_LIMIT_S, connect=CONNECT_LIMIT_S),
            trust_env=False,  # a proxy of the environment is not meant to see tokens
        )

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def get(self, kind: type[T], /, *path: str, **query: object) -> T:
        """What a resource is.  Raises ConsoleError."""
        given = {name: str(value) for name, value in query.items() if value is not None}
        return decoded(self._patiently("GET", path, given), kind)

    def post(self, kind: type[T], *path: str, body: Mapping[str, object], key: str | None) -> T:
        """The answer to a change; `key` None: a dry run.  Raises ConsoleError."""
        return decoded(self._patiently("POST", path, {}, body, {} if key is None else {"idempotency-key": key}), kind)

    def changes(self) -> Generator[LiveChange, None, None]:
        """The stream of changes; it is opened again when it breaks.  Raises ConsoleError."""
        attempts = _Attempts(self._patience_s, self._clock)
        while True:
            try:
                for change in self._stream():
                    attempts = _Attempts(self._patience_s, self._clock)
                    yield change
                raise Unreachable(f"{self._address}: the console ended the stream of changes")
            except (Unreachable, ProblemError) as error:
                self._sleep(attempts.wait_after(error))

    def _patiently(
        self,
        method: str,
        path: tuple[str, ...],
        query: Mapping[str, str],
        body: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> object:
        attempts = _Attempts(self._patience_s, self._clock)
        while True:
            try:
                return self._once(method, path, query, body, headers)
            except (Unreachable, ProblemError) as error:
                self._sleep(attempts.wait_after(error))

    def _once(
        self,
        method: str,
        path: tuple[str, ...],
        query: Mapping[str, str],
        body: Mapping[str, object] | None,
        headers: Mapping[str, str] | None,
    ) -> object:
        try:
            with self._http.stream(method, self._url(path), params=query, json=body, headers=headers) as response:
                return _answer(response, _read(response))
        except httpx2.RequestError as error:
            raise self._unreachable(error) from error

    def _stream(self) -> Iterator[LiveChange]:
        limits = httpx2.Timeout(SILENCE_LIMIT_S, connect=CONNECT_LIMIT_S)
        try:
            with self._http.sse(self._url(("live",)), timeout=limits) as source:
                if not source.response.is_success:
                    _answer(source.response, _read(source.response))
                for event in source:
                    if event.event == "change":
                        yield decoded(_json(event.data.encode()), LiveChange)
        except httpx2.RequestError as error:
            raise self._unreachable(error) from error

    def _url(self, path: tuple[str, ...]) -> str:
        for step in path:
            if step in ("", ".", ".."):
                raise ValueError(f"found the name {step!r}, expected one of a worker, an app, an operator or a plan")
        return f"{self._address}{API}/{'/'.join(quote(step, safe='') for step in path)}"

    def _unreachable(self, error: httpx2.RequestError) -> Unreachable:
        return Unreachable(f"{self._address}: {error or type(error).__name__}", for_good=_is_untrusted(error))


class _Attempts:
    """How often one request has failed, and whether it is tried again."""

    def __init__(self, patience_s: float, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until = clock() + patience_s
        self._failures = 0

    def wait_after(self, error: Unreachable | ProblemError) -> float:
        """Seconds to wait before the next one.  Raises the error if there is none."""
        self._failures += 1
        wait_s = WAITS.after(self._failures)
        if isinstance(error, ProblemError):
            wait_s = max(wait_s, error.retry_after_s or 0.0)
        over = error.for_good if isinstance(error, Unreachable) else error.status not in AGAIN
        if over or self._clock() + wait_s > self._until:
            raise error
        return wait_s


def decoded(document: object, kind: type[T]) -> T:
    """The document as a value of this type; fields that it does not know are ignored.  Raises BadAnswer."""
    try:
        return converted(document, kind, "answer", ANSWER)
    except BadMessage as error:
        raise BadAnswer(str(error)) from None


def _trust(access: Access) -> ssl.SSLContext | bool:
    """The system's CAs (True), or this CA alone.  Raises BadAccess."""
    if access.ca is None:
        return True
    try:
        return ssl.create_default_context(cafile=str(access.ca))
    except ssl.SSLError as error:
        raise BadAccess(f"{access.ca}: {error.reason or error}, expected certificates as PEM") from error
    except OSError as error:
        raise BadAccess(f"{access.ca}: {error.strerror or error}") from error


def _is_untrusted(error: BaseException | None) -> bool:
    """Whether the console's certificate was the reason."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _read(response: httpx2.Response) -> bytes:
    parts, size = [], 0
    for part in response.iter_bytes():
        size += len(part)
        if size > MAX_ANSWER_BYTES:
            raise BadAnswer(f"answer: found more than {MAX_ANSWER_BYTES} bytes, expected fewer")
        parts.append(part)
    return b"".join(parts)


def _answer(response: httpx2.Response, content: bytes) -> object:
    """The document.  Raises ProblemError, BadAnswer."""
    if response.is_success:
        return _json(content)
    wait = response.headers.get("retry-after", "")
    raise ProblemError(_problem(response, content), float(wait) if wait.isdecimal() and len(wait) < 6 else None)


def _problem(response: httpx2.Response, content: bytes) -> Problem:
    """What the console says, or, if a proxy answers in its place, what the status says."""
    if response.headers.get("content-type", "").partition(";")[0].strip() == PROBLEM_TYPE:
        try:
            return decoded(_json(content), Problem)
        except ConsoleError:
            pass
    detail = "the answer has no problem details; it may not come from the console"
    return Problem(title=response.reason_phrase, status=response.status_code, detail=detail)


def _json(content: bytes) -> object:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise BadAnswer(f"answer: found {content[:40]!r}, expected JSON: {error}") from error
