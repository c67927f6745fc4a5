"""Who sends to whom between the operators of an app, summed over the pairs of key groups of a window.  Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab_protocol.console_documents import Flow
from trimtab_protocol.messages.key_group_table import KeyGroupBlock
from trimtab_protocol.messages.names import AppId, OperatorId
from trimtab_protocol.messages.snapshot import PairWindow, Snapshot

MAX_FLOWS = 1_000
"""Flows between operators that are kept per app: the largest."""
NOBODY = -1
"""Stands for the worker of a key group without samples."""

Column = NDArray[Any]
Operators = Mapping[tuple[AppId, OperatorId], Column]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorFlows:
    """The largest flows of an app, in descending order, and how many there are in all."""

    largest: Sequence[Flow] = ()
    total: int = 0


@dataclass(slots=True)
class _Sum:
    """Sums over pairs; those of `located` have an owner at both ends, `direct` None: unknown for some pair."""

    pairs: int = 0
    tuples_s: float = 0.0
    bytes_s: float = 0.0
    located: float = 0.0
    together: float = 0.0
    direct: float | None = 0.0

    def add(self, rows: Sequence[PairWindow], source: Column | None, target: Column | None) -> None:
        """Add pairs whose ends have these operators; their owners are by partition."""
        tuples = np.fromiter((row.tuples_s for row in rows), float, len(rows))
        first = _owners(source, np.fromiter((row.source.partition for row in rows), np.int64, len(rows)))
        second = _owners(target, np.fromiter((row.target.partition for row in rows), np.int64, len(rows)))
        located = (first != NOBODY) & (second != NOBODY)
        self.pairs += len(rows)
        self.tuples_s += float(tuples.sum())
        self.bytes_s += sum(row.bytes_s for row in rows)
        self.located += float(tuples[located].sum())
        self.together += float(tuples[located & (first == second)].sum())
        known = [row.direct_s for row in rows if row.direct_s is not None]
        self.direct = None if self.direct is None or len(known) < len(rows) else self.direct + sum(known)

    def flow(self, source: OperatorId, target: OperatorId) -> Flow:
        """The sums as a document."""
        return Flow(
            source=source,
            target=target,
            pairs=self.pairs,
            tuples_s=self.tuples_s,
            bytes_s=self.bytes_s,
            collocation=_share(self.together, self.located),
            local_sends=None if self.direct is None else _share(self.direct, self.tuples_s),
        )


def flows_of(snapshot: Snapshot) -> Mapping[AppId, OperatorFlows]:
    """The flows of each app that has some.

    A fleet has millions of pairs, and they come operator by operator: each run of them is summed as arrays.
    """
    owners = _owners_by_partition(snapshot.blocks)
    sums: defaultdict[AppId, defaultdict[tuple[OperatorId, OperatorId], _Sum]] = defaultdict(lambda: defaultdict(_Sum))
    for (source, target), run in groupby(snapshot.pairs, key=lambda row: (row.source[:2], row.target[:2])):
        found = sums[source[0]][source[1], target[1]]
        found.add(list(run), owners.get(source), owners.get(target))
    return {app: _largest(each.flow(*ends) for ends, each in rows.items()) for app, rows in sums.items()}


def _largest(flows: Iterable[Flow]) -> OperatorFlows:
    rows = sorted(flows, key=lambda row: (-row.tuples_s, row.source, row.target))
    return OperatorFlows(largest=tuple(rows[:MAX_FLOWS]), total=len(rows))


def _owners_by_partition(blocks: Iterable[KeyGroupBlock]) -> Operators:
    """Of each operator, the number of the worker that owns each partition; NOBODY where that is unknown."""
    numbers: dict[str, int] = {}
    found = {}
    for block in blocks:
        known = np.array([numbers.setdefault(worker, len(numbers)) for worker in block.workers])
        partition = np.asarray(block.partition)
        column = np.full(int(partition.max()) + 1, NOBODY)
        column[partition] = known[np.asarray(block.worker)]
        found[block.app, block.operator] = column
    return found


def _owners(owners: Column | None, partitions: Column) -> Column:
    if owners is None:
        return np.full(len(partitions), NOBODY)
    inside = partitions < len(owners)
    return np.where(inside, owners[np.where(inside, partitions, 0)], NOBODY)


def _share(part: float, whole: float) -> float | None:
    return min(1.0, part / whole) if whole else None
