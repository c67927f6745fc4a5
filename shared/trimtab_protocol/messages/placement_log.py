"""Puts the newest placement of one app together from the records of the topic.  Pure.

Kafka delivers the records of the topic in order.  But a reader may begin anywhere after a compaction, which keeps the
last record of each key, or read again from the beginning.  So the rules are:

- Of each part the one with the highest epoch counts.
- A head counts only together with all its parts, as its digest shows.  Until then the placement before it stays.
- Nothing older than what is known counts.
"""

from dataclasses import dataclass, field

from trimtab_protocol.messages.names import NO_EPOCH, Epoch, OperatorId
from trimtab_protocol.messages.placement import Placement
from trimtab_protocol.messages.placement_parts import PlacementHead, PlacementPart, PlacementRecord, tables_of


@dataclass(slots=True)
class PlacementLog:
    """`newest` = the newest placement that is whole, revoking ones included.  Records are verified by the caller."""

    newest: Placement | None = None
    _head: PlacementHead | None = None
    _parts: dict[tuple[OperatorId, int], PlacementPart] = field(default_factory=dict)
    """Parts that are not in `newest` yet."""
    _flaw: str | None = None

    @property
    def epoch(self) -> Epoch:
        """The epoch of the newest placement that is whole."""
        return self.newest.epoch if self.newest is not None else NO_EPOCH

    @property
    def announced(self) -> Epoch:
        """The epoch of the newest head or placement that was read."""
        return max(self.epoch, self._head.epoch if self._head is not None else NO_EPOCH)

    @property
    def highest(self) -> Epoch:
        """The highest epoch of all records that were read, parts without a head included."""
        return max([self.announced, *(part.epoch for part in self._parts.values())])

    @property
    def flaw(self) -> str | None:
        """Why the newest head cannot be put together; None if it is, or if its successor is being read."""
        return None if self.in_transaction else self._flaw

    @property
    def in_transaction(self) -> bool:
        """Whether parts have been read whose head has not: the rest of their transaction follows."""
        return self.highest > self.announced

    def begin_again(self) -> None:
        """The topic is read again from its beginning; the newest placement stays."""
        self._head, self._flaw = None, None
        self._parts.clear()

    def take(self, record: PlacementRecord) -> None:
        """Note a record.  Call `settle` to put together what has been noted."""
        match record:
            case PlacementPart():
                key = record.operator, record.part
                known = self._parts.get(key)
                # Parts up to the epoch of `newest` are in it already.
                if record.epoch > self.epoch and (known is None or record.epoch >= known.epoch):
                    self._parts[key] = record
            case PlacementHead():
                if record.epoch > self.announced:
                    self._head = record
            case Placement():
                if record.epoch > self.announced:
                    self.newest, self._head, self._flaw = record, None, None
                    self._drop_until(record.epoch)

    def settle(self) -> Placement | None:
        """The placement that the records complete, if it is newer than `newest`, which it becomes."""
        head = self._head
        if head is None or head.epoch <= self.epoch:
            return None
        due = {key: part for key, part in self._parts.items() if part.epoch <= head.epoch}
        found = tables_of(head, self.newest, due)
        if isinstance(found, str):
            self._flaw = f"placement {head.epoch}: {found}"
            return None
        self.newest = Placement(
            cluster=head.cluster, app=head.app, epoch=head.epoch, owners=found, part_size=head.part_size
        )
        self._head, self._flaw = None, None
        self._drop_until(head.epoch)
        return self.newest

    def _drop_until(self, epoch: Epoch) -> None:
        self._parts = {key: part for key, part in self._parts.items() if part.epoch > epoch}
