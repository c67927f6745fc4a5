"""Every message survives its own wire form; `tests/fuzz` shows that nothing broken gets past a decoder."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.fuzz.fuzzed import samples
from tests.fuzz.fuzzed.wire import HOST_KEYS, REQUEST
from trimtab_protocol.messages import (
    commands,
    events,
    handover,
    host_keys,
    intents,
    local,
    placement,
    placement_parts,
    report,
    snapshot,
    status,
)

INTENTS = (
    samples.DRAIN, samples.PAUSE, samples.STOP_ALL, samples.STOP_APP, samples.ACCEPT, samples.FORGET_APP,
    samples.FORGET_WORKER, samples.SCALE, samples.RESTART, samples.UNDRAIN, samples.ADD_RULE, *samples.ON_PLANS,
)  # fmt: skip
FRAMES = samples.HELLO, samples.WELCOME, samples.STATISTICS, samples.RELEASE, samples.TOOK
Codec = tuple[Any, Callable[[Any], bytes], Callable[[bytes], Any]]
CODECS: dict[str, Codec] = {
    "command": (samples.PREPARE, commands.encode_command, commands.decode_command),
    "release": (samples.RELEASE, commands.encode_command, commands.decode_command),
    "stop of an owner": (samples.STOP_OWNING, commands.encode_command, commands.decode_command),
    "ack": (samples.TOOK, commands.encode_ack, commands.decode_ack),
    "refusal": (samples.REFUSED, commands.encode_ack, commands.decode_ack),
    "placement": (samples.PLACEMENT, placement.encode_placement, placement.decode_placement),
    "head of a placement": (
        samples.HEAD,
        placement_parts.encode_record,
        lambda payload: placement_parts.decode_record(samples.APP.encode(), payload),
    ),
    "part of a placement": (
        samples.PART,
        placement_parts.encode_record,
        lambda payload: placement_parts.decode_record(samples.PART.key, payload),
    ),
    "handover": (samples.RELEASED, handover.encode_handover, handover.decode_handover),
    "report": (samples.REPORT, report.encode_report, report.decode_report),
    "snapshot": (samples.SNAPSHOT, snapshot.encode_snapshot, snapshot.decode_snapshot),
    "status": (samples.STATUS, status.encode_status, status.decode_status),
    "event": (samples.EVENT, events.encode_event, events.decode_event),
    "host keys": (
        HOST_KEYS,
        host_keys.encode_host_keys,
        lambda payload: host_keys.decode_host_keys(samples.HOST.encode(), payload),
    ),
    "enrollment": (
        REQUEST,
        host_keys.encode_request,
        lambda payload: host_keys.decode_request(samples.HOST.encode(), payload),
    ),
    "taken back": (
        intents.TakenBack(by="ann", at=1.0, reason="it is over"),
        lambda word: intents.encode_taken_back(word)[1],
        lambda payload: intents.taken_back_in([(intents.TAKEN_BACK_HEADER, payload)]),
    ),
    **{each.key: (each, intents.encode_intent, partial(intents.decode_intent, each.key.encode())) for each in INTENTS},
    **{f"frame {type(frame).__name__}": (frame, local.encode_frame, local.decode_frame) for frame in FRAMES},
}


@pytest.mark.parametrize("name", CODECS)
def test_a_message_comes_back_as_it_was(name: str) -> None:
    value, encode, decode = CODECS[name]
    assert decode(encode(value)) == value


@pytest.mark.parametrize("name", CODECS)
def test_what_a_newer_sender_says_besides_is_passed_over_wherever_it_stands(name: str) -> None:
    value, encode, decode = CODECS[name]
    maps = ("owners", "operators", "versions", "refused", "rejected", "handovers", "intents", "key_groups")
    # Their keys are names, not fields.

    def and_more(part: Any, name: str = "") -> Any:
        if isinstance(part, list):
            return [and_more(each) for each in part]
        if not isinstance(part, dict) or name in maps:
            return part
        return {key: and_more(each, key) for key, each in part.items()} | {"surprise": [1]}

    assert decode(json.dumps(and_more(json.loads(encode(value)))).encode()) == value
