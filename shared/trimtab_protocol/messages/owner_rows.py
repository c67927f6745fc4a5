"""The rows of one operator in a placement: immutable, and cheap to change.

The rows are kept in parts.  A changed table shares all parts with the one before but those that changed, so a step of a
hand-over takes the same time and memory however many key groups the app has.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, overload

from trimtab_protocol.messages.decode import encode
from trimtab_protocol.messages.names import WorkerId

PART_SIZE = 128
"""Key groups per part, unless the placement says otherwise."""

Owners = tuple[WorkerId, ...]
"""(owner, first standby, ...) of one key group; empty = the engine assigns it by its own rule."""


class OwnerPart:
    """Some consecutive rows of one operator."""

    __slots__ = ("_digest", "rows")

    def __init__(self, rows: tuple[Owners, ...]) -> None:
        self.rows = rows
        self._digest: bytes | None = None

    @property
    def digest(self) -> bytes:
        """SHA-256 of the rows; computed once."""
        if self._digest is None:
            self._digest = hashlib.sha256(encode(self.rows)).digest()
        return self._digest

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, OwnerPart) and self.rows == other.rows)

    def __hash__(self) -> int:
        return hash(self.rows)


class OwnerTable(Sequence[Owners]):
    """One row per partition, from 0.  All parts have `size` rows, only the last one may have fewer."""

    __slots__ = ("_count", "_digest", "parts", "size")

    def __init__(self, parts: Sequence[OwnerPart], size: int) -> None:
        """The caller guarantees the sizes of the parts."""
        self.parts = tuple(parts)
        self.size = size
        self._count = size * (len(self.parts) - 1) + len(self.parts[-1].rows) if self.parts else 0
        self._digest: bytes | None = None

    @classmethod
    def of(cls, rows: Iterable[Owners], size: int) -> "OwnerTable":
        """A table with these rows."""
        if isinstance(rows, OwnerTable) and rows.size == size:
            return rows
        found = tuple(rows)
        return cls([OwnerPart(found[first : first + size]) for first in range(0, len(found), size)], size)

    def changed(self, rows: Mapping[int, Owners]) -> "OwnerTable":
        """The table with the rows of some partitions replaced.  Raises IndexError for a partition without a row."""
        parts = list(self.parts)
        for index in {self._checked(partition) // self.size for partition in rows}:
            first = index * self.size
            found = list(parts[index].rows)
            for offset in range(len(found)):
                found[offset] = rows.get(first + offset, found[offset])
            parts[index] = OwnerPart(tuple(found))
        return OwnerTable(parts, self.size)

    def with_parts(self, parts: Mapping[int, OwnerPart]) -> "OwnerTable":
        """The table with some parts replaced by others with as many rows."""
        replaced = list(self.parts)
        for index, part in parts.items():
            replaced[index] = part
        return OwnerTable(replaced, self.size)

    @property
    def digest(self) -> bytes:
        """SHA-256 of the parts' digests; computed once."""
        if self._digest is None:
            self._digest = hashlib.sha256(b"".join([part.digest for part in self.parts])).digest()
        return self._digest

    def _checked(self, partition: int) -> int:
        if not 0 <= partition < self._count:
            raise IndexError(f"partition {partition} of {self._count}")
        return partition

    @overload
    def __getitem__(self, at: int) -> Owners: ...

    @overload
    def __getitem__(self, at: slice) -> tuple[Owners, ...]: ...

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return tuple(self)[at]
        partition = self._checked(at + self._count if at < 0 else at)
        return self.parts[partition // self.size].rows[partition % self.size]

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Owners]:
        for part in self.parts:
            yield from part.rows

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, OwnerTable) and other.size == self.size:
            return self.parts == other.parts
        return isinstance(other, OwnerTable | tuple) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))


def parts_in(count: int, size: int) -> int:
    """The number of parts that `count` rows make."""
    return -(-count // size)


def rows_in(index: int, count: int, size: int) -> int:
    """The number of rows in part `index` of `count` rows."""
    return min(size, count - index * size)
