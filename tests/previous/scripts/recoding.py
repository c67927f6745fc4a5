"""Reads messages and writes them again: `KIND BASE64` per line of standard input, the same back, or `KIND !FAULT`."""

import base64
import json
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import trimtab_models
from trimtab_agent.commands.journal import decode_line, encode_line
from trimtab_controller.execution.journal import decode_entry, encode_entry
from trimtab_controller.kafka.chunks import Reassembler, read_chunk, split
from trimtab_protocol.messages.codec import decoded, encoded
from trimtab_protocol.messages.commands import Ack, Command
from trimtab_protocol.messages.decode import BadMessage
from trimtab_protocol.messages.handover import HandoverRecord
from trimtab_protocol.messages.intents import decode_intent
from trimtab_protocol.messages.local import decode_frame, encode_frame
from trimtab_protocol.messages.placement import Placement
from trimtab_protocol.messages.placement_parts import decode_record
from trimtab_protocol.messages.report import Report
from trimtab_protocol.messages.snapshot import Snapshot, encode_snapshot
from trimtab_protocol.messages.status import Status


def again(decode: Callable[[bytes], Any], encode: Callable[[Any], bytes]) -> Callable[[bytes], bytes]:
    return lambda data: encode(decode(data))


def intent_again(data: bytes) -> bytes:
    """Key, line feed, value."""
    key, _, value = data.partition(b"\n")
    found = decode_intent(key, value)
    return found.key.encode() + b"\n" + encoded(found)


def record_again(data: bytes) -> bytes:
    """Of the placements' topic: key, line feed, value."""
    key, _, value = data.partition(b"\n")
    return key + b"\n" + encoded(decode_record(key, value))


def chunk_again(data: bytes) -> bytes:
    """Headers and the value of a snapshot that is one record."""
    headers, _, value = data.partition(b"\n")
    given = [(name, text.encode()) for name, text in json.loads(headers)]
    snapshot = Reassembler("c").add(read_chunk(given, value))
    assert snapshot is not None
    return as_chunk(snapshot)


def as_chunk(snapshot: Any) -> bytes:
    [chunk] = split(snapshot)
    return json.dumps([(name, text.decode()) for name, text in chunk.headers]).encode() + b"\n" + chunk.payload


CODECS = {
    "report": again(partial(decoded, kind=Report), encoded),
    "snapshot": again(partial(decoded, kind=Snapshot), encode_snapshot),
    "chunk": chunk_again,
    "placement": again(partial(decoded, kind=Placement), encoded),
    "record": record_again,
    "command": again(partial(decoded, kind=Command), encoded),
    "ack": again(partial(decoded, kind=Ack), encoded),
    "handover": again(partial(decoded, kind=HandoverRecord), encoded),
    "status": again(partial(decoded, kind=Status), encoded),
    "intent": intent_again,
    "frame": again(decode_frame, lambda frame: encode_frame(frame)[:-1]),
    "entry": again(decode_entry, encode_entry),
    "line": again(decode_line, lambda entry: encode_line(entry)[:-1]),
}


def main() -> None:
    """For each line one; the first line tells which code this is."""
    print(trimtab_models.__file__, flush=True)
    for row in sys.stdin:
        name, _, data = row.strip().partition(" ")
        try:
            print(name, base64.b64encode(CODECS[name](base64.b64decode(data))).decode(), flush=True)
        except BadMessage as error:
            print(name, f"!{error.fault} {error.path}", flush=True)


if __name__ == "__main__":
    main()
