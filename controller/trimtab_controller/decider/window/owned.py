"""The key groups of one app as columns; rows are created on demand.

A fleet has a million key groups.  They are processed in every window and kept until the next one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import overload

import numpy as np
from numpy.typing import NDArray

from trimtab_protocol.messages.codec import UNKNOWN
from trimtab_protocol.messages.key_group_table import KeyGroupBlock
from trimtab_protocol.messages.names import MAX_PARTITIONS, AppId, KeyGroup, OperatorId, WorkerId

PERCENT_PER_CORE = 100.0

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """A key group with its reported owner.

    `load` in percent of one core.  `state_bytes` and bytes per second that it receives and sends: None = not measured.
    """

    key_group: KeyGroup
    owner: WorkerId
    load: float
    state_bytes: int | None
    received_bytes_s: float | None = None
    sent_bytes_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OwnedTable(Sequence[Owned]):
    """The `Owned` rows of one app.  `operator` and `owner` index `operators` and `workers`.

    An unknown state is -1.  An unknown load is NaN; only the key groups of fixed workers have such loads.  `traffic` =
    (2, K) bytes per second that key groups receive and send; NaN = unknown.
    """

    app: AppId
    operators: tuple[OperatorId, ...]
    workers: tuple[WorkerId, ...]
    operator: Integers
    partition: Integers
    owner: Integers
    load: Floats
    state_bytes: Integers
    traffic: Floats

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
            traffic=np.array(
                [[row.received_bytes_s for row in rows], [row.sent_bytes_s for row in rows]], np.float64
            ),  # None becomes NaN
        )

    @classmethod
    def of_blocks(cls, app: AppId, blocks: Iterable[KeyGroupBlock]) -> "OwnedTable":
        """A table of an app's blocks, sorted by key group."""
        ordered = sorted(blocks, key=lambda block: block.operator)
        if not ordered:
            return cls.of(app, ())
        workers = {
            name: place for place, name in enumerate(sorted({name for each in ordered for name in each.workers}))
        }
        columns: dict[str, list[NDArray[np.int64]]] = {"operator": [], "partition": [], "owner": [], "state_bytes": []}
        loads, traffic = [], []
        for place, block in enumerate(ordered):
            partition = np.frombuffer(block.partition, np.int64)
            order = np.argsort(partition, kind="stable")
            columns["operator"].append(np.full(len(block), place))
            columns["partition"].append(partition[order])
            places = np.array([workers[name] for name in block.workers])
            columns["owner"].append(places[np.frombuffer(block.worker, np.int64)][order])
            columns["state_bytes"].append(np.frombuffer(block.state_bytes, np.int64)[order])
            cpu = np.frombuffer(block.cpu, np.float64)[order]
            loads.append(np.where(cpu == UNKNOWN, np.nan, PERCENT_PER_CORE * cpu))
            rates = np.array([np.frombuffer(each, np.float64)[order] for each in (block.bytes_in_s, block.bytes_out_s)])
            traffic.append(np.where(rates == UNKNOWN, np.nan, rates))
        return cls(
            app=app,
            operators=tuple(block.operator for block in ordered),
            workers=tuple(workers),
            load=np.concatenate(loads),
            traffic=np.concatenate(traffic, axis=1),
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
        received, sent = (None if np.isnan(rate) else float(rate) for rate in self.traffic[:, place])
        return Owned(
            key_group=KeyGroup(self.app, self.operators[self.operator[place]], int(self.partition[place])),
            owner=self.workers[self.owner[place]],
            load=float(self.load[place]),
            state_bytes=None if state_bytes == UNKNOWN else state_bytes,
            received_bytes_s=received,
            sent_bytes_s=sent,
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

    @property
    def assumed_traffic(self) -> Floats:
        """(2, K) bytes per second received and sent; an unknown rate counts as the largest known of its operator."""
        largest = np.zeros((2, len(self.operators)))
        known = np.nan_to_num(self.traffic)
        for row, rates in zip(largest, known, strict=True):
            np.maximum.at(row, self.operator, rates)
        return np.where(np.isnan(self.traffic), largest[:, self.operator], known)

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

    def only(self, rows: NDArray[np.bool_]) -> "OwnedTable":
        """The rows that the mask selects; `workers` are then their owners."""
        owners, owner = np.unique(self.owner[rows], return_inverse=True)
        columns = {name: getattr(self, name)[rows] for name in ("operator", "partition", "load", "state_bytes")}
        named = tuple(self.workers[place] for place in owners)
        return replace(self, workers=named, owner=owner, traffic=self.traffic[:, rows], **columns)

    def joined(self, other: "OwnedTable") -> "OwnedTable":
        """These rows, then those of `other`, which are of other key groups."""
        if not len(other):
            return self
        operators = tuple(dict.fromkeys((*self.operators, *other.operators)))
        workers = tuple(dict.fromkeys((*self.workers, *other.workers)))
        operator = np.array([operators.index(name) for name in other.operators])[other.operator]
        codes = {name: code for code, name in enumerate(workers)}
        owner = np.array([codes[name] for name in other.workers])[other.owner]
        return replace(
            self,
            operators=operators,
            workers=workers,
            operator=np.concatenate((self.operator, operator)),
            partition=np.concatenate((self.partition, other.partition)),
            owner=np.concatenate((self.owner, owner)),
            load=np.concatenate((self.load, other.load)),
            state_bytes=np.concatenate((self.state_bytes, other.state_bytes)),
            traffic=np.concatenate((self.traffic, other.traffic), axis=1),
        )

    def places_in(self, other: "OwnedTable") -> Integers:
        """The row of each key group in `other`; -1 where it has none."""
        if self._has_rows_of(other):
            return np.arange(len(self))
        if not len(other):
            return np.full(len(self), -1)
        codes = {name: code for code, name in enumerate(self.operators)}
        ours = self._coded(np.arange(len(self.operators)))
        theirs = other._coded(np.array([codes.get(name, -1) for name in other.operators]))
        order = np.argsort(theirs, kind="stable")
        at = np.minimum(np.searchsorted(theirs, ours, sorter=order), len(theirs) - 1)
        return np.where(theirs[order[at]] == ours, order[at], -1)

    def loads_in(self, before: "OwnedTable") -> Floats:
        """The load of each key group in `before`; its present load if it is not there."""
        if not len(before):
            return self.load
        places = self.places_in(before)
        return np.where(places >= 0, before.load[places], self.load)

    def moved_since(self, before: "OwnedTable") -> NDArray[np.bool_]:
        """A mask of the key groups that had another owner in `before`, or were not there."""
        if not len(before):
            return np.ones(len(self), np.bool_)
        places = self.places_in(before)
        codes = {name: code for code, name in enumerate(self.workers)}
        owners = np.array([codes.get(name, -1) for name in before.workers])[before.owner]
        moved: NDArray[np.bool_] = (places < 0) | (owners[places] != self.owner)
        return moved

    def _has_rows_of(self, other: "OwnedTable") -> bool:
        return (
            self.operators == other.operators
            and np.array_equal(self.operator, other.operator)
            and np.array_equal(self.partition, other.partition)
        )

    def _coded(self, codes: Integers) -> Integers:
        """One number per key group; `codes` are those of the operators."""
        coded: Integers = codes[self.operator] * (MAX_PARTITIONS + 1) + self.partition
        return np.where(codes[self.operator] < 0, -1, coded)

    def _key_groups(self) -> list[KeyGroup]:
        names = (self.operators[place] for place in self.operator.tolist())
        return [
            KeyGroup(self.app, name, partition) for name, partition in zip(names, self.partition.tolist(), strict=True)
        ]
