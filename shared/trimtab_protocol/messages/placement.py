"""Placement: who owns which key group of an app, versioned.  Compacted topic, key = app; every worker tails it."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from trimtab_protocol.messages.decode import NAME_PATTERN, BadMessage, Fault, Fields, encode, parse
from trimtab_protocol.messages.names import MAX_PARTITIONS, AppId, Epoch, OperatorId, WorkerId, decode_epoch

VERSION = 1
MAX_OPERATORS = 1000
"""Operators of one app."""
MAX_STANDBYS = 8
"""Standbys of one key group in a placement."""
MAX_WANTED_STANDBYS = MAX_STANDBYS - 1
"""Standbys that an app may ask for; a key group that moves has its target besides."""
MAX_MOVING = 1_000
"""Key groups of one plan."""
MAX_HEAD_BYTES = 600
"""What a placement is reckoned to take besides its rows: two names of 200 characters, an epoch, the keys."""

Owners = tuple[WorkerId, ...]
"""(owner, first standby, ...) of one key group; empty = the engine's fallback decides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """`owners[operator][partition]` = (owner, standbys ...), as published under `epoch`.

    Without any operator it takes the app's placement back.  A tombstone could not do that: it has no epoch and no
    signature, so whoever can write to the topic could write one, or repeat it later.
    """

    cluster: str
    app: AppId
    epoch: Epoch
    owners: Mapping[OperatorId, tuple[Owners, ...]]

    def __post_init__(self) -> None:
        object.__setattr__(self, "owners", MappingProxyType(dict(self.owners)))

    def of(self, operator: OperatorId, partition: int) -> Owners:
        """Owner and standbys of a key group; empty when the placement does not speak of it."""
        rows = self.owners.get(operator, ())
        return rows[partition] if partition < len(rows) else ()

    @property
    def is_taken_back(self) -> bool:
        """Whether the app is forgotten."""
        return not self.owners

    def document(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "v": VERSION,
            "cluster": self.cluster,
            "app": self.app,
            "epoch": list(self.epoch),
            "owners": {operator: [list(row) for row in rows] for operator, rows in self.owners.items()},
        }


def most_bytes(counts: Mapping[OperatorId, int], longest_name: int, standbys: int = 0) -> int:
    """How large a placement of so many key groups per operator can become, by workers' names of so many characters.

    Each key group has an owner and so many standbys.  Of none, in the course of time, one: its owner before it moved.
    While some move, their targets come to so many.
    """
    names = 1 + max(1, standbys)
    row = len(encode([[""] * names])) - 1 + names * longest_name  # with its comma, without the outer brackets
    operators = sum(len(operator) + len('"":[],') + count * row for operator, count in counts.items())
    moving = min(MAX_MOVING, sum(counts.values())) if standbys else 0
    return operators + moving * (len(',""') + longest_name) + MAX_HEAD_BYTES


def encode_placement(placement: Placement) -> bytes:
    """The wire form."""
    return encode(placement.document())


def decode_placement(payload: bytes | None) -> Placement:
    """A placement from the wire; raises BadMessage."""
    return read_placement(parse(payload, version=VERSION))


def read_placement(fields: Fields) -> Placement:
    """A placement from fields whose version has been read."""
    return Placement(
        cluster=fields.name("cluster"),
        app=AppId(fields.name("app")),
        epoch=decode_epoch(fields.take("epoch"), fields.at("epoch")),
        owners={
            OperatorId(operator): tuple(_read_rows(rows, path))
            for operator, path, rows in fields.members("owners", limit=MAX_OPERATORS)
        },
    )


def _read_rows(rows: object, path: str) -> list[Owners]:
    if not isinstance(rows, list) or len(rows) > MAX_PARTITIONS:
        raise BadMessage(Fault.TYPE, path, rows, f"an array of at most {MAX_PARTITIONS} owner lists")
    return [_read_owners(row, f"{path}[{index}]") for index, row in enumerate(rows)]


def _read_owners(row: object, path: str) -> Owners:
    if not isinstance(row, list) or len(row) > 1 + MAX_STANDBYS:
        raise BadMessage(Fault.TYPE, path, row, f"an array of at most {1 + MAX_STANDBYS} workers")
    for worker in row:
        if not isinstance(worker, str) or not NAME_PATTERN.fullmatch(worker):
            raise BadMessage(Fault.RANGE, path, worker, "a worker's name")
    if len(set(row)) != len(row):
        raise BadMessage(Fault.RANGE, path, row, "each worker once")
    return tuple(WorkerId(worker) for worker in row)
