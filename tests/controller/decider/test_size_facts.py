"""What the size of an app is judged by: demand, also where it is unknown, capacity, fixed use, and who can leave."""

import math
from dataclasses import replace

import pytest

from tests.controller.decider.decider_situations import APP, W0, W1, a_worker, kg, owned, plannable
from trimtab_controller.decider.memory.unknown_load import Gaps
from trimtab_controller.decider.policies.size_facts import SizeFacts, facts_of
from trimtab_controller.decider.values.reasons import SkipReason
from trimtab_controller.decider.window.concerns import ClusterUse, WorkerUse
from trimtab_controller.decider.window.demand import Blocked
from trimtab_controller.decider.window.owned import Owned
from trimtab_controller.decider.window.view import FixedWorker, PlannableView, Worker
from trimtab_protocol.messages.names import WorkerId
from trimtab_protocol.messages.rules import Rule, RuleKind

W2, W3 = WorkerId("w2"), WorkerId("w3")


def view(*fixed: FixedWorker, kept: tuple[Owned, ...] = (), draining: bool = False) -> PlannableView:
    workers = [a_worker(W0), a_worker(W1, capacity=2.0, draining=draining)]
    rows = [owned(kg(0), W0, 60.0, 1000), owned(kg(1), W1, 80.0, 1000), owned(kg(2), W1, 40.0, 1000)]
    return plannable(workers, rows, start_s=1000.0, end_s=1010.0, standbys=1, fixed=fixed, kept=kept)


def use(used_pct: float | None = 70.0, **changes: object) -> ClusterUse:
    rows = {
        name: WorkerUse(app=APP, used_pct=used_pct, load_pct=60.0, demand_pct=80.0, inputs_s=5.0) for name in (W0, W1)
    }
    rows |= changes  # type: ignore[arg-type]
    return ClusterUse(workers=rows)


def facts(seen: PlannableView, gaps: Gaps = Gaps(), used: ClusterUse = use(), **changes: object) -> SizeFacts:  # noqa: B008
    default = {"pool": (), "leaving": (), "starting": (), "returnable": None, "restart_s": 30.0, "catch_up_s": 300.0}
    return facts_of(seen, gaps, used, **(default | changes))  # type: ignore[arg-type]


def away(name: WorkerId, known: Worker | None) -> FixedWorker:
    return FixedWorker(id=name, reason=SkipReason.WORKER_MISSING, detail="", worker=known)


def test_demand_fixed_use_and_capacity_are_in_cores() -> None:
    found = facts(view())
    assert (found.demand, found.capacity, found.rate) == (pytest.approx(1.8), 3.0, 10.0)
    assert found.fixed == pytest.approx(0.15), "the median of 0.1 of one core and 0.2 of two"
    assert found.asked == pytest.approx(2.1)
    assert found.utilisation == pytest.approx(0.7)
    assert found.behind == pytest.approx(0.3)


def test_what_workers_use_and_lack_is_no_less_where_they_share_a_host_that_is_too_small() -> None:
    """Their percentages are of their own capacity, of which they count with half."""
    seen = view()
    shared = tuple(replace(each, capacity=0.5 * each.capacity, share=0.5) for each in seen.workers)
    found = facts(replace(seen, workers=shared))
    assert found.capacity == 1.5
    assert (found.fixed, found.behind) == (pytest.approx(0.15), pytest.approx(0.3)), "as with whole hosts"


@pytest.mark.parametrize("missing", ["its inputs", "all of it"])
def test_the_rate_of_a_worker_that_does_not_say_it_counts_like_that_of_the_others(missing: str) -> None:
    known = WorkerUse(app=APP, used_pct=70.0, load_pct=60.0, demand_pct=80.0, inputs_s=5.0)
    rows = {W0: known} if missing == "all of it" else {W0: known, W1: replace(known, inputs_s=None)}
    assert facts(view(), used=ClusterUse(workers=rows)).rate == 15.0, "5 with one core, 3 cores"
    assert facts(view(), used=ClusterUse()).rate is None


def test_a_process_that_does_not_say_what_it_uses_is_judged_by_its_key_groups() -> None:
    assert facts(view(), used=use(None)).fixed == 0.0


def test_a_worker_that_is_drained_has_demand_and_no_capacity() -> None:
    found = facts(view(draining=True))
    assert (found.demand, found.capacity) == (pytest.approx(1.8), 1.0)
    assert [each.stays for each in found.workers] == [True, False]


def test_fixed_workers_count_with_their_capacity_and_their_known_demand() -> None:
    found = facts(view(away(W2, a_worker(W2, capacity=1.5)), kept=(owned(kg(3), W2, 50.0, 1000),)))
    assert (found.demand, found.capacity, found.unmeasured) == (pytest.approx(2.3), 4.5, ())
    assert [(each.id, each.free, each.removable) for each in found.workers][-1] == (W2, False, False)


def test_what_is_unknown_of_the_demand_counts_and_an_unknown_capacity_is_named() -> None:
    found = facts(view(away(W3, None), kept=(owned(kg(3), W3, math.nan, 1000),)), Gaps(stale=1, share=0.1))
    assert (found.demand, found.unmeasured) == (pytest.approx(2.0), (W3,))


def test_only_free_workers_that_can_be_started_again_are_removable() -> None:
    found = facts(view(away(W2, a_worker(W2))), returnable={W1, W2})
    assert [each.id for each in found.workers if each.removable] == [W1]


def test_workers_on_which_rules_keep_key_groups_are_tied() -> None:
    frozen = Rule(name="a", kind=RuleKind.FREEZE, reason="r", key_groups=((2, 2),))
    pool = Rule(name="b", kind=RuleKind.POOL, reason="r", key_groups=((0, 0),), workers=(W0,))
    both = Rule(name="c", kind=RuleKind.POOL, reason="r", workers=(W0, W1))
    for rules, tied in (((), []), ((both,), []), ((frozen,), [W1]), ((pool,), [W0]), ((pool, frozen), [W0, W1])):
        found = facts(replace(view(), rules=rules))
        assert [each.id for each in found.workers if each.tied] == tied, rules
    elsewhere = replace(pool, key_groups=((1, 1),))
    assert not any(each.tied for each in facts(replace(view(), rules=(elsewhere,))).workers), "it is to move to w0"


def test_blocked_workers_are_named() -> None:
    blocked = WorkerUse(app=APP, used_pct=20.0, load_pct=10.0, blocked=Blocked(count=1, first=(kg(0),), backlog=900))
    assert facts(view(), used=use(w0=blocked)).blocked == (W0,)
