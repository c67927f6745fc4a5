"""What tests expect the type of a value to be."""

from typing import TypeVar

Kind = TypeVar("Kind")


def of_type(kind: type[Kind], value: object) -> Kind:
    """The value, which must be of this type."""
    assert isinstance(value, kind), value
    return value
