"""The key groups of a snapshot, in blocks of one operator with an array per quantity.

A fleet has a million key groups.  One object each would take gigabytes per window; in arrays they take 88 bytes each,
and are sent and computed with in that form.  Row objects are created on demand.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import eq
from typing import Any, overload

from trimtab_protocol.messages.columns import (
    UNKNOWN,
    check_once,
    known_list,
    read_integer_column,
    read_names,
    read_number_column,
    read_size,
)
from trimtab_protocol.messages.decode import Fields
from trimtab_protocol.messages.names import MAX_PARTITIONS, AppId, KeyGroup, OperatorId, WorkerId

MAX_KEY_GROUPS = 10_000_000
"""Key groups of one snapshot."""
MAX_OWNERS = 100_000
"""Workers that own key groups of one block (app and operator) of a snapshot."""

RATES = ("cpu", "tuples_in_s", "tuples_out_s", "bytes_in_s", "bytes_out_s")
LEVELS = ("state_bytes", "lag_records", "backlog")


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
    workers: tuple[WorkerId, ...]
    partition: array[int]
    worker: array[int]
    covered_s: array[float]
    cpu: array[float]
    tuples_in_s: array[float]
    tuples_out_s: array[float]
    bytes_in_s: array[float]
    bytes_out_s: array[float]
    state_bytes: array[int]
    lag_records: array[int]
    backlog: array[int]

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


def block_document(block: KeyGroupBlock) -> dict[str, Any]:
    """The block as JSON types."""
    return {
        "app": block.app,
        "operator": block.operator,
        "workers": list(block.workers),
        "partition": block.partition.tolist(),
        "worker": block.worker.tolist(),
        "covered_s": block.covered_s.tolist(),
        **{name: known_list(getattr(block, name)) for name in (*RATES, *LEVELS)},
    }


def read_blocks(fields: Fields, name: str) -> KeyGroupTable:
    """The table in a field of a snapshot; raises BadMessage."""
    blocks: list[KeyGroupBlock] = []
    left = MAX_KEY_GROUPS
    for block in fields.objects(name, limit=MAX_KEY_GROUPS):
        size = read_size(block, "partition", limit=left)
        left -= size
        blocks.append(_read_block(block, size))
    check_once(fields.at(name), [(block.app, block.operator) for block in blocks])
    return KeyGroupTable(blocks)


def _read_block(fields: Fields, size: int) -> KeyGroupBlock:
    app, operator = AppId(fields.name("app")), OperatorId(fields.name("operator"))
    workers = tuple(WorkerId(name) for name in read_names(fields, "workers", limit=MAX_OWNERS))
    partition = read_integer_column(fields, "partition", size, whole=True, high=MAX_PARTITIONS)
    check_once(fields.at("partition"), partition)
    columns: dict[str, array[Any]] = {name: read_number_column(fields, name, size) for name in RATES}
    columns |= {name: read_integer_column(fields, name, size) for name in LEVELS}
    return KeyGroupBlock(
        app=app,
        operator=operator,
        workers=workers,
        partition=partition,
        worker=read_integer_column(fields, "worker", size, whole=True, high=len(workers) - 1),
        covered_s=read_number_column(fields, "covered_s", size, whole=True),
        **columns,
    )
