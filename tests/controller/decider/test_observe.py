"""What a snapshot must bring before anything is decided; whatever is missing is named, none of it becomes a zero."""

import tracemalloc
from dataclasses import replace

import pytest

from tests.controller.decider.decider_situations import APP, W0, W1, kg
from tests.controller.decider.decider_situations import a_node as node
from tests.controller.decider.observed_snapshots import WHOLE, look, owned, reason_of, snapshot
from trimtab_controller.decider.memory import observe
from trimtab_controller.decider.memory.observe import Liveness
from trimtab_controller.decider.values.reasons import NotReady, SkipReason
from trimtab_controller.decider.window.view import MeasuredView
from trimtab_protocol.messages.names import KeyGroup, OperatorId, WorkerId
from trimtab_protocol.messages.report import WorkerState


def test_a_whole_snapshot_is_a_view() -> None:
    view = look(WHOLE, draining=frozenset({W1}))
    assert isinstance(view, MeasuredView)
    assert view.owners == {kg(0): W0, kg(1): W0, kg(2): W1}
    assert [row.load for row in view.key_groups] == [10.0, 10.0, 10.0], "percent of one core"
    assert (view.draining, view.hosts, view.start_s) == ((W1,), {W0: "h0", W1: "h1"}, 1000.0)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"nodes": (node(W0), node(W1, state=WorkerState.RECOVERING))}, SkipReason.WORKER_NOT_RUNNING),
        ({"nodes": (node(W0), node(W1, state=WorkerState.REBALANCING))}, SkipReason.WORKER_NOT_RUNNING),
        ({"nodes": (node(W0), node(W1, state=WorkerState.AWAY))}, SkipReason.WORKER_NOT_RUNNING),
        ({"nodes": (node(W0, steering=False), node(W1))}, SkipReason.WORKER_NOT_STEERING),
        ({"nodes": (node(W0, complete=False), node(W1))}, SkipReason.WORKER_INCOMPLETE),
        ({"nodes": (node(W0),)}, SkipReason.WORKER_MISSING),
        ({"key_groups": (owned(0, W0), owned(2, W1))}, SkipReason.KEY_GROUPS_MISSING),
        ({"key_groups": (owned(0, W0), owned(1, W0))}, SkipReason.KEY_GROUPS_MISSING),
        ({"key_groups": ()}, SkipReason.KEY_GROUPS_MISSING),
        ({"key_groups": (owned(0, W0), owned(1, WorkerId("w9")), owned(2, W1))}, SkipReason.OWNER_UNKNOWN),
        ({"key_groups": (owned(0, W0), owned(1, W0, cpu=None), owned(2, W1))}, SkipReason.LOAD_UNKNOWN),
    ],
)
def test_what_is_missing_is_named(changes: dict[str, object], reason: SkipReason) -> None:
    assert reason_of(look(replace(WHOLE, **changes))) is reason  # type: ignore[arg-type]


def test_a_load_that_is_unknown_names_its_worker_and_the_reason() -> None:
    nodes = (node(W0, unknown="its agents' steps take 0.3 s"), node(W1))
    key_groups = (owned(0, W0), owned(1, W0, cpu=None), owned(2, W1, cpu=None))

    found = look(replace(WHOLE, nodes=nodes, key_groups=key_groups))

    assert isinstance(found, NotReady)
    assert found.detail == (
        "workers that could not measure their loads: w1 (it does not say why), w0 (its agents' steps take 0.3 s)"
    )


@pytest.mark.parametrize(
    ("partitions", "operators", "fits"), [(30, 1, True), (31, 1, False), (1, 1000, True), (1, 1001, False)]
)
def test_an_app_whose_placement_nobody_could_read_is_too_large(
    monkeypatch: pytest.MonkeyPatch, partitions: int, operators: int, fits: bool
) -> None:
    if operators == 1:
        monkeypatch.setattr(observe, "MAX_KEY_GROUPS", 30)
    names = [OperatorId(f"o{at}") for at in range(operators)]
    rows = [replace(owned(0, W0), key_group=KeyGroup(APP, each, at)) for each in names for at in range(partitions)]
    found = look(snapshot([node(W0)], rows), placement=None)
    if fits:
        assert isinstance(found, MeasuredView)
    else:
        assert reason_of(found) is SkipReason.APP_TOO_LARGE


def test_one_wild_partition_number_costs_no_list_of_all_that_are_missing_below_it() -> None:
    wild = [replace(owned(100_000, W0), key_group=KeyGroup(APP, OperatorId(f"o{at}"), 100_000)) for at in range(20)]
    tracemalloc.start()
    try:
        found = look(replace(WHOLE, key_groups=(*WHOLE.key_groups, *wild)))
        assert tracemalloc.get_traced_memory()[1] < 50e6
    finally:
        tracemalloc.stop()
    assert isinstance(found, NotReady)
    named = ", ".join(f"o0/{partition}" for partition in range(5))
    assert found.detail == f"2000000 key groups were not reported: {named} and 1999995 more"


def test_before_the_first_placement_a_gap_is_still_a_gap() -> None:
    assert isinstance(look(WHOLE, placement=None), MeasuredView)
    assert (
        reason_of(look(replace(WHOLE, key_groups=(owned(0, W0), owned(2, W1))), None)) is SkipReason.KEY_GROUPS_MISSING
    )
    assert reason_of(look(snapshot([], []), None)) is SkipReason.NO_WORKERS


def test_a_worker_that_left_long_ago_and_owns_nothing_does_not_block() -> None:
    seen = snapshot([node(W0), node(W1, state=WorkerState.AWAY)], [owned(0, W0), owned(1, W0), owned(2, W0)])
    liveness = Liveness()
    liveness.observe(seen, [W0, W1])
    assert reason_of(look(seen, liveness=liveness)) is SkipReason.WORKER_MISSING, "it may come back any moment"
    later = replace(seen, start_ms=1_060_000, end_ms=1_070_000)
    liveness.observe(later, [W0, W1])
    view = look(later, liveness=liveness)
    assert isinstance(view, MeasuredView)
    assert [worker.id for worker in view.workers] == [W0]
