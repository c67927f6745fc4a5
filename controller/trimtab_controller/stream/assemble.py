"""Decides which window is ready: rows in, snapshots to publish out.  No I/O, no clock, no Spark.

Each window is published once: when every awaited host has covered it or has reported for a later one, and at the latest
when the watermark has passed its end.  Windows are published in order.  Reports that arrive later are counted as late.
"""

from collections import deque
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from trimtab_controller.stream import contents
from trimtab_controller.stream.claims import Claims, rows_of
from trimtab_controller.stream.measures import ENDED, KEYS, LEVEL_COLUMNS, LEVELS, OF_WORKERS, Kind
from trimtab_controller.stream.rows import EMPTY, added, kinds_in, of_kind, where
from trimtab_protocol.messages.decode import Fault
from trimtab_protocol.messages.names import HostId, Topics, WorkerId
from trimtab_protocol.messages.refused_hosts import RefusedHost, RefusedTally
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.snapshot import MAX_DOUBTED, NodeWindow, Snapshot

SEEN_SHARE = 0.9
"""Share of a window that a host's reports must cover for the host to count as seen."""
BASIS_COLUMN = LEVEL_COLUMNS[list(LEVELS[Kind.HOST]).index("basis")]
"""Of the rows of hosts: says, too, whether a host's agent has ended."""
HOME_MS, HOST_MEMORY_MS = 60_000, 600_000
"""How long a silent host is the home of its workers although another one says it runs them, and how long at most."""
REMEMBERED_WINDOWS = 3
"""Number of last windows whose hosts are awaited, and expected if no list of hosts is configured."""


@dataclass(slots=True)
class _Window:
    """An open window.

    `sums` are its rows so far, of the kinds that a snapshot shows; empty after the publication.  `covered` has the
    seconds and the number of samples of each host.
    """

    end_ms: int
    sums: dict[Kind, pa.Table] = field(default_factory=EMPTY.copy)
    covered: dict[HostId, tuple[float, int]] = field(default_factory=dict)
    published: bool = False


class Assembler:
    """Holds the open windows and the end of the last published one.

    `from_ms`: windows that start earlier are ignored, because the stream did not see all of them or they have been
    published already.
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
        self._reached_ms: dict[HostId, int] = {}
        self._interval_ms: dict[HostId, int] = {}
        self._recent: deque[frozenset[HostId]] = deque(maxlen=REMEMBERED_WINDOWS)
        self._belated: frozenset[HostId] = frozenset()
        self._homes: dict[WorkerId, tuple[HostId, int]] = {}  # where workers ran, and until when
        self._ended: frozenset[HostId] = frozenset()  # hosts whose agents have said that they end
        self._newest_ms: int | None = None
        self._published_ms = 0  # the end of the last published window
        self._late_rows = 0
        self._rejected: dict[str, int] = {}
        self._unsigned: dict[str, int] = {}
        self._doubted: dict[HostId, str] = {}
        self._doubts_told = False
        self._topic = Topics(cluster).reports
        self._refused = RefusedTally()

    @property
    def watermark_ms(self) -> int | None:
        """The watermark: rows before this time are not awaited; None before the first row."""
        return None if self._newest_ms is None else self._newest_ms - self._watermark_delay_ms

    def on_rows(self, rows: pa.Table, *, now_ms: int) -> Iterator[Snapshot]:
        """Add the rows of a batch and yield the snapshots to publish now, oldest first.

        Each row has the samples of one thing in the batch.  Snapshots are built one by one, since several windows may
        be ready after a pause.
        """
        past_ms = self.watermark_ms
        self._see_times(rows, now_ms)
        for start_ms in self._open(rows, past_ms):
            self._take(self._windows[start_ms], where(rows, rows["start_ms"].to_numpy() == start_ms))
        del rows  # a fleet's batch takes a quarter of a gigabyte; free it before the snapshots are built
        for start_ms in sorted(self._windows):
            window = self._windows[start_ms]
            if not window.published:
                if not self._is_ready(window):
                    break
                yield self._publish(window, now_ms)
            if past_ms is not None and window.end_ms <= past_ms:
                del self._windows[start_ms]

    def doubt(self, unsigned: Mapping[str, int], hosts: Mapping[HostId, str]) -> None:
        """Count reports of a batch that are used without a good signature, and note hosts for the next snapshots.

        Called before `on_rows`, for each batch: the snapshots that one batch completes name the same hosts.
        """
        if self._doubts_told:
            self._doubted, self._doubts_told = {}, False
        for fault, reports in unsigned.items():
            self._unsigned[fault] = self._unsigned.get(fault, 0) + reports
        self._doubted = dict([*{**self._doubted, **hosts}.items()][-MAX_DOUBTED:])

    def refuse(self, claims: Claims) -> None:
        """Note in whose name reports came that were refused before they were parsed."""
        for row in rows_of(claims, self._topic):
            self._refused.add(row)

    def next_look_ms(self, now_ms: int, *, patience_ms: int) -> int:
        """When to look for rows again: `patience_ms` after the last report of the next window, or from now if overdue.

        Earlier rows cannot complete a window, and each look costs time.
        """
        open_ends = [window.end_ms for window in self._windows.values() if not window.published]
        end_ms = min(open_ends, default=(now_ms // self._window_ms + 1) * self._window_ms)
        due_ms = max([end_ms, *self._last_reports_ms(end_ms)])
        # The window ends by the clocks of brokers and hosts, which may be ahead of this one; sleep one window at most.
        return min(max(due_ms, now_ms), now_ms + self._window_ms) + patience_ms

    def _last_reports_ms(self, end_ms: int) -> Iterator[int]:
        """When each host makes its last report for the window that ends at `end_ms`: up to half an interval later."""
        for host, reached_ms in self._reached_ms.items():
            interval_ms = self._interval_ms.get(host, 0)
            if interval_ms and reached_ms < end_ms:
                yield reached_ms + (end_ms - 1 - reached_ms) // interval_ms * interval_ms + interval_ms // 2

    def _see_times(self, rows: pa.Table, now_ms: int) -> None:
        if rows.num_rows:
            last_ms, refused = rows["last_ms"].to_numpy(), rows["kind"].to_numpy() == Kind.REJECTED.value
            # Of a refused report only the arrival is known, by the clock of a broker, which may be ahead of all others.
            last_ms = np.where(refused, np.minimum(last_ms, now_ms), last_ms)
            self._newest_ms = max(int(last_ms.max()), self._newest_ms or 0)
        for kind in (Kind.HOST, Kind.REJECTED):  # a flooding host is left out, so it is not awaited either
            hosts = of_kind(rows, kind)
            basis = hosts[BASIS_COLUMN].to_pylist() if kind is Kind.HOST else [None] * hosts.num_rows
            for host, last_ms, code in zip(hosts["host"].to_pylist(), hosts["last_ms"].to_pylist(), basis, strict=True):
                if host is None or last_ms < self._reached_ms.get(host, 0):
                    continue  # a refused report may have no host
                self._reached_ms[host] = last_ms
                self._ended = self._ended | {host} if (code or 0) >= ENDED else self._ended - {host}

    def _open(self, rows: pa.Table, past_ms: int | None) -> list[int]:
        """The start of the window of each row; rows that are too late for their window are counted."""
        starts_ms = rows["start_ms"].to_numpy()
        known = np.isin(starts_ms, list(self._windows))
        late = ~known & (starts_ms + self._window_ms <= max(past_ms or 0, self._published_ms))
        self._late_rows += int(rows["samples"].to_numpy()[late].sum())
        opened = np.unique(starts_ms[~late & (known | (starts_ms >= self._from_ms))]).tolist()
        for start_ms in opened:
            self._windows.setdefault(start_ms, _Window(start_ms + self._window_ms))
        return [int(start_ms) for start_ms in opened]

    def _take(self, window: _Window, rows: pa.Table) -> None:
        kinds = kinds_in(rows)
        if Kind.REJECTED in kinds:
            self._count_rejected(of_kind(rows, Kind.REJECTED))
        if window.published:
            self._late_rows += int(rows["samples"].to_numpy().sum())
        else:
            for kind in KEYS.keys() & kinds:
                window.sums[kind] = added(window.sums[kind], of_kind(rows, kind), kind)
        hosts = of_kind(rows, Kind.HOST).select(["host", "covered_s", "samples"])
        for host, covered_s, samples in zip(*(column.to_pylist() for column in hosts.columns), strict=True):
            before = window.covered.get(host, (0.0, 0))
            window.covered[host] = (before[0] + covered_s, before[1] + samples)
            self._interval_ms[host] = round(1000 * covered_s / samples)
            if window.published and self._covers(window.covered[host][0]):
                # The host joins or returns, slightly later than the others.  If not awaited, it would always be late.
                self._belated |= {host}

    def _count_rejected(self, rows: pa.Table) -> None:
        columns = (rows[name].to_pylist() for name in ("operator", "samples", "worker", "last_ms"))
        for fault, samples, claimed, last_ms in zip(*columns, strict=True):
            self._reject(fault, samples)
            if claimed is not None:
                at = last_ms / 1000.0
                self._refused.add(RefusedHost(topic=self._topic, host=claimed, fault=fault, messages=samples, at=at))

    def _reject(self, fault: str, samples: int) -> None:
        if samples:
            self._rejected[fault] = self._rejected.get(fault, 0) + samples

    def _is_past(self, window: _Window) -> bool:
        return self.watermark_ms is not None and window.end_ms <= self.watermark_ms

    def _is_ready(self, window: _Window) -> bool:
        # Without a list of hosts and without history, the number of hosts to come is unknown.
        awaited = (self._expected() | self._belated.union(*self._recent)) - self._ended
        return self._is_past(window) or (bool(awaited) and all(self._has_finished(host, window) for host in awaited))

    def _covers(self, seconds: float) -> bool:
        return seconds * 1000 >= SEEN_SHARE * self._window_ms

    def _expected(self) -> frozenset[HostId]:
        return frozenset().union(*self._recent) if self._configured is None else self._configured

    def _has_finished(self, host: HostId, window: _Window) -> bool:
        """Whether no further report of this host can fall into the window."""
        covered_s, samples = window.covered.get(host, (0.0, 0))
        if samples and covered_s * 1000 + covered_s * 500 / samples >= self._window_ms:
            return True  # less than half an interval is missing
        return self._reached_ms.get(host, 0) >= window.end_ms

    def _publish(self, window: _Window, now_ms: int) -> Snapshot:
        covered_s = {host: seconds for host, (seconds, _) in window.covered.items()}
        sums, window.sums, window.published = window.sums, {}, True
        flooding = contents.hosts_that_name_too_much(sums)
        self._reject(Fault.FLOODING, sum(window.covered[host][1] for host in flooding))
        seen = frozenset(host for host, seconds in covered_s.items() if self._covers(seconds)) - flooding
        expected = self._expected() - (self._ended - seen) or seen
        ended = tuple(sorted(self._ended))
        self._published_ms = window.end_ms
        self._recent = deque((hosts - self._ended for hosts in (*self._recent, seen)), maxlen=REMEMBERED_WINDOWS)
        self._belated = frozenset()
        self._doubts_told = True
        start_ms = window.end_ms - self._window_ms
        self._reached_ms = {host: reached for host, reached in self._reached_ms.items() if reached >= start_ms}
        self._interval_ms = {host: self._interval_ms[host] for host in self._reached_ms if host in self._interval_ms}
        self._ended &= self._reached_ms.keys() | (self._configured or frozenset())
        rows = {kind: contents.of_hosts(sums.pop(kind), seen) for kind in KEYS}
        lost = contents.lost_claims(rows, {name: home for name, (home, _) in self._homes.items()})
        if lost:
            rows |= {kind: contents.without_claims(rows[kind], lost) for kind in KEYS if kind in OF_WORKERS}
        nodes = contents.node_windows(rows)
        self._see_homes(nodes, seen, window.end_ms)
        return Snapshot(
            cluster=self._cluster,
            start_ms=start_ms,
            end_ms=window.end_ms,
            published_ms=now_ms,
            hosts_seen=len(seen & expected),
            hosts_expected=len(expected),
            watermark_ms=None if self.watermark_ms is None else max(0, self.watermark_ms),
            late_rows=self._late_rows,
            rejected=dict(self._rejected),
            unsigned=dict(self._unsigned),
            doubted=self._doubted,
            refused=self._refused.found,
            ended=ended,
            hosts=contents.host_windows(rows[Kind.HOST]),
            nodes=tuple(replace(row, claimed_by=lost[row.worker]) if row.worker in lost else row for row in nodes),
            key_groups=contents.key_group_windows(rows[Kind.KEY_GROUP]),
            pairs=contents.pair_windows(rows[Kind.PAIR], covered_s=covered_s),
        )

    def _see_homes(self, nodes: Iterable[NodeWindow], seen: Container[HostId], end_ms: int) -> None:
        """Note where workers run.  One has moved if its home reports without it, or has been silent for a while."""
        for row in nodes:
            home, at_ms = self._homes.get(row.worker, (row.host, end_ms))
            if row.state is WorkerState.AWAY or row.also_on:
                continue
            if row.host == home or home in seen or end_ms - at_ms > HOME_MS:
                self._homes[row.worker] = row.host, end_ms
        self._homes = {name: home for name, home in self._homes.items() if end_ms - home[1] <= HOST_MEMORY_MS}
