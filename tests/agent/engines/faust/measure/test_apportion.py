from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab_agent.engines.faust.measure.apportion import (
    CLOCKS_S,
    IDLE_CORES,
    IDLE_INTERVALS,
    MESSAGE_S,
    IdleBase,
    Interval,
    Work,
    apportion,
    contradiction,
    plausible_cores,
)


def test_agents_are_exact_and_messages_cost_what_they_cost_in_full_rounds():
    work = {"a": Work(agents_s=0.30, messages=300), "b": Work(agents_s=0.05, messages=100)}

    shares = apportion(work, process_s=0.76, idle_s=0.01)

    assert shares == pytest.approx({"a": 0.30 + 300 * MESSAGE_S, "b": 0.05 + 100 * MESSAGE_S})


@pytest.mark.parametrize("field", ["agents_s", "messages", "bytes"])
def test_work_is_never_negative(field: str):
    with pytest.raises(ValueError, match=field):
        Work(**{field: -1})


works = st.builds(
    Work,
    agents_s=st.floats(0.0, 1.0),
    messages=st.integers(0, 10_000),
    bytes=st.integers(0, 10_000_000),
)


@given(st.dictionaries(st.integers(0, 20), works), st.floats(0.0, 2.0), st.floats(0.0, 2.0))
def test_what_is_measured_exactly_is_never_scaled_and_messages_share_what_is_left(
    work: dict[int, Work], beside_s: float, idle_s: float
):
    agents_s = sum(one.agents_s for one in work.values())

    shares = apportion(work, process_s=agents_s + beside_s, idle_s=idle_s)

    assert shares.keys() == work.keys()
    assert all(shares[key] >= one.agents_s for key, one in work.items())
    assert sum(shares.values()) <= agents_s + max(0.0, beside_s - idle_s) + 1e-9


@pytest.mark.parametrize(
    ("process_s", "agents_s", "reason"),
    [
        (0.40, 0.30, None),
        (0.30, 0.30 + CLOCKS_S, None),
        (0.30, 0.32, "its agents' steps take 0.320 s of CPU, its whole process 0.300 s"),
        (None, 0.0, "the CPU time of its process could not be read"),
    ],
)
def test_parts_that_do_not_add_up_are_said(process_s: float | None, agents_s: float, reason: str | None):
    assert contradiction(process_s=process_s, agents_s=agents_s) == reason


def interval(process_s: float | None, messages: int = 0, **other: Any) -> Interval:
    default = {"interval_s": 1.0, "agents_s": 0.0, "key_groups": 20, "calm": True}
    return Interval(process_s=process_s, messages=messages, **(default | other))


def base_after(*intervals: Interval) -> float:
    idle = IdleBase()
    for one in intervals:
        idle.observe(one)
    return idle.cores(20)


def test_the_idle_base_is_a_constant_until_the_worker_was_seen_idle():
    assert base_after(interval(0.03, messages=100)) == IDLE_CORES


def test_the_idle_base_is_the_median_of_idle_intervals_whatever_traffic_follows():
    calm = [interval(process_s, interval_s=2.0, messages=2) for process_s in (0.02, 0.05, 0.018, 0.022, 0.021)]

    assert base_after(*calm, *[interval(1.0, interval_s=2.0, messages=500)] * 1000) == pytest.approx(0.0105)


def test_the_idle_base_follows_what_the_worker_owns():
    assert base_after(*[interval(0.005)] * IDLE_INTERVALS, *[interval(0.009)] * IDLE_INTERVALS) == pytest.approx(0.009)


@pytest.mark.parametrize(
    "one",
    [
        interval(0.35),  # more than idling takes: it was busy with something else
        interval(0.02, calm=False),
        interval(0.02, messages=2),
        interval(None),
    ],
)
def test_from_an_interval_that_was_not_idle_nothing_is_learned(one: Interval):
    assert base_after(one) == IDLE_CORES


def test_what_the_worker_uses_later_with_traffic_disproves_a_base_that_is_too_high():
    high = [interval(0.05)] * 3

    assert base_after(*high, interval(0.33, messages=50, agents_s=0.30)) == IDLE_CORES
    assert base_after(*high, interval(0.36, messages=50, agents_s=0.30)) == pytest.approx(0.05)


def test_a_worker_that_has_given_key_groups_away_idles_with_less():
    idle = IdleBase()
    idle.observe(interval(plausible_cores(500), key_groups=500))

    assert (idle.cores(500), idle.cores(20)) == (plausible_cores(500), plausible_cores(20))
