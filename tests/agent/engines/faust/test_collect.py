from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from faust.types import TP

from trimtab_agent.engines.faust.collect import Collector
from trimtab_agent.engines.faust.measure.apportion import IDLE_CORES, MESSAGE_S
from trimtab_agent.engines.faust.measure.sensor import IntervalCounts, MessageCount
from trimtab_protocol.messages.copies import Copy
from trimtab_protocol.messages.decode import Fault
from trimtab_protocol.messages.local import Statistics, decode_frame, encode_frame
from trimtab_protocol.messages.names import AppId, Epoch, KeyGroup, OperatorId, WorkerId
from trimtab_protocol.messages.report import KeyGroupSample, PairSample, WorkerState

W0 = WorkerId("w0")
EPOCH = Epoch(2, 7)
TOPICS = {"in": "extract", "mid": "sums", "log": "sums"}


def group(operator: str, partition: int) -> KeyGroup:
    return KeyGroup(AppId("app"), OperatorId(operator), partition)


@dataclass
class FakeStatus:
    """What the worker tells."""

    owns: set[KeyGroup]
    state: WorkerState = WorkerState.RUNNING
    known: Mapping[OperatorId, int] = field(default_factory=lambda: {OperatorId("extract"): 8, OperatorId("sums"): 8})
    sizes: dict[KeyGroup, int] = field(default_factory=dict)
    epoch: Epoch | None = EPOCH
    generation: int | None = 4
    work_beside_the_job: int | None = 0
    refusal: str | None = None
    waits_for: str | None = None
    standbys: int = 1
    cold: int | None = 2
    breaches: int = 0
    fresh: bool = False
    copies: tuple[Copy, ...] = (Copy(OperatorId("sums"), 3, 70),)
    following_s: float | None = None
    paused: tuple[float, int] | None = None
    reset: bool = False
    maybe_reset: bool = False
    lost: bool = False
    away: dict[KeyGroup, str] = field(default_factory=dict)
    refused: Mapping[Fault, int] = field(default_factory=lambda: {Fault.UNSIGNED: 2})

    def operators(self) -> Mapping[OperatorId, int]:
        return self.known

    def owned(self) -> frozenset[KeyGroup]:
        return frozenset(self.owns)

    def key_group_of(self, topic: str, partition: int) -> KeyGroup | None:
        return group(TOPICS[topic], partition) if topic in TOPICS else None

    def state_bytes(self, key_group: KeyGroup) -> int | None:
        return self.sizes.get(key_group)

    def lag_records(self, key_group: KeyGroup) -> int | None:
        return None

    def backlog(self, key_group: KeyGroup) -> int | None:
        return None

    def out_of_reach(self, key_group: KeyGroup) -> str | None:
        return self.away.get(key_group)


class FakeSensor:
    def __init__(self, *intervals: IntervalCounts) -> None:
        self._intervals = list(intervals)

    def take(self) -> IntervalCounts:
        return self._intervals.pop(0)


def collect(taken: IntervalCounts, steering: FakeStatus) -> Statistics:
    return Collector(FakeSensor(taken), steering, worker=W0).collect(at_ms=5000, interval_s=1.0)


BUSY = IntervalCounts(
    received={TP("in", 0): MessageCount(10, 1000), TP("mid", 0): MessageCount(10, 400)},
    sent={
        (TP("in", 0), TP("mid", 0)): MessageCount(9, 360),
        (TP("in", 0), TP("mid", 3)): MessageCount(1, 40),
        (TP("mid", 0), TP("outside", 1)): MessageCount(10, 500),
        (None, TP("mid", 0)): MessageCount(7, 70),
    },
    logged={TP("log", 0): MessageCount(10, 600)},
    agents_ns={None: 1_000_000, TP("in", 0): 50_000_000, TP("mid", 0): 20_000_000},
    process_ns=400_000_000,
)


def test_all_of_an_interval_by_key_group():
    extract, sums, quiet = group("extract", 0), group("sums", 0), group("sums", 1)
    steering = FakeStatus(owns={extract, sums, quiet}, sizes={sums: 4096})

    statistics = collect(BUSY, steering)

    assert [(s.key_group, s.worker) for s in statistics.key_groups] == [(extract, W0), (sums, W0), (quiet, W0)]
    assert [s.cpu_s for s in statistics.key_groups] == pytest.approx(
        [0.05 + MESSAGE_S * (20 + 1400 / 16384), 0.02 + MESSAGE_S * (30 + 1500 / 16384), 0.0]
    )
    assert [rest(s) for s in statistics.key_groups] == [
        (10, 10, 1000, 400, None, None, None),
        (10, 10, 400, 500, 4096, None, None),
        (0, 0, 0, 0, None, None, None),
    ]
    assert statistics.pairs == (
        PairSample(source=extract, target=sums, topic="mid", tuples=9, bytes=360, direct=0),
        PairSample(source=extract, target=group("sums", 3), topic="mid", tuples=1, bytes=40, direct=0),
    )
    assert statistics.cpu_s == pytest.approx(0.4)
    assert sum(s.cpu_s or 0 for s in statistics.key_groups) < 0.4
    assert (statistics.at_ms, statistics.interval_s, statistics.complete) == (5000, 1.0, True)
    assert (statistics.state, statistics.epoch, statistics.generation) == (WorkerState.RUNNING, Epoch(2, 7), 4)
    assert statistics.copies == (Copy(OperatorId("sums"), 3, 70),)
    assert (statistics.standbys, statistics.cold) == (1, 2)


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [(1.0, 1.25, 0.25), (1.0, 1.0, 0.0), (None, 1.0, None), (1.0, None, None), (1.0, 0.5, None)],
)
def test_what_following_took_is_told_of_the_interval(before: float | None, after: float | None, told: float | None):
    status = FakeStatus({group("sums", 0)}, following_s=before)
    collector = Collector(FakeSensor(IntervalCounts(), IntervalCounts(), IntervalCounts()), status, worker=W0)
    collector.skip()
    status.following_s = after
    first = collector.collect(at_ms=5000, interval_s=1.0)
    assert first.following_s == told
    assert collector.collect(at_ms=6000, interval_s=1.0).following_s == (None if after is None else 0.0)
    assert decode_frame(encode_frame(first)) == first


def test_standstills_are_told_once_also_those_from_before_the_first_interval():
    status = FakeStatus({group("sums", 0)}, paused=(3.0, 2))
    collector = Collector(
        FakeSensor(IntervalCounts(), IntervalCounts(), IntervalCounts(), IntervalCounts()), status, worker=W0
    )
    collector.skip()
    said = [collector.collect(at_ms=5000, interval_s=1.0)]
    status.paused = (4.5, 5)
    said += [collector.collect(at_ms=at, interval_s=1.0) for at in (6000, 7000)]
    assert [(each.paused_s, each.paused) for each in said] == [(3.0, 2), (1.5, 3), (0.0, 0)]
    assert decode_frame(encode_frame(said[1])) == said[1]
    status.paused = None
    unknown = Collector(FakeSensor(IntervalCounts()), status, worker=W0).collect(at_ms=8000, interval_s=1.0)
    assert (unknown.paused_s, unknown.paused) == (None, None)


def test_a_key_group_whose_broker_is_out_of_reach_has_no_known_load_and_the_others_have():
    """It does nothing because it gets nothing: 0 would look like a worker with room for more."""
    near, far = group("sums", 0), group("sums", 1)
    why = "broker 2 at kafka-2:9092 does not answer"
    said = collect(IntervalCounts(process_ns=100_000_000), FakeStatus({near, far}, away={far: why}))
    assert {each.key_group: each.cpu_s is None for each in said.key_groups} == {near: False, far: True}
    assert said.unknown == why


@pytest.mark.parametrize("trouble", ["reset", "maybe_reset", "lost"])
def test_that_inputs_were_set_back_or_lost_is_said_while_it_holds(trouble):
    status = FakeStatus({group("sums", 0)}, **{trouble: True})
    collector = Collector(FakeSensor(IntervalCounts(), IntervalCounts()), status, worker=W0)
    said = collector.collect(at_ms=5000, interval_s=1.0)
    setattr(status, trouble, False)
    later = collector.collect(at_ms=6000, interval_s=1.0)
    assert (getattr(said, trouble), getattr(later, trouble)) == (True, None)
    assert decode_frame(encode_frame(said)) == said


def test_what_skips_the_broker_counts_as_sent_and_received_and_is_told_by_pair():
    extract, sums = group("extract", 0), group("sums", 0)
    taken = IntervalCounts(
        received={TP("in", 0): MessageCount(10, 1000)},
        sent={(TP("in", 0), TP("mid", 0)): MessageCount(2, 80), (TP("in", 0), TP("mid", 3)): MessageCount(1, 40)},
        direct={
            (TP("in", 0), TP("mid", 0)): MessageCount(7, 280),
            (TP("mid", 0), TP("outside", 1)): MessageCount(5, 50),
        },
        agents_ns={},
        process_ns=400_000_000,
    )

    statistics = collect(taken, FakeStatus(owns={extract, sums}))

    assert [(s.tuples_in, s.tuples_out) for s in statistics.key_groups] == [(10, 10), (7, 5)]
    assert statistics.pairs == (
        PairSample(source=extract, target=sums, topic="mid", tuples=9, bytes=360, direct=7),
        PairSample(source=extract, target=group("sums", 3), topic="mid", tuples=1, bytes=40, direct=0),
    )


def rest(s: KeyGroupSample) -> tuple[Any, ...]:
    return (s.tuples_in, s.tuples_out, s.bytes_in, s.bytes_out, s.state_bytes, s.lag_records, s.backlog)


def test_a_key_group_that_moved_away_pays_its_share_but_is_not_reported():
    both = collect(BUSY, FakeStatus(owns={group("extract", 0), group("sums", 0)}))

    one = collect(BUSY, FakeStatus(owns={group("sums", 0)}))

    assert one.key_groups == both.key_groups[1:]
    assert one.pairs == both.pairs


def test_before_the_operators_are_known_nothing_is_complete():
    statistics = collect(IntervalCounts(process_ns=7), FakeStatus(owns=set(), known={}, state=WorkerState.RECOVERING))

    assert (statistics.complete, statistics.key_groups, statistics.pairs) == (False, (), ())


IDLE = IntervalCounts(process_ns=60_000_000)
"""0.06 s of CPU: in 2 s a plausible base of 0.03 cores."""


def busy_cpu_s(collector: Collector) -> float | None:
    return collector.collect(at_ms=9000, interval_s=2.0).key_groups[0].cpu_s


def expected_cpu_s(idle_cores: float) -> float:
    """Of `sums/0` in BUSY, when the process used 0.1325 s in an interval of 2 s."""
    own, all_of_it = 30 + 1500 / 16384, 57 + 2970 / 16384
    return 0.02 + min(MESSAGE_S, max(0.0, 0.1325 - 2.0 * idle_cores - 0.071) / all_of_it) * own


def test_an_idle_interval_is_learned() -> None:
    sensor = FakeSensor(IntervalCounts(), IDLE, replace(BUSY, process_ns=132_500_000))
    collector = Collector(sensor, FakeStatus(owns={group("sums", 0)}), worker=W0)
    collector.skip()
    collector.collect(at_ms=2000, interval_s=2.0)

    assert busy_cpu_s(collector) == pytest.approx(expected_cpu_s(0.03))
    assert expected_cpu_s(0.03) < expected_cpu_s(IDLE_CORES)


@pytest.mark.parametrize(
    ("began", "ended"),
    [
        ({"state": WorkerState.RECOVERING}, {}),
        ({}, {"state": WorkerState.REBALANCING}),
        ({"generation": 3}, {}),
        ({"work_beside_the_job": 1}, {"work_beside_the_job": 2}),
        ({"work_beside_the_job": None}, {}),
        ({"work_beside_the_job": None}, {"work_beside_the_job": None}),
    ],
)
def test_from_an_interval_in_which_anything_else_went_on_nothing_is_learned(
    began: dict[str, Any], ended: dict[str, Any]
) -> None:
    steering = FakeStatus(owns={group("sums", 0)})
    collector = Collector(
        FakeSensor(IntervalCounts(), IDLE, replace(BUSY, process_ns=132_500_000)), steering, worker=W0
    )
    told = vars(steering).copy()
    vars(steering).update(told | began)
    collector.skip()
    vars(steering).update(told | ended)
    collector.collect(at_ms=2000, interval_s=2.0)

    assert busy_cpu_s(collector) == pytest.approx(expected_cpu_s(IDLE_CORES))


def test_of_an_interval_whose_beginning_nobody_saw_nothing_is_learned() -> None:
    sensor = FakeSensor(IDLE, replace(BUSY, process_ns=132_500_000))
    collector = Collector(sensor, FakeStatus(owns={group("sums", 0)}), worker=W0)
    collector.collect(at_ms=2000, interval_s=2.0)

    assert busy_cpu_s(collector) == pytest.approx(expected_cpu_s(IDLE_CORES))


def test_a_worker_that_restored_without_messages_is_not_measured_as_zero_afterwards() -> None:
    """0.35 cores without a message, all the time RUNNING; then 0.30 s of agents' steps in 0.40 s of the process."""
    restoring = IntervalCounts(process_ns=350_000_000)
    working = IntervalCounts(
        received={TP("in", 0): MessageCount(130, 13_000)}, agents_ns={TP("in", 0): 300_000_000}, process_ns=400_000_000
    )
    collector = Collector(
        FakeSensor(IntervalCounts(), *[restoring] * 3, working), FakeStatus(owns={group("extract", 0)}), worker=W0
    )
    collector.skip()
    for _ in range(3):
        collector.collect(at_ms=1000, interval_s=1.0)

    [sample] = collector.collect(at_ms=2000, interval_s=1.0).key_groups

    assert sample.cpu_s == pytest.approx(0.30 + MESSAGE_S * (130 + 13_000 / 16384))


@pytest.mark.parametrize("process_ns", [None, 40_000_000])
def test_when_the_parts_do_not_add_up_loads_are_unknown_and_counts_are_not(
    process_ns: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    odd, fine = replace(BUSY, process_ns=process_ns), BUSY
    steering = FakeStatus(owns={group("extract", 0), group("sums", 0), group("sums", 1)})
    collector = Collector(FakeSensor(odd, odd, fine, odd), steering, worker=W0)

    first, _, known, _ = [collector.collect(at_ms=1000 * number, interval_s=1.0) for number in range(1, 5)]

    assert [sample.cpu_s for sample in first.key_groups] == [None, None, None]
    assert [sample.tuples_in for sample in first.key_groups] == [10, 10, 0]
    assert first.cpu_s == (None if process_ns is None else 0.04)
    assert (first.unknown or "").startswith("its agents' steps take" if process_ns else "the CPU time of its process")
    assert known.unknown is None
    assert all(sample.cpu_s is not None for sample in known.key_groups)
    assert len(caplog.records) == 2, "said when it begins, not in each interval"


def test_a_skipped_interval_is_not_reported():
    collector = Collector(FakeSensor(BUSY, IntervalCounts()), FakeStatus(owns={group("sums", 0)}), worker=W0)

    collector.skip()
    statistics = collector.collect(at_ms=1000, interval_s=1.0)

    assert statistics.key_groups[0].tuples_in == 0
    assert statistics.pairs == ()
