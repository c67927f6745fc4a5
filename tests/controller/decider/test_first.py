"""The first placement of an app without state: when it is made, what it chooses, and when what Faust did stays."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from tests.controller.decider.decider_situations import a_worker, owned, plannable
from tests.narrow import of_type
from trimtab_controller.decider.policies.first import (
    WINDOWS,
    FirstPlacements,
    PlacementCandidate,
    candidates,
    topology_of,
)
from trimtab_controller.decider.values.decision import Adopted, Planned
from trimtab_controller.decider.values.reasons import SkipReason
from trimtab_controller.decider.values.settings import First
from trimtab_controller.decider.window.view import UNLIMITED, EndCosts, FixedWorker, PlannableView
from trimtab_controller.execution.state import placement_of
from trimtab_controller.plan import PlanReason
from trimtab_protocol.messages.names import AppId, Epoch, KeyGroup, OperatorId, WorkerId

APP = AppId("pages")
SOURCE, VIEW, COUNT = (OperatorId(name) for name in ("source", "view", "count"))
WORKERS = tuple(WorkerId(f"w{place}") for place in range(3))
PARTITIONS = 8
NOTHING: Mapping[KeyGroup, float] = {}
GAIN_PP = 0.5
"""What counts as significant here."""


def kg(operator: OperatorId, partition: int) -> KeyGroup:
    return KeyGroup(APP, operator, partition)


def view(
    owners: dict[KeyGroup, WorkerId] | None = None,
    *,
    flows: bool = True,
    end_s: float = 10.0,
    hot: Mapping[KeyGroup, float] = NOTHING,
    **changes: object,
) -> PlannableView:
    """Three operators: source sends to the same partition of view, view by key to all of count.

    Each key group needs 10 % of a core, some of them (`hot`) another share.
    """
    by_operator = ((SOURCE, 0), (VIEW, 1), (COUNT, 2))
    scattered = {
        kg(operator, partition): WORKERS[(partition + shift) % 3]
        for operator, shift in by_operator
        for partition in range(PARTITIONS)
    }
    forward = {(kg(SOURCE, p), kg(VIEW, p)): 64.0 for p in range(PARTITIONS)}
    keyed = {(kg(VIEW, p), kg(COUNT, q)): 1.0 for p, q in product(range(PARTITIONS), repeat=2)}
    workers = [a_worker(name, f"h-{name}") for name in WORKERS]
    rows = [owned(each, owner, hot.get(each, 10.0), 100) for each, owner in sorted((owners or scattered).items())]
    flowing = {**forward, **keyed} if flows else {}
    made = {"start_s": end_s - 10.0, "end_s": end_s, "flows": flowing, "fresh": True}
    return plannable(workers, rows, **(made | changes))


def placement(seen: PlannableView):  # type: ignore[no-untyped-def]
    return placement_of("c", APP, Epoch(1, 1), seen.owners, None)


def by_name(seen: PlannableView) -> dict[str, PlacementCandidate]:
    return {each.name: each for each in candidates(seen)}


def adopted(first: First, seen: PlannableView) -> FirstPlacements:
    """The first placements after the adoption is carried out."""
    made = FirstPlacements(first)
    assert of_type(Adopted, made.decide(seen, None, GAIN_PP)).owners == seen.owners
    made.accepted(seen, None)
    return made


def decided(made: FirstPlacements, seen: PlannableView, significant_pp: float = GAIN_PP) -> Adopted | Planned | None:
    """The decision in a window."""
    made.observe(seen)
    return made.decide(seen, placement(seen), significant_pp)


def placed_after_adoption(
    first: First, seen: PlannableView, significant_pp: float = GAIN_PP
) -> Adopted | Planned | None:
    """The decision in the window after the adoption."""
    return decided(adopted(first, seen), replace(seen, start_s=10.0, end_s=20.0), significant_pp)


def test_lf_keeps_what_forwards_to_the_same_partition_on_one_worker_and_even_does_not() -> None:
    found = by_name(view())
    by_key = 512.0 / (8 * 64.0 + 64.0)
    assert found["as started"].remote == pytest.approx((512.0 + 64.0 * 2 / 3) / 576.0, abs=0.02)
    assert found["even"].remote is not None
    assert found["even"].remote >= by_key, "what is forwarded goes to another worker"
    assert found["lf"].remote == pytest.approx((1 - by_key) * 2 / 3, abs=0.02)
    assert found["lf"].uneven == pytest.approx(9 / 8 - 1)


def test_the_topology_is_what_was_measured_and_a_cycle_is_cut_where_least_flows() -> None:
    back = {(kg(COUNT, 0), kg(SOURCE, 0)): 1.0}
    seen = view()
    found = topology_of(replace(seen, flows={**seen.flows, **back}))
    assert [(edge.source, edge.target) for edge in found.edges] == [("source", "view"), ("view", "count")]
    assert [operator.id for operator in found.operators] == ["source", "view", "count"]


def test_the_best_candidate_becomes_a_plan_of_hand_overs() -> None:
    costs = dict.fromkeys((SOURCE, VIEW), EndCosts(sending=0.001, receiving=0.001))
    found = of_type(Planned, placed_after_adoption(First.AUTO, view(remote_costs=costs)))
    assert found.plan.reason is PlanReason.FIRST
    assert found.plan.detail.startswith("first placement: lf 52 % on the fullest worker, 7% remote"), found.plan.detail
    assert "as started" in found.plan.detail
    after = view().owners | {move.key_group: move.target for move in found.plan.moves}
    assert all(after[kg(SOURCE, p)] == after[kg(VIEW, p)] for p in range(PARTITIONS))
    assert all(move.source == view().owners[move.key_group] for move in found.plan.moves)


def test_nothing_moves_for_traffic_between_workers_while_it_costs_nothing_that_is_known() -> None:
    found = of_type(Adopted, placed_after_adoption(First.AUTO, view()))
    assert found.detail.startswith("first placement: as started 80 % on the fullest worker")
    assert "; lf " in found.detail


def test_loads_are_evened_out_if_that_brings_more_than_noise_explains() -> None:
    hot = {kg(SOURCE, p): 40.0 for p in (0, 3, 6)}
    seen = view(hot=hot)
    assert by_name(seen)["as started"].fullest == pytest.approx(170.0)
    made = by_name(seen)["elastic"]
    assert made.fullest == pytest.approx(110.0)
    plan = of_type(Planned, placed_after_adoption(First.AUTO, seen)).plan
    assert plan.detail.startswith("first placement: elastic 110 % on the fullest worker")
    assert of_type(Adopted, placed_after_adoption(First.AUTO, seen, significant_pp=61.0)).owners == seen.owners


def test_the_load_of_other_apps_counts_by_what_it_leaves_of_a_host() -> None:
    seen = view()
    workers = (replace(seen.workers[0], capacity=0.4), *seen.workers[1:])
    found = by_name(replace(seen, workers=workers))
    assert found["as started"].fullest == pytest.approx(200.0)
    assert found["elastic"].fullest == pytest.approx(100.0)


def test_traffic_is_evened_out_where_hosts_have_a_limit_for_it() -> None:
    seen = view(flows=False)
    sent = np.array([[0.0], [100.0]]) * (np.arange(len(seen.owned)) < 6)
    rows = replace(seen.owned, traffic=sent)
    rooms = {worker.host: replace(UNLIMITED, sent=500.0) for worker in seen.workers}
    owners = by_name(replace(seen, key_groups=rows, rooms=rooms))["elastic"].owners
    assert sorted(Counter(owners[each] for each in list(rows.owners)[:6]).values()) == [2, 2, 2]


def test_what_is_as_good_as_the_best_stays_as_it_was_started() -> None:
    together = {kg(op, p): WORKERS[p % 3] for op in (SOURCE, VIEW, COUNT) for p in range(PARTITIONS)}
    found = of_type(Adopted, placed_after_adoption(First.AUTO, view(together)))
    assert found.owners == together
    assert found.detail.startswith("first placement: as started ")


def test_what_has_started_evenly_is_not_made_even_by_moves() -> None:
    found = of_type(Adopted, placed_after_adoption(First.EVEN, view()))
    assert found.detail.startswith("first placement: as started ")
    lopsided = dict.fromkeys(view().owners, WORKERS[0]) | {kg(SOURCE, 0): WORKERS[1], kg(SOURCE, 1): WORKERS[2]}
    assert isinstance(placed_after_adoption(First.EVEN, view(lopsided)), Planned)


def test_it_goes_by_loads_where_who_sends_to_whom_is_not_known() -> None:
    lopsided = dict.fromkeys(view().owners, WORKERS[0]) | {kg(SOURCE, 0): WORKERS[1], kg(SOURCE, 1): WORKERS[2]}
    seen = view(lopsided, flows=False)
    made = adopted(First.AUTO, seen)
    later = [replace(seen, start_s=10.0 * number, end_s=10.0 * (number + 1)) for number in range(1, 5)]
    decisions = [decided(made, each) for each in later]
    assert [type(each) for each in decisions] == [type(None), type(None), Planned, Planned], "until it is carried out"
    assert isinstance(decisions[2], Planned)
    assert (
        "who sends to whom is not known; elastic 80 % on the fullest worker, unknown remote" in decisions[2].plan.detail
    )


@pytest.mark.parametrize(("first", "fresh"), [(First.AUTO, False), (First.ADOPT, True)])
def test_an_app_that_ran_before_or_may_have_is_adopted_as_it_is(first: First, *, fresh: bool) -> None:
    assert placed_after_adoption(first, view(fresh=fresh)) is None


def test_it_waits_until_no_more_workers_come_and_none_is_away() -> None:
    seen = view()
    few = replace(
        view({each: WORKERS[0] if owner == WORKERS[2] else owner for each, owner in seen.owners.items()}),
        workers=seen.workers[:2],
    )
    made = adopted(First.LF, few)
    away = FixedWorker(id=WorkerId("w9"), reason=SkipReason.WORKER_MISSING, detail="")
    windows = [
        replace(few, workers=seen.workers, start_s=10.0, end_s=20.0),  # w2 has come
        replace(few, workers=seen.workers, start_s=20.0, end_s=30.0, fixed=(away,)),
    ]
    assert [decided(made, each) for each in windows] == [None, None]
    settled = replace(windows[0], start_s=30.0, end_s=40.0)
    assert decided(made, settled) is not None
    assert made.decide(settled, placement(few), GAIN_PP) is not None, "asking changes nothing"
    made.accepted(settled, placement(few))
    assert decided(made, replace(settled, end_s=50.0)) is None, "once only"


def test_it_gives_up_when_the_workers_never_settle() -> None:
    seen = view()
    late = replace(seen, start_s=1_000.0, end_s=1_010.0)
    assert decided(adopted(First.LF, seen), late) is None, "no window for so long"
    made = adopted(First.LF, seen)
    away = FixedWorker(id=WorkerId("w9"), reason=SkipReason.WORKER_MISSING, detail="")
    for number in range(1, WINDOWS + 2):
        windows = replace(seen, start_s=10.0 * number, end_s=10.0 * (number + 1), fixed=(away,))
        assert decided(made, windows) is None
    assert decided(made, late) is None


def test_workers_of_equal_capacity_are_exchanged_so_that_less_moves() -> None:
    turned = {kg(op, p): WORKERS[(p + 1) % 3] for op in (SOURCE, VIEW, COUNT) for p in range(PARTITIONS)}
    assert by_name(view(turned))["lf"].moves == 0
