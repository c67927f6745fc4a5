"""Says where a key group is and why: reads what a controller would know, and works it out with the decider."""

import threading
from collections.abc import Callable
from dataclasses import replace

from confluent_kafka import KafkaException

from trimtab_console.watch import Watch
from trimtab_controller.configuration import Configuration, decode
from trimtab_controller.intents.plans import Looked
from trimtab_controller.kafka.connection import Connection
from trimtab_controller.kafka.reader import ReadError
from trimtab_controller.loop.preview import informed, read_trusted_state
from trimtab_controller.loop.why import why_here
from trimtab_process.kafka_errors import error_text
from trimtab_protocol.console_documents import KeyGroupWhy
from trimtab_protocol.messages.names import KeyGroup
from trimtab_protocol.messages.status import BalanceStatus, status_key
from trimtab_protocol.signing.keys import TrustedKeys

KEPT_S = 10.0
"""How long answers come from what was read once: about as long as a window, or as long as reading it took."""
FRESH_S = 1.0
"""The same for what a change is decided by: a plan that has just ended must be known."""
WAIT_S = 30.0
"""How long a request waits for another one that is reading."""
AT_ONCE = 4
"""Requests that read or wait; each holds a thread, and further ones are refused."""


class CannotSayError(Exception):
    """The topics cannot be read now; the message says why."""


Look = Callable[[float], Looked]
"""Reads the topics at a time (epoch seconds).  Raises CannotSayError."""


class Explainer:
    """Answers for one cluster; what is read serves all requests for a while, and one request reads at a time."""

    def __init__(self, watch: Watch, look: Look, clock: Callable[[], float]) -> None:
        self._watch = watch
        self._look = look
        self._clock = clock
        self._lock = threading.Lock()
        self._room = threading.BoundedSemaphore(AT_ONCE)
        self._read: Looked | CannotSayError | None = None
        self._kept_until = self._fresh_until = 0.0

    def why(self, key_group: KeyGroup) -> KeyGroupWhy:
        """Where it is and why.  Raises UnknownKeyGroupError, CannotSayError."""
        read = self._newest()
        status = self._watch.known.statuses.get(status_key(acting=True))
        return why_here(key_group, read.known, read.execution, self._watch.events, status)

    def looked(self) -> Looked:
        """What a controller would know now, and the events that are kept: for a change.  Raises CannotSayError."""
        return replace(self._newest(fresh=True), events=self._watch.events)

    def _newest(self, *, fresh: bool = False) -> Looked:
        if not self._room.acquire(blocking=False):
            raise CannotSayError(f"{AT_ONCE} requests that need the topics are being answered: try again")
        try:
            if not self._lock.acquire(timeout=WAIT_S):
                raise CannotSayError("another request is still reading the topics: try again")
            try:
                kept = self._looked_lately(fresh=fresh)
            finally:
                self._lock.release()
        finally:
            self._room.release()
        if isinstance(kept, CannotSayError):
            raise CannotSayError(str(kept))
        return kept

    def _looked_lately(self, *, fresh: bool) -> Looked | CannotSayError:
        """What was read last, or why it could not be; read again when that is too old."""
        now, kept = self._clock(), self._read
        if kept is None or now > (self._fresh_until if fresh else self._kept_until):
            try:
                kept = self._look(now)
            except CannotSayError as error:
                kept = error
            self._read, ended = kept, self._clock()
            failed = isinstance(kept, CannotSayError)
            self._fresh_until = (ended if failed else now) + FRESH_S
            self._kept_until = self._fresh_until if failed else ended + max(KEPT_S, ended - now)
        return kept


class TopicsLook:
    """What a controller would know now, read from the topics as a reader."""

    def __init__(self, cluster: str, connection: Connection, watch: Watch, trusted: TrustedKeys | None) -> None:
        defaults = {
            "controller": {"cluster": cluster},
            "kafka": {"bootstrap_servers": connection.kafka.bootstrap_servers},
            "stream": {"checkpoint_dir": "none"},  # no stream is run here
        }
        self._defaults = replace(decode(defaults), kafka=connection.kafka)
        self._connection = connection
        self._watch = watch
        self._trusted = trusted

    def __call__(self, now: float) -> Looked:
        """Read, and let the decider learn from it."""
        seen = self._watch.known.seen(now)
        configuration = with_settings(self._defaults, seen.status.balance if seen else None)
        if seen is not None and seen.status.rules is not None:
            own = tuple(each.rule for each in seen.status.rules if each.by is None)
            configuration = replace(configuration, rules=own)  # those of operators are read with their intents
        try:
            state = read_trusted_state(self._connection, configuration, now, self._trusted)
        except (KafkaException, ReadError) as error:
            text = error_text(error)
            raise CannotSayError(f"the topics cannot be read now: {text}") from error
        return Looked(decider=informed(state, configuration, now), execution=state.found.execution)


def with_settings(configuration: Configuration, told: BalanceStatus | None) -> Configuration:
    """The configuration with the settings of [balance] that the controller tells of, as far as it does."""
    if told is None:
        return configuration
    balance = replace(
        configuration.balance,
        smoothing=told.smoothing,
        catch_up_s=told.catch_up_s,
        max_disk=told.max_disk,
        max_link=told.max_link,
    )
    return replace(configuration, balance=balance)
