"""Plans that wait for an operator's approval: proposed, approved, rejected, expired, withdrawn."""

from dataclasses import replace

from tests.controller.decider.decider_situations import APP, W0, W1, kg
from tests.controller.decider.deciders import (
    BALANCED,
    DRAIN_W1,
    NEEDS,
    ON_W0,
    SETTINGS,
    answer,
    decided,
    execution,
    only,
    window,
)
from tests.narrow import of_type, only_one
from trimtab_controller.decider.events import Action, Decided, ExecutionChanged, IntentsChanged, SnapshotArrived, Solve
from trimtab_controller.decider.machine import Decider
from trimtab_controller.decider.policies.proposals import misfit
from trimtab_controller.decider.values.decision import (
    Adopted,
    IntentRefused,
    Planned,
    ProposalEnded,
    ProposalOutcome,
    Proposed,
    Skip,
    describe,
)
from trimtab_controller.decider.values.plan_settings import AppPlans, PlanMode, PlanSettings
from trimtab_controller.decider.values.reasons import SkipReason
from trimtab_controller.decider.window.view import PlannableView, Room, SmoothedView
from trimtab_controller.execution.state import Execution, Proposal
from trimtab_controller.plan import PlanReason
from trimtab_protocol.messages.intents import Approve, Intent, Pause, Reject
from trimtab_protocol.messages.names import HostId, KeyGroup, WorkerId

APPROVE = PlanSettings(mode=PlanMode.APPROVE, approval_s=600.0)
YES = Approve(plan="1.2", by="ann", at=1011.5, reason="fine")
NO = Reject(plan="1.2", by="ann", at=1011.5, reason="not at noon")


def deciding(present: Execution, plans: PlanSettings = APPROVE) -> Decider:
    return Decider(SETTINGS, NEEDS, present, acting=True, plans=plans)


def proposed(decider: Decider) -> Proposed:
    """What the decider wants after a window in which all is on one worker."""
    only_one(Solve, decider.on_event(1011.0, window(ON_W0)))
    return of_type(Proposed, only(decider.on_event(1011.2, answer((0, 1), to=5.0))))


def waiting(present: Execution, decision: Proposed, rejected: str | None = None) -> Execution:
    row = Proposal(id="1.2", plan=decision.plan, at=1011.2, expires_at=decision.expires_at, rejected=rejected)
    return replace(present, proposals={APP: row})


def with_proposal(*, rejected: str | None = None, plans: PlanSettings = APPROVE) -> Decider:
    """A decider that has proposed to move a key group from w0 to w1."""
    present = execution(ON_W0)
    decider = deciding(present)
    known = waiting(present, proposed(decider), rejected)
    decider._situation.plans = plans
    decider.on_event(1011.3, ExecutionChanged(execution=known))
    return decider


def said(decider: Decider, *intents: Intent, now: float = 1012.0) -> list[Action]:
    return decider.on_event(now, IntentsChanged(intents=intents))


def later(owners: dict[KeyGroup, WorkerId], end_s: float = 1020.0, cpu: float = 0.1) -> SnapshotArrived:
    return window(owners, end_s, cpu)


def test_a_plan_for_balance_waits_for_approval() -> None:
    decision = proposed(deciding(execution(ON_W0)))
    assert (decision.plan.reason, decision.expires_at) == (PlanReason.LOAD_DISTANCE, 1011.2 + 600.0)
    assert [(move.key_group, move.target) for move in decision.plan.moves] == [(kg(0), W1)]


def test_an_approved_plan_begins_at_once_under_its_own_name() -> None:
    decision = of_type(Planned, decided(said(with_proposal(), YES)))
    assert (decision.id, decision.answered, decision.keep_until) == ("1.2", (YES.key,), None)
    assert [(move.key_group, move.target) for move in decision.plan.moves] == [(kg(0), W1)]


def test_an_approved_plan_knows_on_which_hosts_its_workers_run_now() -> None:
    decider = with_proposal()
    present = decider._situation.execution
    row = present.proposals[APP]
    elsewhere = replace(row, plan=replace(row.plan, hosts=dict.fromkeys(row.plan.hosts, HostId("h9"))))
    decider.on_event(1011.4, ExecutionChanged(execution=replace(present, proposals={APP: elsewhere})))
    assert of_type(Planned, decided(said(decider, YES))).plan.hosts == row.plan.hosts


def test_while_nobody_decides_nothing_is_solved_again() -> None:
    decision = of_type(Skip, only(with_proposal().on_event(1021.0, later(ON_W0))))
    assert decision.reason is SkipReason.AWAITING_APPROVAL
    assert "plan 1.2 waits for approval: 1 move" in decision.detail


def test_a_rejected_plan_is_not_proposed_again_for_as_long_as_plans_wait() -> None:
    decision = decided(said(with_proposal(), NO))
    assert decision == ProposalEnded(
        app=APP,
        plan="1.2",
        outcome=ProposalOutcome.REJECTED,
        detail="by ann: not at noon",
        rejected_until=1012.0 + 600.0,
        answered=(NO.key,),
    )
    assert describe(decision) == "app: plan 1.2 rejected: by ann: not at noon"
    after = of_type(Skip, only(with_proposal(rejected="by ann: not at noon").on_event(1021.0, later(ON_W0))))
    assert (after.reason, after.detail) == (SkipReason.REJECTED, "app: plan 1.2 was rejected by ann: not at noon")


def test_a_rejection_counts_more_than_an_approval() -> None:
    decision = of_type(ProposalEnded, decided(said(with_proposal(), YES, NO)))
    assert (decision.outcome, set(decision.answered)) == (ProposalOutcome.REJECTED, {YES.key, NO.key})


def test_a_plan_expires() -> None:
    decision = of_type(ProposalEnded, decided(with_proposal().on_event(1700.0, later(ON_W0, 1699.0))))
    assert (decision.outcome, decision.detail) == (ProposalOutcome.EXPIRED, "nobody has decided about it")


def test_a_plan_that_was_approved_and_could_not_begin_in_time_says_so() -> None:
    decider = with_proposal()
    assert said(decider, Pause(by="bob", at=1.0, reason="night"), YES) == []
    decision = of_type(ProposalEnded, decided(decider.on_event(1700.0, later(ON_W0, 1699.0))))
    assert decision.detail == "ann has approved it, but it could not begin in time"
    assert decision.answered == (YES.key,)


def test_a_plan_that_the_loads_have_outgrown_is_withdrawn_even_if_it_is_approved() -> None:
    decider = with_proposal()
    decider.on_event(1020.5, later(ON_W0, cpu=0.9))
    decision = of_type(ProposalEnded, only(decider.on_event(1031.0, later(ON_W0, 1030.0, cpu=0.9))))
    assert decision.outcome is ProposalOutcome.WITHDRAWN
    assert decision.detail.startswith("the loads have changed: it would lead to a load distance of")


def test_a_plan_that_is_no_longer_needed_is_withdrawn() -> None:
    decider = with_proposal()
    present = replace(decider._situation.execution, placements=execution(BALANCED).placements)
    decider.on_event(1015.0, ExecutionChanged(execution=present))
    decision = of_type(ProposalEnded, only(decider.on_event(1021.0, later(BALANCED))))
    assert "inside the band without it" in decision.detail


def test_a_plan_fits_only_while_its_key_groups_can_go_where_it_says() -> None:
    decider = with_proposal()
    row, view = decider._situation.execution.proposals[APP], decider.known.views[APP]
    assert isinstance(view, SmoothedView)
    view = PlannableView.of(view)
    draining = replace(view, workers=tuple(replace(each, draining=each.id == W1) for each in view.workers))
    elsewhere = replace(view, key_groups=[replace(each, owner=W1) for each in view.key_groups])
    full = replace(view, rooms={HostId("h1"): Room(cpu=5.0, memory=1e12)})
    assert misfit(row, view, band=5.0) is None
    assert misfit(row, draining, band=5.0) == "w1 takes no key groups now"
    assert misfit(row, elsewhere, band=5.0) == "app/sums/0 cannot be moved from where it was"
    assert misfit(row, full, band=5.0) == "it would overfill CPU of h1 (0.10 of 0.05 cores)"


def test_what_names_no_plan_that_waits_is_answered() -> None:
    decider = deciding(execution(BALANCED))
    decider.on_event(1011.0, window(BALANCED))
    assert decided(said(decider, YES)) == IntentRefused(
        what="approve", detail="no plan 1.2 waits for approval", answered=(YES.key,)
    )
    assert decider.intents == ()


def test_an_approval_waits_for_the_end_of_a_pause() -> None:
    decider = with_proposal()
    assert said(decider, Pause(by="bob", at=1.0, reason="night"), YES) == []
    resumed = only_one(Decided, decider.on_event(1021.0, later(ON_W0)))
    assert isinstance(resumed.decision, Skip)
    decider.on_event(1022.0, IntentsChanged(intents=(YES,)))
    assert isinstance(decided(decider.on_event(1031.0, later(ON_W0, 1030.0))), Planned)


def test_a_drain_needs_no_approval() -> None:
    present = execution({kg(0): W0, kg(1): W1, kg(2): W0})
    decider = deciding(present)
    decider.on_event(1000.0, IntentsChanged(intents=(DRAIN_W1,)))
    only_one(Solve, decider.on_event(1011.0, window({kg(0): W0, kg(1): W1, kg(2): W0})))
    decision = of_type(Planned, only(decider.on_event(1011.2, answer((1, 0), to=0.0))))
    assert decision.plan.reason is PlanReason.DRAIN


def test_in_mode_dry_run_a_plan_is_only_told_and_nothing_is_published() -> None:
    told = PlanSettings(apps={APP: AppPlans(mode=PlanMode.DRY_RUN)})
    decider = deciding(execution(ON_W0), told)
    decider.on_event(1011.0, window(ON_W0))
    decision = of_type(Skip, only(decider.on_event(1011.2, answer((0, 1), to=5.0))))
    assert decision.reason is SkipReason.DRY_RUN
    assert decision.detail.startswith("app: mode dry-run, not carried out: 1 move, load distance 15.0 -> 5.0")
    fresh = of_type(Skip, only(deciding(execution(None), told).on_event(1011.0, window(ON_W0))))
    assert fresh.reason is SkipReason.DRY_RUN


def test_in_mode_dry_run_a_published_placement_still_follows_the_reports() -> None:
    decider = deciding(execution(ON_W0), PlanSettings(mode=PlanMode.DRY_RUN))
    of_type(Adopted, only(decider.on_event(1011.0, window({**ON_W0, kg(2): W1}))))


def test_a_plan_of_another_mode_does_not_wait_any_longer() -> None:
    decision = of_type(ProposalEnded, only(with_proposal(plans=PlanSettings()).on_event(1021.0, later(ON_W0))))
    assert decision.detail == "the mode of the app is act now"
