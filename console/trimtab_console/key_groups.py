"""Key groups of a snapshot and of a placement, aggregated: a fleet has a million of them.  Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab_protocol.console_documents import KeyGroupMap, KeyGroupRow, Operator, Placed, PlacementRow
from trimtab_protocol.messages.codec import UNKNOWN
from trimtab_protocol.messages.key_group_table import KeyGroupBlock
from trimtab_protocol.messages.names import AppId, OperatorId
from trimtab_protocol.messages.owner_rows import OwnerTable
from trimtab_protocol.messages.placement import Placement
from trimtab_protocol.messages.snapshot import Snapshot

Column = NDArray[Any]


def operators(snapshot: Snapshot, app: AppId) -> list[Operator]:
    """The operators of an app, by name."""
    found = (_operator(block) for block in snapshot.blocks if block.app == app)
    return sorted(found, key=lambda row: row.operator)


def block_of(snapshot: Snapshot, app: AppId, operator: OperatorId) -> KeyGroupBlock | None:
    """The key groups of one operator."""
    return next((each for each in snapshot.blocks if (each.app, each.operator) == (app, operator)), None)


def _operator(block: KeyGroupBlock) -> Operator:
    def total(name: str) -> float | None:
        column = np.asarray(getattr(block, name))
        known = column[column != UNKNOWN]
        return float(known.sum()) if known.size else None

    backlog, state = total("backlog"), total("state_bytes")
    return Operator(
        app=block.app,
        operator=block.operator,
        key_groups=len(block),
        workers=len(block.workers),
        cpu_cores=total("cpu"),
        tuples_in_s=total("tuples_in_s"),
        backlog=None if backlog is None else int(backlog),
        state_bytes=None if state is None else int(state),
        unmeasured=int((np.asarray(block.cpu) == UNKNOWN).sum()),
    )


def map_of(block: KeyGroupBlock, cells: int) -> KeyGroupMap:
    """The key groups by partition, in at most `cells` cells."""
    order = np.argsort(np.asarray(block.partition), kind="stable")
    partition, worker = np.asarray(block.partition)[order], np.asarray(block.worker)[order]
    cpu = np.asarray(block.cpu)[order]
    size = max(1, -(-len(order) // cells))
    known = np.where(cpu == UNKNOWN, -1.0, 100.0 * cpu)
    starts = np.arange(0, len(order), size)
    peak = np.maximum.reduceat(known, starts)
    counts = np.add.reduceat((known >= 0).astype(float), starts)
    sums = np.add.reduceat(np.where(known >= 0, known, 0.0), starts)
    padded = np.concatenate([known, np.full(len(starts) * size - len(known), -2.0)])
    hottest = starts + padded.reshape(-1, size).argmax(axis=1)
    return KeyGroupMap(
        app=block.app,
        operator=block.operator,
        key_groups=len(block),
        per_cell=size,
        workers=list(block.workers),
        first=partition[starts].tolist(),
        last=partition[np.minimum(starts + size, len(order)) - 1].tolist(),
        peak=[None if value < 0 else round(value, 3) for value in peak.tolist()],
        mean=[round(total / n, 3) if n else None for total, n in zip(sums.tolist(), counts.tolist(), strict=True)],
        hottest=partition[hottest].tolist(),
        worker=worker[hottest].tolist(),
    )


def rows_of(block: KeyGroupBlock, offset: int, limit: int, *, by_load: bool) -> list[KeyGroupRow]:
    """Some key groups, by partition or with the highest load first."""
    key = -np.asarray(block.cpu) if by_load else np.asarray(block.partition)
    places = np.argsort(key, kind="stable")[offset : offset + limit]
    windows = (block.row(int(place)) for place in places)
    return [
        KeyGroupRow(
            partition=row.key_group.partition,
            worker=row.worker,
            load_pct=None if row.cpu is None else 100.0 * row.cpu,
            tuples_in_s=row.tuples_in_s,
            backlog=row.backlog,
            state_bytes=row.state_bytes,
        )
        for row in windows
    ]


def placed(placement: Placement, operator: OperatorId | None, offset: int, limit: int) -> Placed:
    """Some rows of a placement, of one operator or of all (None)."""
    tables = {name: table for name, table in placement.owners.items() if operator in (None, name)}
    return Placed(
        items=list(_placement_rows(tables, offset, limit)),
        total=sum(len(table) for table in tables.values()),
        offset=offset,
        epoch=str(placement.epoch),
    )


def _placement_rows(tables: Mapping[OperatorId, OwnerTable], offset: int, limit: int) -> Iterator[PlacementRow]:
    for operator, table in sorted(tables.items()):
        for partition in range(offset, min(len(table), offset + limit)):
            owner, *standbys = table[partition] or (None,)
            yield PlacementRow(operator=operator, partition=partition, owner=owner, standbys=list(map(str, standbys)))
            limit -= 1
        offset = max(0, offset - len(table))
