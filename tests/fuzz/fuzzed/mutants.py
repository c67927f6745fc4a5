"""Mutants of true samples: broken bytes, and records whose form is whole but whose content is not.

A mutant costs a few microseconds, so that a million of them per decoder are a matter of minutes: samples are taken
apart once, and a mutant is cut together from their parts.
"""

import json
import random
from collections.abc import Callable, Iterator
from itertools import cycle

from tests.fuzz.fuzzed.decoder import Decoder, Form
from tests.fuzz.fuzzed.spans import Span, spans_of_json, spans_of_toml

GIANT_BYTES = 7_900_000
"""Just below the 8 MB that a message may have."""

JSON_VALUES = (
    b"null", b"true", b"false", b"0", b"1", b"2", b"-1", b"-0.0", b"1.5", b"1e308", b"1e999", b"-1e999", b"1e-999",
    b"NaN", b"Infinity", b"-Infinity", b"9007199254740993", b"2147483648", b"9223372036854775807",
    b"9223372036854775808", b"9" * 400, b"9" * 4300, b"9" * 5000, b"0." + b"3" * 2000, b"01", b"0x10", b'""', b'"a"',
    b'"1"', b'"w0"', b'"a/b/1"', b'"a/b/001"', b'"a/b/\xd9\xa3"', b'"a/b/' + b"9" * 5000 + b'"', b'"\\ud800"',
    b'"\xed\xa0\x80"', b'"\\ud83d\\ude00"', b'"\\u0000"', b'"\\n"', b'"' + b"x" * 201 + b'"', b'"' + b"x" * 5000 + b'"',
    b"[]", b"[null]", b"[0,0]", b"[[]]", b'["a"]', b"{}", b'{"a":1}', b'{"a":1,"a":2}', b'{"\\ud800":1}', b'{"":0}',
    b"[" * 20_000 + b"]" * 20_000, b"[" * 2000 + b"]" * 2000, b'{"a":' * 2000 + b"1" + b"}" * 2000,
    b"[" * 100 + b"]" * 100,
)  # fmt: skip
TOML_VALUES = (
    b"0", b"1", b"-1", b"0x" + b"f" * 6000, b"9" * 400, b"9" * 5000, b"1e999", b"nan", b"inf", b"-inf", b"true", b'""',
    b'"a"', b'"\\u0000"', b'"a\\u0000b"', b'"\xff"', b'"\xed\xa0\x80"', b'"\\ud800"', b"[]", b"[[]]", b'["a\\u0000"]',
    b"{}", b"{ a = 1, a = 2 }", b"1979-05-27T07:32:00Z", b"1979-05-27", b"07:32:00", b"1979-13-45", b'"""', b"'''a'''",
    b"[" * 300 + b"]" * 300, b"[" * 3000 + b"]" * 3000, b"{ a = " * 3000 + b"1" + b" }" * 3000,
    b'"' + b"x" * 5000 + b'"',
    b'"127.0.0.1:\xd9\xa3"', b'"a:0"', b'"a:' + b"9" * 200 + b'"', b'{ "\\u0000" = 1 }', b'{ "=" = "1" }',
)  # fmt: skip
TOKENS = (
    b"\x00", b"\xff", b"\n", b"\r", b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"=", b"-", b".", b"e", b" ",
    b"\xef\xbb\xbf", b"\xff\xfe", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\x80", b"9" * 25, b"\x00\xff\x00",
    b"ed25519 ", b"#", b"A" * 44,
)  # fmt: skip


NUMBERS = (
    b"0", b"1", b"2", b"0.001", b"0.5", b"9.5", b"1000", b"1e6", b"1e18", b"-1", b"9007199254740992",
    b"9007199254740993", b"9223372036854775807",
)  # fmt: skip


def kind_of(value: bytes) -> int:
    """What stands for a value's type: all numbers have the same."""
    return value[0] if value[:1] in b'"{[tfn' else 0


class Mutants:
    """An endless, seeded supply of mutants of a decoder's samples."""

    def __init__(self, decoder: Decoder, seed: int) -> None:
        self._random = random.Random(f"{decoder.name} {seed}")
        self._samples = decoder.samples
        self._seal = decoder.seal
        self._spans_of = {Form.JSON: spans_of_json, Form.TOML: spans_of_toml}.get(decoder.form)
        self._values = TOML_VALUES if decoder.form is Form.TOML else JSON_VALUES
        self._spans = [self._find(sample) for sample in decoder.samples]
        self._pool = [
            sample[span.start : span.end]
            for sample, spans in zip(decoder.samples, self._spans, strict=True)
            for span in spans
        ]
        self._alike: dict[int, list[bytes]] = {}
        for value in (*self._pool, *NUMBERS):
            self._alike.setdefault(kind_of(value), []).append(value)

    def __iter__(self) -> Iterator[bytes]:
        while True:
            chosen = self._random.randrange(len(self._samples))
            yield self._changed(self._samples[chosen], self._spans[chosen])

    def _find(self, data: bytes) -> tuple[Span, ...]:
        return self._spans_of(data) if self._spans_of else ()

    def _changed(self, data: bytes, spans: tuple[Span, ...]) -> bytes:
        source = self._random
        kind = source.random()
        if spans and kind < 0.75:
            data = self._rebuilt(data, spans)
        if not spans or kind > 0.65:
            for _ in range(source.randint(1, 4)):
                data = source.choice(BREAKS)(source, data, self._samples)
        if self._seal is not None and source.random() < 0.8:
            data = self._seal(data)
        return data

    def _rebuilt(self, data: bytes, spans: tuple[Span, ...]) -> bytes:
        """One to three spans replaced, from the last to the first; those that overlap are left alone."""
        source, whole = self._random, len(data)
        for span in sorted(source.choices(spans, k=source.randint(1, 3)), reverse=True):
            if span.end <= whole:
                whole = span.start
                another = self._another(data[span.start : span.end], span)
                end = span.end + (not another and data[span.end : span.end + 1] == b",")
                data = data[: span.start] + another + data[end:]
        return data

    def _another(self, present: bytes, span: Span) -> bytes:
        source = self._random
        kind = source.random()
        if kind < 0.1:
            return source.choice(self._pool)
        if kind < 0.25 or (kind > 0.6 and not span.is_member):
            return source.choice(self._alike.get(kind_of(present)) or self._pool)
        if kind < 0.35:
            return present + (b"\n" if self._values is TOML_VALUES else b",") + present
        if not span.is_member:
            return source.choice(self._values)
        if kind < 0.55:
            return b""
        if kind < 0.7:
            return present[:1] + b"x" + present[1:]
        key, mark, _ = present.partition(b"=" if self._values is TOML_VALUES else b":")
        return key + mark + source.choice(self._values)


Break = Callable[[random.Random, bytes, tuple[bytes, ...]], bytes]


def _flip(source: random.Random, data: bytes, _: tuple[bytes, ...]) -> bytes:
    if not data:
        return data
    at = source.randrange(len(data))
    return data[:at] + bytes((data[at] ^ (1 << source.randrange(8)),)) + data[at + 1 :]


def _truncate(source: random.Random, data: bytes, _: tuple[bytes, ...]) -> bytes:
    return data[: source.randint(0, len(data))]


def _cut(source: random.Random, data: bytes, _: tuple[bytes, ...]) -> bytes:
    at = source.randint(0, len(data))
    return data[:at] + data[at + source.randint(1, 20) :]


def _insert(source: random.Random, data: bytes, _: tuple[bytes, ...]) -> bytes:
    at = source.randint(0, len(data))
    return data[:at] + source.choice(TOKENS) + data[at:]


def _noise(source: random.Random, data: bytes, _: tuple[bytes, ...]) -> bytes:
    at = source.randint(0, len(data))
    return data[:at] + source.randbytes(source.randint(1, 8)) + data[at + 1 :]


def _repeat(source: random.Random, data: bytes, _: tuple[bytes, ...]) -> bytes:
    at = source.randint(0, len(data))
    return data[: at + source.randint(1, 40)] + data[at:]


def _splice(source: random.Random, data: bytes, samples: tuple[bytes, ...]) -> bytes:
    other = source.choice(samples)
    return data[: source.randint(0, len(data))] + other[source.randint(0, len(other)) :]


BREAKS: tuple[Break, ...] = (_flip, _flip, _flip, _truncate, _cut, _insert, _insert, _noise, _repeat, _splice)


def giants(decoder: Decoder) -> Iterator[bytes]:
    """Records of the largest size, of few kinds: what takes too long or too much memory shows here."""
    yield from (b"", b"\x00" * GIANT_BYTES, b"\n" * GIANT_BYTES, b"[" * GIANT_BYTES, b'{"a":' * (GIANT_BYTES // 5))
    if decoder.form is Form.OTHER:
        yield from (_stretched(sample) for sample in decoder.samples)
        return
    if decoder.form is Form.TOML:
        yield from (
            b"a = [" + b"1," * 100_000 + b"]\n",
            b"a.b = 1\n" * 10_000,
            b"".join(b"a%d = 1\n" % i for i in range(20_000)),
        )
        return
    largest = [
        b"[" + b"0," * (GIANT_BYTES // 2) + b"0]",
        b"[" + b"{}," * (GIANT_BYTES // 3) + b"{}]",
        b'"' + b"x" * GIANT_BYTES + b'"',
        b"9" * GIANT_BYTES,
        b"0." + b"9" * GIANT_BYTES,
        b"{" + b",".join(b'"%d":0' % number for number in range(700_000)) + b"}",
        b"{" + b",".join(b'"%d":0' % number for number in range(700_000)) + b',"0":0}',
    ]
    for sample in decoder.samples:
        seal = decoder.seal or (lambda data: data)
        spans = [span for span in spans_of_json(sample) if not span.is_member]
        for value, span in zip(largest, cycle(spans[:-1]), strict=False):  # the last one is the whole
            yield seal(sample[: span.start] + value + sample[span.end :])
        for depth, span in zip(DEPTHS, cycle(spans[:-1]), strict=False):
            yield seal(sample[: span.start] + b"[" * depth + b"]" * depth + sample[span.end :])


def _deepest() -> int:
    """How deep arrays may be nested for Python to read them: about 1,000 until 3.11, 10,000 in 3.13."""
    low, high = 100, 1_000_000
    while high - low > 1:
        middle = (low + high) // 2
        try:
            json.loads("[" * middle + "]" * middle)
        except RecursionError:
            high = middle
        else:
            low = middle
    return low


_LIMIT = _deepest()
DEPTHS = (*range(900, 1000), *range(max(1000, _LIMIT - 200), _LIMIT + 600, 20))
"""Around the limit of Python's own recursion, and around that of its reader of JSON."""


def _stretched(sample: bytes) -> bytes:
    return sample * (GIANT_BYTES // max(1, len(sample)))
