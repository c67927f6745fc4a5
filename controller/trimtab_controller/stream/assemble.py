"""Which window is ready: rows in, snapshots to publish out.  No I/O, no clock, no Spark.

A window is published once: as soon as every awaited host has covered it or has gone on to a later one, and at the
latest when the watermark has passed its end.  Windows are published in order.  What arrives for a window after that is
late, and counted.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from trimtab_controller.stream import contents
from trimtab_controller.stream.measures import Kind, Row, Thing
from trimtab_models.messages.names import HostId
from trimtab_models.messages.snapshot import Snapshot

SEEN_SHARE = 0.9
"""A host was seen in a window when its reports cover this share of it."""
REMEMBERED_WINDOWS = 3
"""Hosts seen in so many last windows are awaited, and expected when no list of hosts is configured."""


@dataclass(slots=True)
class _Window:
    end_ms: int
    rows: dict[Thing, Row] = field(default_factory=dict)
    published: bool = False


class Assembler:
    """Holds the windows that are open, and what was published already.

    `from_ms`: windows that start earlier are left alone (the stream did not see all of them, or they are published
    already).
    """

    def __init__(
        self,
        *,
        cluster: str,
        window_ms: int,
        watermark_ms: int,
        from_ms: int,
        expected_hosts: frozenset[HostId] | None = None,
    ) -> None:
        self._cluster = cluster
        self._window_ms = window_ms
        self._watermark_delay_ms = watermark_ms
        self._from_ms = from_ms
        self._configured = expected_hosts
        self._windows: dict[int, _Window] = {}
        self._reached_ms: dict[str | None, int] = {}
        self._recent: deque[frozenset[HostId]] = deque(maxlen=REMEMBERED_WINDOWS)
        self._belated: frozenset[HostId] = frozenset()
        self._newest_ms: int | None = None
        self._late_rows = 0
        self._rejected: dict[str, int] = {}

    @property
    def watermark_ms(self) -> int | None:
        """No row before this time is waited for; None before the first row."""
        return None if self._newest_ms is None else self._newest_ms - self._watermark_delay_ms

    def on_rows(self, rows: Iterable[Row], *, now_ms: int) -> list[Snapshot]:
        """The snapshots to publish now, oldest first; each row has the samples of its thing in one batch."""
        past_ms = self.watermark_ms
        for row in rows:
            self._take(row, past_ms)
        ready = []
        for start_ms in sorted(self._windows):
            window = self._windows[start_ms]
            if not window.published:
                if not self._is_ready(window):
                    break
                ready.append(self._publish(window, now_ms))
            if past_ms is not None and window.end_ms <= past_ms:
                del self._windows[start_ms]
        return ready

    def next_look_ms(self, now_ms: int, *, patience_ms: int) -> int:
        """When to look for rows again: `patience_ms` after the end of the next window, or after now if it has ended.

        Rows that come in before cannot complete a window, and every look has its price.
        """
        open_ends = [window.end_ms for window in self._windows.values() if not window.published]
        end_ms = min(open_ends, default=(now_ms // self._window_ms + 1) * self._window_ms)
        return max(end_ms, now_ms) + patience_ms

    def _take(self, row: Row, past_ms: int | None) -> None:
        self._newest_ms = max(row.last_ms, self._newest_ms or 0)
        if row.kind == Kind.HOST:
            self._reached_ms[row.host] = max(row.last_ms, self._reached_ms.get(row.host, 0))
        samples = row.samples
        window = self._windows.get(row.start_ms) or self._open(row, past_ms)
        if window is None:
            return
        if window.published:
            self._late_rows += samples
        if row.kind == Kind.HOST or not window.published:
            before = window.rows.get(row.thing)
            window.rows[row.thing] = row = before.plus(row) if before else row
        if window.published and row.kind == Kind.HOST and row.host and self._covers(row.covered_s):
            # It joins or returns, a little behind the others: not awaited, it would be late for every window.
            self._belated |= {HostId(row.host)}
        if row.kind == Kind.REJECTED and row.operator:
            self._rejected[row.operator] = self._rejected.get(row.operator, 0) + samples

    def _open(self, row: Row, past_ms: int | None) -> _Window | None:
        end_ms = row.start_ms + self._window_ms
        if past_ms is not None and end_ms <= past_ms:
            self._late_rows += row.samples
            return None
        if row.start_ms < self._from_ms:
            return None
        self._windows[row.start_ms] = _Window(end_ms)
        return self._windows[row.start_ms]

    def _is_past(self, window: _Window) -> bool:
        return self.watermark_ms is not None and window.end_ms <= self.watermark_ms

    def _is_ready(self, window: _Window) -> bool:
        # Without a list and without a past nobody knows who is still to come.
        awaited = self._expected() | self._belated.union(*self._recent)
        return self._is_past(window) or (bool(awaited) and all(self._has_finished(host, window) for host in awaited))

    def _covers(self, seconds: float) -> bool:
        return seconds * 1000 >= SEEN_SHARE * self._window_ms

    def _expected(self) -> frozenset[HostId]:
        return frozenset().union(*self._recent) if self._configured is None else self._configured

    def _has_finished(self, host: HostId, window: _Window) -> bool:
        """Whether no further report of this host can fall into the window."""
        row = window.rows.get(host_thing(host))
        if row and row.covered_s * 1000 + row.covered_s * 500 / row.samples >= self._window_ms:
            return True  # what is missing is less than half an interval
        return self._reached_ms.get(host, 0) >= window.end_ms

    def _publish(self, window: _Window, now_ms: int) -> Snapshot:
        rows = list(window.rows.values())
        hosts = [row for row in rows if row.kind == Kind.HOST and row.host]
        covered_s = {HostId(row.host): row.covered_s for row in hosts if row.host}
        seen = frozenset(host for host, seconds in covered_s.items() if self._covers(seconds))
        expected = self._expected() or seen
        window.published = True
        window.rows = {row.thing: row for row in hosts}  # all that is asked of a published window
        self._recent.append(seen)
        self._belated = frozenset()
        start_ms = window.end_ms - self._window_ms
        self._reached_ms = {host: reached for host, reached in self._reached_ms.items() if reached >= start_ms}
        return Snapshot(
            cluster=self._cluster,
            start_ms=start_ms,
            end_ms=window.end_ms,
            published_ms=now_ms,
            hosts_seen=len(seen & expected),
            hosts_expected=len(expected),
            watermark_ms=None if self.watermark_ms is None else max(0, self.watermark_ms),
            late_rows=self._late_rows,
            rejected=self._rejected,
            hosts=contents.host_windows(contents.of_kind(rows, Kind.HOST, seen)),
            nodes=contents.node_windows(contents.of_kind(rows, Kind.WORKER, seen)),
            key_groups=contents.key_group_windows(contents.of_kind(rows, Kind.KEY_GROUP, seen)),
            pairs=contents.pair_windows(contents.of_kind(rows, Kind.PAIR, seen), covered_s=covered_s),
        )


def host_thing(host: HostId) -> Thing:
    """What `Row.thing` is for the host's own row."""
    return (Kind.HOST, host, None, None, None, None, None, None)
