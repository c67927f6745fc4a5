"""A recorded window under another placement: what a key group brings to its worker, and how even that is."""

from dataclasses import replace

import pytest

from tests.controller.decider.decider_situations import APP, OPERATOR, W0, W1, kg
from tests.controller.decider.decider_situations import a_node as node
from tests.controller.decider.observed_snapshots import WHOLE, owned, snapshot
from trimtab_controller.replay.placed import evenness_of, placed, recorded_owners
from trimtab_protocol.messages.copies import Copy
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.snapshot import PairWindow, Snapshot


def cpu_of(window: Snapshot) -> dict[str, float]:
    return {row.worker: row.cpu for row in window.nodes if row.cpu is not None}


def test_with_the_recorded_owners_nothing_changes() -> None:
    assert placed(WHOLE, recorded_owners(WHOLE)) == WHOLE
    assert placed(WHOLE, {}) == WHOLE, "what is not named stays where it was recorded"


def test_a_key_group_brings_its_cpu_to_worker_and_host() -> None:
    found = placed(WHOLE, {kg(0): W1})
    assert recorded_owners(found) == {kg(0): W1, kg(1): W0, kg(2): W1}
    assert cpu_of(found) == {W0: pytest.approx(0.2), W1: pytest.approx(0.4)}
    assert [row.cpu for row in found.hosts] == [pytest.approx(1.9), pytest.approx(2.1)]
    assert [row.cpu for row in found.key_groups] == [0.1, 0.1, 0.1]


def test_a_host_twice_as_fast_needs_half_the_cpu() -> None:
    slow, fast = WHOLE.hosts
    window = replace(WHOLE, hosts=(replace(slow, speed=1.0), replace(fast, speed=2.0)))
    found = placed(window, {kg(0): W1})
    assert found.key_groups[0].cpu == pytest.approx(0.05)
    assert cpu_of(found) == {W0: pytest.approx(0.2), W1: pytest.approx(0.35)}


def test_what_was_not_measured_stays_unknown() -> None:
    window = snapshot([node(W0, cpu=None), node(W1)], [owned(0, W0, cpu=None), owned(1, W0)])
    found = placed(window, {kg(0): W1, kg(1): W1})
    assert [row.cpu for row in found.key_groups] == [None, 0.1]
    assert [row.cpu for row in found.nodes] == [None, pytest.approx(0.4)]


def test_copies_on_disks_are_left_out() -> None:
    copy = Copy(OPERATOR, 2, 10)
    window = replace(WHOLE, nodes=(node(W0, copies=(copy,)), node(W1)))
    assert [row.copies for row in placed(window, {}).nodes] == [(), ()]


def test_whether_tuples_would_skip_the_broker_is_unknown_where_only_one_placement_has_it_so() -> None:
    def pair(source: int, target: int, direct_s: float) -> PairWindow:
        return PairWindow(source=kg(source), target=kg(target), tuples_s=5.0, bytes_s=50.0, direct_s=direct_s)

    window = replace(WHOLE, pairs=(pair(0, 1, 5.0), pair(0, 2, 0.0), pair(1, 2, 0.0)))
    found = placed(window, {kg(0): W1})
    assert [row.direct_s for row in found.pairs] == [0.0, None, 0.0]


def test_evenness_is_in_percent_of_each_worker_s_capacity() -> None:
    window = snapshot([node(W0, capacity=0.5), node(W1, capacity=1.0)], [owned(0, W0), owned(1, W0), owned(2, W1)])
    found = evenness_of(window)[APP]
    assert found.highest == pytest.approx(40.0)
    assert found.load_distance == pytest.approx(20.0), "40 % and 10 % around a mean of 20 %"


def test_a_worker_that_does_not_run_counts_for_nothing() -> None:
    window = snapshot([node(W0), node(W1, state=WorkerState.AWAY)], [owned(0, W0)])
    assert evenness_of(window)[APP].load_distance == 0.0
    assert evenness_of(snapshot([], [owned(0, W0)])) == {}
