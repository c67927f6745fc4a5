"""The decoders of all that is sent: topics, the local socket, both journals, chunks, signatures."""

import hashlib
import json
import zlib
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import zstandard

from tests.fuzz.fuzzed import samples
from tests.fuzz.fuzzed.decoder import Decoder, Form, joined, parted
from tests.fuzz.fuzzed.samples import (
    APP,
    EPOCH,
    HOST,
    NOW,
    PREPARE,
    REFUSED,
    RELEASE,
    SNAPSHOT,
    STOP,
    TOOK,
    W0,
    W1,
)
from trimtab_agent.commands.events import (
    Acked,
    Admitted,
    Damaged,
    Delivered,
    Entry,
    EpochSeen,
    KeptNoted,
    KeptWorker,
    Position,
    ProcessId,
    ProcessNoted,
)
from trimtab_agent.commands.journal import decode_line, encode_line
from trimtab_controller.decider.memory.forecasts import DemandRecord, encode_demand
from trimtab_controller.execution.journal import JournalEntry, decode_entry, encode_entry
from trimtab_controller.execution.state import (
    AppSize,
    Execution,
    Handover,
    HandoverPhase,
    Round,
    ScalingPhase,
    SizeChange,
    WorkerScaling,
)
from trimtab_controller.kafka.chunks import Reassembler, read_chunk, split, unpack
from trimtab_protocol.messages.codec import decoded, encoded
from trimtab_protocol.messages.commands import Ack, Command, Phase
from trimtab_protocol.messages.decode import encode
from trimtab_protocol.messages.events import Event, encode_event
from trimtab_protocol.messages.handover import HandoverRecord
from trimtab_protocol.messages.host_keys import EnrollmentRequest, HostKeys, decode_host_keys, decode_request
from trimtab_protocol.messages.intents import Intent, decode_intent
from trimtab_protocol.messages.local import decode_frame, encode_frame
from trimtab_protocol.messages.placement import Placement
from trimtab_protocol.messages.placement_parts import decode_record
from trimtab_protocol.messages.report import Report
from trimtab_protocol.messages.snapshot import Snapshot, encode_snapshot
from trimtab_protocol.messages.status import Status

HANDOVER = Handover(
    id="2.9-0", key_groups=PREPARE.key_groups, previous=((W0, W1), ()), source=W0, target=W1, source_host=HOST,
    target_host=HOST, state_bytes=99, since=NOW, phase=HandoverPhase.RELEASING, attempt=1, wake_at=NOW + 9,
    prepare=PREPARE, release=RELEASE, detail="on its way", pause_s=0.1,
)  # fmt: skip
ROUND = Round(
    plan="2.9", app=PREPARE.key_groups[0].app, reason="balance", status="optimal", fallback=False, before=9.0,
    planned=1.0, lower_bound=0.5, started_at=NOW, handovers=(HANDOVER,), ended_at=NOW + 9,
)  # fmt: skip
SCALING = WorkerScaling(command=STOP, phase=ScalingPhase.SENT, at=NOW, detail="asked")
ENTRIES = (
    JournalEntry(
        execution=Execution(generation=2, number=9, rounds={ROUND.app: ROUND}, scalings={W0: SCALING}),
        acks_read={0: 7},
    ),
    JournalEntry(execution=Execution(generation=1)),
)
SIZED = JournalEntry(
    execution=Execution(
        generation=2,
        sizes={
            PREPARE.key_groups[0].app: AppSize(
                leaving=(W1,), changes=(SizeChange(at=NOW, before=3, after=2, rate=9.5),)
            )
        },
    )
)
LINES: tuple[Entry, ...] = (
    Admitted(command=PREPARE, ack=REFUSED),
    Acked(ack=TOOK),
    Delivered(command_id=PREPARE.id, phase=Phase.TOOK),
    ProcessNoted(worker=W0, process=ProcessId(pid=7, created=NOW)),
    ProcessNoted(worker=W0, process=None),
    KeptNoted(worker=W0, kept=KeptWorker(at=NOW, crashes=3, detail="exit code 1", given_up=True)),
    KeptNoted(worker=W0, kept=None),
    EpochSeen(epoch=EPOCH),
    Damaged(at=NOW),
    Position(topic_id="k", partition=0, offset=9),
)


def rehashed(data: bytes) -> bytes:
    """A changed command under the id that its content has now: only so is a wrong content ever looked at."""
    try:
        document = json.loads(data)
        parts = [".".join(map(str, document["epoch"])), document["kind"], document["worker"]]
        parts += [document["source"] or "", document["target"] or "", *sorted(document["key_groups"])]
        document["id"] = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]
        return encode(document)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return data


def sealed_entry(data: bytes) -> bytes:
    """The controller's journal entry with the checksum of what stands before it."""
    body = data.rpartition(b',"sha256":"')[0] + b"}"
    return body[:-1] + b',"sha256":"%s"}' % hashlib.sha256(body).hexdigest().encode()


def sealed_line(data: bytes) -> bytes:
    """The line of the agent's journal with its checksum."""
    body = data.partition(b" ")[2]
    return b"%08x %b" % (zlib.crc32(body), body)


def read_intent(data: bytes) -> Intent:
    """Key and value."""
    return decode_intent(*parted(data, 2))


def write_intent(intent: Intent) -> bytes:
    """Key and value."""
    return joined(intent.key.encode(), encoded(intent))


def headers_of(text: bytes) -> list[tuple[str, bytes | None]]:
    """One header per line, `name=value`; without `=` its value is missing."""
    rows = [line.partition(b"=") for line in text.split(b"\n")]
    return [(name.decode("latin-1"), value if mark else None) for name, mark, value in rows]


def chunks_of(snapshot: Snapshot, size: int) -> tuple[bytes, ...]:
    """A snapshot as records of its topic: headers and value."""
    return tuple(
        joined(b"\n".join(name.encode() + b"=" + value for name, value in chunk.headers), chunk.payload)
        for chunk in split(snapshot, max_chunk_bytes=size)
    )


def read_chunks(data: bytes) -> Any:
    """Several records of the topic, one after the other, as the decider gets them; the last is as it should be."""
    parts = parted(data, 6)
    reassembler = Reassembler(SNAPSHOT.cluster)
    return [
        reassembler.add(read_chunk(headers_of(head), value))
        for head, value in zip(parts[::2], parts[1::2], strict=True)
    ]


PACKED = zstandard.ZstdCompressor(level=3).compress(encode_snapshot(SNAPSHOT))
BOMB = zstandard.ZstdCompressor(level=3).compress(b'{"v":1,' + b" " * 20_000_000 + b"}")
THREE_CHUNKS = joined(*chunks_of(SNAPSHOT, len(PACKED) // 3 + 1))

HOST_KEYS = HostKeys(cluster="c", host=HOST, keys=(b"k" * 32, b"o" * 32), at=NOW, by="ops@host")
REQUEST = EnrollmentRequest(cluster="c", host=HOST, key=b"k" * 32, proof=b"p" * 32)


def message(
    name: str, values: Iterable[Any], decode: Callable[..., Any], encode: Callable[..., bytes], **more: Any
) -> Decoder:
    """Of what `encode` writes of true values."""
    return Decoder(name=name, samples=tuple(map(encode, values)), decode=decode, encode=encode, **more)


COMMANDS = (PREPARE, RELEASE, STOP, samples.STOP_OWNING)
INTENTS = (
    samples.DRAIN, samples.PAUSE, samples.STOP_ALL, samples.STOP_APP, samples.ACCEPT, samples.FORGET_APP,
    samples.FORGET_WORKER, samples.SCALE, samples.RESTART, samples.UNDRAIN, samples.ADD_RULE, *samples.ON_PLANS,
)  # fmt: skip
FRAMES = (samples.HELLO, samples.WELCOME, samples.STATISTICS, RELEASE, TOOK)

DECODERS = (
    message("report", (samples.REPORT,), partial(decoded, kind=Report), encoded),
    message("snapshot", (SNAPSHOT,), partial(decoded, kind=Snapshot), encode_snapshot),
    Decoder(
        name="snapshot, packed",
        samples=(PACKED, BOMB),
        decode=lambda data: decoded(unpack(data), Snapshot),
        form=Form.OTHER,
    ),
    Decoder(name="snapshot, chunks", samples=(THREE_CHUNKS,), decode=read_chunks, form=Form.OTHER),
    message("placement", (samples.PLACEMENT,), partial(decoded, kind=Placement), encoded),
    message(
        "placement, by its app",
        (samples.PLACEMENT, samples.HEAD),
        lambda data: decode_record(samples.PLACEMENT.app.encode(), data),
        encoded,
    ),
    message("placement, part", (samples.PART,), lambda data: decode_record(samples.PART.key, data), encoded),
    message("command", COMMANDS, partial(decoded, kind=Command), encoded, seal=rehashed),
    message("ack", (TOOK, REFUSED), partial(decoded, kind=Ack), encoded),
    message("hand-over", (samples.RELEASED,), partial(decoded, kind=HandoverRecord), encoded),
    message("intent", INTENTS, read_intent, write_intent),
    message("status", (samples.STATUS,), partial(decoded, kind=Status), encoded),
    message("host keys", (HOST_KEYS,), lambda data: decode_host_keys(HOST.encode(), data), encoded),
    message("enrollment request", (REQUEST,), lambda data: decode_request(HOST.encode(), data), encoded),
    message("event", (samples.EVENT,), partial(decoded, kind=Event), encode_event),
    message("local frame", FRAMES, decode_frame, lambda frame: encode_frame(frame)[:-1]),
    message("journal, controller", (*ENTRIES, SIZED), decode_entry, encode_entry, seal=sealed_entry),
    Decoder(
        name="record of demand",
        samples=(encode_demand(APP, 20_000, [1.25, None, 0.5]),),
        decode=partial(decoded, kind=DemandRecord),
        encode=lambda record: encode_demand(record.app, record.day, list(record.values)),
    ),
    message("journal, agent", LINES, decode_line, lambda entry: encode_line(entry)[:-1], seal=sealed_line),
)
