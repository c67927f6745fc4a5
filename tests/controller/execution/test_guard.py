"""The guard ends a plan from which its job suffers at one hand-over at a time, and judges what of it has to go back."""

from dataclasses import replace

import pytest

from tests.controller.execution.execution_transcripts import (
    APP,
    LIMITS,
    T0,
    W0,
    W1,
    W2,
    ack,
    handover,
    kg,
    plan,
    published,
    refused,
    released,
    started,
)
from trimtab_controller.execution.events import Action, GuardActed, PlanDecided, Publish, WindowSeen
from trimtab_controller.execution.journal import JournalEntry, decode_entry, encode_entry
from trimtab_controller.execution.lags import JobWindow, WaitingInputs
from trimtab_controller.execution.machine import ExecutionMachine
from trimtab_controller.execution.state import GuardMode, GuardStop, HandoverPhase, Moved
from trimtab_controller.plan import PlanReason
from trimtab_protocol.messages.commands import Phase, Refusal
from trimtab_protocol.messages.names import WorkerId

GUARDED = replace(LIMITS, key_groups_per_handover=1, guard_windows=2)
TO_W1 = plan((0, W0, W1), (1, W0, W1), (2, W0, W1))
LONG_S = 6.0


def window(end_s: float, lag_s: float | None, **workers_s: float) -> WindowSeen:
    """A window of 10 s with this lag of the app and, if not said otherwise, of each worker."""
    known = {"w0": lag_s, "w1": lag_s, "w2": lag_s, **workers_s}
    return WindowSeen(
        start_s=end_s - 10.0,
        end_s=end_s,
        jobs={
            APP: JobWindow(
                whole=WaitingInputs(backlog=None if lag_s is None else 100.0 * lag_s, rate=100.0),
                workers={
                    WorkerId(name): WaitingInputs(backlog=None if value is None else 10.0 * value, rate=10.0)
                    for name, value in known.items()
                },
            )
        },
    )


def begun(mode: GuardMode = GuardMode.ROLL_BACK, decided: PlanDecided = TO_W1) -> ExecutionMachine:
    """A plan of which the first key group has moved, and the second is being prepared."""
    made = started(W0, W0, W0, limits=replace(GUARDED, guard=mode))
    made.on_event(T0 - 5, window(T0 - 8, 1.0))
    made.on_event(T0, decided)
    move(made, 0, T0 + 1)
    return made


def move(machine: ExecutionMachine, index: int, at: float, pause_s: float = 0.1) -> list[Action]:
    prepare = handover(machine, index).prepare
    machine.on_event(at, ack(prepare, Phase.PREPARED, generation=7))
    return machine.on_event(at + pause_s, ack(prepare, Phase.TOOK, pause_s=pause_s))


def suffered(machine: ExecutionMachine, at: float = T0 + 20) -> list[Action]:
    """Two windows in which the job is 14 s, then 19 s further behind than before."""
    assert acted(machine.on_event(at, window(at - 2, 15.0))) == []
    return machine.on_event(at + 10, window(at + 8, 20.0))


def acted(actions: list[Action]) -> list[GuardStop]:
    return [each.stop for each in actions if isinstance(each, GuardActed)]


STOP = GuardStop(
    app=APP,
    plan="1.2",
    at=T0 + 30,
    until=T0 + 630,
    detail="the job is 19.0 s further behind than its plan found it, for 2 windows",
    lags_s={W0: 1.0, W1: 1.0},
    moves=(Moved(key_group=kg(0), source=W0, target=W1),),
)


def test_a_plan_from_which_the_job_suffers_for_windows_is_ended() -> None:
    machine = begun()
    actions = suffered(machine)
    assert acted(actions) == [STOP]
    row = machine.state.rounds[APP]
    assert row.stopped == f"ended by the guard: {STOP.detail}, at one hand-over at a time"
    assert [each.phase for each in row.handovers] == [HandoverPhase.DONE, HandoverPhase.FAILED, HandoverPhase.FAILED]
    assert row.ended_at == T0 + 30
    assert [command.kind for command in published(actions).commands] == ["abandon"]
    assert machine.state.guarded == {APP: STOP}


def test_a_window_that_ends_a_plan_begins_nothing_more_of_it() -> None:
    machine = begun()
    machine.on_event(T0 + 5, ack(handover(machine, 1).prepare, Phase.PREPARED, generation=7))
    machine.on_event(T0 + 20, window(T0 + 18, 15.0))
    machine.on_tick(T0 + 46)
    assert [each.phase for each in machine.state.rounds[APP].handovers][1:] == ["resolving", "waiting"]
    actions = machine.on_event(T0 + 60, replace(window(T0 + 58, 20.0), owners={kg(1): W1}, hosts={}, pauses={}))
    assert len(acted(actions)) == 1
    [publication] = [each for each in actions if isinstance(each, Publish)]
    assert publication.commands == (), "the next hand-over has not begun, although one has ended"
    row = publication.execution.rounds[APP]
    assert [each.phase for each in row.handovers] == [HandoverPhase.DONE, HandoverPhase.DONE, HandoverPhase.FAILED]
    assert row.ended_at == T0 + 60


def test_a_plan_from_which_only_a_worker_suffers_that_receives_key_groups_is_ended() -> None:
    machine = begun()
    assert acted(machine.on_event(T0 + 20, window(T0 + 18, 1.0, w1=13.0))) == []
    [stop] = acted(machine.on_event(T0 + 30, window(T0 + 28, 1.0, w1=14.0)))
    assert (
        stop.detail == "w1, which receives key groups, is 13.0 s further behind than its plan found it, for 2 windows"
    )


def test_a_window_that_does_not_show_how_the_job_is_neither_counts_nor_ends_the_row() -> None:
    machine = begun()
    assert acted(machine.on_event(T0 + 20, window(T0 + 18, 15.0))) == []
    assert acted(machine.on_event(T0 + 30, window(T0 + 28, None))) == []
    assert len(acted(machine.on_event(T0 + 40, window(T0 + 38, 15.0)))) == 1


def test_the_first_whole_window_after_the_end_shows_what_has_to_go_back() -> None:
    machine = begun()
    suffered(machine)
    assert acted(machine.on_event(T0 + 40, window(T0 + 38, 20.0, w0=1.0))) == [], "it mixes two placements"
    [judged] = acted(machine.on_event(T0 + 50, window(T0 + 48, 20.0, w0=1.0)))
    assert (judged.moves, judged.to_move_back(T0 + 51)) == (STOP.moves, STOP.moves)
    assert judged.to_move_back(T0 + 50 + 121) == (), "later, windows show something else"
    assert acted(machine.on_event(T0 + 60, window(T0 + 58, 90.0, w0=1.0))) == [], "it is judged once"


@pytest.mark.parametrize(
    ("what", "workers_s"),
    [
        ("the new worker has caught up", {"w0": 1.0, "w1": 2.0}),
        ("the old one is as far behind", {"w0": 18.0, "w1": 20.0}),
        ("nothing is known of the new one", {"w0": 1.0, "w1": None}),
        ("nothing is known of the old one", {"w0": None, "w1": 20.0}),
    ],
)
def test_nothing_goes_back_where_that_is_not_known_to_help(what: str, workers_s: dict[str, float]) -> None:
    machine = begun()
    suffered(machine)
    [judged] = acted(machine.on_event(T0 + 50, window(T0 + 48, 20.0, **workers_s)))
    assert (judged.moves, judged.to_move_back(T0 + 51)) == ((), ()), what


@pytest.mark.parametrize(("idle", "goes_back"), [({W1}, True), (set(), False)])
def test_what_a_worker_got_that_owned_nothing_before_goes_back(idle: set[WorkerId], goes_back: bool) -> None:
    before = window(T0 - 8, 1.0)
    assert before.jobs is not None
    job = before.jobs[APP]
    others = {worker: row for worker, row in job.workers.items() if worker != W1}
    machine = started(W0, W0, W0, limits=GUARDED)
    machine.on_event(T0 - 5, replace(before, jobs={APP: replace(job, workers=others, idle=frozenset(idle))}))
    machine.on_event(T0, TO_W1)
    move(machine, 0, T0 + 1)
    suffered(machine)
    [judged] = acted(machine.on_event(T0 + 50, window(T0 + 48, 20.0, w0=1.0)))
    assert judged.moves == (STOP.moves if goes_back else ()), "what is not known moves nothing"


def test_with_mode_stop_nothing_goes_back_and_with_mode_off_the_plan_goes_on() -> None:
    machine = begun(GuardMode.STOP)
    [stop] = acted(suffered(machine))
    assert (stop.moves, stop.back_by) == ((), T0 + 30)
    machine = begun(GuardMode.OFF)
    assert acted(suffered(machine)) == []
    assert machine.state.busy(APP)


@pytest.mark.parametrize("reason", [PlanReason.DRAIN, PlanReason.MOVE, PlanReason.RULES, PlanReason.ROLL_BACK])
def test_what_operators_and_rules_want_is_not_ended(reason: PlanReason) -> None:
    machine = begun(decided=replace(TO_W1, plan=replace(TO_W1.plan, reason=reason)))
    assert acted(suffered(machine)) == []
    assert machine.state.busy(APP)


def test_long_pauses_in_a_row_end_a_plan_though_the_lag_is_unknown() -> None:
    machine = begun()
    assert acted(move(machine, 1, T0 + 10, LONG_S)) == []
    assert acted(move(machine, 2, T0 + 20, LONG_S)) == [], "nothing of the plan is left"
    machine = started(*[W0] * 4, limits=GUARDED)
    machine.on_event(T0, plan(*((number, W0, W1) for number in range(4))))
    move(machine, 0, T0 + 1, LONG_S)
    [stop] = acted(move(machine, 1, T0 + 10, LONG_S))
    assert stop.detail == "2 hand-overs in a row paused key groups for more than 5 s, the last for 6.0 s"
    [judged] = acted(machine.on_event(T0 + 50, window(T0 + 48, 90.0, w0=1.0)))
    assert judged.moves == (), "nobody knows how far the workers were behind before"


def test_a_further_stop_doubles_the_wait_and_a_plan_that_goes_well_ends_that() -> None:
    machine = begun()
    suffered(machine)
    machine.on_event(T0 + 700, window(T0 + 698, 1.0))
    machine.on_event(T0 + 700, plan((1, W0, W1), (2, W0, W1)))
    [stop] = acted(suffered(machine, T0 + 720))
    assert (stop.times, stop.until - stop.at) == (2, 1200.0)
    machine.on_event(T0 + 3000, plan((1, W0, W2)))
    move(machine, 0, T0 + 3001)
    assert machine.state.guarded == {}


def test_what_a_new_plan_begins_is_not_mixed_with_moves_back() -> None:
    machine = begun()
    suffered(machine)
    machine.on_event(T0 + 50, window(T0 + 48, 20.0, w0=1.0))
    back = replace(TO_W1, plan=replace(plan((0, W1, W0)).plan, reason=PlanReason.ROLL_BACK))
    machine.on_event(T0 + 51, back)
    stop = machine.state.guarded[APP]
    assert (stop.to_move_back(T0 + 52), stop.until) == ((), T0 + 630)


def test_a_hand_over_that_was_released_when_the_plan_was_ended_may_go_back_too() -> None:
    machine = started(W0, W0, limits=GUARDED)
    machine.on_event(T0 - 5, window(T0 - 8, 1.0))
    released(machine)
    [stop] = acted(suffered(machine))
    assert [each.key_group for each in stop.moves] == [kg(0)]
    assert machine.state.busy(APP), "it arrives within moments"
    machine.on_event(T0 + 31, refused(handover(machine).release, Refusal.GENERATION))


def test_the_journal_has_what_a_successor_needs() -> None:
    machine = begun()
    suffered(machine)
    entry = decode_entry(encode_entry(JournalEntry(execution=machine.state, acks_read={})))
    assert entry.execution.guarded == {APP: STOP}
    assert entry.execution.rounds[APP].kind is PlanReason.LOAD_DISTANCE
    successor = ExecutionMachine("c", GUARDED, replace(machine.state, generation=2))
    [judged] = acted(successor.on_event(T0 + 50, window(T0 + 48, 20.0, w0=1.0)))
    assert judged.moves == STOP.moves
