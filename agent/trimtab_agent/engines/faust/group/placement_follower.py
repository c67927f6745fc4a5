"""Follows the placements' topic for one worker, record by record.  No I/O; runs in the channel's thread.

The shared state gets a placement only when it is whole.  While one is not, the worker keeps the one before and says so;
then the topic has to be read again from its beginning.
"""

import logging

from trimtab_agent.engines.faust.group.shared_state import PluginState, Signatures
from trimtab_protocol.messages.decode import BadMessage, Fault
from trimtab_protocol.messages.names import NO_EPOCH
from trimtab_protocol.messages.placement import Placement
from trimtab_protocol.messages.placement_log import PlacementLog
from trimtab_protocol.messages.placement_parts import PlacementHead, app_in

log = logging.getLogger(__name__)

FIRST_REREAD_S, LAST_REREAD_S = 2.0, 300.0
"""First and longest pause before the topic is read again for a placement that was not whole; it doubles each time."""


class PlacementFollower:
    """`begin`, then `take` for each record, and `at_end` once when what was there at the beginning has been read."""

    def __init__(self, shared: PluginState) -> None:
        self._shared = shared
        self._log = PlacementLog()
        self._loading = True
        self._last = -1, NO_EPOCH
        """Offset and epoch of the last record read here.  The shared state may hold a newer one from a member."""
        self._reread_s = FIRST_REREAD_S
        self._reread_at: float | None = None

    @property
    def loading(self) -> bool:
        """Whether the topic is being read from its beginning."""
        return self._loading

    def begin(self) -> None:
        """The topic is read from its beginning now."""
        self._log.begin_again()
        self._loading, self._reread_at = True, None

    def take(self, offset: int, key: bytes | None, value: bytes | None, signatures: Signatures) -> bool:
        """Note a record; ignore other apps' and tombstones.  Returns whether there is a new placement.

        Raises BadMessage.
        """
        if value is None or key is None or app_in(key) != self._shared.app:
            return False
        record = self._shared.read(key, value, signatures)
        if offset > self._last[0]:  # otherwise the topic is being read again
            if record.epoch < self._last[1]:
                self._shared.refused[Fault.OLD_EPOCH] += 1
                raise BadMessage(Fault.OLD_EPOCH, "epoch", str(record.epoch), f"{self._last[1]} or later")
            self._last = offset, record.epoch
        self._log.take(record)
        if isinstance(record, Placement):
            self._see_flaw(self._log.flaw)
            return self._shared.offer(record, signatures)
        return isinstance(record, PlacementHead) and not self._loading and self._settle()

    def at_end(self) -> tuple[bool, bool]:
        """The records that were there at the beginning have been read.

        Returns whether that is enough (otherwise the rest of a transaction follows), and whether there is a new
        placement.
        """
        if self._log.in_transaction:
            return False, False
        self._loading = False
        return True, self._settle()

    def _settle(self) -> bool:
        found = self._log.settle()
        self._see_flaw(self._log.flaw)
        return found is not None and self._shared.offer(found)

    def _see_flaw(self, flaw: str | None) -> None:
        if flaw is not None:
            self._shared.refused[Fault.MISSING] += 1
            if self._shared.flaw is None:
                log.error("%s; this worker follows the placement before it, and reads the topic again", flaw)
        elif self._shared.flaw is not None:
            log.info("placement %s is whole again", self._log.epoch)
            self._reread_s, self._reread_at = FIRST_REREAD_S, None
        self._shared.flaw = flaw

    def must_read_again(self, now: float) -> bool:
        """Whether the topic has to be read again from its beginning; `now` = monotonic seconds.

        True once; `begin` follows.
        """
        if self._shared.flaw is None or self._loading:
            return False
        if self._reread_at is None:
            self._reread_at = now + self._reread_s
            self._reread_s = min(2 * self._reread_s, LAST_REREAD_S)
        return now >= self._reread_at
