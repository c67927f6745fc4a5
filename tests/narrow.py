"""What tests expect the type of a value to be."""

from collections.abc import Iterable
from typing import TypeVar

Kind = TypeVar("Kind")


def of_type(kind: type[Kind], value: object) -> Kind:
    """The value, which must be of this type."""
    assert isinstance(value, kind), value
    return value


def only_one(kind: type[Kind], values: Iterable[object]) -> Kind:
    """The only value, which must be of this type."""
    [value] = values
    return of_type(kind, value)


def not_none(value: Kind | None) -> Kind:
    """The value, which must be known."""
    assert value is not None
    return value
