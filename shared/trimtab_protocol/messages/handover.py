"""Records that the two workers of a hand-over exchange.  Worker -> all workers; the topic has one partition.

The old owner writes `released` after its commit, the new owner writes `took` after its own.  Both are valid only in the
group generation that they name.  (kind, handover, generation) identifies a repeat.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from trimtab_protocol.messages.commands import read_key_groups
from trimtab_protocol.messages.decode import BadMessage, Fault, Fields, check_integer, encode, parse
from trimtab_protocol.messages.names import AppId, Epoch, KeyGroup, WorkerId, decode_epoch

VERSION = 1
MAX_OFFSETS = 100_000
"""Offsets in one record of a hand-over."""
TOPIC_PATTERN = re.compile(r"[A-Za-z0-9._-]{1,249}")
"""Kafka's rule for names of topics."""

Offsets = tuple[tuple[str, int, int], ...]
"""Rows of (topic, partition, offset)."""


class HandoverKind(StrEnum):
    """The step that is complete."""

    RELEASED = "released"  # the old owner has committed and given away
    TOOK = "took"  # the new owner owns, and has committed


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoverRecord:
    """One step of the hand-over `handover` of `key_groups` from `source` to `target` inside group `generation`.

    Only in `released`: `offsets` = committed offsets of the input partitions, where the target continues; `ends` = end
    offsets of the changelogs, up to which the target must read; `held_s` = seconds from when the source stopped
    fetching to this record.
    """

    kind: HandoverKind
    cluster: str
    app: AppId
    handover: str
    epoch: Epoch
    generation: int
    source: WorkerId
    target: WorkerId
    key_groups: tuple[KeyGroup, ...]
    offsets: Offsets = ()
    ends: Offsets = ()
    held_s: float = 0.0

    def __post_init__(self) -> None:
        if not self.key_groups:
            raise BadMessage(Fault.MISSING, "key_groups", "none", "at least one key group")
        if self.source == self.target:
            raise BadMessage(Fault.RANGE, "target", self.target, "another worker than source")

    def document(self) -> dict[str, Any]:
        """The message as JSON types."""
        return {
            "v": VERSION,
            "kind": self.kind,
            "cluster": self.cluster,
            "app": self.app,
            "handover": self.handover,
            "epoch": list(self.epoch),
            "generation": self.generation,
            "source": self.source,
            "target": self.target,
            "key_groups": [str(key_group) for key_group in self.key_groups],
            "offsets": [list(row) for row in self.offsets],
            "ends": [list(row) for row in self.ends],
            "held_s": self.held_s,
        }


def encode_handover(record: HandoverRecord) -> bytes:
    """The message as bytes."""
    return encode(record.document())


def decode_handover(payload: bytes | None) -> HandoverRecord:
    """The hand-over record in these bytes; raises BadMessage."""
    fields = parse(payload, version=VERSION)
    return HandoverRecord(
        kind=fields.choice("kind", HandoverKind),
        cluster=fields.name("cluster"),
        app=AppId(fields.name("app")),
        handover=fields.name("handover"),
        epoch=decode_epoch(fields.take("epoch"), "epoch"),
        generation=fields.integer("generation"),
        source=WorkerId(fields.name("source")),
        target=WorkerId(fields.name("target")),
        key_groups=read_key_groups(fields, "key_groups"),
        offsets=_read_offsets(fields, "offsets"),
        ends=_read_offsets(fields, "ends"),
        held_s=fields.number("held_s"),
    )


def _read_offsets(fields: Fields, name: str) -> Offsets:
    rows = []
    for path, row in fields.items(name, limit=MAX_OFFSETS):
        if not isinstance(row, list) or len(row) != 3 or not isinstance(row[0], str):
            raise BadMessage(Fault.TYPE, path, row, "[topic, partition, offset]")
        if not TOPIC_PATTERN.fullmatch(row[0]):
            raise BadMessage(Fault.RANGE, f"{path}[0]", row[0], "the name of a topic")
        partition = check_integer(row[1], f"{path}[1]", 0, 2**31 - 1)
        rows.append((row[0], partition, check_integer(row[2], f"{path}[2]", 0, 2**63 - 1)))
    return tuple(rows)
