"""The placement: which worker owns which key group of an app.  Controller -> workers; compacted topic, key = app."""

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
"""Most standbys that an app may ask for.  One place is left for the target of a key group that moves."""
MAX_MOVING = 1_000
"""Most key groups that one plan moves."""
MAX_HEAD_BYTES = 600
"""Space for all but `owners`: two names of 200 characters, an epoch, and the JSON keys."""

Owners = tuple[WorkerId, ...]
"""(owner, first standby, ...) of one key group; empty = the engine assigns it by its own rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """`owners[operator][partition]` = (owner, standbys ...), published under `epoch`.

    A placement without operators revokes the app's placement.  A tombstone does not: it has neither epoch nor
    signature, so anybody who can write to the topic could forge or replay one.
    """

    cluster: str
    app: AppId
    epoch: Epoch
    owners: Mapping[OperatorId, tuple[Owners, ...]]

    def __post_init__(self) -> None:
        object.__setattr__(self, "owners", MappingProxyType(dict(self.owners)))

    def of(self, operator: OperatorId, partition: int) -> Owners:
        """Owner and standbys of a key group; empty when the placement does not list it."""
        rows = self.owners.get(operator, ())
        return rows[partition] if partition < len(rows) else ()

    @property
    def is_taken_back(self) -> bool:
        """Whether this revokes the app's placement."""
        return not self.owners

    def document(self) -> dict[str, Any]:
        """The message as JSON types."""
        return {
            "v": VERSION,
            "cluster": self.cluster,
            "app": self.app,
            "epoch": list(self.epoch),
            "owners": {operator: [list(row) for row in rows] for operator, rows in self.owners.items()},
        }


def most_bytes(counts: Mapping[OperatorId, int], longest_name: int, standbys: int = 0) -> int:
    """Largest size in bytes that a placement can reach.

    `counts` = key groups per operator, `longest_name` = characters of the longest worker name, `standbys` = standbys
    that the app asks for.  Each key group has an owner and its standbys, but room for at least one: after a move the
    old owner is listed.  With standbys, the key groups of one plan also list their targets while they move.
    """
    names = 1 + max(1, standbys)
    row = len(encode([[""] * names])) - 1 + names * longest_name  # with its comma, without the outer brackets
    operators = sum(len(operator) + len('"":[],') + count * row for operator, count in counts.items())
    moving = min(MAX_MOVING, sum(counts.values())) if standbys else 0
    return operators + moving * (len(',""') + longest_name) + MAX_HEAD_BYTES


def encode_placement(placement: Placement) -> bytes:
    """The message as bytes."""
    return encode(placement.document())


def decode_placement(payload: bytes | None) -> Placement:
    """The placement in these bytes; raises BadMessage."""
    return read_placement(parse(payload, version=VERSION))


def read_placement(fields: Fields) -> Placement:
    """The placement in these fields, whose version has been checked."""
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
