"""The disruption budget: what pauses is counted, and hand-overs begin and are released only as far as it goes."""

from dataclasses import replace

import pytest

from tests.controller.execution.execution_transcripts import (
    APP,
    CLUSTER,
    LIMITS,
    T0,
    W0,
    W1,
    ack,
    handover,
    plan,
    published,
    started,
)
from trimtab_controller.execution.budget import PauseBudget
from trimtab_controller.execution.disruption import (
    WINDOW_S,
    AppPauses,
    Cause,
    Disruption,
    DisruptionSettings,
    Pauses,
    Unowned,
)
from trimtab_controller.execution.events import (
    ExecutionLimits,
    ForgetWanted,
    PlanDecided,
    RestoreEnded,
    Resumed,
    RoundEnded,
    ScalingWanted,
    WindowSeen,
)
from trimtab_controller.execution.journal import JournalEntry, decode_entry, encode_entry
from trimtab_controller.execution.machine import ExecutionMachine
from trimtab_controller.execution.state import HandoverPhase, Round
from trimtab_controller.plan import PlanReason
from trimtab_protocol.messages.commands import CommandKind, Phase
from trimtab_protocol.messages.names import AppId, HostId, WorkerId

OTHER = AppId("other")


def limits(max_paused_s: float | None, **changes: object) -> ExecutionLimits:
    settings = DisruptionSettings(max_paused_s_per_hour=max_paused_s)
    default = {"handovers_in_flight": 4, "handovers_per_host": 100, "key_groups_per_handover": 1, "max_pause_s": 1.0}
    return replace(LIMITS, disruption=settings, **{**default, **changes})  # type: ignore[arg-type]


def machine(max_paused_s: float | None, *, key_groups: int = 10, **changes: object) -> ExecutionMachine:
    made = started(*[W0] * key_groups, limits=limits(max_paused_s, **changes))
    made.on_event(T0, Resumed())
    return made


def moving(count: int) -> PlanDecided:
    return plan(*((number, W0, W1) for number in range(count)))


def phases(made: ExecutionMachine, app: AppId = APP) -> list[HandoverPhase]:
    return [each.phase for each in made.state.rounds[app].handovers]


def hand_over(made: ExecutionMachine, at: float, pause_s: float | None, index: int = 0) -> None:
    """The hand-over with this place in the plan, to its end."""
    found = handover(made, index)
    made.on_event(at, ack(found.prepare, Phase.PREPARED, generation=7))
    made.on_event(at + (pause_s or 0.0), ack(found.prepare, Phase.TOOK, pause_s=pause_s))


def the_round(made: ExecutionMachine) -> Round:
    return made.state.rounds[APP]


def test_pauses_are_counted_per_key_group_and_cease_to_count_after_an_hour() -> None:
    made = machine(None, key_groups_per_handover=4)
    made.on_event(T0 + 1, moving(4))
    hand_over(made, T0 + 2, 0.5)
    use = made.budget.use(T0 + 10, made.state, APP)
    assert (use.used_s, use.assumed_s, use.pause_s, use.limit_s, use.fits) == (2.0, 0.0, 0.5, None, None)
    assert made.budget.use(T0 + 2.4 + WINDOW_S, made.state, APP).used_s == 2.0
    assert made.budget.use(T0 + 2.6 + WINDOW_S, made.state, APP).used_s == 0.0
    assert made.budget.use(T0 + 10, made.state, OTHER).used_s == 0.0, "each app has its own"


def test_an_unmeasured_pause_counts_from_the_release_to_the_end_and_says_so() -> None:
    made = machine(100.0)
    made.on_event(T0 + 1, moving(1))
    hand_over(made, T0 + 2, None)
    found = handover(made)
    assert (found.phase, found.pause_s) == (HandoverPhase.DONE, None)
    made = machine(100.0)
    made.on_event(T0 + 1, moving(1))
    made.on_event(T0 + 2, ack(handover(made).prepare, Phase.PREPARED, generation=7))
    made.on_event(T0 + 9, ack(handover(made).prepare, Phase.TOOK))
    use = made.budget.use(T0 + 10, made.state, APP)
    assert (use.used_s, use.assumed_s, use.learned, use.pause_s) == (7.0, 7.0, False, 1.0)
    assert (
        use.text
        == "7.0 of 100 paused key-group seconds in the last hour, 7.0 of them not measured, counted for 10 s only"
    )


def test_a_hand_over_begins_only_if_what_all_in_flight_are_expected_to_pause_fits() -> None:
    made = machine(2.5)
    actions = made.on_event(T0 + 1, moving(5))
    commands = published(actions).commands
    assert [(each.kind, each.handover) for each in commands] == [
        (CommandKind.PREPARE, "1.3-0"),
        (CommandKind.PREPARE, "1.3-1"),
    ], "unmeasured pauses are taken to last 1 s: two of them fit into 2.5 s"
    hand_over(made, T0 + 2, 0.1)  # much shorter: now all of them fit
    assert phases(made).count(HandoverPhase.PREPARING) == 4


def test_a_plan_ends_when_nothing_of_it_is_released_and_the_next_hand_over_does_not_fit() -> None:
    made = machine(2.5, handovers_in_flight=1)
    made.on_event(T0 + 1, moving(5))
    made.on_event(T0 + 2, ack(handover(made).prepare, Phase.PREPARED, generation=7))
    actions = made.on_event(T0 + 4, ack(handover(made).prepare, Phase.TOOK, pause_s=2.0))
    row = the_round(made)
    assert actions[-1] == RoundEnded(round=row)
    assert [each.phase for each in row.handovers] == [HandoverPhase.DONE], "what has not begun has not failed"
    assert row.stopped == (
        "ended, the disruption budget is used up: 2.0 of 2.5 paused key-group seconds in the last hour, "
        "counted for 4 s only"
    )
    assert published(actions).commands == ()


def test_while_a_hand_over_is_released_the_others_wait_and_those_that_are_warm_are_given_back_at_the_end() -> None:
    made = machine(3.0, handovers_in_flight=3)
    made.on_event(T0 + 1, moving(4))
    assert phases(made) == [*[HandoverPhase.PREPARING] * 3, HandoverPhase.WAITING]
    made.on_event(T0 + 2, ack(handover(made).prepare, Phase.PREPARED, generation=7))
    actions = made.on_event(T0 + 4.5, ack(handover(made, 1).prepare, Phase.PREPARED, generation=7))
    assert [type(each) for each in actions] == [RestoreEnded]
    assert phases(made)[1] is HandoverPhase.PREPARING, "2.5 s have passed since the first release, and 1 s is left"
    actions = made.on_event(T0 + 5, ack(handover(made).prepare, Phase.TOOK, pause_s=2.9))
    assert phases(made) == [HandoverPhase.DONE, HandoverPhase.FAILED, HandoverPhase.FAILED]
    assert [each.kind for each in published(actions).commands] == [CommandKind.ABANDON] * 2
    assert published(actions).placements[0].owners["sums"][:3] == ((W1, W0), (W0,), (W0,))  # type: ignore[index]
    assert the_round(made).ended_at == T0 + 5


def test_a_plan_that_does_not_fit_at_all_ends_without_a_move() -> None:
    made = machine(0.5)
    made.on_event(T0 + 1, moving(3))
    assert (the_round(made).handovers, the_round(made).ended_at) == ((), T0 + 1)


def test_restores_after_a_loss_are_counted_and_never_held_back() -> None:
    made = machine(0.5)
    lost = moving(2)
    lost = replace(lost, plan=replace(lost.plan, reason=PlanReason.LOSS))
    made.on_event(T0 + 1, lost)
    assert phases(made) == [HandoverPhase.PREPARING] * 2
    made.on_event(T0 + 6, ack(handover(made).prepare, Phase.PREPARED, generation=7))
    made.on_event(T0 + 8, ack(handover(made, 1).prepare, Phase.PREPARED, generation=7))
    use = made.budget.use(T0 + 10, made.state, APP)
    assert (use.used_s, use.assumed_s, use.fits) == (12.0, 12.0, 0)
    assert the_round(made).stopped is None


def test_a_successor_goes_on_with_what_its_predecessor_has_counted() -> None:
    made = machine(2.5, handovers_in_flight=1)
    made.on_event(T0 + 1, moving(5))
    hand_over(made, T0 + 2, 2.0)
    entry = decode_entry(encode_entry(JournalEntry(execution=made.state)))
    assert entry.execution.disruption == made.state.disruption
    assert made.state.disruption == Disruption(
        since=T0,
        apps={APP: (Pauses(began_at=T0 + 4, ended_at=T0 + 4, measured_s=2.0, key_groups=1),)},
    )
    successor = ExecutionMachine(
        CLUSTER, limits(2.5), replace(entry.execution, generation=2, placements=made.state.placements)
    )
    successor.on_event(T0 + 60, Resumed())
    assert successor.state.disruption.since == T0
    successor.on_event(T0 + 61, moving(1))
    assert the_round(successor).handovers == (), "nothing fits yet"
    successor.on_event(T0 + 5 + WINDOW_S, moving(1))
    assert phases(successor) == [HandoverPhase.PREPARING]


def test_what_nobody_counted_is_not_known_and_not_nothing() -> None:
    made = started(W0, limits=limits(10.0))
    assert made.budget.use(T0, made.state, APP).text == (
        "0.0 of 10 paused key-group seconds in the last hour, not counted yet"
    )
    made.on_event(T0, Resumed())
    assert made.budget.use(T0 + 600, made.state, APP).text.endswith(", counted for 10 min only")
    assert made.budget.use(T0 + WINDOW_S, made.state, APP).text.endswith(" in the last hour")


@pytest.mark.parametrize(
    ("key_groups", "free_at", "text"),
    [(1, T0 + 600, "room again in 10 min"), (3, T0 + 1800, "room again in 30 min"), (6, None, None)],
)
def test_it_says_when_there_is_room_again(key_groups: int, free_at: float | None, text: str | None) -> None:
    rows = tuple(
        Pauses(began_at=at, ended_at=at, measured_s=2.0, key_groups=2)
        for at in (T0 - WINDOW_S + 600, T0 - WINDOW_S + 1800)
    )
    state = replace(started(W0).state, disruption=Disruption(since=0.0, apps={APP: rows}))
    use = PauseBudget(settings=DisruptionSettings(apps={APP: 4.5})).use(T0, state, APP)
    assert (use.used_s, use.fits) == (4.0, 0)
    assert use.free_at(key_groups) == free_at
    expected = "no room at any time: 6 key groups are expected to pause for 6.0"
    assert use.room_text(key_groups) == (text or expected)


def test_pauses_that_end_within_two_minutes_are_one_row_and_those_that_are_too_old_are_dropped() -> None:
    found = Disruption(since=T0)
    for at in (0.0, 100.0, 130.0):
        found = found.with_pause(APP, T0 + at, key_groups=2, paused_s=0.5, measured=True)
    assert [(row.began_at - T0, row.ended_at - T0, row.measured_s) for row in found.apps[APP]] == [
        (0.0, 100.0, 2.0),
        (130.0, 130.0, 1.0),
    ]
    later = found.with_pause(OTHER, T0 + 110.0 + WINDOW_S, key_groups=1, paused_s=1.0, measured=False)
    assert {app: len(rows) for app, rows in later.apps.items()} == {APP: 1, OTHER: 1}
    assert later.without(APP).apps.keys() == {OTHER}


def test_a_forgotten_app_begins_anew() -> None:
    made = machine(2.5, handovers_in_flight=1)
    made.on_event(T0 + 1, moving(1))
    hand_over(made, T0 + 2, 2.0)
    made.on_event(T0 + 5, ForgetWanted(answered=(), app=APP))
    assert made.state.disruption.apps == {}


def pauses(end_s: float, **changes: object) -> WindowSeen:
    """A window of 10 s that ended then."""
    return WindowSeen(start_s=end_s - 10.0, end_s=end_s, pauses={APP: AppPauses(**changes)})  # type: ignore[arg-type]


def test_what_reports_tell_counts_by_cause_and_is_in_the_journal_at_once() -> None:
    made = machine(100.0)
    actions = made.on_event(T0 + 10, pauses(T0 + 9, measured_s=15.0, key_groups=10))
    assert published(actions).execution.disruption == made.state.disruption
    made.on_event(T0 + 20, pauses(T0 + 19, unowned=(Unowned(since=T0 + 2, until=T0 + 9, key_groups=3),)))
    use = made.budget.use(T0 + 21, made.state, APP)
    assert use.causes == {Cause.REBALANCES: 15.0, Cause.LOSSES: 21.0}
    assert (use.used_s, use.assumed_s, use.rebalance_s) == (36.0, 21.0, 15.0)
    assert (use.pause_s, use.learned) == (1.0, False), "a rebalance says nothing of how long a hand-over takes"
    assert use.text == (
        "36.0 of 100 paused key-group seconds in the last hour, 21.0 of them not measured, 15.0 by rebalances, "
        "21.0 by losses, counted for 21 s only"
    )
    entry = decode_entry(encode_entry(JournalEntry(execution=made.state)))
    assert entry.execution.disruption == made.state.disruption


def test_a_window_that_is_read_again_counts_once() -> None:
    made = machine(100.0)
    made.on_event(T0 + 10, pauses(T0 + 9, measured_s=15.0, key_groups=10))
    assert made.on_event(T0 + 11, pauses(T0 + 9, measured_s=15.0, key_groups=10)) == []
    assert made.budget.use(T0 + 12, made.state, APP).used_s == 15.0


def test_without_a_limit_it_counts_and_publishes_nothing() -> None:
    made = machine(None)
    assert made.on_event(T0 + 10, pauses(T0 + 9, measured_s=15.0, key_groups=10)) == []
    assert made.budget.use(T0 + 12, made.state, APP).used_s == 15.0


def test_rebalances_right_after_a_start_or_stop_by_the_controller_are_its_own() -> None:
    made = machine(100.0)
    made.on_event(T0 + 1, ScalingWanted(kind=CommandKind.START, worker=WorkerId("w9"), host=HostId("h9"), app=APP))
    made.on_event(T0 + 10, pauses(T0 + 9, measured_s=15.0, key_groups=10))
    assert made.budget.use(T0 + 11, made.state, APP).causes == {Cause.STARTS_AND_STOPS: 15.0}


def test_what_a_plan_after_a_loss_counts_is_not_counted_twice() -> None:
    made = machine(100.0)
    lost = moving(2)
    made.on_event(T0 + 12, replace(lost, plan=replace(lost.plan, reason=PlanReason.LOSS)))
    made.on_event(T0 + 40, pauses(T0 + 39, unowned=(Unowned(since=T0 + 2, until=T0 + 30, key_groups=2),)))
    assert made.budget.use(T0 + 41, made.state, APP).causes == {Cause.LOSSES: 20.0}


def test_starts_and_stops_wait_while_a_rebalance_does_not_fit() -> None:
    made = machine(40.0)
    assert not made.budget.use(T0 + 1, made.state, APP).holds_changes, "no rebalance was measured: one may be tried"
    made.on_event(T0 + 10, pauses(T0 + 9, measured_s=30.0, key_groups=10))
    use = made.budget.use(T0 + 20, made.state, APP)
    assert (use.fits, use.holds_changes) == (10, True), "ten key groups may move, and another rebalance is too much"
    assert use.change_text == "room again in 60 min"
    assert not made.budget.use(T0 + 10 + WINDOW_S, made.state, APP).holds_changes
    assert not machine(None).budget.use(T0, made.state, APP).holds_changes
