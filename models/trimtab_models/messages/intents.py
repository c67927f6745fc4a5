"""What an operator wants to be so: workers drained, the controller paused.  Compacted topic; a tombstone takes it back.

Level-triggered: the controller reads the state, not the act, so an intent survives restarts of everybody.
"""

from dataclasses import dataclass

from trimtab_models.messages.decode import BadMessage, Fault, encode, parse
from trimtab_models.messages.names import WorkerId

VERSION = 1
PAUSE_KEY = "pause"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """Empty this worker and then stop it.  `at` in epoch seconds."""

    worker: WorkerId
    by: str
    at: float
    reason: str

    @property
    def key(self) -> str:
        """The record key."""
        return drain_key(self.worker)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Decide, but publish nothing new (a plan in flight ends)."""

    by: str
    at: float
    reason: str

    @property
    def key(self) -> str:
        """The record key."""
        return PAUSE_KEY


Intent = Drain | Pause


def drain_key(worker: WorkerId) -> str:
    """The record key of a worker's drain."""
    return f"drain/{worker}"


def encode_intent(intent: Intent) -> bytes:
    """The wire form."""
    document = {"v": VERSION, "by": intent.by, "at": intent.at, "reason": intent.reason}
    return encode({**document, "worker": intent.worker} if isinstance(intent, Drain) else document)


def decode_intent(key: bytes | None, payload: bytes) -> Intent:
    """An intent from its record; raises BadMessage."""
    fields = parse(payload, version=VERSION, limit=10_000)
    by, at, reason = fields.text("by", limit=200), fields.number("at"), fields.text("reason", limit=2000)
    worker = fields.optional("worker", fields.name)
    fields.done()
    intent: Intent = (
        Drain(worker=WorkerId(worker), by=by, at=at, reason=reason) if worker else Pause(by=by, at=at, reason=reason)
    )
    if key != intent.key.encode():
        raise BadMessage(Fault.RANGE, "key", key, intent.key)
    return intent
