import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab_agent.engines.faust.measure.apportion import (
    BYTES_PER_MESSAGE,
    IDLE_CORES,
    IDLE_INTERVALS,
    MESSAGES_PER_ROUND,
    ROUND_ELASTICITY,
    IdleBase,
    Work,
    apportion,
)


def test_transport_is_shared_by_messages_and_agents_are_exact():
    work = {"a": Work(agents_s=0.30, messages=300), "b": Work(agents_s=0.05, messages=100)}

    shares = apportion(work, process_s=0.76, idle_s=0.01)

    assert shares == pytest.approx({"a": 0.30 + 0.30, "b": 0.05 + 0.10})


def test_bytes_weigh_as_messages():
    work = {"small": Work(messages=3), "large": Work(messages=1, bytes=2 * BYTES_PER_MESSAGE)}

    shares = apportion(work, process_s=0.6, idle_s=0.0)

    assert shares == pytest.approx({"small": 0.3, "large": 0.3})


def test_nobody_pays_for_what_belongs_to_no_key_group():
    work = {"a": Work(messages=1), None: Work(agents_s=0.2, messages=3)}

    assert apportion(work, process_s=1.0, idle_s=0.0)["a"] == pytest.approx(0.2)


def test_the_idle_base_is_charged_to_nobody():
    assert apportion({"a": Work(), "b": Work()}, process_s=0.009, idle_s=0.009) == {"a": 0.0, "b": 0.0}


def test_without_any_work_there_is_nothing_to_share():
    assert apportion({}, process_s=0.5, idle_s=0.1) == {}


def test_a_round_of_its_own_goes_with_a_key_group_and_a_shared_one_stays():
    work = {"alone": Work(messages=10, rounds=10), "together": Work(messages=10)}
    weight = 20 + 10 * MESSAGES_PER_ROUND + 5 * MESSAGES_PER_ROUND

    shares = apportion(work, process_s=1.0, idle_s=0.0, shared_rounds=5)

    alone = 10 * (1 + ROUND_ELASTICITY * MESSAGES_PER_ROUND)
    assert shares == pytest.approx({"alone": alone / weight, "together": 10 / weight})
    assert sum(shares.values()) < 1.0


@pytest.mark.parametrize("field", ["agents_s", "messages", "bytes", "rounds"])
def test_work_is_never_negative(field: str):
    with pytest.raises(ValueError, match=field):
        Work(**{field: -1})


works = st.builds(
    Work,
    agents_s=st.floats(0.0, 1.0),
    messages=st.integers(0, 10_000),
    bytes=st.integers(0, 10_000_000),
    rounds=st.integers(0, 1000),
)


@given(st.dictionaries(st.integers(0, 20), works), st.floats(0.0, 2.0), st.floats(0.0, 2.0), st.integers(0, 100))
def test_shares_never_exceed_what_the_process_used_above_idle(
    work: dict[int, Work], process_s: float, idle_s: float, shared_rounds: int
):
    shares = apportion(work, process_s=process_s, idle_s=idle_s, shared_rounds=shared_rounds)

    assert shares.keys() == work.keys()
    assert all(share >= 0 for share in shares.values())
    assert sum(shares.values()) <= max(0.0, process_s - idle_s) + 1e-9


def test_a_share_of_messages_moves_with_its_key_group():
    """Two workers that split the work at the same unit costs have the shares of the one that did it all."""
    work = {key: Work(agents_s=0.01 * key, messages=10 * key, bytes=99 * key) for key in range(1, 9)}
    shares = apportion(work, process_s=1.7, idle_s=0.01)
    left = {key: one for key, one in work.items() if key % 2}

    again = apportion(left, process_s=sum(shares[key] for key in left) + 0.01, idle_s=0.01)

    assert again == pytest.approx({key: shares[key] for key in left})


def test_the_idle_base_is_a_constant_until_the_worker_was_seen_idle():
    idle = IdleBase()

    idle.observe(process_s=0.3, interval_s=1.0, messages=100)

    assert idle.cores == IDLE_CORES


def test_the_idle_base_is_the_median_of_idle_intervals_whatever_traffic_follows():
    idle = IdleBase()
    for process_s in (0.02, 0.5, 0.018, 0.022, 0.021):  # one of them did something else besides
        idle.observe(process_s=process_s, interval_s=2.0, messages=1)
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
