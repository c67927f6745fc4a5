"""Decides which stream of a cluster publishes, and which snapshots.  No I/O, no clock, no Spark.

Every stream assembles all windows.  One publishes them; the others hold theirs and are ready to go on where it ends.
"""

import logging
from collections import deque
from typing import Protocol

from trimtab_protocol.messages.snapshot import Snapshot
from trimtab_protocol.wording import local_time

MAX_HELD = 6
"""Number of windows that a stream holds while another one publishes; of more, it drops the oldest."""
REPLAYED_WINDOWS = 3
"""Number of windows before the start with which a stream begins if none was published lately."""

log = logging.getLogger(__name__)


class Fenced(Exception):
    """Another stream of the cluster publishes now."""


class SnapshotTopic(Protocol):
    """The topic of snapshots, to which one stream at a time can write."""

    def newest_ms(self) -> int:
        """The end of the newest published window, in epoch milliseconds; 0 when there is none."""

    def take_over(self) -> None:
        """Become the one that can write; until another stream does the same."""

    def publish(self, snapshot: Snapshot) -> None:
        """Write a snapshot.  Raises Fenced when another stream has taken over."""


class Turns:
    """Says when this stream takes over; times in epoch milliseconds.  `lead` and `stand_by` may come from any thread.

    With `told`, the controller says whether it leads, and the stream takes over when a term begins.  A stream that
    nobody tells anything (a dry run's, or one that spark-submit runs) takes over when no window has been published for
    `silent_ms`.  So does one that was fenced while its controller still leads.
    """

    def __init__(self, *, told: bool, silent_ms: int) -> None:
        self._leads = not told
        self._term_begins = False
        self._silent_ms = silent_ms

    def lead(self) -> None:
        """A term begins."""
        self._leads = self._term_begins = True

    def stand_by(self) -> None:
        """The term has ended."""
        self._leads = self._term_begins = False

    @property
    def term_begins(self) -> bool:
        """Whether a term has begun since the last claim."""
        return self._term_begins

    @property
    def keeps(self) -> bool:
        """Whether a stream that publishes goes on; in a new term it takes over again."""
        return self._leads and not self._term_begins

    def claims(self, *, now_ms: int, newest_ms: int) -> bool:
        """Whether to take over now; `newest_ms` = the end of the newest published window."""
        if self._term_begins:
            self._term_begins = False
            return True
        return self._leads and now_ms - newest_ms > self._silent_ms

    def again(self) -> None:
        """Take over once more, if the term goes on."""
        self._term_begins = self._leads


class Outlet:
    """Holds snapshots, and publishes them while it is this stream's turn; for one thread at a time.

    `add` and `flush` raise what the topic raises, except Fenced.
    """

    def __init__(self, topic: SnapshotTopic, turns: Turns) -> None:
        self._topic = topic
        self._turns = turns
        self._held: deque[Snapshot] = deque(maxlen=MAX_HELD)
        self._newest_ms = 0  # the end of the newest published window, as far as this stream knows
        self._publishes = False
        self._ready = False

    @property
    def is_due(self) -> bool:
        """Whether to `flush` at once, without waiting for the next snapshot."""
        return self._turns.term_begins

    def add(self, now_ms: int, snapshot: Snapshot) -> None:
        """Take a snapshot, newer than all before it."""
        self._held.append(snapshot)
        self.flush(now_ms)
        if not (self._publishes or self._ready):
            log.info("standby: the stream is warm, and holds its snapshots until it is its turn")
        self._ready = True

    def flush(self, now_ms: int) -> None:
        """Publish what is held, or drop what another stream has published."""
        self._publishes = self._publishes and self._turns.keeps
        if not self._publishes:
            self._look(now_ms)
        self._drop()
        try:
            while self._publishes and self._held:
                self._topic.publish(self._held[0])
                self._newest_ms = self._held.popleft().end_ms
        except Fenced as error:
            log.warning("another stream publishes now (%s): holding the snapshots", error)
            self._publishes = False

    def restart(self) -> int:
        """Drop what is held, since a new query reads it again; returns the end of the newest published window.

        A stream that was publishing takes over again, because its client may have failed.
        """
        self._held.clear()
        if self._publishes:
            self._turns.again()
        self._publishes = False
        return self._topic.newest_ms()

    def _look(self, now_ms: int) -> None:
        self._newest_ms = self._topic.newest_ms()
        if self._turns.claims(now_ms=now_ms, newest_ms=self._newest_ms):
            try:
                self._topic.take_over()
                self._newest_ms = self._topic.newest_ms()  # from now on nobody else adds one
            except BaseException:
                self._turns.again()
                raise
            self._publishes = True
            newest = local_time(self._newest_ms / 1000) if self._newest_ms else "none: there is no earlier one"
            log.info("publishing the windows after %s", newest)

    def _drop(self) -> None:
        """Drop the windows that are on the topic; at a takeover this stream may have yet to assemble some of them."""
        while self._held and self._held[0].end_ms <= self._newest_ms:
            self._held.popleft()


def first_ms(now_ms: int, newest_ms: int, window_ms: int) -> int:
    """The start of the first window to assemble, when the newest published one ended at `newest_ms` (0: none has).

    If that was lately, the stream begins with that window.  It does not publish it again, but knows by it which hosts
    to await, and leaves no gap.
    """
    if now_ms - newest_ms <= MAX_HELD * window_ms:
        return newest_ms - window_ms
    return now_ms - REPLAYED_WINDOWS * window_ms
