"""A placement in parts: one record per part, and a head that says which parts belong together.

A step publishes the parts that it changes and then the head, in one transaction.  All three are signed like a placement
in one record.  The head has no list of its parts: a digest over all of them shows whether a reader has them all, in the
version that the head means (`placement_log.py`).
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from trimtab_protocol.messages.codec import Most, Name, Range, Text, Wire, WrittenAs, converted, decoded, encoded
from trimtab_protocol.messages.decode import MAX_MESSAGE_BYTES, BadMessage, Fault, parsed
from trimtab_protocol.messages.names import MAX_PARTITIONS, AppId, Epoch, OperatorId
from trimtab_protocol.messages.owner_rows import OwnerPart, Owners, OwnerTable, parts_in, rows_in
from trimtab_protocol.messages.placement import MAX_OPERATORS, VERSION, Placement, read_rows

HEAD_VERSION = 2
"""Not that of a placement in one record: a reader that takes the head for one refuses it."""
MAX_KEY_GROUPS = 1_000_000
"""Key groups of an app: the size that was measured."""
MAX_PART_SIZE = 4_096
"""Most key groups in one part; with the longest names and all standbys they fit into a message."""
SEPARATOR = "/"
"""Between the parts of a part's key; no name contains it."""


def _rows(found: object) -> tuple[Owners, ...]:
    return tuple(read_rows(found, most=MAX_PART_SIZE))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementPart:
    """The rows of an operator from partition `part * part_size` on, published under `epoch`."""

    WIRE: ClassVar = Wire(version=VERSION)

    cluster: Name
    app: AppId
    epoch: Epoch
    operator: OperatorId
    part: Annotated[int, Range(0, MAX_PARTITIONS)]
    rows: Annotated[tuple[Owners, ...], WrittenAs(Any, list, _rows)]

    @property
    def key(self) -> bytes:
        """The record's key: app/operator/part."""
        return part_key(self.app, self.operator, self.part)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementHead:
    """The record under the app's key: `key_groups` = number of key groups per operator, `part_size` = of each part.

    `digest` = SHA-256 over all parts (`digest_of`).
    """

    WIRE: ClassVar = Wire(version=HEAD_VERSION)

    cluster: Name
    app: AppId
    epoch: Epoch
    part_size: Annotated[int, Range(1, MAX_PART_SIZE)]
    key_groups: Annotated[Mapping[OperatorId, Annotated[int, Range(1, MAX_PARTITIONS)]], Most(MAX_OPERATORS)]
    digest: Annotated[str, Text(64)]

    def __post_init__(self) -> None:
        if sum(self.key_groups.values()) > MAX_KEY_GROUPS:
            raise BadMessage(Fault.RANGE, "key_groups", sum(self.key_groups.values()), f"at most {MAX_KEY_GROUPS}")


PlacementRecord = Placement | PlacementHead | PlacementPart
"""What a record of the placement's topic holds."""


def part_key(app: AppId, operator: OperatorId, part: int) -> bytes:
    """The key of a part's record."""
    return SEPARATOR.join((app, operator, str(part))).encode()


def is_part(key: bytes | None) -> bool:
    """Whether this is the key of a part."""
    return SEPARATOR.encode() in (key or b"")


def app_in(key: bytes | None) -> str:
    """The app that a record's key names; the part of a key that is no name is left for the decoder to refuse."""
    return (key or b"").decode(errors="replace").partition(SEPARATOR)[0]


def digest_of(tables: Mapping[OperatorId, OwnerTable]) -> str:
    """SHA-256 in hex over operators, their numbers of key groups, and all rows."""
    found = hashlib.sha256()
    for operator in sorted(tables):
        found.update(f"{operator}:{len(tables[operator])}\n".encode())
        found.update(tables[operator].digest)
    return found.hexdigest()


def head_of(placement: Placement) -> PlacementHead:
    """The head of a placement in parts."""
    assert placement.part_size is not None
    return PlacementHead(
        cluster=placement.cluster,
        app=placement.app,
        epoch=placement.epoch,
        part_size=placement.part_size,
        key_groups={operator: len(table) for operator, table in placement.owners.items()},
        digest=digest_of(placement.owners),
    )


def records_of(placement: Placement, before: Placement | None) -> list[tuple[bytes, bytes | None]]:
    """Keys and values of the records that publish a placement after `before`; None as value: a tombstone.

    `before` = what is on the topic; None: unknown, so everything is published.  The head, or the placement in one
    record, comes last: it makes the others count.
    """
    old = {} if before is None or before.part_size is None else before.owners
    shared = old if before is not None and before.part_size == placement.part_size else {}
    found: list[tuple[bytes, bytes | None]] = []
    kept = placement.owners if placement.part_size is not None else {}
    for operator, table in old.items():
        first = len(kept[operator].parts) if operator in kept else 0
        found += [(part_key(placement.app, operator, part), None) for part in range(first, len(table.parts))]
    if placement.part_size is None:
        return [*found, (placement.app.encode(), encoded(placement))]
    for operator, table in placement.owners.items():
        same: tuple[OwnerPart, ...] = shared[operator].parts if operator in shared else ()
        for index, part in enumerate(table.parts):
            if index >= len(same) or (same[index] is not part and same[index] != part):
                found.append(_record(placement, operator, index, part))
    return [*found, (placement.app.encode(), encoded(head_of(placement)))]


def _record(placement: Placement, operator: OperatorId, index: int, part: OwnerPart) -> tuple[bytes, bytes]:
    made = PlacementPart(
        cluster=placement.cluster,
        app=placement.app,
        epoch=placement.epoch,
        operator=operator,
        part=index,
        rows=part.rows,
    )
    return made.key, encoded(made)


def decode_record(key: bytes | None, payload: bytes | None) -> PlacementRecord:
    """What a record of the placement's topic holds, and checks that its key says the same.  Raises BadMessage."""
    found: PlacementRecord
    if is_part(key):
        found = decoded(payload, PlacementPart)
        expected = found.key
    else:
        document = parsed(payload, MAX_MESSAGE_BYTES)
        in_parts = isinstance(document, dict) and document.get("digest") is not None
        found = converted(document, PlacementHead) if in_parts else converted(document, Placement)
        expected = found.app.encode()
    if key != expected:
        raise BadMessage(Fault.RANGE, "key", key, f"{expected!r}, as the record says"[:100])
    return found


def tables_of(
    head: PlacementHead, newest: Placement | None, parts: Mapping[tuple[OperatorId, int], PlacementPart]
) -> dict[OperatorId, OwnerTable] | str:
    """The tables that a head means, or what is missing.

    `parts` = those read since `newest`; all others are taken from `newest`.
    """
    known = newest.owners if newest is not None and newest.part_size == head.part_size else {}
    fresh: dict[OperatorId, dict[int, OwnerPart]] = {}
    for (operator, index), part in parts.items():
        count = head.key_groups.get(operator, 0)
        if index < parts_in(count, head.part_size):
            if len(part.rows) != rows_in(index, count, head.part_size):
                return f"part {index} of operator {operator} has {len(part.rows)} rows, of {count} key groups"
            fresh.setdefault(operator, {})[index] = OwnerPart(part.rows)
    tables: dict[OperatorId, OwnerTable] = {}
    for operator, count in head.key_groups.items():
        before, found = known.get(operator), fresh.get(operator, {})
        if before is not None and len(before) == count:
            tables[operator] = before.with_parts(found) if found else before
            continue
        of_before = dict(enumerate(before.parts)) if before is not None else {}
        merged = {**of_before, **found}
        wanted = range(parts_in(count, head.part_size))
        missing = next((index for index in wanted if index not in merged), None)
        if missing is not None:
            return f"part {missing} of operator {operator} is missing"
        if any(len(merged[index].rows) != rows_in(index, count, head.part_size) for index in wanted):
            return f"parts of operator {operator} do not make {count} key groups"
        tables[operator] = OwnerTable([merged[index] for index in wanted], head.part_size)
    if digest_of(tables) != head.digest:
        return "a part is missing or is an older one: the digest differs"
    return tables
