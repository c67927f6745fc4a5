"""Self-fence: a worker that may have lost its place in the group must not go on with what it had queued.

(patch fence-after-session)

The broker gives a member's partitions away when it has not heard a heartbeat for the session time-out.  A process
that was stopped (SIGSTOP, a long pause of its machine) does not notice: it would work on, and its late changelog
records would overwrite the new owner's.  So: before every event, and before everything that leaves for the broker, the
age of the last heartbeat that was answered, counted from when it was *sent*, is compared with the session time-out.

A worker whose state cannot be written (disk full) is fenced for good: its events count only once another has done them.
"""

import time
from typing import Any


def uptime() -> float:
    """Seconds that pass also while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Fence:
    """Closed = the last good heartbeat is older than the session, or state could not be written.

    `heard` and `lose` are called in the consumer's thread, the rest on the event loop; single assignments need no lock.
    """

    def __init__(self, session_s: float) -> None:
        self.session_s = session_s
        self.lost = False
        """The broker said that this member is not in the group any more."""
        self.tripped = False
        """An event was refused: it is gone from its queue and only comes back with a rejoin."""
        self.broken = False
        """State was not written, or nearly overwritten: nothing that this process does may count any more."""
        self._heard_at: float | None = None

    def heard(self, sent_at: float) -> None:
        """The broker answered a heartbeat or a join sent at `sent_at` (uptime seconds)."""
        self._heard_at = sent_at

    def lose(self) -> None:
        """The broker does not know us any more."""
        self.lost = True

    def break_off(self) -> None:
        """State is not what it should be; there is no way back but another process."""
        self.broken = True

    def renew(self) -> None:
        """A new generation begins: whatever was refused is read again."""
        self.lost = self.tripped = False

    @property
    def over(self) -> bool:
        """Whether what is held back must never be sent."""
        return self.lost or self.broken

    def closed(self, now: float) -> bool:
        """Whether membership is lost or cannot be taken for granted, or the state is not what it should be."""
        return self.over or (self._heard_at is not None and now - self._heard_at > self.session_s)

    def lets_through(self) -> bool:
        """Whether the next event may be begun.  Once it said no it says no until the next generation."""
        if self.closed(uptime()):
            self.tripped = True
        return not self.tripped

    def guard(self, flow_control: Any) -> None:
        """Have Faust's streams ask before every event: they skip it when the flow control is not active."""
        is_active = flow_control.is_active
        flow_control.is_active = lambda: is_active() and self.lets_through()
