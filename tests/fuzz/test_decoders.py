"""Every decoder bears hostile input: a short, seeded part of what `make fuzz` does with a million records for each."""

import json
import logging
from collections.abc import Callable, Iterator

import pytest

from tests.fuzz.fuzzed.decoder import Decoder, Form
from tests.fuzz.fuzzed.mutants import Mutants
from tests.fuzz.fuzzed.registry import DECODERS
from tests.fuzz.fuzzed.run import fuzz
from tests.fuzz.fuzzed.spans import spans_of_json, spans_of_toml

RECORDS = 1_000
"""`make fuzz` gives each decoder a million."""

every_decoder = pytest.mark.parametrize("decoder", DECODERS, ids=lambda decoder: decoder.name)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@every_decoder
def test_what_is_broken_is_refused_for_a_reason_and_what_is_accepted_comes_back(decoder: Decoder) -> None:
    tally = fuzz(decoder, records=RECORDS, seed=1)
    assert tally.faults == {}
    assert tally.accepted >= len(decoder.samples)
    assert tally.refused.total() > RECORDS / 10
    assert tally.accepted + tally.refused.total() == RECORDS + len(decoder.samples)


# --- the fuzzer itself: one that finds nothing proves nothing


def planted(decode: Callable[[bytes], object]) -> set[str]:
    """The kinds of faults found in a decoder."""
    decoder = Decoder(name="planted", samples=(b'{"v":1,"a":[1,2],"b":"x"}',), decode=decode, refusals=(ValueError,))
    return {fault.partition(" ")[0] for fault in fuzz(decoder, records=3_000, seed=1).faults}


def test_planted_faults_are_found() -> None:
    assert planted(json.loads) == {"RecursionError"}
    assert "KeyError" in planted(lambda data: sound(data)["a"])
    assert "OverflowError" in planted(
        lambda data: [float(each) for each in sound(data).get("a", []) if type(each) is int]
    )
    assert "UnicodeEncodeError" not in planted(lambda data: str(sound(data)).encode("utf-8", "surrogatepass"))
    assert "TypeError" in planted(lambda data: sound(data).get("b", "") + "y")


def sound(data: bytes) -> dict:
    """An object, or ValueError."""
    try:
        found = json.loads(data)
    except RecursionError as error:
        raise ValueError from error
    if not isinstance(found, dict):
        raise ValueError(found)
    return found


def test_what_is_not_written_as_it_was_read_is_found() -> None:
    decoder = Decoder(
        name="planted", samples=(b"12",), decode=lambda data: float(data), refusals=(ValueError,), form=Form.OTHER,
        encode=lambda value: b"%d" % value,
    )  # fmt: skip
    assert fuzz(decoder, records=3_000, seed=1).faults.keys() == {"written and read again it is another value"}


def test_the_same_seed_gives_the_same_mutants() -> None:
    def first(seed: int) -> list[bytes]:
        return [mutant for mutant, _ in zip(Mutants(DECODERS[0], seed), range(50), strict=False)]

    assert first(1) == first(1) != first(2)


def test_spans_are_values_members_and_lines() -> None:
    text = b'{"a":[1,{"b":"}\\""}],"c":null}'
    assert {text[span.start : span.end] for span in spans_of_json(text)} == {
        b"1", b'"}\\""', b'"b":"}\\""', b'{"b":"}\\""}', b'[1,{"b":"}\\""}]', b'"a":[1,{"b":"}\\""}]', b"null",
        b'"c":null', text,
    }  # fmt: skip
    assert [spans_of_json(text) for text in (b"", b"{", b'{"a":', b'{"a":[}', b'{"a":,}')] == [()] * 5
    lines = b"[s]\na = 1\n"
    assert [lines[span.start : span.end] for span in spans_of_toml(lines)] == [b"[s]\n", b"a = 1\n", b"1"]
