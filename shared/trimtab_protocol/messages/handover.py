"""Records that the two workers of a hand-over exchange.  Worker -> all workers; the topic has one partition.

The old owner writes `released` after its commit, the new owner writes `took` after its own.  Both are valid only in the
group generation that they name.  (kind, handover, generation) identifies a repeat.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, ClassVar

from trimtab_protocol.messages.codec import MAX_INTEGER, Distinct, Most, Name, Range, Wire
from trimtab_protocol.messages.commands import MAX_KEY_GROUPS
from trimtab_protocol.messages.decode import BadMessage, Fault
from trimtab_protocol.messages.names import AppId, Epoch, KeyGroupName, Topic, WorkerId

VERSION = 1
MAX_OFFSETS = 100_000
"""Offsets in one record of a hand-over."""

Offset = tuple[Topic, Annotated[int, Range(0, 2**31 - 1)], Annotated[int, Range(0, MAX_INTEGER)]]
Offsets = Annotated[tuple[Offset, ...], Most(MAX_OFFSETS)]
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

    WIRE: ClassVar = Wire(version=VERSION)

    kind: HandoverKind
    cluster: Name
    app: AppId
    handover: Name
    epoch: Epoch
    generation: int
    source: WorkerId
    target: WorkerId
    key_groups: Annotated[tuple[KeyGroupName, ...], Most(MAX_KEY_GROUPS), Distinct()]
    offsets: Offsets = ()
    ends: Offsets = ()
    held_s: float = 0.0

    def __post_init__(self) -> None:
        if not self.key_groups:
            raise BadMessage(Fault.MISSING, "key_groups", "none", "at least one key group")
        if self.source == self.target:
            raise BadMessage(Fault.RANGE, "target", self.target, "another worker than source")
