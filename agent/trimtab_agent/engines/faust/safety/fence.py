"""Self-fence: a worker that may have lost its group membership must not process the events it had queued.

(patch fence-after-session)

The broker gives a member's partitions away if it receives no heartbeat for the session time-out.  A process that was
stopped (SIGSTOP, a long pause of its machine) does not notice.  It would continue, and its late changelog records would
overwrite the new owner's.  So before every event and every produce request, the fence compares the age of the last
answered heartbeat, counted from when it was *sent*, with the session time-out.

A member that keeps its partitions while it rejoins has a second clock.  Without a SyncGroup the broker goes on to
answer its heartbeats well, and throws it out all the same when the rebalance time-out has passed.

A worker whose state cannot be written (disk full) is fenced for good: another worker must process its events again.
"""

import logging
import math
import os
import threading
import time
from typing import Any

from aiokafka.errors import KafkaError

log = logging.getLogger(__name__)

END_LIMIT_S = 15.0
"""How long a worker may take for an orderly stop after a fault; then its process is killed."""
EXIT_CODE = os.EX_SOFTWARE


def uptime() -> float:
    """Monotonic seconds, including time in which the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class WorkerFenced(KafkaError):  # type: ignore[misc]
    """A record was not sent: the worker is no longer a member of the group, or its state is broken."""

    retriable = False


class Fence:
    """Closed while the last good heartbeat is older than the session time-out, membership is lost or state is broken.

    `heard` and `lose` are called in the consumer's thread, the rest on the event loop.  All writes are single
    assignments, so no lock is needed.
    """

    def __init__(self, session_s: float, rebalance_s: float = math.inf) -> None:
        self.session_s = session_s
        self.rebalance_s = rebalance_s
        """How long after it was last in step the broker may throw a member out, whatever its heartbeats say."""
        self.lost = False
        """The broker said that this worker is no longer a member of the group."""
        self.tripped = False
        """An event was refused: it has left its queue and comes back only after a rejoin."""
        self.broken = False
        """State was not written, or was about to be overwritten: nothing this process does may count any more."""
        self.dropped = False
        """Records of this generation were dropped: their events must not count as done."""
        self._heard_at: float | None = None
        self._in_step_at: float | None = None

    def heard(self, sent_at: float) -> None:
        """The broker answered a heartbeat or a join sent at `sent_at` (uptime seconds)."""
        self._heard_at = sent_at

    def in_step(self, sent_at: float) -> None:
        """What was sent at `sent_at` also showed the member in the generation that the group is in, or will be in."""
        self._heard_at = max(sent_at, self._heard_at or sent_at)
        self._in_step_at = max(sent_at, self._in_step_at or sent_at)

    def lose(self) -> None:
        """The broker no longer counts this worker as a member."""
        self.lost = True

    def break_off(self) -> None:
        """Fence this process for good because its state is broken."""
        self.broken = True

    def renew(self) -> None:
        """A new generation begins, in which refused events are read again."""
        self.lost = self.tripped = self.dropped = False

    @property
    def over(self) -> bool:
        """Whether held-back records must never be sent."""
        return self.lost or self.broken

    def closed(self, now: float) -> bool:
        """Whether membership is lost or uncertain, or the state is broken."""
        late = self._in_step_at is not None and now - self._in_step_at > self.rebalance_s
        return self.over or late or self.silent_s(now) > self.session_s

    def silent_s(self, now: float) -> float:
        """How long ago the last heartbeat was sent that was answered; 0 before the first one."""
        return 0.0 if self._heard_at is None else now - self._heard_at

    def closed_now(self) -> bool:
        """Whether it is closed at this moment."""
        return self.closed(uptime())

    def lets_through(self) -> bool:
        """Whether the next event may be started.  After one refusal it refuses until the next generation."""
        if self.closed_now():
            self.tripped = True
        return not self.tripped

    def guard(self, flow_control: Any) -> None:
        """Make Faust's streams check the fence before every event: they skip it if the flow control is not active."""
        is_active = flow_control.is_active
        flow_control.is_active = lambda: is_active() and self.lets_through()


def break_off(fence: Fence, complaint: str, *details: object) -> bool:
    """Fence this worker for good and tell why; whether it is the first fault.  Callable from any thread.

    The caller ends the worker.  If that takes too long, its process is killed.
    """
    if fence.broken:
        return False
    fence.break_off()
    log.critical(complaint, *details)
    end_process_after(END_LIMIT_S)
    return True


def end_process_after(limit_s: float) -> None:
    """Kill the process if an orderly stop takes too long: a fenced worker must not remain a member of its group."""

    def end() -> None:
        log.critical("this worker did not stop within %g s after its fault; killing the process", limit_s)
        os._exit(EXIT_CODE)

    timer = threading.Timer(limit_s, end)
    timer.daemon = True
    timer.start()
