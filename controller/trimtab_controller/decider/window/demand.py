"""Demand: the load that a key group will be once its worker keeps up with it.

A saturated worker uses 100 % of its capacity whatever is asked of it.  So where inputs wait, the load of a key group
is not what it used, but

    demand = cost * (arrivals + backlog / catch_up_s)      cost = CPU / inputs done, smoothed

Arrivals of a window are what was done plus the growth of the backlog.  Everywhere else demand is the use, exactly:
the estimate adds no noise to a cluster that keeps up.  A worker

- is *busy* when its process uses BUSY_SHARE of its capacity, or of one core if that is less (an event loop is one
  thread), when it runs or waits for a core for BUSY_SHARE of the time, or when its host is full;
- has inputs *waiting* when they are more than WAITING_S seconds of its capacity.

Only a worker that is both is behind for want of CPU.  Where inputs wait at a worker that is not busy, it waits for
something else, such as a database: key groups are *blocked* there, and their demand is never more than their use.
When such a backlog falls, what is worked off is no demand either.

An operator behind a saturated one receives less than it will.  What its sources will do more or less is passed on
along the measured flows between key groups, as the autoscalers DS2 and Flink's do.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from trimtab_controller.decider.window.owned import PERCENT_PER_CORE, Floats, Integers, OwnedTable
from trimtab_protocol.messages.codec import UNKNOWN
from trimtab_protocol.messages.key_group_table import KeyGroupBlock
from trimtab_protocol.messages.names import AppId, HostId, KeyGroup, OperatorId, WorkerId
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.snapshot import NodeWindow, PairWindow, Snapshot
from trimtab_protocol.wording import NAMED

ARRIVALS = 3
"""Number of windows of which the median of the arrivals counts, so that a backlog that jumps once is no demand."""

Bools = NDArray[np.bool_]
OperatorKey = tuple[AppId, OperatorId]

BUSY_SHARE = 0.8
"""Share of its capacity, or of the time, from which a worker is busy: bursts leave idle moments in a window even when
inputs wait."""
FULL_HOST_SHARE = 0.95
"""Share of its cores from which a host is full: its workers may get less CPU than they could use."""
CALM_SHARE = 0.6
"""Share of its capacity, or of the time, below which CPU is not what a worker lacks."""
WAITING_S = 1.0
"""Seconds of a worker's capacity up to which its backlog counts as in transit: fetches and commits take this long."""
BLOCKED_WINDOWS = 3
"""Number of windows in a row in which a backlog must grow at a calm worker until it is blocked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One window.  `next`: it follows the one before without a gap; `smoothing` = its weight in the cost."""

    window_s: float
    next: bool
    smoothing: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorHistory:
    """What is known of an operator's key groups, by partition; NaN = unknown.

    `use` (percent of a core) and `done` (inputs per second) are smoothed over the windows in which there was input, and
    their ratio is the cost.  `arrivals` has a row per window, the newest first.  `backlog` is the last one.  `stuck` =
    number of windows in a row in which the backlog grew at a calm worker, `stuck_from` = the backlog before.
    """

    use: Floats
    done: Floats
    backlog: Floats
    arrivals: Floats
    stuck: Integers
    stuck_from: Floats

    @classmethod
    def unknown(cls, size: int) -> "OperatorHistory":
        """An operator with so many key groups of which nothing is known."""
        nothing = np.full(size, np.nan)
        return cls(
            use=nothing,
            done=nothing,
            backlog=nothing,
            arrivals=np.full((ARRIVALS, size), np.nan),
            stuck=np.zeros(size, np.int64),
            stuck_from=nothing,
        )

    def resized(self, size: int) -> "OperatorHistory":
        """The same for more or fewer key groups."""
        if size == len(self.use):
            return self
        new, kept = OperatorHistory.unknown(size), min(size, len(self.use))
        columns = {}
        for name in ("use", "done", "backlog", "arrivals", "stuck", "stuck_from"):
            columns[name] = getattr(new, name).copy()
            columns[name][..., :kept] = getattr(self, name)[..., :kept]
        return OperatorHistory(**columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandHistory:
    """The operators of all apps up to a window."""

    end_ms: int = 0
    operators: Mapping[OperatorKey, OperatorHistory] = field(default_factory=dict)


NO_DEMAND_HISTORY = DemandHistory()


def remembered(
    before: OperatorHistory,
    partition: Integers,
    use: Floats,
    done: Floats,
    backlog: Floats,
    waited: Floats,
    calm: Bools,
    window: Window,
) -> OperatorHistory:
    """The history after this window; `waited` = the backlogs when it began."""
    arrived = np.maximum(0.0, done + (backlog - waited) / window.window_s)
    worked = (done > 0.0) & ~np.isnan(use)
    columns = {name: getattr(before, name).copy() for name in ("use", "done", "stuck_from")}
    for name, now in (("use", use), ("done", done)):
        old = columns[name][partition]
        smoothed = np.where(np.isnan(old), now, old + window.smoothing * (now - old))
        columns[name][partition] = np.where(worked, smoothed, old)
    arrivals = np.roll(before.arrivals, 1, axis=0)
    arrivals[0] = np.nan
    arrivals[0, partition] = arrived
    left = np.full(len(before.backlog), np.nan)
    left[partition] = backlog
    stuck = np.zeros(len(before.stuck), np.int64)
    stuck[partition] = np.where(calm & (backlog > waited), before.stuck[partition] + 1, 0)
    begun = stuck[partition] == 1
    columns["stuck_from"][partition] = np.where(begun, waited, columns["stuck_from"][partition])
    return OperatorHistory(backlog=left, arrivals=arrivals, stuck=stuck, **columns)


def cost_of(use: Floats, done: Floats, owner: Integers) -> Floats:
    """The cost of an input.  A key group that did nothing yet costs what the operator costs there, or elsewhere."""
    known = ~np.isnan(use) & (done > 0.0)
    if known.all() or not known.any():
        return use / np.where(known, done, np.nan)
    spent, did = (np.bincount(owner, weights=np.where(known, column, 0.0)) for column in (use, done))
    with np.errstate(invalid="ignore", divide="ignore"):
        here = np.where(did > 0.0, spent / did, spent.sum() / did.sum())
        return np.where(known, use / done, here[owner])


def median(rows: Floats) -> Floats:
    """The median of the known values in each column; NaN where none is."""
    ordered = np.sort(rows, axis=0)  # NaN last
    count = np.count_nonzero(~np.isnan(rows), axis=0)
    low, high = np.maximum(count - 1, 0) // 2, count // 2
    middle = [np.take_along_axis(ordered, at[None, :], axis=0)[0] for at in (low, high)]
    return np.where(count > 0, (middle[0] + middle[1]) / 2.0, np.nan)


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocked:
    """Key groups of a worker whose backlog grows though the worker is calm; the `first` NAMED of them are named."""

    count: int
    first: tuple[KeyGroup, ...]
    backlog: int

    def joined(self, other: "Blocked") -> "Blocked":
        """Both together."""
        first = (*self.first, *other.first)[:NAMED]
        return Blocked(count=self.count + other.count, first=first, backlog=self.backlog + other.backlog)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerDemand:
    """What is asked of a worker, in percent of its capacity: by its key groups, and its fixed use.

    The fixed use belongs to no key group and stays when they leave: heartbeats, rounds of the network.  It is what the
    process used beyond its key groups; by an error of measurement it can be negative.  None = unknown.
    """

    key_groups_pct: float | None
    fixed_pct: float | None
    blocked: Blocked | None = None

    @property
    def pct(self) -> float | None:
        """Both together; without saturation, what the process uses."""
        if self.key_groups_pct is None or self.fixed_pct is None:
            return None
        return max(0.0, self.key_groups_pct + self.fixed_pct)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowDemands:
    """The demand in one window.  `key_groups`: percent of a core by partition; NaN = not reported or not known."""

    key_groups: Mapping[OperatorKey, Floats]
    workers: Mapping[WorkerId, WorkerDemand]

    def of_table(self, table: OwnedTable) -> OwnedTable:
        """The table with demand for load; a load that is unknown (NaN), or whose demand is, stays as it is."""
        load = table.load.copy()
        for place, operator in enumerate(table.operators):
            demand = self.key_groups.get((table.app, operator))
            if demand is None:
                continue
            rows = np.flatnonzero((table.operator == place) & (table.partition < len(demand)))
            found = demand[table.partition[rows]]
            load[rows] = np.where(np.isnan(found) | np.isnan(load[rows]), load[rows], found)
        return table.with_load(load)


def follow_demand(
    snapshot: Snapshot, history: DemandHistory = NO_DEMAND_HISTORY, *, catch_up_s: float, smoothing: float
) -> tuple[WindowDemands, DemandHistory]:
    """The demand in this window, and the history after it.

    `catch_up_s` = time in which a backlog is to be worked off; `smoothing` = weight of the newest window in the cost.
    """
    workers = _Workers.of(snapshot)
    window = Window(
        window_s=(snapshot.end_ms - snapshot.start_ms) / 1000.0,
        next=history.end_ms == snapshot.start_ms,
        smoothing=smoothing,
    )
    rows = [_OperatorRows.of(block, history, workers, window) for block in snapshot.blocks]
    waiting = workers.waiting(rows)
    for each in rows:
        each.want(waiting, workers.busy, catch_up_s)
    _pass_on(rows, snapshot.pairs)
    return (
        WindowDemands(
            key_groups={each.key: each.by_partition() for each in rows}, workers=workers.demands(rows, window)
        ),
        DemandHistory(end_ms=snapshot.end_ms, operators={each.key: each.history for each in rows}),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Workers:
    """The running workers as numbers; `capacity` and `used` in percent of a core, unknown use = NaN."""

    places: Mapping[WorkerId, int]
    capacity: Floats
    used: Floats
    busy: Bools
    calm: Bools

    @classmethod
    def of(cls, snapshot: Snapshot) -> "_Workers":
        # Owners that no host reports have no capacity: nothing is known of them.
        owners = {worker for block in snapshot.blocks for worker in block.workers}
        nodes = {row.worker: row for row in snapshot.nodes}
        names = sorted(owners | nodes.keys())
        rows = [nodes.get(name) for name in names]
        full_hosts = _full_hosts(snapshot)
        capacity, used = _column(rows, "capacity"), _column(rows, "cpu")
        on_full_host = np.array([row is not None and row.host in full_hosts for row in rows], np.bool_)
        running = np.array([row is not None and row.state is WorkerState.RUNNING for row in rows], np.bool_)
        share = used / np.minimum(capacity, PERCENT_PER_CORE)
        # Where nobody measures how long it waits for a core, its use has to do.
        ready = (used + _column(rows, "waiting")) / PERCENT_PER_CORE
        return cls(
            places={name: place for place, name in enumerate(names)},
            capacity=capacity,
            used=used,
            busy=(share >= BUSY_SHARE) | (ready >= BUSY_SHARE) | on_full_host,
            calm=(share < CALM_SHARE) & ~(ready >= CALM_SHARE) & ~on_full_host & running,
        )

    def sums(self, rows: Sequence["_OperatorRows"], values: Sequence[Floats]) -> Floats:
        """The sum of these values of the key groups per worker; NaN if one is unknown."""
        total = np.zeros(len(self.places))
        for each, value in zip(rows, values, strict=True):
            total += np.bincount(each.owner, weights=value, minlength=len(total))
        return total

    def waiting(self, rows: Sequence["_OperatorRows"]) -> Bools:
        """Whether more inputs wait at a worker, or waited when the window began, than it has in transit."""
        work = self.sums(rows, [each.waiting_work for each in rows])
        return work > WAITING_S * np.where(np.isnan(self.capacity), np.inf, self.capacity)

    def demands(self, rows: Sequence["_OperatorRows"], window: Window) -> dict[WorkerId, WorkerDemand]:
        """The demand of each worker that reports."""
        asked = self.sums(rows, [each.demand for each in rows]) / self.capacity
        fixed = (self.used - self.sums(rows, [each.use for each in rows])) / self.capacity
        blocked: dict[int, Blocked] = {}
        for place, found in (pair for each in rows for pair in each.blocked(window)):
            blocked[place] = blocked[place].joined(found) if place in blocked else found
        return {
            worker: WorkerDemand(
                key_groups_pct=_percent(asked[place]),
                fixed_pct=_percent(fixed[place]),
                blocked=blocked.get(place),
            )
            for worker, place in self.places.items()
            if not np.isnan(self.capacity[place])
        }


def _column(rows: Sequence[NodeWindow | None], name: str) -> Floats:
    """Cores of these workers, or shares of the time, as percent of a core."""
    values = [None if row is None else getattr(row, name) for row in rows]
    return PERCENT_PER_CORE * np.array([np.nan if value is None else value for value in values], np.float64)


def _full_hosts(snapshot: Snapshot) -> frozenset[HostId]:
    used = ((row.host, row.used_pct) for row in snapshot.hosts)
    return frozenset(host for host, pct in used if pct is not None and pct >= 100.0 * FULL_HOST_SHARE)


def _percent(share: float) -> float | None:
    return None if np.isnan(share) else 100.0 * float(share)


@dataclass(slots=True)
class _OperatorRows:
    """The key groups of one operator in this window, in the order of the block; NaN = unknown.

    `use` in percent of a core, `done`, `arrivals` and `wanted` in inputs per second, `cost` = percent of a core per
    input and second, `waiting_work` = percent of a core for one second.  `wanted` = inputs per second that the demand
    stands for: equal to `done` wherever nothing is held back.
    """

    key: OperatorKey
    partition: Integers
    owner: Integers
    use: Floats
    done: Floats
    backlog: Floats
    arrivals: Floats
    cost: Floats
    waiting_work: Floats
    history: OperatorHistory
    wanted: Floats

    @classmethod
    def of(cls, block: KeyGroupBlock, known: DemandHistory, workers: _Workers, window: Window) -> "_OperatorRows":
        key = (block.app, block.operator)
        partition = np.frombuffer(block.partition, np.int64)
        owner = np.array([workers.places[name] for name in block.workers])[np.frombuffer(block.worker, np.int64)]
        use = PERCENT_PER_CORE * _known(np.frombuffer(block.cpu))
        done, backlog = _known(np.frombuffer(block.tuples_in_s)), _known(np.frombuffer(block.backlog, np.int64))
        size = int(partition.max()) + 1
        before = known.operators.get(key, OperatorHistory.unknown(size)).resized(size)
        waited = before.backlog[partition] if window.next else np.full(len(partition), np.nan)
        history = remembered(before, partition, use, done, backlog, waited, workers.calm[owner], window)
        cost = cost_of(history.use[partition], history.done[partition], owner)
        largest = np.maximum(np.nan_to_num(backlog), np.nan_to_num(waited))
        return cls(
            key=key,
            partition=partition,
            owner=owner,
            use=use,
            done=done,
            backlog=backlog,
            arrivals=median(history.arrivals[:, partition]),
            cost=cost,
            waiting_work=np.nan_to_num(cost) * largest,
            history=history,
            wanted=done.copy(),
        )

    def want(self, waiting: Bools, busy: Bools, catch_up_s: float) -> None:
        """Set the wanted rates of the key groups at workers where inputs wait."""
        held = waiting[self.owner] & ~np.isnan(self.arrivals) & ~np.isnan(self.backlog)
        rate = np.where(
            busy[self.owner], self.arrivals + self.backlog / catch_up_s, np.minimum(self.done, self.arrivals)
        )
        self.wanted = np.where(held, rate, self.done)

    @property
    def demand(self) -> Floats:
        """Percent of a core; the use itself where nothing is held back, or the cost is unknown."""
        as_used = (self.wanted == self.done) | np.isnan(self.wanted) | np.isnan(self.cost)
        return np.where(as_used, self.use, self.cost * np.maximum(0.0, self.wanted))

    @property
    def is_held(self) -> bool:
        """Whether the wanted rates differ from what was done."""
        return bool(np.any(np.nan_to_num(self.wanted - self.done)))

    def by_partition(self) -> Floats:
        """The demand by partition, as percent of a core."""
        found = np.full(int(self.partition.max()) + 1, np.nan)
        found[self.partition] = self.demand
        return found

    def blocked(self, window: Window) -> Iterator[tuple[int, Blocked]]:
        """The blocked key groups by worker (its place)."""
        grown = self.backlog - self.history.stuck_from[self.partition]
        stuck = self.history.stuck[self.partition] >= BLOCKED_WINDOWS
        rows = np.flatnonzero(stuck & (grown > self.done * window.window_s))
        if not len(rows):
            return
        rows = rows[np.argsort(self.owner[rows], kind="stable")]
        places, starts = np.unique(self.owner[rows], return_index=True)
        for place, here in zip(places.tolist(), np.split(rows, starts[1:]), strict=True):
            first = (KeyGroup(*self.key, partition) for partition in self.partition[here[:NAMED]].tolist())
            yield place, Blocked(count=len(here), first=tuple(first), backlog=round(self.backlog[here].sum()))


def _known(column: NDArray[np.float64] | Integers) -> Floats:
    return np.where(column == UNKNOWN, np.nan, column).astype(np.float64)


def _pass_on(rows: Sequence[_OperatorRows], pairs: Sequence[PairWindow]) -> None:
    """Add to `wanted` what the sources will send more or less than they did, operator by operator downstream."""
    changed = {place for place, each in enumerate(rows) if each.is_held}
    if not changed:
        return
    flows = _flows(rows, pairs)
    order = _downstream(changed, flows)
    for number, source in enumerate(order):
        more, done = np.nan_to_num(rows[source].wanted - rows[source].done), rows[source].done
        for target in order[number + 1 :]:  # a flow back to an earlier operator is left out
            if (source, target) not in flows:
                continue
            at, to, rate = flows[source, target]
            sent = np.where(done[at] > 0.0, rate * more[at] / np.where(done[at] > 0.0, done[at], 1.0), 0.0)
            rows[target].wanted = rows[target].wanted + np.bincount(to, weights=sent, minlength=len(rows[target].done))


def _flows(
    rows: Sequence[_OperatorRows], pairs: Sequence[PairWindow]
) -> dict[tuple[int, int], tuple[Integers, Integers, Floats]]:
    """Per pair of operators: the rows of the key groups at both ends, and tuples per second."""
    places = {each.key: place for place, each in enumerate(rows)}
    lookup = [_rows_by_partition(each.partition) for each in rows]
    found: dict[tuple[int, int], list[tuple[int, int, float]]] = {}
    for pair in pairs:
        source, target = places.get(pair.source[:2]), places.get(pair.target[:2])
        if source is None or target is None:
            continue
        at, to = lookup[source].get(pair.source.partition), lookup[target].get(pair.target.partition)
        if at is not None and to is not None:
            found.setdefault((source, target), []).append((at, to, pair.tuples_s))
    return {ends: _columns(links) for ends, links in found.items()}


def _columns(links: Sequence[tuple[int, int, float]]) -> tuple[Integers, Integers, Floats]:
    at, to, rate = zip(*links, strict=True)
    return np.array(at, np.int64), np.array(to, np.int64), np.array(rate, np.float64)


def _downstream(first: Iterable[int], links: Collection[tuple[int, int]]) -> list[int]:
    """These operators and all behind them, sources before their targets; a cycle begins where most sources are done."""
    reached, new = set(first), set(first)
    while new:
        new = {target for source, target in links if source in new} - reached
        reached |= new
    order: list[int] = []
    while reached:
        waits = Counter(target for source, target in links if source in reached and source != target)
        order.append(min(reached, key=lambda place: (waits[place], place)))
        reached.remove(order[-1])
    return order


def _rows_by_partition(partition: Integers) -> dict[int, int]:
    """The row of each partition that is reported."""
    return {each: row for row, each in enumerate(partition.tolist())}
