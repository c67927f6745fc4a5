"""After the guard has ended a plan: moves back, and no plan for balance for a while.  Drains go on."""

from dataclasses import replace

from tests.controller.decider.decider_situations import APP, W0, W1, kg
from tests.controller.decider.deciders import (
    BALANCED,
    DRAIN_W1,
    ON_W0,
    decider,
    execution,
    only,
    window,
)
from trimtab_controller.decider.events import Decided, IntentsChanged, Solve
from trimtab_controller.decider.machine import Decider
from trimtab_controller.decider.values.decision import Planned, Skip
from trimtab_controller.decider.values.reasons import SkipReason
from trimtab_controller.execution.state import GuardStop, Moved
from trimtab_controller.plan import MoveReason, PlanReason
from trimtab_protocol.messages.intents import Intent, Pause
from trimtab_protocol.messages.names import KeyGroup, WorkerId

STOP = GuardStop(
    app=APP,
    plan="1.7",
    at=1000.0,
    until=1600.0,
    detail="it suffered",
    moves=(Moved(key_group=kg(1), source=W0, target=W1), Moved(key_group=kg(0), source=W0, target=W1)),
    back_by=1120.0,
)
OVER = replace(STOP, moves=())
SAID = "plan 1.7 was ended by the guard: it suffered"


def deciding(stop: GuardStop, owners: dict[KeyGroup, WorkerId], *intents: Intent) -> Decider:
    return decider(execution(owners, guarded={APP: stop}), *intents)


def test_what_made_a_worker_fall_behind_goes_back_as_far_as_it_is_still_there() -> None:
    decision = only(deciding(STOP, BALANCED).on_event(1011.0, window(BALANCED)))
    assert isinstance(decision, Planned)
    plan = decision.plan
    assert [(each.key_group, each.source, each.target) for each in plan.moves] == [(kg(1), W1, W0)]
    assert (plan.reason, plan.detail) == (PlanReason.ROLL_BACK, "the guard rolls plan 1.7 back: it suffered")
    assert plan.why is not None
    assert plan.why.reasons == (MoveReason.ROLL_BACK,)


def test_nothing_goes_back_to_a_worker_that_drains_or_when_it_is_too_late() -> None:
    to_w1 = replace(STOP, moves=(Moved(key_group=kg(0), source=W1, target=W0),))
    found = deciding(to_w1, BALANCED, DRAIN_W1).on_event(1011.0, window(BALANCED))
    assert [type(each) for each in found] == [Solve], "the drain goes on"
    late = replace(STOP, back_by=1005.0)
    decision = only(deciding(late, BALANCED).on_event(1011.0, window(BALANCED)))
    assert isinstance(decision, Skip)
    assert decision.reason is SkipReason.INSIDE_BAND


def test_no_plan_for_balance_begins_until_the_wait_is_over_and_operators_are_told() -> None:
    made = deciding(OVER, ON_W0)
    decision = only(made.on_event(1011.0, window(ON_W0)))
    assert isinstance(decision, Skip)
    assert (decision.reason, decision.detail) == (
        SkipReason.JOB_SUFFERS,
        f"app: {SAID}; no plan for balance for another 589 s",
    )
    [concern] = [each for each in made.known.concerns if each.kind == "job_suffers"]
    assert concern.detail == f"{SAID}; no plan for balance for 600 s"
    found = made.on_event(1611.0, window(ON_W0, end_s=1610.0))
    assert [type(each) for each in found] == [Solve]
    assert "job_suffers" not in {each.kind for each in made.known.concerns}


def test_a_drain_does_not_wait() -> None:
    owners = {kg(0): W1, kg(1): W0}
    assert [type(each) for each in deciding(OVER, owners, DRAIN_W1).on_event(1011.0, window(owners))] == [Solve]


def test_an_operator_who_resumes_ends_the_wait() -> None:
    made = deciding(OVER, ON_W0, Pause(by="ann", at=1.0, reason="seen"))
    made.on_event(1011.0, window(ON_W0))
    made.on_event(1012.0, IntentsChanged(intents=()))
    found = made.on_event(1021.0, window(ON_W0, end_s=1020.0))
    assert [type(each) for each in found] == [Solve]
    assert not any(isinstance(each, Decided) for each in found)
