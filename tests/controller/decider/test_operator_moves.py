"""Moves that an operator chooses, and that they stay."""

from dataclasses import replace

import pytest

from tests.controller.decider.decider_situations import APP, W0, W1, a_round, kg
from tests.controller.decider.deciders import BALANCED, DRAIN_W1, NEEDS, SETTINGS, decided, execution, window
from tests.narrow import of_type, only_one
from trimtab_controller.decider.events import ExecutionChanged, IntentsChanged, SnapshotArrived, Solve
from trimtab_controller.decider.machine import Decider
from trimtab_controller.decider.policies.instance import question_of
from trimtab_controller.decider.policies.moves import VALID_S, pinned_in
from trimtab_controller.decider.values.decision import IntentRefused, Planned
from trimtab_controller.decider.values.plan_settings import PlanMode, PlanSettings
from trimtab_controller.decider.window.view import PlannableView, Room, SmoothedView
from trimtab_controller.execution.state import HandMoved
from trimtab_controller.plan import MoveReason, PlanReason
from trimtab_controller.solver.answer import Answer
from trimtab_controller.solver.balance import answer
from trimtab_protocol.messages.intents import Drain, Intent, MoveKeyGroups, RequestedMove
from trimtab_protocol.messages.names import HostId, WorkerId

W2 = WorkerId("w2")
TO_W1 = MoveKeyGroups(moves=(RequestedMove(key_group=kg(0), worker=W1),), by="ann", at=1012.0, reason="bench")


def deciding(owners: dict = BALANCED, plans: PlanSettings = PlanSettings(), **changes: object) -> Decider:  # noqa: B008
    made = Decider(SETTINGS, NEEDS, execution(owners, **changes), acting=True, plans=plans)
    made.on_event(1011.0, window(owners))
    return made


def said(decider: Decider, *intents: Intent, now: float = 1012.0) -> object:
    return decided(decider.on_event(now, IntentsChanged(intents=intents)))


def wish(*moves: tuple[int, str], undoes: str | None = None) -> MoveKeyGroups:
    rows = tuple(RequestedMove(key_group=kg(number), worker=WorkerId(worker)) for number, worker in moves)
    return MoveKeyGroups(moves=rows, by="ann", at=1012.0, reason="bench", undoes=undoes)


def refusal(decider: Decider, *intents: Intent, now: float = 1012.0) -> str:
    decision = of_type(IntentRefused, said(decider, *intents, now=now))
    assert set(decision.answered) <= {each.key for each in intents}
    assert decider.intents == tuple(each for each in intents if each.key not in decision.answered)
    return decision.detail


def test_an_operator_moves_a_key_group_at_once_even_where_that_balances_worse() -> None:
    decision = of_type(Planned, said(deciding(), TO_W1))
    plan = decision.plan
    assert [(move.key_group, move.source, move.target) for move in plan.moves] == [(kg(0), W0, W1)]
    assert (plan.reason, plan.detail, plan.before, plan.planned) == (PlanReason.MOVE, "ann moves it: bench", 0.0, 10.0)
    assert plan.why is not None
    assert plan.why.reasons == (MoveReason.MOVE,)
    assert (decision.answered, decision.keep_until) == ((TO_W1.key,), 1012.0 + 3600.0)


def test_what_cannot_be_moved_is_refused_as_a_whole_with_the_reason() -> None:
    asked = "; asked for by ann: bench"
    assert refusal(deciding(), wish((0, W1), (7, W1))) == f"app: there is no key group app/sums/7{asked}"
    assert refusal(deciding(), wish((0, "w9"))) == f"app: w9 does not run{asked}"
    assert refusal(deciding(), wish((1, W1))) == f"app: every key group is there already{asked}"


def test_what_is_on_or_would_go_to_a_worker_that_takes_no_part_is_refused() -> None:
    def reporting_only() -> Decider:
        owners = {**BALANCED, kg(2): W2}
        made = Decider(SETTINGS, NEEDS, execution(owners), acting=True)
        snapshot = window(owners, workers=(W0, W1, W2)).snapshot
        nodes = tuple(replace(row, steering=row.worker != W2) for row in snapshot.nodes)
        made.on_event(1011.0, SnapshotArrived(snapshot=replace(snapshot, nodes=nodes)))
        return made

    assert refusal(reporting_only(), wish((0, W2))).startswith(
        "app: w2 takes no part in plans: worker_not_steering: no reason is given"
    )
    why = "app: app/sums/2 stays: its worker takes no part in plans: worker_not_steering"
    assert refusal(reporting_only(), wish((2, W0))).startswith(why)


def test_nothing_moves_to_a_worker_that_drains() -> None:
    decider = deciding()
    decider.on_event(1012.0, IntentsChanged(intents=(DRAIN_W1,)))
    decider.on_event(1021.0, window(BALANCED, 1020.0))
    decider._wanted = None  # the plan for the drain was not found
    assert refusal(decider, DRAIN_W1, wish((0, W1)), now=1022.0).startswith("app: w1 is being drained")


def test_a_move_that_cannot_begin_is_refused_after_a_while() -> None:
    detail = refusal(deciding(), TO_W1, now=1012.0 + VALID_S + 1)
    assert detail == f"app: it could not begin within {VALID_S:.0f} s"


def test_what_takes_a_large_plan_back_waits_for_the_part_before_it() -> None:
    first, second = wish((0, W1), undoes="1.7"), wish((1, W0), undoes="1.7")
    decider, late = deciding(), 1012.0 + 2 * VALID_S
    assert isinstance(said(decider, first, second), Planned)
    flying = a_round(None, kind=PlanReason.UNDO)
    decider.on_event(1013.0, ExecutionChanged(execution=execution(BALANCED, rounds={APP: flying})))
    decider.on_event(late - 5.0, window(BALANCED, late - 10.0))
    assert decider.intents == (second,), "its time has not begun"
    over = execution(BALANCED, rounds={APP: replace(flying, ended_at=late)})
    decider.on_event(late, ExecutionChanged(execution=over))
    decision = of_type(Planned, decided(decider.on_event(late + 21.0, window(BALANCED, late + 20.0))))
    assert [(move.key_group, move.target) for move in decision.plan.moves] == [(kg(1), W0)]


@pytest.mark.parametrize(("kind", "ended_at"), [(PlanReason.MOVE, None), (PlanReason.UNDO, 1000.0)])
def test_a_part_that_waits_for_nothing_of_the_kind_is_refused_after_a_while(
    kind: PlanReason, ended_at: float | None
) -> None:
    decider = deciding(rounds={APP: a_round(ended_at, kind=kind)})
    detail = refusal(decider, wish((0, W1), undoes="1.7"), now=1012.0 + VALID_S + 1)
    assert detail == f"app: it could not begin within {VALID_S:.0f} s"


def test_nothing_moves_in_mode_dry_run() -> None:
    assert refusal(deciding(plans=PlanSettings(mode=PlanMode.DRY_RUN)), TO_W1) == (
        "app: its mode is dry-run, so nothing moves"
    )


def test_a_move_needs_no_approval() -> None:
    assert isinstance(said(deciding(plans=PlanSettings(mode=PlanMode.APPROVE)), TO_W1), Planned)


def view_of(decider: Decider) -> PlannableView:
    view = of_type(SmoothedView, decider.known.views[APP])
    return PlannableView.of(view)


def asked_view(owners: dict, **changes: object) -> PlannableView:
    made = Decider(SETTINGS, NEEDS, execution(owners, **changes), acting=True)
    action = only_one(Solve, made.on_event(1011.0, window(owners)))
    return action.view


def test_what_an_operator_moved_is_not_moved_back_by_the_solver() -> None:
    on_w1 = {kg(number): W1 for number in range(4)}
    moved = {kg(number): HandMoved(worker=W1, until=2000.0) for number in range(3)}
    free = answer(question_of(asked_view(on_w1), SETTINGS, 1.0))
    bound = answer(question_of(asked_view(on_w1, hand_moved=moved), SETTINGS, 1.0))
    assert isinstance(free, Answer)
    assert isinstance(bound, Answer)
    assert len(free.moves) == 2
    assert [key_group for key_group, _ in bound.moves] == [3]


def test_it_stays_no_longer_than_it_should_and_only_where_the_operator_put_it() -> None:
    view = view_of(deciding())
    stays = {kg(0): HandMoved(worker=W0, until=2000.0), kg(1): HandMoved(worker=W0, until=2000.0)}
    assert pinned_in(1020.0, view, stays) == {kg(0)}
    assert pinned_in(2000.0, view, stays) == frozenset()


def test_it_may_leave_a_worker_that_drains_and_a_host_over_its_limit() -> None:
    view = view_of(deciding())
    stays = {kg(0): HandMoved(worker=W0, until=2000.0)}
    full = replace(view, rooms={HostId("h0"): Room(cpu=5.0, memory=1e12)})
    draining = replace(view, workers=tuple(replace(each, draining=True) for each in view.workers))
    assert pinned_in(1020.0, full, stays) == pinned_in(1020.0, draining, stays) == frozenset()


def test_a_move_waits_for_a_drain_that_cannot_be_planned_no_longer_than_the_drain_is_wanted() -> None:
    """Both are an operator's word: the move comes first."""
    decider = deciding({kg(0): W0, kg(1): W1, kg(2): WorkerId("w1")})
    drain = Drain(worker=W0, by="op", at=1.0, reason="kernel")
    of_type(Planned, said(decider, drain, TO_W1))
