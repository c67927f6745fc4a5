"""Every message survives its own wire form, and no mutation of one gets past a decoder as anything but a value."""

import json
import random

import pytest

from tests.shared.protocol.messages.message_samples import CODECS
from trimtab_protocol.messages.decode import BadMessage


@pytest.mark.parametrize("name", CODECS)
def test_a_message_comes_back_as_it_was(name):
    value, encode, decode = CODECS[name]
    assert decode(encode(value)) == value


@pytest.mark.parametrize("name", CODECS)
def test_what_a_newer_sender_says_besides_is_passed_over_wherever_it_stands(name):
    value, encode, decode = CODECS[name]
    maps = ("owners", "operators", "versions", "refused", "rejected")  # their keys are names, not fields

    def and_more(part):
        match part:
            case dict():
                return {key: each if key in maps else and_more(each) for key, each in part.items()} | {"surprise": [1]}
            case list():
                return [and_more(each) for each in part]
        return part

    assert decode(json.dumps(and_more(json.loads(encode(value)))).encode()) == value


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("seed", [1, 2])
def test_mutated_bytes_are_refused_or_read_but_never_crash(name, seed):
    value, encode, decode = CODECS[name]
    good, source = encode(value), random.Random(seed)
    refused = 0
    for _ in range(1500):
        mutant = bytearray(good)
        for _ in range(source.randint(1, 4)):
            at = source.randrange(len(mutant))
            mutant[at : at + source.randint(0, 3)] = source.choice(
                (b"", b"-", b"9", b"null", b"[]", b'"', b"\x00", b"{")
            )
        try:
            decode(bytes(mutant))
        except BadMessage:
            refused += 1
    assert refused > 500
