"""The key groups of one app as columns; rows are created on demand.

A fleet has a million key groups.  They are processed in every window and kept until the next one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import overload

import numpy as np
from numpy.typing import NDArray

from trimtab_protocol.messages.columns import UNKNOWN
from trimtab_protocol.messages.key_group_table import KeyGroupBlock
from trimtab_protocol.messages.names import MAX_PARTITIONS, AppId, KeyGroup, OperatorId, WorkerId

PERCENT_PER_CORE = 100.0

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """A key group with its reported owner.  `load` in percent of one core; `state_bytes` None = not measured."""

    key_group: KeyGroup
    owner: WorkerId
    load: float
    state_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OwnedTable(Sequence[Owned]):
    """The `Owned` rows of one app.  `operator` and `owner` index `operators` and `workers`; unknown state = -1."""

    app: AppId
    operators: tuple[OperatorId, ...]
    workers: tuple[WorkerId, ...]
    operator: Integers
    partition: Integers
    owner: Integers
    load: Floats
    state_bytes: Integers

    @classmethod
    def of(cls, app: AppId, rows: Sequence[Owned]) -> "OwnedTable":
        """A table of the rows, in their order; a table is returned unchanged."""
        if isinstance(rows, cls):
            return rows
        operators = {name: place for place, name in enumerate(dict.fromkeys(row.key_group.operator for row in rows))}
        workers = {name: place for place, name in enumerate(dict.fromkeys(row.owner for row in rows))}
        return cls(
            app=app,
            operators=tuple(operators),
            workers=tuple(workers),
            operator=np.array([operators[row.key_group.operator] for row in rows], np.int64),
            partition=np.array([row.key_group.partition for row in rows], np.int64),
            owner=np.array([workers[row.owner] for row in rows], np.int64),
            load=np.array([row.load for row in rows], np.float64),
            state_bytes=np.array([UNKNOWN if row.state_bytes is None else row.state_bytes for row in rows], np.int64),
        )

    @classmethod
    def of_blocks(cls, app: AppId, blocks: Iterable[KeyGroupBlock]) -> "OwnedTable":
        """A table of an app's blocks, sorted by key group; the CPU of each must be known."""
        ordered = sorted(blocks, key=lambda block: block.operator)
        workers = {
            name: place for place, name in enumerate(sorted({name for each in ordered for name in each.workers}))
        }
        columns: dict[str, list[NDArray[np.int64]]] = {"operator": [], "partition": [], "owner": [], "state_bytes": []}
        loads = []
        for place, block in enumerate(ordered):
            partition = np.frombuffer(block.partition, np.int64)
            order = np.argsort(partition, kind="stable")
            columns["operator"].append(np.full(len(block), place))
            columns["partition"].append(partition[order])
            places = np.array([workers[name] for name in block.workers])
            columns["owner"].append(places[np.frombuffer(block.worker, np.int64)][order])
            columns["state_bytes"].append(np.frombuffer(block.state_bytes, np.int64)[order])
            loads.append(PERCENT_PER_CORE * np.frombuffer(block.cpu, np.float64)[order])
        return cls(
            app=app,
            operators=tuple(block.operator for block in ordered),
            workers=tuple(workers),
            load=np.concatenate(loads),
            **{name: np.concatenate(parts) for name, parts in columns.items()},
        )

    def __len__(self) -> int:
        return len(self.partition)

    @overload
    def __getitem__(self, place: int) -> Owned: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Owned, ...]: ...
    def __getitem__(self, place: int | slice) -> Owned | tuple[Owned, ...]:
        if isinstance(place, slice):
            return tuple(self[each] for each in range(*place.indices(len(self))))
        state_bytes = int(self.state_bytes[place])
        return Owned(
            key_group=KeyGroup(self.app, self.operators[self.operator[place]], int(self.partition[place])),
            owner=self.workers[self.owner[place]],
            load=float(self.load[place]),
            state_bytes=None if state_bytes == UNKNOWN else state_bytes,
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    @property
    def owners(self) -> dict[KeyGroup, WorkerId]:
        """The owner of each key group."""
        return dict(zip(self._key_groups(), (self.workers[place] for place in self.owner.tolist()), strict=True))

    @property
    def sizes(self) -> dict[OperatorId, int]:
        """The number of key groups of each operator, provided that none below the highest is missing."""
        counts = np.bincount(self.operator, minlength=len(self.operators)).tolist()
        return dict(zip(self.operators, counts, strict=True))

    def loads_of_workers(self) -> dict[WorkerId, float]:
        """The load of each owner, in percent of one core."""
        sums = np.bincount(self.owner, weights=self.load, minlength=len(self.workers))
        return dict(zip(self.workers, sums.tolist(), strict=True))

    def owned_by(self, worker: WorkerId) -> int:
        """The number of key groups that the worker owns."""
        return int(np.count_nonzero(self.owner == self.workers.index(worker))) if worker in self.workers else 0

    @property
    def assumed_state_bytes(self) -> Integers:
        """State sizes; an unknown one counts as the largest known of its operator, so that it is not moved for free."""
        largest = np.zeros(len(self.operators), np.int64)
        np.maximum.at(largest, self.operator, np.maximum(self.state_bytes, 0))
        return np.where(self.state_bytes == UNKNOWN, largest[self.operator], self.state_bytes)

    def places_of(self, key_groups: Iterable[KeyGroup]) -> Integers:
        """The row of each of these key groups; -1 for one that is not in the table."""
        codes = {name: code for code, name in enumerate(self.operators)}
        wanted = np.array(
            [
                codes[each.operator] * (MAX_PARTITIONS + 1) + each.partition
                if each.app == self.app and each.operator in codes
                else -1
                for each in key_groups
            ],
            np.int64,
        )
        rows = self.operator * (MAX_PARTITIONS + 1) + self.partition
        if not len(rows):
            return np.full(len(wanted), -1)
        order = np.argsort(rows, kind="stable")
        at = np.minimum(np.searchsorted(rows, wanted, sorter=order), len(rows) - 1)
        return np.where(rows[order[at]] == wanted, order[at], -1)

    def with_load(self, load: Floats) -> "OwnedTable":
        """The same key groups with another load."""
        return replace(self, load=load)

    def loads_in(self, before: "OwnedTable") -> Floats:
        """The load of each key group in `before`; its present load if it is not there."""
        if (
            self.operators == before.operators
            and np.array_equal(self.operator, before.operator)
            and np.array_equal(self.partition, before.partition)
        ):
            return before.load
        known = dict(zip(before._key_groups(), before.load.tolist(), strict=True))
        found = zip(self._key_groups(), self.load.tolist(), strict=True)
        return np.array([known.get(key_group, load) for key_group, load in found])

    def moved_since(self, before: "OwnedTable") -> NDArray[np.bool_]:
        """A mask of the key groups that had another owner in `before`, or were not there."""
        known = before.owners
        found = zip(self._key_groups(), (self.workers[place] for place in self.owner.tolist()), strict=True)
        return np.array([known.get(key_group) != owner for key_group, owner in found], np.bool_)

    def _key_groups(self) -> list[KeyGroup]:
        names = (self.operators[place] for place in self.operator.tolist())
        return [
            KeyGroup(self.app, name, partition) for name, partition in zip(names, self.partition.tolist(), strict=True)
        ]
