from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from faust.types import TP

from trimtab_agent.engines.faust.measure.apportion import MESSAGE_S
from trimtab_agent.engines.faust.measure.collect import Collector
from trimtab_agent.engines.faust.measure.sensor import Flow, Taken
from trimtab_models.messages.decode import Fault
from trimtab_models.messages.local import Statistics, decode_frame, encode_frame
from trimtab_models.messages.names import AppId, Epoch, KeyGroup, OperatorId, WorkerId
from trimtab_models.messages.report import KeyGroupSample, PairSample, WorkerState

W0 = WorkerId("w0")
EPOCH = Epoch(2, 7)
TOPICS = {"in": "extract", "mid": "sums", "log": "sums"}


def group(operator: str, partition: int) -> KeyGroup:
    return KeyGroup(AppId("app"), OperatorId(operator), partition)


@dataclass
class FakeSteering:
    """The port to the steering part."""

    owns: set[KeyGroup]
    state: WorkerState = WorkerState.RUNNING
    known: Mapping[OperatorId, int] = field(default_factory=lambda: {OperatorId("extract"): 8, OperatorId("sums"): 8})
    sizes: dict[KeyGroup, int] = field(default_factory=dict)
    epoch: Epoch | None = EPOCH
    generation: int | None = 4
    refusal: str | None = None
    standbys: int = 1
    breaches: int = 0
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


class FakeSensor:
    def __init__(self, *intervals: Taken) -> None:
        self._intervals = list(intervals)

    def take(self) -> Taken:
        return self._intervals.pop(0)


def collect(taken: Taken, steering: FakeSteering) -> Statistics:
    return Collector(FakeSensor(taken), steering, worker=W0).collect(at_ms=5000, interval_s=1.0)


BUSY = Taken(
    received={TP("in", 0): Flow(10, 1000), TP("mid", 0): Flow(10, 400)},
    sent={
        (TP("in", 0), TP("mid", 0)): Flow(9, 360),
        (TP("in", 0), TP("mid", 3)): Flow(1, 40),
        (TP("mid", 0), TP("outside", 1)): Flow(10, 500),
        (None, TP("log", 0)): Flow(10, 600),
    },
    agents_ns={None: 1_000_000, TP("in", 0): 50_000_000, TP("mid", 0): 20_000_000},
    process_ns=400_000_000,
)


def test_all_of_an_interval_by_key_group():
    extract, sums, quiet = group("extract", 0), group("sums", 0), group("sums", 1)
    steering = FakeSteering(owns={extract, sums, quiet}, sizes={sums: 4096})

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
        PairSample(source=extract, target=sums, tuples=9, bytes=360),
        PairSample(source=extract, target=group("sums", 3), tuples=1, bytes=40),
    )
    assert statistics.cpu_s == pytest.approx(0.4)
    assert sum(s.cpu_s or 0 for s in statistics.key_groups) < 0.4
    assert (statistics.at_ms, statistics.interval_s, statistics.complete) == (5000, 1.0, True)
    assert (statistics.state, statistics.epoch, statistics.generation) == (WorkerState.RUNNING, Epoch(2, 7), 4)


def rest(s: KeyGroupSample) -> tuple[Any, ...]:
    return (s.tuples_in, s.tuples_out, s.bytes_in, s.bytes_out, s.state_bytes, s.lag_records, s.backlog)


def test_a_key_group_that_moved_away_pays_its_share_but_is_not_reported():
    both = collect(BUSY, FakeSteering(owns={group("extract", 0), group("sums", 0)}))

    one = collect(BUSY, FakeSteering(owns={group("sums", 0)}))

    assert one.key_groups == both.key_groups[1:]
    assert one.pairs == both.pairs


def test_before_the_operators_are_known_nothing_is_complete():
    statistics = collect(Taken(process_ns=7), FakeSteering(owns=set(), known={}, state=WorkerState.RECOVERING))

    assert (statistics.complete, statistics.key_groups, statistics.pairs) == (False, (), ())


def test_idle_intervals_are_learned_but_not_those_of_a_rebalance():
    steering = FakeSteering(owns={group("sums", 0)}, state=WorkerState.REBALANCING)
    sensor = FakeSensor(
        Taken(process_ns=900_000_000), Taken(process_ns=20_000_000), replace(BUSY, process_ns=92_500_000)
    )
    collector = Collector(sensor, steering, worker=W0)

    collector.collect(at_ms=1000, interval_s=2.0)
    steering.state = WorkerState.RUNNING
    collector.collect(at_ms=2000, interval_s=2.0)
    busy = collector.collect(at_ms=3000, interval_s=2.0)

    idle_s = 0.02
    own, all_of_it = 30 + 1500 / 16384, 50 + 2900 / 16384
    expected = 0.02 + (0.0925 - idle_s - 0.071) * own / all_of_it
    assert busy.key_groups[0].cpu_s == pytest.approx(expected)


def test_a_skipped_interval_is_not_reported():
    collector = Collector(FakeSensor(BUSY, Taken()), FakeSteering(owns={group("sums", 0)}), worker=W0)

    collector.skip()
    statistics = collector.collect(at_ms=1000, interval_s=1.0)

    assert statistics.key_groups[0].tuples_in == 0
    assert statistics.pairs == ()


def test_statistics_can_be_sent():
    statistics = collect(BUSY, FakeSteering(owns={group("extract", 0), group("sums", 0)}))

    assert decode_frame(encode_frame(statistics)) == statistics
