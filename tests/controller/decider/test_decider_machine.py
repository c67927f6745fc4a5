"""The decider: every snapshot ends in exactly one decision, and each says why."""

from dataclasses import replace

import pytest

from tests.controller.decider.decider_situations import APP, OPERATOR, W0, W1, a_plan, a_round, a_scaling, kg
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
    with_all,
)
from tests.narrow import not_none, of_type, only_one
from trimtab_controller.decider.events import (
    Decided,
    ExecutionChanged,
    HoldChanged,
    IntentsChanged,
    SnapshotArrived,
    Solve,
    SolverAnswered,
)
from trimtab_controller.decider.machine import Decider
from trimtab_controller.decider.memory.predictions import RoundMeasured
from trimtab_controller.decider.policies.judgement import DrainBlocked
from trimtab_controller.decider.values.decision import (
    Adopted,
    Forgotten,
    IntentRefused,
    Planned,
    Scaled,
    Skip,
    describe,
    names_of,
)
from trimtab_controller.decider.values.reasons import NotReady, SkipReason
from trimtab_controller.decider.window.view import SmoothedView
from trimtab_controller.execution.events import ExecutionLimits, Publish
from trimtab_controller.execution.machine import ExecutionMachine
from trimtab_controller.execution.state import Execution, ScalingPhase, placement_of
from trimtab_controller.plan import Move
from trimtab_controller.solver.answer import Answer, NoAnswer, Stuck
from trimtab_protocol.messages.commands import CommandKind
from trimtab_protocol.messages.intents import Drain, ForgetApp, ForgetWorker, Intent
from trimtab_protocol.messages.names import AppId, Epoch, HostId, KeyGroup, OperatorId, WorkerId


def test_a_plan_from_snapshot_and_answer() -> None:
    made = decider(execution(ON_W0))
    only_one(Solve, made.on_event(1011.0, window(ON_W0)))
    assert made.on_event(1021.0, window(ON_W0, 1020.0)) == [], "one question at a time"
    decision = only(made.on_event(1021.5, answer((2, 1))))
    plan = a_plan(
        Move(key_group=kg(2), source=W0, target=W1, state_bytes=1000),
        detail="load distance 15.0 above 5.0",
        before=15.0,
        planned=5.0,
        lower_bound=5.0,
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
    decision = of_type(Skip, only(made.on_event(1011.0, window(ON_W0))))
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
    only_one(Solve, draining.on_event(1011.0, window(BALANCED)))


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


def test_a_hold_forbids_everything_and_says_why_until_it_ends() -> None:
    made = decider(execution(ON_W0))
    made.on_event(1011.0, HoldChanged(reason="the journal cannot be trusted"))
    decision = of_type(Skip, only(made.on_event(1011.0, window(ON_W0))))
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


def test_windows_count_again_after_all_clocks_were_set_back() -> None:
    made = decider(execution(BALANCED))
    ahead = 9 * 3600.0
    made.on_event(1011.0 + ahead, window(BALANCED, 1010.0 + ahead))

    assert only(made.on_event(1021.0, window(BALANCED, 1020.0)))
    assert not_none(made.known.snapshot).end_ms == 1_020_000


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
    assert of_type(Skip, only(made.on_tick(1045.0))).reason is SkipReason.NO_SNAPSHOT
    assert made.on_tick(1046.0) == []
    made.on_event(1051.0, window(BALANCED, 1050.0))
    assert made.on_tick(1095.0) == []
    assert of_type(Skip, only(made.on_tick(1096.0))).reason is SkipReason.STALE_SNAPSHOT


def test_apps_stay_known_when_a_window_shows_too_little_and_say_what_is_missing() -> None:
    made = decider(execution(BALANCED))
    made.on_event(1011.0, window(BALANCED))
    late = of_type(Skip, only(made.on_event(1100.0, window(BALANCED, 1020.0))))
    view = of_type(NotReady, made.known.views[APP])
    assert (view.reason, view.app) == (SkipReason.STALE_SNAPSHOT, APP)
    assert late.detail == f"{view.reason}: {view.detail}"
    made.on_event(1101.0, window(BALANCED, 1100.0))
    assert isinstance(made.known.views[APP], SmoothedView)


def test_a_dry_run_plans_from_the_reports_and_adopts_nothing() -> None:
    made = decider(execution(None), acting=False)
    only_one(Solve, made.on_event(1011.0, window(ON_W0)))


# ---- what the decider makes of the solver's answers, and of what happens while the solver works


@pytest.mark.parametrize(
    "reply",
    [answer(), answer((2, 1), to=14.6), SolverAnswered(answer=NoAnswer(reason="no node"))],
)
def test_an_answer_that_brings_nothing(reply: SolverAnswered) -> None:
    made = decider(execution(ON_W0))
    made.on_event(1011.0, window(ON_W0))
    decision = of_type(Skip, only(made.on_event(1012.0, reply)))
    failed = isinstance(reply.answer, NoAnswer)
    assert decision.reason is (SkipReason.SOLVER_FAILED if failed else SkipReason.NOTHING_BETTER)


def test_a_pause_that_comes_while_the_solver_works_holds() -> None:
    made = decider(execution(ON_W0))
    made.on_event(1011.0, window(ON_W0))
    made.on_event(1011.2, IntentsChanged(intents=(PAUSE,)))
    assert of_type(Skip, only(made.on_event(1012.0, answer((2, 1))))).reason is SkipReason.PAUSED


def test_what_a_newer_window_lacks_counts_while_the_solver_works() -> None:
    """Such as two of five hosts that are lost at once."""
    made = decider(execution(ON_W0))
    made.on_event(1011.0, window(ON_W0))
    assert made.on_event(1021.0, window(ON_W0, 1020.0, workers=(W0,))) == []
    decision = of_type(Skip, only(made.on_event(1021.5, answer((2, 1)))))
    assert decision.reason is SkipReason.HOSTS_LOST


def test_an_app_that_nothing_makes_better_does_not_keep_the_others_waiting() -> None:
    """One key group is all the load of the first app: no move evens that out, and its load distance is the largest."""
    lone, there = AppId("lone"), (WorkerId("w2"), WorkerId("w3"))
    other = {KeyGroup(lone, OPERATOR, 0): there[0]}
    placements = {**execution(ON_W0).placements, lone: placement_of("c", lone, Epoch(1, 1), other, None)}
    made = decider(execution(None, placements=placements))
    asked = []
    for number in range(3):
        end_s = 1010.0 + 10.0 * number
        seen, beside = window(ON_W0, end_s).snapshot, window(other, end_s, cpu=0.9, workers=there).snapshot
        nodes = (*seen.nodes, *(replace(row, app=lone) for row in beside.nodes))
        both = replace(seen, nodes=nodes, key_groups=(*seen.key_groups, *beside.key_groups))
        actions = made.on_event(end_s + 1.0, SnapshotArrived(snapshot=both))
        while isinstance(solve := actions[-1], Solve):
            asked.append(solve.view.app)
            actions = made.on_event(end_s + 2.0, answer((0, 1)) if len(asked) == 4 else answer())
    assert asked == [lone, APP] * 3


# ---- operators that change: the placement follows what the workers declare


TOTALS = OperatorId("totals")


def declared(event: SnapshotArrived, *operators: dict[OperatorId, int]) -> SnapshotArrived:
    """The window, with what its workers declare."""
    nodes = zip(event.snapshot.nodes, operators, strict=True)
    return SnapshotArrived(snapshot=replace(event.snapshot, nodes=tuple(replace(n, operators=o) for n, o in nodes)))


def test_the_placement_follows_renamed_merged_and_shrunk_operators_and_says_so() -> None:
    counts = OperatorId("counts")
    before = {**ON_W0, KeyGroup(APP, counts, 0): W1, KeyGroup(APP, counts, 1): W1}
    now = {KeyGroup(APP, TOTALS, 0): W0, KeyGroup(APP, counts, 0): W1}
    made = decider(execution(before))
    made.on_event(1011.0, window(before))
    decision = only(made.on_event(1021.0, declared(window(now, 1020.0), *[{TOTALS: 1, counts: 1}] * 2)))
    assert decision == Adopted(
        app=APP,
        owners=now,
        detail="operators gone: sums; new: totals; of another size: counts (2 key groups before, now 1): the placement "
        "follows the reports",
    )
    adopted = placement_of("c", APP, Epoch(1, 2), decision.owners, made._situation.execution.placements[APP])
    assert adopted.owners == {TOTALS: ((W0,),), counts: ((W1,),)}


def test_what_key_groups_did_is_forgotten_with_them() -> None:
    settings = replace(SETTINGS, min_windows=2)
    made = Decider(settings, NEEDS, execution(BALANCED), acting=True)
    for end_s in (1010.0, 1020.0):
        made.on_event(end_s + 1, window(BALANCED, end_s))
    renamed = {KeyGroup(APP, TOTALS, at): W0 for at in range(3)}
    made.on_event(1022.0, ExecutionChanged(execution=execution(renamed)))
    decision = of_type(Skip, only(made.on_event(1031.0, declared(window(renamed, 1030.0), *[{TOTALS: 3}] * 2))))
    assert decision.reason is SkipReason.TOO_FEW_WINDOWS
    assert made._situation.memory.history[APP].windows == 1


# ---- draining workers: emptied before all else, stopped when empty, started again when the drain is cancelled


def test_key_groups_that_cannot_leave_a_drained_worker_are_said_with_the_decision() -> None:
    made = decider(execution(ON_W0), Drain(worker=W0, by="op", at=1.0, reason="kernel"))
    made.on_event(1011.0, window(ON_W0))
    why = "too heavy"
    stuck = (
        Stuck(key_group=0, worker=0, obstacle=why),
        Stuck(key_group=2, worker=0, obstacle=why),
        Stuck(key_group=1, worker=0, obstacle="pinned"),
    )
    reply = answer((2, 1))
    assert isinstance(reply.answer, Answer)
    *blocked, decided = made.on_event(1011.5, SolverAnswered(answer=replace(reply.answer, stuck=stuck)))
    assert blocked == [
        DrainBlocked(worker=W0, key_groups=(kg(0), kg(2)), obstacle=why),
        DrainBlocked(worker=W0, key_groups=(kg(1),), obstacle="pinned"),
    ]
    assert isinstance(decided, Decided)


def test_the_app_with_a_worker_to_be_drained_comes_first_then_the_larger_load_distance() -> None:
    other = AppId("other")
    near, far = kg(0)._replace(app=other), kg(1)._replace(app=other)
    both = {**ON_W0, near: WorkerId("x0"), far: WorkerId("x1")}
    seen = window(ON_W0).snapshot
    guests = [replace(seen.nodes[0], app=other, worker=both[each], host=HostId("hx")) for each in (near, far)]
    owned = [replace(seen.key_groups[0], key_group=each, worker=both[each]) for each in (near, far)]
    arrived = SnapshotArrived(
        snapshot=replace(seen, nodes=(*seen.nodes, *guests), key_groups=(*seen.key_groups, *owned))
    )
    placements = {
        app: placement_of("c", app, Epoch(1, 1), {each: who for each, who in both.items() if each.app == app}, None)
        for app in (APP, other)
    }
    drain = Drain(worker=WorkerId("x0"), by="op", at=1.0, reason="kernel")
    solved = []
    for intents in ((), (drain,)):
        action = only_one(Solve, decider(execution(None, placements=placements), *intents).on_event(1011.0, arrived))
        solved.append(action.view.app)
    assert solved == [APP, other]


def test_a_drain_of_many_workers_names_a_few_of_them() -> None:
    """A round is journalled with its reason, which a successor must be able to read."""
    workers = tuple(WorkerId(f"w{number:04}") for number in range(1000))
    owners = {kg(number): worker for number, worker in enumerate(workers)}
    drains = [Drain(worker=worker, by="op", at=1.0, reason="kernel") for worker in workers[1:]]
    made = decider(execution(owners), *drains)
    assert [type(action) for action in made.on_event(1011.0, window(owners, workers=workers))] == [Solve]
    decision = of_type(Planned, only(made.on_event(1011.5, answer((1, 0)))))
    assert decision.plan.detail == "drain w0001, w0002, w0003, w0004, w0005 and 994 more"


def test_a_drained_empty_worker_is_stopped_once_and_started_when_the_drain_is_taken_back() -> None:
    owners = {kg(0): W0, kg(1): W0}
    made = decider(execution(owners), DRAIN_W1)
    decision = only(made.on_event(1011.0, window(owners)))
    assert decision == Scaled(kind=CommandKind.STOP, worker=W1, host=HostId("h1"), detail="it has been drained")
    sent = execution(owners, scalings={W1: a_scaling(CommandKind.STOP, at=1011.0, phase=ScalingPhase.SENT)})
    made.on_event(1011.0, ExecutionChanged(execution=sent))
    waiting = of_type(Skip, only(made.on_event(1021.0, window(owners, 1020.0))))
    assert waiting.reason is SkipReason.SCALING_IN_FLIGHT
    done = execution(owners, scalings={W1: a_scaling(CommandKind.STOP, at=1022.0)})
    made.on_event(1022.0, ExecutionChanged(execution=done))
    alone = only(made.on_event(1041.0, window(owners, 1040.0, workers=(W0,))))
    assert isinstance(alone, Skip), "it is not missed"
    made.on_event(1050.0, IntentsChanged(intents=()))
    silent = only(made.on_event(1051.0, window(owners, 1050.0, workers=(W0,))))
    assert isinstance(silent, Skip), "its host does not report, and would not hear of it"
    hosts = window(owners).snapshot.hosts
    later = replace(window(owners, 1060.0, workers=(W0,)).snapshot, hosts=hosts)
    start = of_type(Scaled, only(made.on_event(1061.0, SnapshotArrived(snapshot=later))))
    assert (start.kind, start.worker, start.host) == (CommandKind.START, W1, HostId("h1"))


# ---- `trimtab forget`: apps and workers that are gone for good


FORGET_APP = ForgetApp(app=APP, by="op", at=1.0, reason="replaced")
FORGET_W1 = ForgetWorker(worker=W1, by="op", at=1.0, reason="renamed")
OTHER = {KeyGroup(AppId("other"), OPERATOR, at): WorkerId(f"w{7 + at}") for at in range(2)}


def two_apps() -> Execution:
    other = placement_of("c", AppId("other"), Epoch(1, 1), OTHER, None)
    return replace(execution(ON_W0), placements={**execution(ON_W0).placements, AppId("other"): other})


def test_an_app_that_is_gone_is_forgotten_also_while_paused_and_hosts_are_lost() -> None:
    made = decider(two_apps(), PAUSE)
    made.on_event(1011.0, with_all(window(OTHER, 1010.0, workers=tuple(OTHER.values())), app=AppId("other")))
    made.on_event(1021.0, window(ON_W0, 1020.0))
    lost = of_type(NotReady, made.known.views[AppId("other")])
    assert lost.reason is SkipReason.HOSTS_LOST, "its two, of four"
    made.on_event(1022.0, IntentsChanged(intents=(PAUSE, replace(FORGET_APP, app=AppId("other")))))
    decision = only(made.on_event(1031.0, window(ON_W0, 1030.0)))
    assert decision == Forgotten(
        what="app other",
        answered=("forget/app/other",),
        detail="its placement of 2 key groups is revoked, asked for by op: replaced",
        app=AppId("other"),
    )
    made.on_event(1032.0, ExecutionChanged(execution=execution(ON_W0)))
    after = of_type(Skip, only(made.on_event(1041.0, window(ON_W0, 1040.0))))
    assert after.reason is SkipReason.PAUSED, "said once"
    assert (made.known.not_ready, list(made.known.views)) == (None, [APP])


def test_who_still_runs_is_not_forgotten() -> None:
    for wish, what in ((FORGET_APP, "app app"), (FORGET_W1, "worker w1")):
        decision = of_type(IntentRefused, only(decider(execution(BALANCED), wish).on_event(1011.0, window(BALANCED))))
        assert decision.answered == (wish.key,)
        assert decision.detail.startswith(f"{what} still runs: w")
        assert names_of(decision) == ("refuse", "forget")


def test_to_refuse_it_harms_no_plan_of_another_app() -> None:
    plan = a_round(None, app=AppId("other"))
    present = replace(two_apps(), rounds={AppId("other"): plan})
    made, machine = decider(present, FORGET_APP), ExecutionMachine("c", ExecutionLimits(), present)
    event = only(made.on_event(1011.0, window(BALANCED)))
    assert not isinstance(event, Skip)
    [published] = [each for each in machine.on_event(1011.0, event) if isinstance(each, Publish)]
    assert published.answered == (FORGET_APP.key,)


def test_a_forgotten_worker_is_not_waited_for_started_or_drained() -> None:
    stopped = a_scaling(CommandKind.STOP, at=900.0)
    made = decider(execution({**BALANCED, kg(2): W0}, scalings={W1: stopped}), DRAIN_W1, FORGET_W1)
    alone = {kg(0): W0, kg(1): W0, kg(2): W0}
    decision = of_type(Forgotten, only(made.on_event(1011.0, window(alone, workers=(W0,)))))
    assert (decision.worker, decision.answered) == (W1, ("forget/worker/w1", "drain/w1"))
    assert made.draining == frozenset()
    made.on_event(1012.0, ExecutionChanged(execution=execution({**BALANCED, kg(2): W0})))
    after = only(made.on_event(1021.0, window(alone, 1020.0, workers=(W0,))))
    assert isinstance(after, Adopted), "not worker_missing for a minute, and no start"
    assert after.owners == alone


def test_nothing_is_forgotten_while_a_round_is_in_flight_on_hold_or_in_a_dry_run() -> None:
    busy = only(decider(execution(ON_W0, rounds={APP: a_round(None)}), FORGET_W1).on_event(1011.0, window(ON_W0)))
    dry = decider(execution(BALANCED), FORGET_APP, acting=False).on_event(1011.0, window(BALANCED))
    held = decider(execution(ON_W0), FORGET_W1)
    held.on_event(1001.0, HoldChanged(reason="the journal"))
    for decision in (busy, only(dry), only(held.on_event(1011.0, window(ON_W0)))):
        assert isinstance(decision, Skip)


# ---- A worker that joins while key groups move: every round is small, and the next one plans with it


W0, W1, W2 = map(WorkerId, ("w0", "w1", "w2"))
