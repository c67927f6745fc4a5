"""The key groups of a snapshot, in blocks of one operator with an array per quantity.

A fleet has a million key groups.  One object each would take gigabytes per window; in arrays they take 88 bytes each,
and are sent and computed with in that form.  Row objects are created on demand.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import eq
from typing import TYPE_CHECKING, Annotated, Any, overload

from trimtab_protocol.messages.codec import UNKNOWN, Distinct, Most, Packed, Range
from trimtab_protocol.messages.decode import BadMessage, Fault
from trimtab_protocol.messages.names import MAX_PARTITIONS, AppId, KeyGroup, OperatorId, WorkerId

MAX_KEY_GROUPS = 10_000_000
"""Key groups of one snapshot."""
MAX_OWNERS = 100_000
"""Workers that own key groups of one block (app and operator) of a snapshot."""

RATES = ("cpu", "tuples_in_s", "tuples_out_s", "bytes_in_s", "bytes_out_s")
if TYPE_CHECKING:
    Longs = array[int]
    Doubles = array[float]
else:  # Python 3.11 has no such types
    Longs = Doubles = array
LEVELS = ("state_bytes", "lag_records", "backlog")
Floats = Annotated[Doubles, Most(MAX_KEY_GROUPS), Packed("d", gaps=True)]
Integers = Annotated[Longs, Most(MAX_KEY_GROUPS), Packed("q", gaps=True)]


def _no_floats() -> array[float]:
    return array("d")


def _no_integers() -> array[int]:
    return array("q")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyGroupWindow:
    """A key group in one window; None = unknown.

    `worker` = the owner that reported it last; `covered_s` = seconds that samples cover; `cpu` = cores; tuples and
    bytes per second; `state_bytes`, `lag_records`, `backlog` as last reported (see `KeyGroupSample`).
    """

    key_group: KeyGroup
    worker: WorkerId
    covered_s: float
    cpu: float | None
    tuples_in_s: float | None
    tuples_out_s: float | None = None
    bytes_in_s: float | None = None
    bytes_out_s: float | None = None
    state_bytes: int | None = None
    lag_records: int | None = None
    backlog: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyGroupBlock:
    """The key groups of one operator: the fields of `KeyGroupWindow` as arrays of 64-bit numbers, UNKNOWN for None.

    `worker` holds indices into `workers`.  Nobody changes the arrays.
    """

    app: AppId
    operator: OperatorId
    workers: Annotated[tuple[WorkerId, ...], Most(MAX_OWNERS)]
    partition: Annotated[Longs, Most(MAX_KEY_GROUPS, 1), Distinct(), Range(0, MAX_PARTITIONS), Packed("q")]
    worker: Annotated[Longs, Most(MAX_KEY_GROUPS), Range(0, MAX_OWNERS), Packed("q")]
    covered_s: Annotated[Doubles, Most(MAX_KEY_GROUPS), Packed("d")]
    cpu: Floats = field(default_factory=_no_floats)
    tuples_in_s: Floats = field(default_factory=_no_floats)
    tuples_out_s: Floats = field(default_factory=_no_floats)
    bytes_in_s: Floats = field(default_factory=_no_floats)
    bytes_out_s: Floats = field(default_factory=_no_floats)
    state_bytes: Integers = field(default_factory=_no_integers)
    lag_records: Integers = field(default_factory=_no_integers)
    backlog: Integers = field(default_factory=_no_integers)

    def __post_init__(self) -> None:
        size = len(self)
        for name in ("worker", "covered_s", *RATES, *LEVELS):
            column = getattr(self, name)
            if not column and name not in ("worker", "covered_s"):
                object.__setattr__(self, name, array(column.typecode, [UNKNOWN]) * size)
            elif len(column) != size:
                raise BadMessage(Fault.RANGE, name, f"{len(column)} elements", f"{size}, as many as the others")
        if size and (last := max(self.worker)) >= len(self.workers):
            raise BadMessage(Fault.RANGE, f"worker[{self.worker.index(last)}]", last, f"0 to {len(self.workers) - 1}")

    def __len__(self) -> int:
        return len(self.partition)

    def below(self, count: int) -> KeyGroupBlock:
        """The key groups whose partition is below `count`; the block itself when that is all of them."""
        if max(self.partition) < count:
            return self
        places = [place for place, partition in enumerate(self.partition) if partition < count]

        def kept(name: str) -> array[Any]:
            column = getattr(self, name)
            return array(column.typecode, [column[place] for place in places])

        return KeyGroupBlock(
            app=self.app,
            operator=self.operator,
            workers=self.workers,
            partition=kept("partition"),
            worker=kept("worker"),
            covered_s=kept("covered_s"),
            **{name: kept(name) for name in (*RATES, *LEVELS)},
        )

    def owners(self) -> Iterator[tuple[KeyGroup, WorkerId]]:
        """Each key group with its owner."""
        for partition, worker in zip(self.partition, self.worker, strict=True):
            yield KeyGroup(self.app, self.operator, partition), self.workers[worker]

    def owned(self) -> dict[WorkerId, int]:
        """The number of key groups per owner."""
        return {self.workers[place]: count for place, count in Counter(self.worker).items()}

    def row(self, place: int) -> KeyGroupWindow:
        """The key group at this index of the columns."""
        values = {name: getattr(self, name)[place] for name in (*RATES, *LEVELS)}
        return KeyGroupWindow(
            key_group=KeyGroup(self.app, self.operator, self.partition[place]),
            worker=self.workers[self.worker[place]],
            covered_s=self.covered_s[place],
            **{name: None if value == UNKNOWN else value for name, value in values.items()},
        )


class KeyGroupTable(Sequence[KeyGroupWindow]):
    """The rows of `blocks` as one sequence; equals any sequence of the same rows."""

    __slots__ = ("blocks",)

    def __init__(self, blocks: Iterable[KeyGroupBlock]) -> None:
        self.blocks = tuple(block for block in blocks if len(block))

    @classmethod
    def of(cls, rows: Sequence[KeyGroupWindow]) -> KeyGroupTable:
        """A table of these rows; a table is returned unchanged."""
        if isinstance(rows, cls):
            return rows
        operators: defaultdict[tuple[AppId, OperatorId], list[KeyGroupWindow]] = defaultdict(list)
        for row in rows:
            operators[row.key_group[:2]].append(row)
        return cls(_block(*names, members) for names, members in operators.items())

    def __len__(self) -> int:
        return sum(map(len, self.blocks))

    def __iter__(self) -> Iterator[KeyGroupWindow]:
        for block in self.blocks:
            yield from map(block.row, range(len(block)))

    @overload
    def __getitem__(self, place: int) -> KeyGroupWindow: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[KeyGroupWindow, ...]: ...
    def __getitem__(self, place: int | slice) -> KeyGroupWindow | tuple[KeyGroupWindow, ...]:
        if isinstance(place, slice):
            return tuple(self)[place]
        left = place if place >= 0 else place + len(self)
        for block in self.blocks:
            if 0 <= left < len(block):
                return block.row(left)
            left -= len(block)
        raise IndexError(place)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(eq, self, other))

    def __repr__(self) -> str:
        return repr(tuple(self)) if len(self) <= 100 else f"<{len(self)} key groups>"


def _block(app: AppId, operator: OperatorId, rows: Sequence[KeyGroupWindow]) -> KeyGroupBlock:
    workers = {worker: place for place, worker in enumerate(sorted({row.worker for row in rows}))}

    def column(kind: str, name: str) -> array[Any]:
        values = (getattr(row, name) for row in rows)
        return array(kind, [UNKNOWN if value is None else value for value in values])

    return KeyGroupBlock(
        app=app,
        operator=operator,
        workers=tuple(workers),
        partition=array("q", [row.key_group.partition for row in rows]),
        worker=array("q", [workers[row.worker] for row in rows]),
        covered_s=column("d", "covered_s"),
        **{name: column("d", name) for name in RATES},
        **{name: column("q", name) for name in LEVELS},
    )
