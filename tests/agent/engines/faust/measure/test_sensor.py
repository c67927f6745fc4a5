import gc
import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import faust
import pytest
from faust.events import Event
from faust.types import TP, Message

from tests.agent.engines.faust.steered import processing
from trimtab_agent.engines.faust.measure.sensor import IntervalCounts, KeyGroupSensor, MessageCount

SOURCE, MIDDLE, LOG = TP("in", 3), TP("mid", 5), TP("log", 5)
APP = faust.App("sensor-test", store="memory://")


class ProcessClock:
    now = 1_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> ProcessClock:
    return ProcessClock()


@pytest.fixture
def sensor(clock: ProcessClock) -> KeyGroupSensor:
    return KeyGroupSensor(APP, process_clock=clock)


def message(tp: TP, key: bytes | None = b"key", value: bytes | None = b"value") -> Message:
    return Message(
        tp.topic, tp.partition, 0, timestamp=0.0, timestamp_type=0, headers=None, key=key, value=value, checksum=None
    )


def event(tp: TP) -> Event:
    return Event(APP, None, None, None, message(tp))


def send(sensor: KeyGroupSensor, target: TP, size: tuple[int, int] = (2, 8)) -> Any:
    state = sensor.on_send_initiated(None, target.topic, None, *size)
    sensor.on_send_completed(None, state, SimpleNamespace(topic_partition=target))
    return state


@pytest.fixture
def at_source() -> Iterator[Event]:
    """The task works on an event of SOURCE."""
    current = event(SOURCE)
    with processing(current):
        yield current


def test_received_messages_count_with_key_and_value(sensor: KeyGroupSensor):
    sensor.on_message_in(SOURCE, 0, message(SOURCE))
    sensor.on_message_in(SOURCE, 1, message(SOURCE, key=None, value=None))
    sensor.on_message_in(MIDDLE, 0, message(MIDDLE))

    assert sensor.take().received == {SOURCE: MessageCount(2, 8), MIDDLE: MessageCount(1, 8)}


def test_a_send_is_of_the_event_worked_on_and_goes_where_the_broker_put_it(sensor: KeyGroupSensor, at_source: Event):
    send(sensor, MIDDLE)
    send(sensor, MIDDLE, (1, 1))

    assert sensor.take().sent == {(SOURCE, MIDDLE): MessageCount(2, 12)}


async def test_changelog_records_are_apart_from_what_timers_and_pages_send():
    app = faust.App("logs", store="memory://")
    app.Table("sums")
    sensor = KeyGroupSensor(app)
    await sensor.on_start()
    own = TP("logs-sums-changelog", 1)
    send(sensor, own)
    send(sensor, SOURCE)

    counts = sensor.take()
    assert (counts.logged, counts.sent) == ({own: MessageCount(1, 10)}, {(None, SOURCE): MessageCount(1, 10)})


def test_a_send_counts_when_it_arrives_also_in_a_later_interval(sensor: KeyGroupSensor, at_source: Event):
    state = sensor.on_send_initiated(None, "mid", None, 1, 1)
    assert sensor.take().sent == {}

    sensor.on_send_completed(None, state, SimpleNamespace(topic_partition=MIDDLE))

    assert sensor.take().sent == {(SOURCE, MIDDLE): MessageCount(1, 2)}


def test_taking_begins_the_next_interval(sensor: KeyGroupSensor, clock: ProcessClock, at_source: Event):
    clock.now += 500
    sensor.on_message_in(SOURCE, 0, message(SOURCE))
    sensor.cpu.spent_ns[SOURCE] = 70
    send(sensor, MIDDLE)
    first = sensor.take()
    clock.now += 30

    assert first == IntervalCounts(
        received={SOURCE: MessageCount(1, 8)},
        sent={(SOURCE, MIDDLE): MessageCount(1, 10)},
        agents_ns={SOURCE: 70},
        process_ns=500,
    )
    assert sensor.take() == IntervalCounts(process_ns=30)


def test_a_process_clock_that_goes_back_or_is_gone_measures_nothing(sensor: KeyGroupSensor, clock: ProcessClock):
    def gone() -> int:
        raise RuntimeError("the processor time used is not available")

    found = []
    for step in (-50, 30):
        clock.now += step
        found.append(sensor.take().process_ns)
    sensor._process_clock = gone
    found.append(sensor.take().process_ns)
    sensor._process_clock = clock
    found += [sensor.take().process_ns, sensor.take().process_ns]

    assert found == [None, 30, None, None, 0]


def test_the_beginning_of_an_event_names_the_running_step(sensor: KeyGroupSensor):
    assert sensor.on_stream_event_in(SOURCE, 0, None, event(SOURCE)) is None  # type: ignore[func-returns-value]
    assert sensor.cpu.current == SOURCE


def test_no_message_and_no_event_is_kept(sensor: KeyGroupSensor):
    one, begun = message(SOURCE), event(SOURCE)
    gone = [weakref.ref(one), weakref.ref(begun)]
    sensor.on_message_in(SOURCE, 0, one)
    sensor.on_stream_event_in(SOURCE, 0, None, begun)

    del one, begun
    gc.collect()

    assert [reference() for reference in gone] == [None, None]


def test_fausts_page_of_statistics_has_the_monitor_whichever_sensor_it_numbers_first(sensor: KeyGroupSensor):
    APP.monitor.messages_received_total = 7
    app = faust.App("stats-test", store="memory://", monitor=APP.monitor)
    app.sensors.add(app.monitor)
    app.sensors.add(sensor)
    assert [each.asdict()["messages_received_total"] for each in app.sensors] == [7, 7]
