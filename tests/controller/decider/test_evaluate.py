"""Load distance, smoothing and noise; the view as an instance."""

import pytest

from tests.controller.decider.decider_situations import W0, W1, kg
from tests.controller.decider.decider_situations import a_node as node
from tests.controller.decider.observed_snapshots import look, owned, snapshot
from trimtab_controller.decider.memory.evaluate import NOISE_ERRORS, LoadHistory, evaluate, follow
from trimtab_controller.decider.policies.instance import instance_of
from trimtab_controller.decider.values.settings import Settings
from trimtab_controller.decider.window.view import MeasuredView, PlannableView
from trimtab_models.instances.snapshot import decode_snapshot, encode_snapshot
from trimtab_protocol.messages.snapshot import PairWindow


def test_load_distance_is_relative_to_capacity_and_one_sided_for_a_drained_worker() -> None:
    seen = snapshot([node(W0, capacity=1.0), node(W1, capacity=0.5)], [owned(0, W0, 0.3), owned(1, W1, 0.3)])
    view = look(seen, placement=None)
    assert isinstance(view, MeasuredView)
    found = evaluate(view)
    assert (found.worker_loads, found.mean_load, found.load_distance) == (
        {W0: pytest.approx(30.0), W1: pytest.approx(60.0)},
        pytest.approx(40.0),
        pytest.approx(20.0),
    )
    drained = look(seen, placement=None, draining=frozenset({W1}))
    assert isinstance(drained, MeasuredView)
    found = evaluate(drained)
    assert (found.mean_load, found.load_distance) == (pytest.approx(60.0), pytest.approx(30.0)), "w0 is 30 below"
    nobody = look(seen, placement=None, draining=frozenset({W0, W1}))
    assert isinstance(nobody, MeasuredView)
    assert evaluate(nobody).load_distance is None


def test_loads_are_a_mean_at_first_then_smoothed_and_noise_is_what_was_not_foreseen() -> None:
    history, seen = LoadHistory(), []
    for cpu in (0.1, 0.3, 0.5):
        view = look(snapshot([node(W0), node(W1)], [owned(0, W0, cpu), owned(1, W1)]), placement=None)
        assert isinstance(view, MeasuredView)
        smoothed, history = follow(view, history, 0.5)
        [changing, steady] = smoothed.key_groups
        assert steady.load == pytest.approx(10.0)
        seen.append((changing.load, history.concentration, history.error))
    # Weights 1; 1/2, 1/2; 1/4, 1/4, 1/2.  w0 was 20 % of a core above what was foreseen, then 30: it has half a core,
    # the mean rises by half of what w0 does, so both workers are off by 20 pp, then by 30.
    assert seen == [
        (pytest.approx(10.0), 1.0, 0.0),
        (pytest.approx(20.0), 0.5, pytest.approx(400.0)),
        (pytest.approx(35.0), 0.375, pytest.approx(0.5 * 400.0 + 0.5 * 900.0)),
    ]
    assert evaluate(smoothed, history).noise == pytest.approx(NOISE_ERRORS * (650.0 * 0.375 / 1.375) ** 0.5)
    assert evaluate(smoothed).noise == 0.0


def test_a_view_is_an_instance_of_the_contract() -> None:
    pairs = (PairWindow(source=kg(0), target=kg(2), tuples_s=5.0, bytes_s=50.0),)
    seen = snapshot([node(W0), node(W1)], [owned(0, W0), owned(1, W0, state_bytes=None), owned(2, W1)], pairs=pairs)
    view = look(seen, draining=frozenset({W1}))
    assert isinstance(view, MeasuredView)
    instance = instance_of(PlannableView.of(view), Settings(max_migrations=13))
    assert decode_snapshot(encode_snapshot(instance)) == instance
    assert [(each.id, each.removing) for each in instance.nodes] == [("w0", False), ("w1", True)]
    assert [each.state_bytes for each in instance.key_groups] == [1000, 1000, 1000], "unknown = the largest known"
    assert [(each.source, each.target, each.rate) for each in instance.flows] == [("app/sums/0", "app/sums/2", 5.0)]
