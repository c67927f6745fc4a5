"""Where records enter the components: whatever comes in, nothing gets out, and what is refused is counted by reason."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

from tests.fuzz.fuzzed.decoder import Decoder, Form, Refused, joined, parted
from tests.fuzz.fuzzed.files import KEY, TRUSTED
from tests.fuzz.fuzzed.samples import (
    ACCEPT,
    APP,
    CLUSTER,
    DRAIN,
    HOST,
    IN_PARTS,
    NOW,
    PLACEMENT,
    PREPARE,
    REFUSED,
    RELEASED,
    SNAPSHOT,
    TOOK,
    W0,
)
from tests.fuzz.fuzzed.wire import ENTRIES, chunks_of, headers_of, sealed_entry, write_intent
from tests.kafka_record import Record
from trimtab_agent.commands.verifier import CommandVerifier
from trimtab_agent.engines.faust.group.shared_state import PluginState
from trimtab_agent.engines.faust.handover.channel import Channel
from trimtab_controller.execution.journal import KEY as JOURNAL_KEY
from trimtab_controller.execution.journal import encode_entry
from trimtab_controller.loop.inbox import Inbox
from trimtab_protocol.messages.codec import encoded
from trimtab_protocol.messages.decode import BadMessage
from trimtab_protocol.messages.names import Topics
from trimtab_protocol.messages.placement_parts import records_of
from trimtab_protocol.signing.envelope import HEADER, Envelope

TOPICS = Topics(CLUSTER)


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """As much of aiokafka's as is looked at."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()
    offset: int = 0
    timestamp: int = 0


def counted(counts: Counter[Any], take: Callable[[], Any], parts: int = 1) -> Any:
    """What `take` returns; Refused with a reason when it has counted one, of each of so many parts at most."""
    before = Counter(counts)
    value = take()
    # A snapshot says what the stream has refused: that is no fault of the record.
    told = (TOPICS.reports,)
    if more := Counter({reason: count for reason, count in (counts - before).items() if reason[:1] != told}):
        if more.total() > parts:
            raise AssertionError(f"one record is counted {more.total()} times")
        reason = next(iter(more))
        raise Refused(str(reason[1] if isinstance(reason, tuple) else reason))
    return value


def inbox(topic: str) -> Callable[[bytes], Any]:
    """The controller's: key, headers, value."""
    ticks = count()  # one second per record: a flood is another test's business
    box = Inbox(TOPICS, lambda: NOW + next(ticks), trusted=TRUSTED)

    def take(data: bytes) -> Any:
        key, heads, value = parted(data, 3)
        return counted(box.rejected, lambda: box.take(Record(topic, value or None, key or None, headers_of(heads))))

    return take


def fresh_inbox(topic: str) -> Callable[[bytes], Any]:
    """One that has seen nothing yet: a snapshot counts once."""
    return lambda data: inbox(topic)(data)


def verifier() -> Callable[[bytes], Any]:
    """The agent's: key, signature, value; what it tells the controller of a forged one."""
    here = CommandVerifier(cluster=CLUSTER, host=HOST, trust=TRUSTED)

    def take(data: bytes) -> Any:
        key, signature, value = parted(data, 3)
        record = Envelope(topic=TOPICS.commands, key=key, value=value, signatures=(signature,) if signature else ())
        try:
            return here.read(record)
        except BadMessage as refusal:
            here.notice(record, refusal.fault, NOW)
            raise

    return take


def channel(topic: str) -> Callable[[bytes], Any]:
    """The plug-in's: key, signature, value."""
    board = PluginState(cluster=CLUSTER, app=APP, worker=W0, trust=TRUSTED)  # type: ignore[arg-type]
    line = Channel(board, {}, on_placement=lambda: None, on_handover=lambda record, at: None)

    def take(data: bytes) -> Any:
        key, signature, value = parted(data, 3)
        heads = ((HEADER, signature),) if signature else ()
        return counted(board.refused, lambda: line._dispatch(ReadRecord(topic, key, value or None, heads)))

    return take


def signed(topic: str, key: bytes, value: bytes) -> tuple[bytes, bytes]:
    """A signature header's name and value."""
    name, signature = KEY.sign(Envelope(topic=topic, key=key, value=value))
    return name.encode(), signature


def signed_record(topic: str, key: bytes, value: bytes) -> bytes:
    """Key, signature, value."""
    return joined(key, signed(topic, key, value)[1], value)


def signed_again(topic: str) -> Callable[[bytes], bytes]:
    """A changed record with a true signature: what a controller gone wrong would send."""

    def seal(data: bytes) -> bytes:
        key, _, value = parted(data, 3)
        return signed_record(topic, key, value)

    return seal


def headed(data: bytes) -> bytes:
    """Key, headers and value of a record without headers."""
    key, value = parted(data, 2)
    return joined(key, b"", value)


def entry_again(data: bytes) -> bytes:
    """A changed journal entry with its checksum."""
    key, heads, value = parted(data, 3)
    return joined(key, heads, sealed_entry(value))


PLACED = encoded(PLACEMENT)
IN_RECORDS = [(key, value) for key, value in records_of(IN_PARTS, None) if value is not None]


def _headed_by_signature(key: bytes, value: bytes) -> bytes:
    """Key, headers and value of a signed record."""
    return joined(key, b"=".join(signed(TOPICS.placement, key, value)), value)


PLACED_BY = b"=".join(signed(TOPICS.placement, APP.encode(), PLACED))

DECODERS = (
    Decoder(
        name="inbox: snapshots", form=Form.OTHER, refusals=(Refused,), decode=fresh_inbox(TOPICS.snapshots),
        samples=tuple(joined(CLUSTER.encode(), chunk) for chunk in chunks_of(SNAPSHOT, 10_000)),
    ),
    Decoder(
        name="inbox: acks", refusals=(Refused,), decode=inbox(TOPICS.acks),
        samples=tuple(joined(HOST.encode(), b"", encoded(ack)) for ack in (TOOK, REFUSED)[:1]),
    ),
    Decoder(
        name="inbox: intents", refusals=(Refused,), decode=inbox(TOPICS.intents),
        samples=tuple(headed(write_intent(intent)) for intent in (DRAIN, ACCEPT)),
    ),
    Decoder(
        name="inbox: placement", refusals=(Refused,), decode=inbox(TOPICS.placement),
        samples=(joined(APP.encode(), PLACED_BY, PLACED), *(_headed_by_signature(*record) for record in IN_RECORDS)),
    ),
    Decoder(
        name="inbox: journal", refusals=(Refused,), decode=inbox(TOPICS.journal), seal=entry_again,
        samples=tuple(joined(JOURNAL_KEY, b"", encode_entry(entry)) for entry in ENTRIES),
    ),
    Decoder(
        name="agent: commands", decode=verifier(), seal=signed_again(TOPICS.commands),
        samples=(signed_record(TOPICS.commands, HOST.encode(), encoded(PREPARE)),),
    ),
    Decoder(
        name="plug-in: placement", refusals=(Refused,), decode=channel(TOPICS.placement),
        seal=signed_again(TOPICS.placement), samples=(
            signed_record(TOPICS.placement, APP.encode(), PLACED),
            *(signed_record(TOPICS.placement, *record) for record in IN_RECORDS),
        ),
    ),
    Decoder(
        name="plug-in: hand-over", refusals=(Refused,), decode=channel(TOPICS.handover),
        samples=(joined(APP.encode(), b"", encoded(RELEASED)),),
    ),
)  # fmt: skip
