"""The share of the time in which a worker's main thread waits for a core."""

import pytest

from tests.agent.sampler.host_readings import reading as a_reading
from trimtab_agent.sampler.derive import HostReading, ProcessReading
from trimtab_agent.sampler.waits import WAITS_S, Waits, waited_s_of
from trimtab_protocol.messages.names import WorkerId

W0 = WorkerId("w0")


def reading(at: float, waited_s: float | None, *, pid: int = 7, created: float = 100.0) -> HostReading:
    process = ProcessReading(pid=pid, created=created, cpu_s=1.0, memory_bytes=1, waited_s=waited_s)
    return a_reading(at, workers={W0: process})


def test_the_share_is_that_of_the_last_seconds() -> None:
    waits = Waits()
    assert waits.see(reading(0.0, 5.0)) == {}, "one reading says nothing"
    assert waits.see(reading(1.0, 5.5)) == {W0: 0.5}
    for second in range(2, 12):
        last = waits.see(reading(float(second), 5.5))
    assert last == {W0: 0.0}, f"what was waited more than {WAITS_S:g} s ago is over"
    assert waits.see(reading(14.0, 7.0)) == {W0: pytest.approx(1.5 / 10.0)}


def test_with_a_long_interval_it_is_that_of_one_interval() -> None:
    waits = Waits()
    found = [waits.see(reading(at, waited_s)) for at, waited_s in ((0.0, 0.0), (60.0, 30.0), (120.0, 45.0))]
    assert found == [{}, {W0: 0.5}, {W0: 0.25}]


@pytest.mark.parametrize(
    "now",
    [
        reading(1.0, None),
        reading(1.0, 9.0, pid=8),
        reading(1.0, 9.0, created=101.0),
        reading(1.0, 4.0),
        reading(0.0, 5.5),
    ],
    ids=["no counter", "another process", "a pid used again", "a counter that went back", "a clock that stood still"],
)
def test_what_is_not_measured_is_unknown(now: HostReading) -> None:
    waits = Waits()
    waits.see(reading(0.0, 5.0))
    assert waits.see(now) == {}


def test_two_clocks_never_make_more_than_the_whole_time() -> None:
    waits = Waits()
    waits.see(reading(0.0, 5.0))
    assert waits.see(reading(1.0, 6.001)) == {W0: 1.0}


@pytest.mark.parametrize(
    ("text", "waited_s"),
    [("1707669 528924 3\n", 0.000528924), ("", None), ("1707669", None), ("1 -2 3", None), (f"1 {'9' * 30} 1", None)],
)
def test_a_schedstat_states_nanoseconds(text: str, waited_s: float | None) -> None:
    assert waited_s_of(text) == waited_s
