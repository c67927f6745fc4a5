"""Trial moves: where every pair is apart, a few come together, and what that saves decides about the others."""

from dataclasses import replace

import pytest

from tests.controller.decider.decider_situations import a_worker, owned, plannable
from tests.controller.decider.talking_job import APP, HEAD, TAIL, TalkingJob
from tests.controller.decider.test_measured_collocation import ALBIC, Watched
from tests.narrow import not_none
from trimtab_controller.decider.policies import trial
from trimtab_controller.decider.policies.trial import BAND_SHARE, trial_in
from trimtab_controller.decider.values.decision import Planned, Skip, describe
from trimtab_controller.decider.values.reasons import SkipReason
from trimtab_controller.decider.values.settings import Settings
from trimtab_controller.execution.state import Execution
from trimtab_models.albic.fit import CostFit, Unknown
from trimtab_protocol.messages.names import KeyGroup, OperatorId, WorkerId

PAIRS = 24
TRIED = replace(ALBIC, load_distance=40.0)


def watched(job: TalkingJob, settings: Settings = TRIED, windows: int = 30) -> Watched:
    return Watched(job, settings, acting=True).run(windows)


def apart(*, pairs: int = PAIRS, rate: float = 150.0, cost: float = 110e-6, state_bytes: int = 1_000_000) -> TalkingJob:
    return TalkingJob(pairs=pairs, rate=rate, sending=cost, receiving=cost, state_bytes=state_bytes, apart=True, seed=3)


def test_pairs_that_are_all_apart_are_tried_and_then_brought_together() -> None:
    run = watched(apart(), windows=20)
    plans = [each.plan for each in run.decisions if isinstance(each, Planned)]
    first = plans[0]
    assert (len(first.moves), first.collocation) == (TRIED.max_migrations, None)
    assert "trial: 8 pairs of head and tail come together, at most 12 in all" in describe(Planned(plan=first))
    assert plans[1].collocation is not None, "the second plan knows what it saves"
    assert run.job.remote <= 0.05 * PAIRS


def test_a_trial_moves_the_busiest_pairs_and_keeps_loads_inside_the_band() -> None:
    run = watched(apart(), replace(TRIED, max_migrations=2), windows=6)
    [plan] = [each.plan for each in run.decisions if isinstance(each, Planned)]
    assert plan.planned <= BAND_SHARE * TRIED.load_distance
    busiest = sorted(range(PAIRS), key=lambda pair: -run.job.rates[pair])[:4]
    assert {move.key_group.partition for move in plan.moves} <= set(busiest)


def test_a_trial_also_follows_a_plan_for_balance_that_would_gain_too_little() -> None:
    run = watched(apart(), replace(TRIED, load_distance=0.1, min_gain=5.0), windows=6)
    plan = next(each.plan for each in run.decisions if isinstance(each, Planned))
    assert plan.detail.startswith("trial")
    assert plan.planned <= plan.before


def test_a_trial_goes_on_while_few_key_groups_leave_the_saving_in_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(trial, "TRIAL_PAIRS", 6)
        assert watched(apart(pairs=12), windows=16).job.remote == 6
    run = watched(apart(pairs=12), windows=16)
    assert run.job.remote == 0
    assert run.view.remote_costs.keys() == {HEAD, TAIL}


def test_one_round_shows_that_tuples_go_through_the_broker_within_a_worker_too() -> None:
    job = replace(apart(), by_broker=True)
    assert watched(job, replace(TRIED, max_migrations=2), windows=16).moves == 1


def test_a_single_pair_shows_first_that_tuples_skip_the_broker() -> None:
    run = watched(replace(apart(), counted=True), windows=30)
    plans = [each.plan for each in run.decisions if isinstance(each, Planned)]
    assert [len(plan.moves) for plan in plans[:2]] == [1, TRIED.max_migrations]
    assert run.job.remote <= 0.05 * PAIRS


def test_no_pair_is_parted_for_another() -> None:
    first, middle, last = (OperatorId(name) for name in ("first", "middle", "last"))
    names = [WorkerId("w0"), WorkerId("w1")]
    owner = {first: 0, middle: 0, last: 1}
    key_groups = [
        owned(KeyGroup(APP, operator, place), names[(place + far) % 2], 1.0, size)
        for operator, far, size in ((first, owner[first], 0), (middle, owner[middle], 0), (last, owner[last], 1000))
        for place in range(8)
    ]
    pairs = [(KeyGroup(APP, a, n), KeyGroup(APP, b, n)) for a, b in ((first, middle), (middle, last)) for n in range(8)]
    workers = [a_worker(name) for name in names]
    view = plannable(workers, key_groups, flows=dict.fromkeys(pairs, 100.0))
    unknown = CostFit(sending=Unknown.ALL_REMOTE, receiving=Unknown.ALL_REMOTE)
    idle = Skip(reason=SkipReason.INSIDE_BAND, detail="")
    found = not_none(
        trial_in(100.0, view, dict.fromkeys((first, middle, last), unknown), Execution(generation=1), TRIED, idle)
    )
    assert {move.key_group.operator for move in found.plan.moves} == {last}, "though it has more state"


@pytest.mark.parametrize(
    ("job", "settings"),
    [
        (apart(rate=1.01), TRIED),
        (apart(rate=10.0, state_bytes=10**10), replace(TRIED, min_gain=0.0)),
        (apart(), replace(TRIED, remote_tuple_cpu_s=0.0)),
    ],
    ids=["too little to save", "restores cost more", "stated as free"],
)
def test_what_could_not_pay_is_not_tried(job: TalkingJob, settings: Settings) -> None:
    run = watched(job, settings, windows=10)
    assert run.moves == 0
    assert {row.operator for row in run.job.owners} == {HEAD, TAIL}
