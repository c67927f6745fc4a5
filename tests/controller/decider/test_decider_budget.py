"""Plans within the disruption budget: cut to what fits, or held back, with a reason of their own."""

from dataclasses import replace

from tests.controller.decider.decider_situations import APP, W0, W1, kg
from tests.controller.decider.deciders import (
    BALANCED,
    DRAIN_W1,
    ON_W0,
    SETTINGS,
    answer,
    decider,
    execution,
    only,
    window,
)
from tests.narrow import of_type, only_one
from trimtab_controller.decider.events import Action, Decided, ExecutionChanged, IntentsChanged, Solve
from trimtab_controller.decider.machine import Decider
from trimtab_controller.decider.policies.instance import question_of
from trimtab_controller.decider.values.decision import Decision, Planned, Scaled, Skip
from trimtab_controller.decider.values.reasons import Concern, ConcernKind, SkipReason
from trimtab_controller.execution.budget import PauseBudget
from trimtab_controller.execution.disruption import WINDOW_S, Cause, Disruption, DisruptionSettings, Pauses
from trimtab_controller.execution.state import GuardStop, Moved
from trimtab_controller.plan import MoveReason, PlanReason
from trimtab_protocol.messages.intents import Intent, MoveKeyGroups, Pause, RequestedMove
from trimtab_protocol.messages.names import KeyGroup, WorkerId

LIMIT_S = 10.0
PAUSED_AT = 1000.0


def deciding(owners: dict[KeyGroup, WorkerId], used_s: float, *intents: Intent) -> Decider:
    """A decider in an app whose key groups paused for so long, each 1 s, 11 s before its first window is judged."""
    row = Pauses(began_at=PAUSED_AT, ended_at=PAUSED_AT, measured_s=used_s, key_groups=round(used_s))
    present = execution(owners, disruption=Disruption(since=-WINDOW_S, apps={APP: (row,)}))
    budget = PauseBudget(settings=DisruptionSettings(max_paused_s_per_hour=LIMIT_S))
    return decider(present, *intents, budget=budget)


def asked(actions: list[Action]) -> Solve:
    return only_one(Solve, actions)


USED_UP = "the disruption budget is used up: 10.0 of 10 paused key-group seconds in the last hour; room again in 60 min"


def test_the_solver_is_asked_for_as_many_moves_as_there_is_room_for_and_the_plan_says_so() -> None:
    made = deciding(ON_W0, 9.0)
    view = asked(made.on_event(1011.0, window(ON_W0))).view
    assert question_of(view, SETTINGS, 1.0).max_migrations == 1
    decision = of_type(Planned, only(made.on_event(1012.0, answer((2, 1)))))
    assert decision.plan.detail == "load distance 15.0 above 5.0; the disruption budget has room for 1 move"


def test_a_budget_that_is_used_up_is_a_reason_to_do_nothing_and_a_concern() -> None:
    made = deciding(ON_W0, 10.0)
    decision = only(made.on_event(1011.0, window(ON_W0)))
    assert decision == Skip(
        reason=SkipReason.DISRUPTION_BUDGET, detail=f"app: load distance 15.0 above 5.0, but {USED_UP}", app=APP
    )
    assert made.known.concerns == (
        Concern(
            kind=ConcernKind.DISRUPTION_BUDGET,
            app=APP,
            workers=(),
            detail="nothing moves, except after a loss: 10.0 of 10 paused key-group seconds in the last hour; "
            "room again in 60 min",
        ),
    )


def test_drains_wait_for_room_too() -> None:
    decision = only(deciding({kg(0): W0, kg(1): W1}, 10.0, DRAIN_W1).on_event(1011.0, window({kg(0): W0, kg(1): W1})))
    assert decision == Skip(reason=SkipReason.DISRUPTION_BUDGET, detail=f"app: drain w1, but {USED_UP}", app=APP)


def test_what_an_operator_wants_waits_until_all_of_it_fits() -> None:
    wish = MoveKeyGroups(
        moves=(RequestedMove(key_group=kg(0), worker=W1), RequestedMove(key_group=kg(1), worker=W1)),
        by="ann",
        at=1005.0,
        reason="bench",
    )
    made = deciding(ON_W0, 9.0, wish)
    decision = of_type(Skip, only(made.on_event(1011.0, window(ON_W0))))
    assert decision.reason is SkipReason.DISRUPTION_BUDGET
    assert "2 moves, but the disruption budget is used up: 9.0 of 10" in decision.detail
    assert wish in made.intents, "it is still wanted"
    done = of_type(Planned, only(deciding(ON_W0, 8.0, wish).on_event(1011.0, window(ON_W0))))
    assert done.answered == (wish.key,)


def test_when_pauses_are_an_hour_old_there_is_room_again() -> None:
    made, later = deciding(ON_W0, 10.0), PAUSED_AT + WINDOW_S + 1.0
    view = asked(made.on_event(later, window(ON_W0, later - 1.0))).view
    assert view.max_moves is None
    assert made.known.concerns == ()
    assert replace(SETTINGS, max_migrations=5).moves_for(view.max_moves) == 5


def test_the_guards_moves_back_wait_for_room_too_and_are_given_up_if_there_is_none_in_time() -> None:
    moved = Moved(key_group=kg(1), source=W0, target=W1)
    stop = GuardStop(app=APP, plan="1.7", at=1000.0, until=1600.0, detail="it suffered", moves=(moved,), back_by=1120.0)
    owners = {kg(0): W0, kg(1): W1}

    def decided(used_s: float, now: float) -> Decision:
        made = deciding(owners, used_s)
        row = Pauses(began_at=PAUSED_AT, ended_at=PAUSED_AT, measured_s=used_s, key_groups=round(used_s))
        paused = Disruption(since=-WINDOW_S, apps={APP: (row,)})
        present = execution(owners, disruption=paused, guarded={APP: stop})
        made.on_event(1000.0, ExecutionChanged(execution=present))
        return only(made.on_event(now, window(owners, end_s=now - 1.0)))

    assert of_type(Planned, decided(9.0, 1011.0)).plan.reason is PlanReason.ROLL_BACK
    waits = of_type(Skip, decided(10.0, 1011.0))
    assert (waits.reason, "1 move, but the disruption budget is used up" in waits.detail) == (
        SkipReason.DISRUPTION_BUDGET, True,
    )  # fmt: skip
    assert of_type(Skip, decided(9.0, 1130.0)).reason is not SkipReason.DISRUPTION_BUDGET


def test_the_stop_of_a_drained_worker_waits_while_a_rebalance_does_not_fit() -> None:
    made = deciding(ON_W0, 0.0, DRAIN_W1)
    assert isinstance(only(made.on_event(1011.0, window(ON_W0))), Scaled), "w1 is empty"
    made = deciding(ON_W0, 0.0, DRAIN_W1)
    used = Pauses(began_at=PAUSED_AT, ended_at=PAUSED_AT, measured_s=5.0, key_groups=3, cause=Cause.REBALANCES)
    moved = Pauses(began_at=PAUSED_AT, ended_at=PAUSED_AT, measured_s=1.0, key_groups=1)
    present = execution(ON_W0, disruption=Disruption(since=-WINDOW_S, apps={APP: (used, moved)}))
    made.on_event(1000.0, ExecutionChanged(execution=present))
    decision = of_type(Skip, only(made.on_event(1011.0, window(ON_W0))))
    assert decision.reason is not SkipReason.DISRUPTION_BUDGET, "only the stop waits"
    [concern] = [each for each in made.known.concerns if each.kind is ConcernKind.DISRUPTION_BUDGET]
    assert concern.detail == (
        "w1 is drained and cannot stop: no room for a rebalance: "
        "6.0 of 10 paused key-group seconds in the last hour, 1.0 by moves, 5.0 by rebalances; room again in 60 min"
    )


# ---- after the guard has ended a plan: moves back, and no plan for balance for a while.  Drains go on


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


def after_stop(stop: GuardStop, owners: dict[KeyGroup, WorkerId], *intents: Intent) -> Decider:
    return decider(execution(owners, guarded={APP: stop}), *intents)


def test_what_made_a_worker_fall_behind_goes_back_as_far_as_it_is_still_there() -> None:
    decision = of_type(Planned, only(after_stop(STOP, BALANCED).on_event(1011.0, window(BALANCED))))
    plan = decision.plan
    assert [(each.key_group, each.source, each.target) for each in plan.moves] == [(kg(1), W1, W0)]
    assert (plan.reason, plan.detail) == (PlanReason.ROLL_BACK, "the guard rolls plan 1.7 back: it suffered")
    assert plan.why is not None
    assert plan.why.reasons == (MoveReason.ROLL_BACK,)


def test_nothing_goes_back_to_a_worker_that_drains_or_when_it_is_too_late() -> None:
    to_w1 = replace(STOP, moves=(Moved(key_group=kg(0), source=W1, target=W0),))
    found = after_stop(to_w1, BALANCED, DRAIN_W1).on_event(1011.0, window(BALANCED))
    assert [type(each) for each in found] == [Solve], "the drain goes on"
    late = replace(STOP, back_by=1005.0)
    decision = of_type(Skip, only(after_stop(late, BALANCED).on_event(1011.0, window(BALANCED))))
    assert decision.reason is SkipReason.INSIDE_BAND


def test_no_plan_for_balance_begins_until_the_wait_is_over_and_operators_are_told() -> None:
    made = after_stop(OVER, ON_W0)
    decision = of_type(Skip, only(made.on_event(1011.0, window(ON_W0))))
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
    assert [type(each) for each in after_stop(OVER, owners, DRAIN_W1).on_event(1011.0, window(owners))] == [Solve]


def test_an_operator_who_resumes_ends_the_wait() -> None:
    made = after_stop(OVER, ON_W0, Pause(by="ann", at=1.0, reason="seen"))
    made.on_event(1011.0, window(ON_W0))
    made.on_event(1012.0, IntentsChanged(intents=()))
    found = made.on_event(1021.0, window(ON_W0, end_s=1020.0))
    assert [type(each) for each in found] == [Solve]
    assert not any(isinstance(each, Decided) for each in found)
