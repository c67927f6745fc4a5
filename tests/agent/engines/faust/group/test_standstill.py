"""For how long inputs stand still at rebalances."""

from trimtab_agent.engines.faust.group.shared_state import Standstill


def test_each_key_group_owned_afterwards_counts_from_the_first_stop_to_the_flow():
    found = Standstill()
    assert found.total is None, "nothing was measured before the first join"
    found.begin(10.0)
    found.begin(11.0)  # the assignment, or another rebalance before the flow
    assert found.total == (0.0, 0)
    found.end(12.5, 4)
    assert found.total == (10.0, 4)
    found.end(14.0, 4)  # the flow was not stopped since
    assert found.total == (10.0, 4)
    found.begin(20.0)
    found.end(20.5, 2)
    assert found.total == (11.0, 6)


def test_what_is_not_known_once_is_not_known_any_more():
    found = Standstill()
    found.begin(10.0)
    found.end(12.0, 1)
    found.begin(20.0)
    found.end(21.0, None)
    assert found.total is None
