"""The placement: which worker owns which key group of an app.  Controller -> workers; compacted topic.

A small placement is one record, whose key is the app.  A larger one is published in parts, so that a change costs the
same however large the app is: each part is a record of its own, and the record under the app's key is the head, which
says which parts belong together (`placement_parts.py`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Annotated, Any, ClassVar

from trimtab_protocol.messages.codec import Most, Name, NotSent, Wire, WrittenAs
from trimtab_protocol.messages.decode import NAME_PATTERN, BadMessage, Fault
from trimtab_protocol.messages.names import MAX_PARTITIONS, AppId, Epoch, KeyGroup, OperatorId, WorkerId
from trimtab_protocol.messages.owner_rows import PART_SIZE, Owners, OwnerTable

VERSION = 1
MAX_OPERATORS = 1000
"""Operators of one app."""
MAX_STANDBYS = 8
"""Standbys of one key group in a placement."""
MAX_WANTED_STANDBYS = MAX_STANDBYS - 1
"""Most standbys that an app may ask for.  One place is left for the target of a key group that moves."""
MAX_MOVING = 1_000
"""Most key groups that one plan moves."""

Rows = Iterable[Owners]


def read_rows(rows: object, *, most: int) -> list[Owners]:
    """Rows of owners in JSON types; equal rows become one object.  Raises BadMessage."""
    if not isinstance(rows, list) or len(rows) > most:
        raise BadMessage(Fault.TYPE, "", rows, f"an array of at most {most} owner lists")
    known: dict[Owners, Owners] = {}
    found = []
    for index, row in enumerate(rows):
        try:
            same = known.get(tuple(row))
        except TypeError:  # no array, or of something that is no name
            same = None
        if same is None:
            same = _read_owners(row, f"[{index}]")
            known[same] = same
        found.append(same)
    return found


def _read_owners(row: object, path: str) -> Owners:
    if not isinstance(row, list) or len(row) > 1 + MAX_STANDBYS:
        raise BadMessage(Fault.TYPE, path, row, f"an array of at most {1 + MAX_STANDBYS} workers")
    for worker in row:
        if not isinstance(worker, str) or _name(worker) is None:
            raise BadMessage(Fault.RANGE, path, worker, "a worker's name")
    if len(set(row)) != len(row):
        raise BadMessage(Fault.RANGE, path, row, "each worker once")
    return tuple(_name(worker) for worker in row)  # type: ignore[misc]  # all are names


@lru_cache(maxsize=20_000)
def _name(worker: str) -> WorkerId | None:
    """The name as one object, since a million rows name few workers; None: it is no name."""
    return WorkerId(worker) if NAME_PATTERN.fullmatch(worker) else None


@dataclass(frozen=True, slots=True, kw_only=True, init=False)
class Placement:
    """`owners[operator][partition]` = (owner, standbys ...), published under `epoch`.

    `part_size` = key groups per part; None: it is one record.  `owners` becomes a mapping to `OwnerTable`, from any
    rows.  A placement without operators revokes the app's placement.  A tombstone does not: it has neither epoch nor
    signature, so anybody who can write to the topic could forge or replay one.
    """

    WIRE: ClassVar = Wire(version=VERSION)

    cluster: Name
    app: AppId
    epoch: Epoch
    owners: Annotated[
        Mapping[OperatorId, Annotated[OwnerTable, WrittenAs(Any, list, partial(read_rows, most=MAX_PARTITIONS))]],
        Most(MAX_OPERATORS),
    ]
    part_size: Annotated[int | None, NotSent()] = None

    def __init__(
        self,
        *,
        cluster: str,
        app: AppId,
        epoch: Epoch,
        owners: Mapping[OperatorId, Rows],
        part_size: int | None = None,
    ) -> None:
        size = part_size or PART_SIZE
        tables = {operator: OwnerTable.of(rows, size) for operator, rows in owners.items()}
        for name, value in (("cluster", cluster), ("app", app), ("epoch", epoch), ("part_size", part_size)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "owners", MappingProxyType(tables))

    def of(self, operator: OperatorId, partition: int) -> Owners:
        """Owner and standbys of a key group; empty when the placement does not list it."""
        rows = self.owners.get(operator, ())
        return rows[partition] if partition < len(rows) else ()

    @property
    def is_taken_back(self) -> bool:
        """Whether this revokes the app's placement."""
        return not self.owners

    def changed(self, epoch: Epoch, rows: Mapping[KeyGroup, Owners]) -> "Placement":
        """The placement with some rows replaced, under a new epoch; it shares all parts that stay as they are."""
        by_operator: dict[OperatorId, dict[int, Owners]] = {}
        for key_group, row in rows.items():
            by_operator.setdefault(key_group.operator, {})[key_group.partition] = row
        changed = {operator: self.owners[operator].changed(each) for operator, each in by_operator.items()}
        return Placement(
            cluster=self.cluster,
            app=self.app,
            epoch=epoch,
            owners={**self.owners, **changed},
            part_size=self.part_size,
        )
