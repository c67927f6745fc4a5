"""What a tuple costs because it goes to another worker, learned per operator from the windows.

The mathematics, and what can be known at all, is in `trimtab_models.albic.fit`.  Here windows become its samples: what
a key group was and did while it and its partners stayed where they are.  Such a *stay* ends when the key group changes
its worker, or another share of its tuples becomes remote.  Windows in which something changed are left out, and so is
what a worker did not measure in full.

A *period* has a sample of each key group: the median of the last windows of its stay, so that a burst of something else
does not count.  When a stay ends, the period that ends with it is kept, with the samples of all key groups: those that
stay as they are show what changed for all meanwhile, and what has become local is compared with them.  So whatever
makes all tuples cheaper as time goes by is no saving.  Where more than PERIODS have ended, the closest ones in time
give way.

A tuple is local if it skipped the broker, where plug-ins count that, else if it stays on its worker.  What that saves
is left to the measurement: where tuples of one worker go through the broker too, both cost alike, and no significant
cost is found.

CPU is counted in seconds of a reference core (`memory/speeds.py`).  Nothing of this is journalled: a new leader learns
anew.  Until its own windows show a cost, it counts with what its predecessor's status says of it, for a day.
"""

import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from trimtab_controller.decider.window.demand import Bools, OperatorKey
from trimtab_controller.decider.window.owned import Floats, Integers
from trimtab_models.albic.fit import CostFit, Samples, TupleCost, Unknown, fit_costs
from trimtab_protocol.messages.codec import UNKNOWN
from trimtab_protocol.messages.key_group_table import KeyGroupBlock
from trimtab_protocol.messages.names import AppId, HostId, OperatorId, Topic, WorkerId
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.snapshot import NodeWindow, PairWindow, Snapshot

KEY_GROUPS = 256
"""Key groups of an operator that are learned from: the first ones.  Which keys they have is chance."""
PERIODS = 8
"""Periods that are kept, besides the present one."""
WINDOWS = 6
"""Windows that are kept of a stay; the median of the known ones counts."""
LEAST_WINDOWS = 2
"""Windows of a stay from which it counts."""
SHARE_STEP = 0.1
"""By how much the share of remote tuples must differ for another stay to begin."""
NOT_LOCAL = " is not local: "
"""Stands behind the name of a topic in what a worker lacks, if it would be local but for another group."""
LEAST_RATE = 1.0
"""Tuples per second that a key group must receive for a window to say something about the cost of one."""
MAX_OPERATORS = 100
"""Operators that are learned; agents can invent names.  One takes up to 210 kB."""
FITS_PER_WINDOW = 8
"""Operators that are fitted after a window, those first that have waited longest."""
KEEP_S = 86_400.0
"""How long a past period, and an operator that is gone, are remembered."""

OperatorPair = tuple[OperatorKey, OperatorKey]
Way = tuple[OperatorPair, Topic]
"""By which topic one operator sends to another."""
CPU, RATE, SENT, RECEIVED, REMOTE_SENT, REMOTE_RECEIVED = range(6)
"""What a window says of a key group: CPU seconds per tuple, tuples received per second; the others per tuple."""


@dataclass(frozen=True, slots=True)
class _Period:
    """What R key groups were and did until `ended_at`: partition and worker (R,), medians (R, 6) of windows."""

    ended_at: float
    partition: Integers
    worker: Integers
    values: Floats


@dataclass(slots=True)
class _Stays:
    """The present stays of an operator's key groups by partition, and past periods, the oldest first; NaN = no window.

    `windows` (K, WINDOWS, 6), the last one first; `worker` = a number for its name, `ended_at` = end of the last
    window, `kept` = whether the last period that is kept has the stay; `last` = what the window before showed, to see
    when a stay ends: shares of what is sent and received that were remote.
    """

    windows: Floats
    worker: Integers
    ended_at: Floats
    kept: Bools
    last_worker: Integers
    last_shares: Floats
    periods: tuple[_Period, ...] = ()
    fitted_at: float = 0.0
    seen_at: float = 0.0

    @classmethod
    def nothing(cls, size: int) -> "_Stays":
        return cls(
            windows=np.full((size, WINDOWS, 6), np.nan),
            worker=np.zeros(size, np.int64),
            ended_at=np.full(size, -np.inf),
            kept=np.zeros(size, np.bool_),
            last_worker=np.full(size, -1),
            last_shares=np.full((size, 2), np.nan),
        )

    def resized(self, size: int) -> "_Stays":
        if size <= len(self.worker):
            return self
        found, present = _Stays.nothing(size), len(self.worker)
        for name in ("windows", "worker", "ended_at", "kept", "last_worker", "last_shares"):
            getattr(found, name)[:present] = getattr(self, name)
        found.periods, found.fitted_at, found.seen_at = self.periods, self.fitted_at, self.seen_at
        return found

    def add(self, seen: "_Seen", at: float) -> None:
        """Add a window; `at` = its end."""
        rows = seen.partition
        same = (self.last_worker[rows] == seen.worker) & _alike(self.last_shares[rows], seen.shares)
        self._keep_period(rows[~same])
        self.last_worker[:] = -1
        self.last_worker[rows], self.last_shares[rows] = seen.worker, seen.shares
        rows, values, worker, shares = rows[same], seen.values[same], seen.worker[same], seen.shares[same]
        continued = (self.worker[rows] == worker) & _alike(self._shares(rows), shares)
        self.windows[rows[~continued]] = np.nan
        self.kept[rows[~continued]] = False
        self.windows[rows] = np.roll(self.windows[rows], 1, axis=1)
        self.windows[rows, 0] = values
        self.worker[rows], self.ended_at[rows] = worker, at
        self.seen_at = at

    def _shares(self, rows: Integers) -> Floats:
        """The shares of the last window in the present stay; NaN if there is none."""
        last = self.windows[rows, 0]
        return _shares(last[:, [SENT, RECEIVED]], last[:, [REMOTE_SENT, REMOTE_RECEIVED]])

    def _keep_period(self, ending: Integers) -> None:
        """Keep the present period if stays in `ending` end, and it has any that the last one that was kept has not."""
        counts = self._counts()
        if not np.any(counts[ending] >= LEAST_WINDOWS) or not np.any((counts >= LEAST_WINDOWS) & ~self.kept):
            return
        period = self._present()
        self.kept[:] = False
        self.kept[period.partition] = True
        periods = (*self.periods, period)
        if len(periods) > PERIODS:
            ends = np.array([each.ended_at for each in periods])
            closest = 1 + int(np.argmin(ends[2:] - ends[:-2]))
            periods = (*periods[:closest], *periods[closest + 1 :])
        self.periods = periods

    def _counts(self) -> Integers:
        counts: Integers = np.count_nonzero(~np.isnan(self.windows[:, :, CPU]), axis=1)
        return counts

    def _present(self) -> _Period:
        """The stays that are long enough, and go on until the last window."""
        use = np.flatnonzero((self._counts() >= LEAST_WINDOWS) & (self.ended_at == self.seen_at))
        values = np.nanmedian(self.windows[use], axis=1) if len(use) else np.zeros((0, 6))
        return _Period(self.seen_at, use, self.worker[use], values)

    def samples(self, now: float) -> Samples:
        """The samples of all periods that are not too old."""
        periods = [each for each in (*self.periods, self._present()) if each.ended_at >= now - KEEP_S]
        values = np.concatenate([each.values for each in periods])
        return Samples(
            key_group=np.concatenate([each.partition for each in periods]),
            node=np.concatenate([each.worker for each in periods]),
            period=np.repeat(np.arange(len(periods)), [len(each.values) for each in periods]),
            cpu=values[:, CPU],
            rate=values[:, RATE],
            sent=values[:, SENT],
            received=values[:, RECEIVED],
            remote_sent=values[:, REMOTE_SENT],
            remote_received=values[:, REMOTE_RECEIVED],
        )


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a window says of R key groups of an operator: values (R, 6), and the remote shares (R, 2)."""

    partition: Integers
    worker: Integers
    values: Floats
    shares: Floats


Recalled = Mapping[OperatorKey, CostFit]
"""What a predecessor knew."""


class RemoteCostTracker:
    """Learns the costs of the operators that exchange tuples."""

    def __init__(self, recalled: Recalled | None = None) -> None:
        self._stays: dict[OperatorKey, _Stays] = {}
        self._fits: dict[OperatorKey, CostFit] = {}
        self._recalled = dict(recalled or {})
        self._recalled_until: float | None = None
        self._direct: set[OperatorPair] = set()
        self._by_broker: set[OperatorPair] = set()
        self._counting: set[AppId] = set()
        self._local: set[Way] = set()
        self._not_local: set[Way] = set()
        self._sent: Mapping[Way, float] = {}

    def by_broker(self, app: AppId) -> frozenset[tuple[OperatorId, OperatorId]]:
        """The pairs of operators whose tuples were seen to go through the broker within a worker, and never past it."""
        return frozenset(
            (source[1], target[1]) for source, target in self._by_broker - self._direct if source[0] == app
        )

    def none_direct(self, app: AppId) -> bool:
        """Whether no tuple has been seen to skip the broker, though the plug-ins count those that do."""
        return app in self._counting and all(source[0] != app for source, _ in self._direct)

    def not_local(self, app: AppId) -> dict[tuple[OperatorId, OperatorId], dict[Topic, float]]:
        """Of each pair of operators, the topics that were seen not to be local, and which share of its tuples they had.

        Of the last window.  A topic is missing where a plug-in is too old to name it, where no worker has both its
        ends, and once a tuple of it has skipped the broker.
        """
        total: defaultdict[OperatorPair, float] = defaultdict(float)
        for (ends, _), rate in self._sent.items():
            total[ends] += rate
        found: defaultdict[tuple[OperatorId, OperatorId], dict[Topic, float]] = defaultdict(dict)
        for ends, topic in sorted(self._not_local - self._local):
            rate = self._sent.get((ends, topic), 0.0)
            if ends[0][0] == app and rate:
                found[ends[0][1], ends[1][1]][topic] = rate / total[ends]
        return dict(found)

    def of(self, app: AppId) -> dict[OperatorId, CostFit]:
        """What is known of the operators of an app."""
        fits = {key: fit for key, fit in sorted(self._fits.items()) if key[0] == app}
        return {key[1]: _with_recalled(fit, self._recalled.get(key)) for key, fit in fits.items()}

    def forget(self, app: AppId | None) -> None:
        """Forget an app."""
        self._keep(key for key in self._stays if key[0] != app)
        self._recalled = {key: fit for key, fit in self._recalled.items() if key[0] != app}

    def observe(self, snapshot: Snapshot, speeds: Mapping[HostId, float]) -> None:
        """Learn from a window; `speeds` = that of a core of each host."""
        at = snapshot.end_ms / 1000.0
        if self._recalled_until is None:
            self._recalled_until = at + KEEP_S
        if at > self._recalled_until:
            self._recalled = {}
        self._keep(key for key, stays in self._stays.items() if stays.seen_at >= at - KEEP_S)
        measured = {row.worker: speeds.get(row.host, 1.0) for row in snapshot.nodes if _is_measured(row)}
        traffic = _Traffic(snapshot)
        self._counting = traffic.counting
        self._direct |= traffic.direct
        self._by_broker |= traffic.by_broker
        self._local |= traffic.local
        self._not_local |= traffic.not_local
        self._sent = traffic.sent
        for block in snapshot.blocks:
            key = (block.app, block.operator)
            rates = traffic.of(key)
            if rates is None or (key not in self._stays and len(self._stays) >= MAX_OPERATORS):
                continue
            seen = _seen(block, rates, measured)
            size = min(max(block.partition) + 1, KEY_GROUPS)
            self._stays[key] = self._stays.get(key, _Stays.nothing(0)).resized(size)
            self._stays[key].add(seen, at)
        due = sorted(self._stays, key=lambda key: (self._stays[key].fitted_at, key))
        for key in due[:FITS_PER_WINDOW]:
            self._stays[key].fitted_at = at
            self._fits[key] = fit_costs(self._stays[key].samples(at))

    def _keep(self, keys: Iterable[OperatorKey]) -> None:
        self._stays = {key: self._stays[key] for key in list(keys)}
        self._fits = {key: fit for key, fit in self._fits.items() if key in self._stays}
        self._direct = {pair for pair in self._direct if pair[0] in self._stays}
        self._by_broker = {pair for pair in self._by_broker if pair[0] in self._stays}
        self._local = {way for way in self._local if way[0][0] in self._stays}
        self._not_local = {way for way in self._not_local if way[0][0] in self._stays}


def _with_recalled(fit: CostFit, recalled: CostFit | None) -> CostFit:
    """The fit, with costs that are recalled where its own windows show none."""
    if recalled is None:
        return fit
    own, before = (fit.sending, fit.receiving), (recalled.sending, recalled.receiving)
    sending, receiving = (
        then if isinstance(now, Unknown) and now is not Unknown.NO_TUPLES and isinstance(then, TupleCost) else now
        for now, then in zip(own, before, strict=True)
    )
    return replace(fit, sending=sending, receiving=receiving)


class _Traffic:
    """The tuples between key groups that are learned from: all and remote ones, sent and received, by partition.

    `direct` and `by_broker` = the pairs of operators of which tuples within a worker skipped the broker, or did not;
    `counting` = the apps whose plug-ins tell that.  By topic, where plug-ins name it: `local` ones, also those that
    would be if no other group read them, those that are `not_local`, and the tuples `sent` per second.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.direct: set[OperatorPair] = set()
        self.by_broker: set[OperatorPair] = set()
        self.counting = {pair.source.app for pair in snapshot.pairs if pair.direct_s is not None}
        self.local: set[Way] = set()
        self.not_local: set[Way] = set()
        self.sent: defaultdict[Way, float] = defaultdict(float)
        hindered = {row.reason.split(" ")[0] for row in snapshot.nodes if row.reason and NOT_LOCAL in row.reason}
        self._rates: dict[OperatorKey, Floats] = {}
        pairs = [
            pair
            for pair in snapshot.pairs
            if min(pair.source.partition, pair.target.partition) < KEY_GROUPS and pair.source != pair.target
        ]
        talking = {end[:2] for pair in pairs for end in (pair.source, pair.target)}
        owners: dict[OperatorKey, dict[int, WorkerId]] = {}
        for block in snapshot.blocks:
            if (block.app, block.operator) in talking:
                names = (block.workers[place] for place in block.worker)
                owners[block.app, block.operator] = dict(zip(block.partition, names, strict=True))
        for pair in pairs:
            sender = owners.get(pair.source[:2], {}).get(pair.source.partition)
            receiver = owners.get(pair.target[:2], {}).get(pair.target.partition)
            together = sender is not None and sender == receiver
            ends = (pair.source[:2], pair.target[:2])
            shown = together and pair.direct_s is not None and pair.tuples_s >= LEAST_RATE
            if shown:
                (self.direct if pair.direct_s else self.by_broker).add(ends)
            if pair.topic is not None:
                self.sent[ends, pair.topic] += pair.tuples_s
                if pair.direct_s or pair.topic in hindered:
                    self.local.add((ends, pair.topic))
                elif shown:
                    self.not_local.add((ends, pair.topic))
            remote = _remote_tuples_s(pair, together=together)
            self._add(pair.source[:2], pair.source.partition, 0, pair.tuples_s, remote)
            self._add(pair.target[:2], pair.target.partition, 1, pair.tuples_s, remote)

    def of(self, key: OperatorKey) -> Floats | None:
        """(4, KEY_GROUPS) tuples per second by partition: sent, received, sent remotely, received from remote."""
        return self._rates.get(key)

    def _add(self, key: OperatorKey, partition: int, way: int, tuples_s: float, remote: float) -> None:
        if partition >= KEY_GROUPS:
            return
        rates = self._rates.get(key)
        if rates is None:
            rates = self._rates[key] = np.zeros((4, KEY_GROUPS))
        rates[way, partition] += tuples_s
        rates[way + 2, partition] += remote


def _remote_tuples_s(pair: PairWindow, *, together: bool) -> float:
    """The tuples per second that do not stay on their worker: all that went through the broker, where that is counted.

    `together` = whether both ends are on one worker.
    """
    if pair.direct_s is not None:
        return max(0.0, pair.tuples_s - pair.direct_s)
    return 0.0 if together else pair.tuples_s


def _is_measured(row: NodeWindow) -> bool:
    """Whether a worker ran and measured all of the window."""
    return row.state is WorkerState.RUNNING and row.complete and row.unknown is None


def _seen(block: KeyGroupBlock, rates: Floats, measured: Mapping[WorkerId, float]) -> _Seen:
    """The key groups of a block that were measured in full, and have tuples to learn from."""
    partition, place = np.frombuffer(block.partition, np.int64), np.frombuffer(block.worker, np.int64)
    speed = np.array([measured.get(name, np.nan) for name in block.workers])[place]
    code = np.array([zlib.crc32(name.encode()) for name in block.workers], np.int64)[place]
    cpu, done = np.frombuffer(block.cpu), np.frombuffer(block.tuples_in_s)
    known = (partition < KEY_GROUPS) & ~np.isnan(speed) & (cpu != UNKNOWN) & (done >= LEAST_RATE)
    partition = partition[known]
    counted = rates[:, partition].T
    per_tuple = counted / done[known, None]
    values = np.column_stack((cpu[known] * speed[known] / done[known], done[known], per_tuple))
    return _Seen(partition, code[known], values, _shares(counted[:, :2], counted[:, 2:]))


def _shares(counted: Floats, remote: Floats) -> Floats:
    """(R, 2) the shares that are remote, 0 without tuples; NaN where that is not known."""
    return np.where(counted > 0.0, remote / np.where(counted > 0.0, counted, 1.0), counted)


def _alike(one: Floats, other: Floats) -> Bools:
    """(R,) whether both shares are nearly equal; an unknown one is not."""
    near: Bools = np.abs(one - other) < SHARE_STEP
    return near[:, 0] & near[:, 1]
