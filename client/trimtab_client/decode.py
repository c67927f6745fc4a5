"""Turns JSON into the frozen values of the API, by their annotations."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import Any, NewType, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from trimtab_client.errors import BadAnswer
from trimtab_protocol.messages.decode import printable, shorten, type_of

T = TypeVar("T")
Decoder = Callable[[object, str], Any]

SCALARS: Mapping[type, tuple[tuple[type, ...], str]] = {
    str: ((str,), "a string"),
    bool: ((bool,), "true or false"),
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
}
"""Type -> what JSON has for it, and what it is called."""


def decoded(document: object, kind: type[T]) -> T:
    """The document as a value of this type; fields that it does not know are ignored.  Raises BadAnswer."""
    decode: Decoder = _decoder(cast(Any, kind))
    return cast(T, decode(document, "answer"))


@cache
def _decoder(kind: Any) -> Decoder:
    origin, arguments = get_origin(kind), get_args(kind)
    if isinstance(kind, NewType):
        return _decoder(kind.__supertype__)
    if origin in (Union, UnionType):
        return _optional(arguments)
    if origin in (list, tuple, Sequence):
        return _array(_decoder(arguments[0]))
    if origin in (dict, Mapping):
        return _object(_decoder(arguments[1]))
    if is_dataclass(origin or kind):
        return _value(origin or kind, arguments)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return _choice(kind)
    return _scalar(kind)


def _optional(arguments: tuple[Any, ...]) -> Decoder:
    (known,) = (each for each in arguments if each is not NoneType)
    inner = _decoder(known)
    return lambda found, at: None if found is None else inner(found, at)


def _array(inner: Decoder) -> Decoder:
    def decode(found: object, at: str) -> object:
        if not isinstance(found, list):
            raise _bad(at, found, "an array")
        return tuple([inner(each, at) for each in found])

    return decode


def _object(inner: Decoder) -> Decoder:
    def decode(found: object, at: str) -> object:
        if not isinstance(found, dict):
            raise _bad(at, found, "an object")
        return {name: inner(each, f"{at}.{name}") for name, each in found.items()}

    return decode


def _value(kind: Any, arguments: tuple[Any, ...]) -> Decoder:
    hints = get_type_hints(kind)
    decoders = {
        name: _decoder(hint[arguments] if arguments and getattr(hint, "__parameters__", ()) else hint)
        for name, hint in hints.items()
    }
    needed = [each.name for each in fields(kind) if each.default is MISSING and each.default_factory is MISSING]

    def decode(found: object, at: str) -> object:
        if not isinstance(found, dict):
            raise _bad(at, found, "an object")
        for name in needed:
            if name not in found:
                raise BadAnswer(f"{at}: found no {name}, expected it")
        return kind(**{name: inner(found[name], f"{at}.{name}") for name, inner in decoders.items() if name in found})

    return decode


def _choice(kind: type[StrEnum]) -> Decoder:
    def decode(found: object, at: str) -> object:
        try:
            return kind(found)  # type: ignore[arg-type]
        except ValueError:
            expected = f"one of {', '.join(kind)}"
            raise BadAnswer(f"{at}: found {shorten(found)}, expected {expected}") from None

    return decode


def _scalar(kind: type) -> Decoder:
    accepted, name = SCALARS[kind]

    def decode(found: object, at: str) -> object:
        if not isinstance(found, accepted) or (isinstance(found, bool) and kind is not bool):
            raise _bad(at, found, name)
        return printable(found) if isinstance(found, str) else found

    return decode


def _bad(at: str, found: object, expected: str) -> BadAnswer:
    return BadAnswer(f"{at}: found {type_of(found)}, expected {expected}")
