"""What a remote tuple costs, learned from windows: found where it can be seen, unknown where it cannot."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from tests.controller.decider.decider_situations import a_worker, owned, plannable
from tests.controller.decider.talking_job import APP, HEAD, QUIET, TAIL, TalkingJob, kg
from tests.narrow import not_none
from trimtab_controller.decider.memory.remote_costs import KEEP_S, MAX_OPERATORS, PERIODS, RemoteCostTracker
from trimtab_controller.decider.policies.smaller import potential_of
from trimtab_controller.decider.window.view import EndCosts
from trimtab_models.albic.fit import TupleCost, Unknown
from trimtab_protocol.messages.names import OperatorId


def learned(job: TalkingJob, windows: int = 12, costs: RemoteCostTracker | None = None) -> RemoteCostTracker:
    costs = costs or RemoteCostTracker()
    for _ in range(windows):
        costs.observe(job.window(), {})
    return costs


def both(costs: RemoteCostTracker) -> tuple[TupleCost | Unknown, TupleCost | Unknown]:
    """c_s of the operator that sends, c_d of the one that receives."""
    found = costs.of(APP)
    return found[HEAD].sending, found[TAIL].receiving


def test_costs_are_found_within_their_errors_where_some_pairs_are_together() -> None:
    for cost, true in zip(both(learned(TalkingJob(pairs=96))), (100e-6, 120e-6), strict=True):
        assert isinstance(cost, TupleCost)
        assert cost.significant
        assert abs(cost.value - true) < 3 * cost.error < 60e-6


def come_together(job: TalkingJob, pairs: range) -> None:
    for each in pairs:
        job.owners[kg(TAIL, each)] = job.owners[kg(HEAD, each)]


def test_what_became_local_is_compared_with_what_did_not_in_the_same_windows() -> None:
    job = TalkingJob(apart=True, pairs=48)
    costs = learned(job)
    come_together(job, range(24))
    learned(job, 6, costs)
    for cost, true in zip(both(costs), (100e-6, 120e-6), strict=True):
        assert isinstance(cost, TupleCost)
        assert cost.significant
        assert abs(cost.value - true) < 4 * cost.error
    come_together(job, range(24, 48))
    learned(job, 20, costs)
    assert all(isinstance(each, TupleCost) and each.significant for each in both(costs)), "past periods are kept"


@pytest.mark.parametrize("drift", [-1 / 120, 1 / 60])
@pytest.mark.parametrize("true", [0.0, 110e-6])
def test_costs_stay_while_all_tuples_become_dearer_or_cheaper(drift: float, true: float) -> None:
    """Within 60 windows they cost twice or half as much; in these, one pair after the other becomes local."""
    job = TalkingJob(pairs=24, apart=True, sending=true, receiving=true, drift=drift, seed=3)
    costs = learned(job, 8)
    for first in range(0, 20, 2):
        come_together(job, range(first, first + 2))
        learned(job, 5, costs)
        if first >= 6:
            for cost in both(costs):
                assert isinstance(cost, TupleCost)
                assert abs(cost.value - true) < 4 * cost.error
    assert [each.significant for each in both(costs) if isinstance(each, TupleCost)] == [true > 0.0] * 2


def test_a_limited_number_of_periods_is_kept_the_oldest_among_them() -> None:
    job = TalkingJob(pairs=24, apart=True)
    costs = learned(job, 4)
    for place in range(3 * PERIODS):
        job.owners[kg(TAIL, place % 24)] = job.names[place % 2]
        learned(job, 4, costs)
    ends = [period.ended_at for period in costs._stays[APP, HEAD].periods]
    assert len(ends) == PERIODS
    assert ends == sorted(ends)
    assert ends[0] == pytest.approx((100 + 4) * 10.0)


def test_a_tuple_is_local_if_it_skipped_the_broker_where_that_is_counted() -> None:
    job, costs = TalkingJob(noise=QUIET, pairs=48, apart=True), RemoteCostTracker()
    for _ in range(4):
        snapshot = job.window()
        direct = [row.source.partition % 4 == 0 for row in snapshot.pairs]
        pairs = [
            replace(row, direct_s=row.tuples_s if here else 0.0)
            for row, here in zip(snapshot.pairs, direct, strict=True)
        ]
        rows = [
            replace(row, cpu=(row.cpu or 0.0) - 50e-6 * (row.tuples_in_s or 0.0) * direct[row.key_group.partition])
            for row in snapshot.key_groups
        ]
        costs.observe(replace(snapshot, pairs=tuple(pairs), key_groups=tuple(rows)), {})

    assert [each.value for each in both(costs) if isinstance(each, TupleCost)] == [pytest.approx(50e-6)] * 2


def test_a_successor_counts_with_what_is_recalled_until_it_sees_for_itself() -> None:
    predecessor = learned(TalkingJob(pairs=96)).of(APP)
    job = TalkingJob(apart=True)
    for each in range(job.pairs):
        job.owners[kg(TAIL, each)] = job.owners[kg(HEAD, each)]
    found = learned(job, 5, RemoteCostTracker({(APP, operator): fit for operator, fit in predecessor.items()}))
    assert both(found) == (predecessor[HEAD].sending, predecessor[TAIL].receiving)
    assert found.of(APP)[HEAD].receiving is Unknown.NO_TUPLES
    job.number += round(KEEP_S / 10.0)
    assert both(learned(job, 5, found)) == (Unknown.ALL_LOCAL, Unknown.ALL_LOCAL), "not for ever"
    seen = learned(TalkingJob(pairs=96, seed=2), 5, RemoteCostTracker({(APP, HEAD): predecessor[HEAD]}))
    assert both(seen)[0] != predecessor[HEAD].sending


def test_tuples_that_go_through_the_broker_within_a_worker_too_save_nothing() -> None:
    job, costs = TalkingJob(noise=QUIET, pairs=24), RemoteCostTracker()

    def see(direct_s: float | None) -> frozenset[tuple[OperatorId, OperatorId]]:
        snapshot = job.window()
        pairs = tuple(replace(row, direct_s=direct_s) for row in snapshot.pairs)
        costs.observe(replace(snapshot, pairs=pairs), {})
        return costs.by_broker(APP)

    assert see(None) == frozenset(), "the plug-in does not say"
    assert see(0.0) == {(HEAD, TAIL)}
    view = plannable(
        [a_worker(name, "h") for name in job.names],
        [owned(each, name, 1.0) for each, name in job.owners.items()],
        flows={(kg(HEAD, each), kg(TAIL, each)): 100.0 for each in range(job.pairs)},
        remote_costs={HEAD: EndCosts(sending=1e-4)},
    )
    found = not_none(potential_of(view, [1.0] * len(job.names)))
    assert found.saving == pytest.approx(job.remote * 100.0 * 1e-4)
    assert potential_of(replace(view, by_broker=costs.by_broker(APP)), [1.0] * len(job.names)) is None
    assert see(5.0) == frozenset(), "its gates were only closed"
    assert see(0.0) == frozenset()


def test_a_topic_is_not_local_once_its_tuples_were_seen_to_take_the_broker_within_a_worker() -> None:
    job, costs = TalkingJob(noise=QUIET, pairs=24), RemoteCostTracker()

    def see(topic: str | None, direct: float, reason: str | None = None, apart: bool = False) -> Mapping[str, float]:
        """A fourth of the tuples is of `topic`; the others are of a topic that is local."""
        shown = replace(job, apart=True, owners={}) if apart else job
        snapshot, pairs = shown.window(), []
        for row in snapshot.pairs:
            here = shown.owners[row.source] == shown.owners[row.target]
            local = replace(row, tuples_s=75.0, direct_s=75.0 if here else 0.0, topic="lines")
            pairs += [local, replace(row, tuples_s=25.0, direct_s=direct if here else 0.0, topic=topic)]
        nodes = tuple(replace(row, reason=reason) for row in snapshot.nodes)
        costs.observe(replace(snapshot, pairs=tuple(pairs), nodes=nodes), {})
        return costs.not_local(APP).get((HEAD, TAIL), {})

    assert see("words", 0.0, apart=True) == {}, "all are remote: nobody knows"
    assert see(None, 0.0) == {}, "an older plug-in does not name it"
    assert see("words", 0.0) == {"words": 0.25}
    assert see("words", 5.0) == {}, "its gates were only closed"
    assert see("words", 0.0) == {}
    hindered = "others is not local: group g reads it"
    assert see("others", 0.0, hindered) == {}, "it would be, but for another group"


def test_a_fast_host_makes_no_tuple_cheap() -> None:
    job = TalkingJob(noise=QUIET)
    slow = {row.host: 1.0 if row.worker == "w0" else 0.5 for row in job.window().nodes}
    costs = RemoteCostTracker()
    for _ in range(6):
        snapshot = job.window()
        rows = tuple(
            replace(row, cpu=(row.cpu or 0.0) / (1.0 if row.worker == "w0" else 0.5)) for row in snapshot.key_groups
        )
        costs.observe(replace(snapshot, key_groups=rows), slow)
    sending, _ = both(costs)
    assert isinstance(sending, TupleCost)
    assert sending.value == pytest.approx(100e-6)


def test_what_is_gone_is_forgotten_and_what_can_be_invented_is_limited() -> None:
    job = TalkingJob()
    costs = learned(job, 3)
    job.number += round(KEEP_S)
    snapshot = job.window()
    costs.observe(replace(snapshot, pairs=(), key_groups=()), {})
    assert costs.of(APP) == {}
    for number in range(MAX_OPERATORS):
        snapshot = job.window()
        name = OperatorId(f"o{number}")
        pairs = tuple(replace(row, source=kg(name, row.source.partition)) for row in snapshot.pairs)
        rows = tuple(
            replace(row, key_group=kg(name, row.key_group.partition)) if row.key_group.operator == HEAD else row
            for row in snapshot.key_groups
        )
        costs.observe(replace(snapshot, pairs=pairs, key_groups=rows), {})
    assert len(costs._stays) == MAX_OPERATORS
    costs.forget(APP)
    assert costs.of(APP) == {}
