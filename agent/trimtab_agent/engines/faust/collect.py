"""Turns the sensor's counts of one interval into a worker's statistics by key group."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from faust.types import TP

from trimtab_agent.engines.faust.measure.apportion import IdleBase, Interval, Work, apportion, contradiction
from trimtab_agent.engines.faust.measure.sensor import IntervalCounts, KeyGroupSensor, MessageCount
from trimtab_agent.engines.faust.steering.worker_status import FaustWorkerStatus
from trimtab_protocol.messages.local import Statistics
from trimtab_protocol.messages.names import KeyGroup, WorkerId
from trimtab_protocol.messages.report import MAX_STANDBYS, KeyGroupSample, PairSample, WorkerState

log = logging.getLogger(__name__)

KeyGroupOf = Callable[[str, int], KeyGroup | None]


@dataclass(slots=True)
class _Tally:
    """Sums of one key group over its partitions."""

    agents_ns: int = 0
    received: MessageCount = field(default_factory=MessageCount)
    sent: MessageCount = field(default_factory=MessageCount)
    logged: MessageCount = field(default_factory=MessageCount)
    direct_in: MessageCount = field(default_factory=MessageCount)
    direct_out: MessageCount = field(default_factory=MessageCount)

    @property
    def work(self) -> Work:
        """What it costs: direct events are no messages of the transport, all of their cost is in agents' steps."""
        flow = self.received + self.sent + self.logged
        return Work(agents_s=self.agents_ns / 1e9, messages=flow.messages, bytes=flow.bytes)


class Collector:
    """Turns a sensor's counts into statistics, and learns the worker's idle base."""

    def __init__(self, sensor: KeyGroupSensor, status: FaustWorkerStatus, *, worker: WorkerId) -> None:
        self._sensor = sensor
        self._status = status
        self._worker = worker
        self._idle = IdleBase()
        self._calm_at: tuple[int | None, int] | None = None
        """Generation and count of work beside the job when the interval began; None if the worker was not calm then."""
        self._contradicted = False
        self._following_s: float | None = None
        """CPU seconds that following had taken when the interval began."""
        self._paused = (0.0, 0)
        """What has been told of how long inputs stood still; what ended before the first interval is told with it."""

    def skip(self) -> None:
        """Discard the counts so far, because they belong to no requested interval."""
        self._sensor.take()
        self._calm_at = self._calm_now()
        self._followed_for()

    def collect(self, *, at_ms: int, interval_s: float) -> Statistics:
        """The statistics since the last `collect` or `skip`, `interval_s` seconds ago.

        There is a sample for each key group owned now.  A key group that moved away in this interval is left out,
        because its new owner reports it.  The load of one whose inputs are out of reach is unknown.  Pairs cover
        everything that was sent.
        """
        taken, status = self._sensor.take(), self._status
        paused_s, paused = self._paused_for()
        tallies = _by_key_group(taken, status.key_group_of)
        work = {key_group: tally.work for key_group, tally in tallies.items()}
        owned = sorted(status.owned())
        began, self._calm_at = self._calm_at, self._calm_now()
        interval = Interval(
            interval_s=interval_s,
            process_s=None if taken.process_ns is None else taken.process_ns / 1e9,
            agents_s=sum(one.agents_s for one in work.values()),
            messages=sum(one.messages for one in work.values()) + sum(each.messages for each in taken.direct.values()),
            key_groups=len(owned),
            calm=began is not None and began == self._calm_at,
        )
        unknown = contradiction(process_s=interval.process_s, agents_s=interval.agents_s)
        cpu_s = self._shares(interval, work, unknown)
        away = {each: why for each in owned if (why := status.out_of_reach(each)) is not None}
        return Statistics(
            at_ms=at_ms,
            interval_s=interval_s,
            state=status.state,
            cpu_s=interval.process_s,
            epoch=status.epoch,
            generation=status.generation,
            complete=bool(status.operators()),
            key_groups=tuple(
                self._sample(each, tallies.get(each, _Tally()), None if each in away else cpu_s(each)) for each in owned
            ),
            pairs=_pairs(taken, status.key_group_of),
            refused=status.refused,
            standbys=min(status.standbys, MAX_STANDBYS),
            cold=status.cold,
            breaches=status.breaches,
            fresh=status.fresh or None,
            unknown=unknown or next(iter(away.values()), None),
            copies=status.copies,
            following_s=self._followed_for(),
            paused_s=paused_s,
            paused=paused,
            reset=status.reset or None,
            maybe_reset=status.maybe_reset or None,
            lost=status.lost or None,
        )

    def _followed_for(self) -> float | None:
        """CPU seconds that following has taken since the last call; None = unknown."""
        before, self._following_s = self._following_s, self._status.following_s
        now = self._following_s
        return None if before is None or now is None or now < before else now - before

    def _paused_for(self) -> tuple[float | None, int | None]:
        """Key-group seconds that inputs stood still since they were last told, and of how many key groups."""
        now = self._status.paused
        if now is None:
            return None, None
        before, self._paused = self._paused, now
        return now[0] - before[0], now[1] - before[1]

    def _calm_now(self) -> tuple[int | None, int] | None:
        """A value that stays the same while the worker does nothing but its job; None while it does other work."""
        status = self._status
        work = status.work_beside_the_job
        if status.state is not WorkerState.RUNNING or work is None:
            return None
        return status.generation, work

    def _shares(
        self, interval: Interval, work: Mapping[KeyGroup | None, Work], unknown: str | None
    ) -> Callable[[KeyGroup], float | None]:
        """A function from key group to CPU seconds; it returns None for all if the parts do not add up."""
        if unknown is not None and not self._contradicted:
            log.warning("the loads of this worker's key groups are unknown: %s", unknown)
        self._contradicted = unknown is not None
        if unknown is not None or interval.process_s is None:
            return lambda key_group: None
        self._idle.observe(interval)
        idle_s = self._idle.cores(interval.key_groups) * interval.interval_s
        shares = apportion(work, process_s=interval.process_s, idle_s=idle_s)
        return lambda key_group: shares.get(key_group, 0.0)

    def _sample(self, key_group: KeyGroup, tally: _Tally, cpu_s: float | None) -> KeyGroupSample:
        received, sent = tally.received + tally.direct_in, tally.sent + tally.direct_out
        return KeyGroupSample(
            key_group=key_group,
            worker=self._worker,
            cpu_s=cpu_s,
            tuples_in=received.messages,
            tuples_out=sent.messages,
            bytes_in=received.bytes,
            bytes_out=sent.bytes,
            state_bytes=self._status.state_bytes(key_group),
            lag_records=self._status.lag_records(key_group),
            backlog=self._status.backlog(key_group),
        )


def _by_key_group(taken: IntervalCounts, key_group_of: KeyGroupOf) -> Mapping[KeyGroup | None, _Tally]:
    """Everything the worker did, by key group.  Work without a key group is under None.

    So is what no event has caused: it does not leave with the key group that it goes to.
    """
    tallies: dict[KeyGroup | None, _Tally] = {}

    def of(partition: TP | None) -> _Tally:
        key_group = None if partition is None else key_group_of(*partition)
        return tallies.setdefault(key_group, _Tally())

    for partition, flow in taken.received.items():
        tally = of(partition)
        tally.received = tally.received + flow
    for (cause, _), flow in taken.sent.items():
        tally = of(cause)
        tally.sent = tally.sent + flow
    for partition, flow in taken.logged.items():
        tally = of(partition)
        tally.logged = tally.logged + flow
    for (cause, target), flow in taken.direct.items():
        of(cause).direct_out += flow
        of(target).direct_in += flow
    for partition_or_none, spent_ns in taken.agents_ns.items():
        of(partition_or_none).agents_ns += spent_ns
    return tallies


def _pairs(taken: IntervalCounts, key_group_of: KeyGroupOf) -> tuple[PairSample, ...]:
    """Traffic between key groups, by topic.  Topics that belong to no key group are outside the job."""
    by_broker, direct = _flows(taken.sent, key_group_of), _flows(taken.direct, key_group_of)
    nothing = MessageCount()
    samples = []
    for way in sorted(by_broker.keys() | direct.keys()):
        source, target, topic = way
        straight = direct.get(way, nothing)
        flow = by_broker.get(way, nothing) + straight
        samples.append(
            PairSample(
                source=source,
                target=target,
                topic=topic,
                tuples=flow.messages,
                bytes=flow.bytes,
                direct=straight.messages,
            )
        )
    return tuple(samples)


def _flows(
    flows: Mapping[tuple[TP | None, TP], MessageCount] | Mapping[tuple[TP, TP], MessageCount], key_group_of: KeyGroupOf
) -> dict[tuple[KeyGroup, KeyGroup, str], MessageCount]:
    found: dict[tuple[KeyGroup, KeyGroup, str], MessageCount] = {}
    for (cause, target), flow in flows.items():
        ends = _ends(cause, target, key_group_of)
        if ends is not None:
            way = (*ends, target.topic)
            found[way] = found.get(way, MessageCount()) + flow
    return found


def _ends(cause: TP | None, target: TP, key_group_of: KeyGroupOf) -> tuple[KeyGroup, KeyGroup] | None:
    source = None if cause is None else key_group_of(*cause)
    sink = key_group_of(*target)
    return None if source is None or sink is None else (source, sink)
