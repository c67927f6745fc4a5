import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab_agent.engines.faust.measure.apportion import (
    BYTES_PER_MESSAGE,
    IDLE_CORES,
    IDLE_INTERVALS,
    MESSAGE_S,
    IdleBase,
    Work,
    apportion,
)


def test_agents_are_exact_and_messages_cost_what_they_cost_in_full_rounds():
    work = {"a": Work(agents_s=0.30, messages=300), "b": Work(agents_s=0.05, messages=100)}

    shares = apportion(work, process_s=0.76, idle_s=0.01)

    assert shares == pytest.approx({"a": 0.30 + 300 * MESSAGE_S, "b": 0.05 + 100 * MESSAGE_S})


def test_messages_cost_no_more_than_the_process_used():
    work = {"a": Work(messages=300), "b": Work(messages=100)}

    shares = apportion(work, process_s=0.014, idle_s=0.01)

    assert shares == pytest.approx({"a": 0.003, "b": 0.001})


def test_bytes_weigh_as_messages():
    work = {"small": Work(messages=3), "large": Work(messages=1, bytes=2 * BYTES_PER_MESSAGE)}

    shares = apportion(work, process_s=0.6, idle_s=0.0)

    assert shares == pytest.approx({"small": 3 * MESSAGE_S, "large": 3 * MESSAGE_S})


def test_nobody_pays_for_what_belongs_to_no_key_group():
    work = {"a": Work(messages=1), None: Work(agents_s=0.2, messages=3)}

    assert apportion(work, process_s=0.2 + 1e-4, idle_s=0.0)["a"] == pytest.approx(0.25e-4)


def test_the_idle_base_is_charged_to_nobody():
    assert apportion({"a": Work(), "b": Work()}, process_s=0.009, idle_s=0.009) == {"a": 0.0, "b": 0.0}


def test_without_any_work_there_is_nothing_to_share():
    assert apportion({}, process_s=0.5, idle_s=0.1) == {}


def test_a_key_group_is_charged_the_same_whoever_its_neighbours_are():
    mine = Work(agents_s=0.01, messages=40)

    alone = apportion({"mine": mine}, process_s=0.2, idle_s=0.01)["mine"]
    crowded = apportion({"mine": mine, "other": Work(agents_s=0.3, messages=900)}, process_s=0.6, idle_s=0.01)["mine"]

    assert alone == crowded


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
def test_shares_never_exceed_what_the_process_used_above_idle(work: dict[int, Work], process_s: float, idle_s: float):
    shares = apportion(work, process_s=process_s, idle_s=idle_s)

    assert shares.keys() == work.keys()
    assert all(share >= 0 for share in shares.values())
    assert sum(shares.values()) <= max(0.0, process_s - idle_s) + 1e-9


def test_the_idle_base_is_a_constant_until_the_worker_was_seen_idle():
    idle = IdleBase()

    idle.observe(process_s=0.3, interval_s=1.0, messages=100)

    assert idle.cores == IDLE_CORES


def test_the_idle_base_is_the_median_of_idle_intervals_whatever_traffic_follows():
    idle = IdleBase()
    for process_s in (0.02, 0.5, 0.018, 0.022, 0.021):  # one of them did something else besides
        idle.observe(process_s=process_s, interval_s=2.0, messages=2)
    for _ in range(1000):
        idle.observe(process_s=1.0, interval_s=2.0, messages=500)

    assert idle.cores == pytest.approx(0.0105)


def test_the_idle_base_follows_what_the_worker_owns():
    idle = IdleBase()
    for _ in range(IDLE_INTERVALS):
        idle.observe(process_s=0.005, interval_s=1.0, messages=0)
    for _ in range(IDLE_INTERVALS):
        idle.observe(process_s=0.009, interval_s=1.0, messages=0)

    assert idle.cores == pytest.approx(0.009)
