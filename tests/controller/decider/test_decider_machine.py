"""The decider: every snapshot ends in exactly one decision, and each says why."""

from dataclasses import replace

import pytest

from tests.controller.decider.decider_situations import APP, W0, W1, a_round, kg
from tests.controller.decider.deciders import (
    BALANCED,
    DRAIN_W1,
    NEEDS,
    ON_W0,
    PAUSE,
    SETTINGS,
    answer,
    decider,
    execution,
    only,
    window,
)
from trimtab_controller.decider.events import (
    Decided,
    ExecutionChanged,
    HoldChanged,
    IntentsChanged,
    SnapshotArrived,
    Solve,
)
from trimtab_controller.decider.machine import Decider
from trimtab_controller.decider.memory.predictions import RoundMeasured
from trimtab_controller.decider.values.decision import Adopted, Planned, Skip, describe
from trimtab_controller.decider.values.reasons import NotReady, SkipReason
from trimtab_controller.decider.window.view import SmoothedView
from trimtab_controller.execution.state import Execution
from trimtab_controller.plan import Move, Plan, PlanReason
from trimtab_protocol.messages.intents import Drain, Intent
from trimtab_protocol.messages.names import AppId, HostId, KeyGroup, WorkerId


def test_without_a_placement_the_ownership_is_published_as_it_is() -> None:
    decision = only(decider(execution(None)).on_event(1011.0, window(ON_W0)))
    assert decision == Adopted(app=APP, owners=ON_W0, detail="first placement: 3 key groups with their present owners")


def test_a_plan_from_snapshot_and_answer() -> None:
    made = decider(execution(ON_W0))
    [solve] = made.on_event(1011.0, window(ON_W0))
    assert isinstance(solve, Solve)
    assert made.on_event(1021.0, window(ON_W0, 1020.0)) == [], "one question at a time"
    decision = only(made.on_event(1021.5, answer((2, 1))))
    plan = Plan(
        app=APP,
        reason=PlanReason.LOAD_DISTANCE,
        detail="load distance 15.0 above 5.0",
        moves=(Move(key_group=kg(2), source=W0, target=W1, state_bytes=1000),),
        hosts={W0: HostId("h0"), W1: HostId("h1")},
        before=15.0,
        planned=5.0,
        lower_bound=5.0,
        status="optimal",
        solve_s=0.1,
        cores={HostId("h0"): 4.0, HostId("h1"): 4.0},
    )
    assert decision == Planned(plan=plan)
    assert describe(decision) == (
        "app: 1 move, load distance 15.0 -> 5.0 (bound 5.0), because load distance 15.0 above 5.0"
    )


@pytest.mark.parametrize(
    ("present", "intents", "owners", "reason", "detail"),
    [
        (
            execution(BALANCED),
            (),
            BALANCED,
            SkipReason.INSIDE_BAND,
            "app: load distance 0.0 pp, inside the band of 5.0 pp",
        ),
        (execution(ON_W0), (PAUSE,), ON_W0, SkipReason.PAUSED, "paused by op: maintenance"),
        (execution(None), (PAUSE,), ON_W0, SkipReason.PAUSED, "paused by op: maintenance"),
        (
            execution(ON_W0, rounds={APP: a_round(None)}),
            (),
            ON_W0,
            SkipReason.PLAN_IN_FLIGHT,
            "app: plan 1.2 is in flight",
        ),
        (
            execution(ON_W0, rounds={APP: a_round(991.0)}),
            (),
            ON_W0,
            SkipReason.TOO_SOON,
            "app: load distance 15.0, next round in 10 s at the earliest",
        ),
        (
            execution(ON_W0),
            (DRAIN_W1, Drain(worker=W0, by="op", at=1.0, reason="kernel")),
            {**ON_W0, kg(2): W1},
            SkipReason.ALL_DRAINING,
            "app: every worker is being drained, none is left to take key groups",
        ),
    ],
)
def test_reasons_to_do_nothing(
    present: Execution,
    intents: tuple[Intent, ...],
    owners: dict[KeyGroup, WorkerId],
    reason: SkipReason,
    detail: str,
) -> None:
    if reason is SkipReason.ALL_DRAINING:
        present = execution(owners)
    actions = decider(present, *intents).on_event(1011.0, window(owners))
    decisions = [action for action in actions if not isinstance(action, RoundMeasured)]
    assert only(decisions) == Skip(reason=reason, detail=detail)


def test_windows_that_began_before_the_last_round_ended_do_not_count() -> None:
    made = decider(execution(ON_W0, rounds={APP: a_round(1000.5)}))
    decision = only(made.on_event(1011.0, window(ON_W0)))
    assert isinstance(decision, Skip)
    assert decision.reason is SkipReason.WINDOW_TOO_EARLY
    moved = {**ON_W0, kg(2): W1}
    measured, decided = made.on_event(1021.0, window(moved, 1020.0))
    assert measured == RoundMeasured(plan="1.2", app=APP, planned=2.0, load_distance=5.0)
    [again] = made.on_event(1031.0, window(moved, 1030.0))
    assert (type(decided), type(again)) == (Decided, Decided), "measured once"


def test_a_successor_does_not_take_the_window_of_hours_later_for_what_the_round_brought() -> None:
    made = decider(execution(BALANCED, rounds={APP: a_round(900.0)}))
    assert [type(action) for action in made.on_event(1011.0, window(BALANCED))] == [Decided]


def test_what_a_round_brought_is_measured_and_not_smoothed() -> None:
    made = decider(execution(BALANCED))
    made.on_event(1011.0, window(BALANCED))
    made.on_event(1012.0, ExecutionChanged(execution=execution(BALANCED, rounds={APP: a_round(1012.0)})))
    after = window(BALANCED, 1030.0).snapshot
    one, two = after.key_groups
    after = replace(after, key_groups=(one, replace(two, cpu=0.3)))

    measured, _ = made.on_event(1031.0, SnapshotArrived(snapshot=after))

    assert measured == RoundMeasured(plan="1.2", app=APP, planned=2.0, load_distance=pytest.approx(10.0))
    assert made.known.evaluations[APP].load_distance == pytest.approx(5.0)


def test_loads_are_a_mean_at_first_then_smoothed_and_kept_over_a_round() -> None:
    made = decider(execution(BALANCED))
    seen = []
    for number, cpu in enumerate((0.1, 0.3, 0.5, 0.1)):
        end_s = 1010.0 + 10.0 * number
        made.on_event(end_s + 1.0, window(BALANCED, end_s, cpu=cpu))
        seen.append(made.known.evaluations[APP].worker_loads[W0])
    assert seen == pytest.approx([10.0, 20.0, 35.0, 22.5]), "the third weighs 0.5 and not a third"
    made.on_event(1042.0, ExecutionChanged(execution=execution(BALANCED, rounds={APP: a_round(1042.0)})))
    measured, _ = made.on_event(1061.0, window(BALANCED, 1060.0, cpu=0.4))
    assert made.known.evaluations[APP].worker_loads[W0] == pytest.approx(31.25)
    assert measured == RoundMeasured(plan="1.2", app=APP, planned=2.0, load_distance=0.0)
    made.on_event(1111.0, window(BALANCED, 1120.0, cpu=0.7))
    assert made.known.evaluations[APP].worker_loads[W0] == pytest.approx(70.0), "after a long gap anew"


def test_loads_are_believed_after_enough_windows_but_a_drain_need_not_wait() -> None:
    settings = replace(SETTINGS, min_windows=2)
    made = Decider(settings, NEEDS, execution(ON_W0), acting=True)
    first = only(made.on_event(1011.0, window(ON_W0)))
    assert first == Skip(
        reason=SkipReason.TOO_FEW_WINDOWS,
        detail="app: too_few_windows: 1 of 2 windows seen, load distance 15.0 so far",
    )
    [second] = made.on_event(1021.0, window(ON_W0, 1020.0))
    assert isinstance(second, Solve), "steady loads"
    draining = Decider(settings, NEEDS, execution(BALANCED), acting=True)
    draining.on_event(1000.0, IntentsChanged(intents=(DRAIN_W1,)))
    [at_once] = draining.on_event(1011.0, window(BALANCED))
    assert isinstance(at_once, Solve)


def test_what_may_be_noise_moves_nothing_until_it_has_lasted() -> None:
    made = decider(execution(BALANCED))
    decisions = []
    for number, (first, second) in enumerate([(0.1, 0.1), (0.1, 0.5), (0.3, 0.1), *[(0.1, 0.5)] * 4]):
        arrived = window(BALANCED, 1010.0 + 10.0 * number)
        one, two = arrived.snapshot.key_groups
        rows = (replace(one, cpu=first), replace(two, cpu=second))
        arrived = SnapshotArrived(snapshot=replace(arrived.snapshot, key_groups=rows))
        [action] = made.on_event(1011.0 + 10.0 * number, arrived)
        decisions.append("solve" if isinstance(action, Solve) else describe(only([action])))
    assert decisions == [
        "nothing: app: load distance 0.0 pp, inside the band of 5.0 pp",
        "nothing: app: load distance 10.0 may be noise, which goes up to 34.6",
        "nothing: app: load distance 0.0 pp, inside the band of 5.0 pp",
        "nothing: app: load distance 10.0 may be noise, which goes up to 30.3",
        "nothing: app: load distance 15.0 may be noise, which goes up to 23.8",
        "nothing: app: load distance 17.5 may be noise, which goes up to 17.6",
        "solve",
    ]


def test_the_placement_follows_reports_that_differ() -> None:
    decision = only(decider(execution(BALANCED)).on_event(1011.0, window({kg(0): W0, kg(1): W0})))
    assert isinstance(decision, Adopted)
    assert decision.owners == {kg(0): W0, kg(1): W0}


def test_a_hold_forbids_everything_and_says_why_until_it_ends() -> None:
    made = decider(execution(ON_W0))
    made.on_event(1011.0, HoldChanged(reason="the journal cannot be trusted"))
    decision = only(made.on_event(1011.0, window(ON_W0)))
    assert isinstance(decision, Skip)
    assert decision.reason is SkipReason.JOURNAL
    assert "the journal cannot be trusted" in decision.detail
    made.on_event(1012.0, HoldChanged(reason=None))
    assert [type(action) for action in made.on_event(1021.0, window(ON_W0, 1020.0))] == [Solve]


def test_an_old_or_repeated_window_changes_nothing() -> None:
    made = decider(execution(BALANCED))
    made.on_event(1011.0, window(BALANCED))
    before = made.known
    assert made.on_event(1012.0, window(ON_W0)) == []
    assert made.on_event(1012.0, window(ON_W0, 1005.0)) == []
    assert made.known is before


def test_apps_and_workers_that_no_longer_report_are_forgotten() -> None:
    made = decider(execution(BALANCED))
    for number in range(20):
        end_s = 1010.0 + 10.0 * number
        snapshot = window(BALANCED, end_s).snapshot
        app, worker = AppId(f"app{number}"), WorkerId(f"x{number}")
        guest = replace(snapshot.nodes[0], app=app, worker=worker)
        owned = replace(snapshot.key_groups[0], key_group=kg(0)._replace(app=app), worker=worker)
        nodes, key_groups = (*snapshot.nodes, guest), (*snapshot.key_groups, owned)
        made.on_event(end_s + 1.0, SnapshotArrived(snapshot=replace(snapshot, nodes=nodes, key_groups=key_groups)))
    assert set(made._situation.memory.history) == {APP, *(f"app{number}" for number in range(14, 20))}, (
        "of 45 s before the window"
    )
    assert made._situation.memory.liveness.met == {W0, W1, "x19"}


def test_snapshots_that_stay_away_are_said_once_per_interval() -> None:
    made = decider(execution(BALANCED))
    assert made.on_tick(1000.0) == []
    first = only(made.on_tick(1045.0))
    assert isinstance(first, Skip)
    assert first.reason is SkipReason.NO_SNAPSHOT
    assert made.on_tick(1046.0) == []
    made.on_event(1051.0, window(BALANCED, 1050.0))
    assert made.on_tick(1095.0) == []
    stale = only(made.on_tick(1096.0))
    assert isinstance(stale, Skip)
    assert stale.reason is SkipReason.STALE_SNAPSHOT


def test_apps_stay_known_when_a_window_shows_too_little_and_say_what_is_missing() -> None:
    made = decider(execution(BALANCED))
    made.on_event(1011.0, window(BALANCED))
    late = only(made.on_event(1100.0, window(BALANCED, 1020.0)))
    assert isinstance(late, Skip)
    view = made.known.views[APP]
    assert isinstance(view, NotReady)
    assert (view.reason, view.app) == (SkipReason.STALE_SNAPSHOT, APP)
    assert late.detail == f"{view.reason}: {view.detail}"
    made.on_event(1101.0, window(BALANCED, 1100.0))
    assert isinstance(made.known.views[APP], SmoothedView)


def test_a_dry_run_plans_from_the_reports_and_adopts_nothing() -> None:
    made = decider(execution(None), acting=False)
    [action] = made.on_event(1011.0, window(ON_W0))
    assert isinstance(action, Solve)
