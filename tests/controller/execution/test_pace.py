"""How many hand-overs of an app are in flight: it halves after a long pause, and creeps up while the job is calm."""

from dataclasses import replace

import pytest

from tests.controller.execution.execution_transcripts import (
    APP,
    CLUSTER,
    LIMITS,
    PREPARING,
    RELEASE,
    T0,
    W0,
    W1,
    W2,
    ack,
    kg,
    plan,
    started,
)
from trimtab_controller.execution.events import (
    ExecutionLimits,
    ForgetWanted,
    PaceChanged,
    PlacementWanted,
    Resumed,
    WindowSeen,
)
from trimtab_controller.execution.lags import JobWindow, Lag, WaitingInputs
from trimtab_controller.execution.machine import ExecutionMachine
from trimtab_controller.execution.pace import PlanPace, slow_start_s
from trimtab_controller.execution.state import Handover, HandoverPhase, Round
from trimtab_protocol.messages.commands import Phase
from trimtab_protocol.messages.names import AppId, WorkerId

LONG_S = 6.0
PACED = replace(LIMITS, handovers_in_flight=4, handovers_per_host=100, key_groups_per_handover=1)


def ended(pause_s: float | None, released_at: float = T0 + 1.0) -> Handover:
    release = replace(RELEASE, issued_at=released_at, deadline=released_at + 20.0)
    return replace(PREPARING, phase=HandoverPhase.DONE, release=release, pause_s=pause_s)


def in_flight(machine: ExecutionMachine, app: AppId = APP) -> int:
    return sum(each.phase is HandoverPhase.PREPARING for each in machine.state.rounds[app].handovers)


def hand_over(machine: ExecutionMachine, at: float, pause_s: float) -> list[PaceChanged]:
    """The first hand-over that is being prepared, to its end."""
    first = next(each for each in machine.state.rounds[APP].handovers if each.phase is HandoverPhase.PREPARING)
    machine.on_event(at, ack(first.prepare, Phase.PREPARED, generation=7))
    actions = machine.on_event(at + pause_s, ack(first.prepare, Phase.TOOK, pause_s=pause_s))
    return [each for each in actions if isinstance(each, PaceChanged)]


def test_a_long_pause_halves_the_number_and_calm_ones_raise_it_by_one_per_round() -> None:
    pace = PlanPace(ExecutionLimits(handovers_in_flight=8))
    assert pace.of(APP) == 8
    assert pace.observe(T0 + 10, ended(0.1)) is None, "it is at its limit"
    assert pace.observe(T0 + 10, ended(LONG_S)) == PaceChanged(app=APP, before=8, after=4, pause_s=LONG_S)
    changes = [pace.observe(T0 + 20, ended(0.1, T0 + 15)) for _ in range(5)]
    assert [each.after for each in changes if each] == [5]
    for _ in range(100):
        pace.observe(T0 + 30, ended(0.1, T0 + 25))
    assert pace.of(APP) == 8


def test_what_was_released_before_the_number_was_halved_says_nothing_of_the_new_one() -> None:
    pace = PlanPace(ExecutionLimits(handovers_in_flight=8))
    pace.observe(T0 + 10, ended(LONG_S))
    assert pace.observe(T0 + 11, ended(LONG_S, T0 + 2)) is None
    assert pace.observe(T0 + 20, ended(LONG_S, T0 + 12)) == PaceChanged(app=APP, before=4, after=2, pause_s=LONG_S)


def test_a_plan_whose_key_groups_pause_for_long_goes_on_with_fewer_at_a_time() -> None:
    machine = started(*[W0] * 12, limits=PACED)
    machine.on_event(T0, plan(*((number, W0, W1) for number in range(12))))
    assert in_flight(machine) == 4
    assert hand_over(machine, T0 + 1, LONG_S) == [PaceChanged(app=APP, before=4, after=2, pause_s=LONG_S)]
    assert in_flight(machine) == 3, "none begins"
    hand_over(machine, T0 + 10, 0.1)
    assert in_flight(machine) == 2
    hand_over(machine, T0 + 11, 0.1)
    hand_over(machine, T0 + 12, 0.1)
    assert in_flight(machine) == 2, "calm pauses say nothing of what restores do"
    machine.on_event(T0 + 32, calm_window(T0 + 31))
    assert in_flight(machine) == 3, "a window has raised it"


def test_an_app_that_is_forgotten_takes_its_numbers_along() -> None:
    machine = started(*[W0] * 12, limits=PACED)
    machine.on_event(T0, plan((0, W0, W1)))
    assert hand_over(machine, T0 + 1, LONG_S), "the number has halved"
    machine.on_event(T0 + 10, ForgetWanted(app=APP, answered=()))
    machine.on_event(T0 + 20, PlacementWanted(app=APP, owners={kg(number): W0 for number in range(12)}))
    machine.on_event(T0 + 21, plan(*((number, W0, W1) for number in range(12))))
    machine.on_event(T0 + 42, calm_window(T0 + 41))
    assert in_flight(machine) == 4, "an app of that name begins anew"


def test_a_leader_that_takes_over_a_plan_goes_on_carefully() -> None:
    first = started(*[W0] * 8, limits=PACED)
    first.on_event(T0, plan((0, W0, W1)))
    successor = ExecutionMachine(CLUSTER, PACED, replace(first.state, generation=2))
    successor.on_event(T0 + 1, Resumed())
    assert hand_over(successor, T0 + 2, 0.1) == []
    successor.on_event(T0 + 3, plan(*((number, W0, W1) for number in range(1, 8))))
    assert in_flight(successor) == 2


def test_four_apps_go_at_full_speed_and_a_further_one_waits() -> None:
    apps = tuple(AppId(f"app-{number}") for number in range(5))
    machine = started(*[W0] * 6, apps=apps, limits=PACED)
    for app in apps:
        machine.on_event(T0, plan(*((number, W0, W1) for number in range(6)), app=app))
    assert [in_flight(machine, app) for app in apps] == [4, 4, 4, 4, 0]
    assert PACED.handovers_in_cluster == 16


def behind(grown_s: float | None, *, falling: bool = False, silent: tuple[WorkerId, ...] = ()) -> Lag:
    """A window in which everything else is known."""
    return Lag(lag_s=grown_s, grown_s=grown_s, falling=falling, silent=silent, whole=grown_s is not None and not silent)


def window(end_s: float) -> WindowSeen:
    return WindowSeen(start_s=end_s - 10.0, end_s=end_s, jobs={})


def calm_window(end_s: float, *, measured: tuple[WorkerId, ...] = (W0, W1, W2)) -> WindowSeen:
    job = JobWindow(whole=WaitingInputs(backlog=0.0, rate=10.0), measured=frozenset(measured))
    return replace(window(end_s), jobs={APP: job})


def carried_out(hand_overs: int, limits: ExecutionLimits, *targets: WorkerId) -> Round:
    """A plan with so many hand-overs in flight, all at once, in turn to these targets."""
    count = replace(limits, restores_at_first=100, handovers_per_host=100, key_groups_per_handover=1)
    machine = started(*[W0] * hand_overs, limits=replace(count, schedule_restores=False))
    moves = ((number, W0, (targets or (W1,))[number % max(1, len(targets))]) for number in range(hand_overs))
    machine.on_event(T0, plan(*moves))
    return machine.state.rounds[APP]


EIGHT, MANY = ExecutionLimits(handovers_in_flight=8), ExecutionLimits(handovers_in_flight=32)


def test_a_job_that_falls_behind_halves_what_is_in_flight_window_by_window() -> None:
    pace, four, two = PlanPace(MANY), carried_out(4, MANY), carried_out(2, MANY)
    assert pace.see_window(T0, APP, window(T0 - 1), behind(9.0), four) is None
    halved = PaceChanged(app=APP, before=32, after=2, lag_s=11.0)
    assert pace.see_window(T0 + 10, APP, window(T0 + 9), behind(11.0), four) == halved
    assert pace.see_window(T0 + 11, APP, window(T0 + 9), behind(11.0), four) is None, "the window ended before"
    assert pace.see_window(T0 + 20, APP, window(T0 + 19), behind(14.0, falling=True), two) is None, "it catches up"
    halved = PaceChanged(app=APP, before=2, after=1, lag_s=15.0)
    assert pace.see_window(T0 + 30, APP, window(T0 + 29), behind(15.0), two) == halved
    assert pace.see_window(T0 + 40, APP, window(T0 + 39), behind(16.0), two) is None, "never below one"


def test_calm_hand_overs_raise_nothing_while_the_job_is_behind_or_nobody_knows() -> None:
    pace, row = PlanPace(EIGHT), carried_out(2, EIGHT)
    pace.see_window(T0, APP, window(T0 - 1), behind(11.0), row)
    assert [pace.observe(T0 + 5, ended(0.1, T0 + 4)) for _ in range(9)] == [None] * 9
    pace.see_window(T0 + 10, APP, window(T0 + 9), behind(6.0, falling=True), row)
    assert pace.observe(T0 + 15, ended(0.1, T0 + 14)) is None
    pace.see_window(T0 + 16, APP, window(T0 + 15), behind(None), row)
    assert pace.observe(T0 + 17, ended(0.1, T0 + 16)) is None, "unknown is not calm"
    pace.see_window(T0 + 20, APP, window(T0 + 19), behind(5.0, falling=True), row)
    assert pace.observe(T0 + 25, ended(0.1, T0 + 24)) == PaceChanged(app=APP, before=1, after=2, pause_s=0.1)


def test_a_worker_of_the_plan_that_falls_silent_halves_the_number() -> None:
    pace = PlanPace(EIGHT)
    found = pace.see_window(T0 + 10, APP, window(T0 + 9), behind(None, silent=(W1,)), carried_out(4, EIGHT))
    assert found == PaceChanged(app=APP, before=8, after=2, worker=W1)


# --- restores: a plan begins slowly -----------------------------------------------------------------------------------


def begun(limits: ExecutionLimits, row: Round) -> PlanPace:
    pace = PlanPace(limits)
    pace.begin(T0, [row])
    return pace


@pytest.mark.parametrize(
    ("limits", "targets", "first"),
    [
        (EIGHT, (W1,), 1),
        (EIGHT, (W1, W2), 2),
        (replace(EIGHT, restores_at_first=1), (W1, W2), 1),
        (replace(EIGHT, restores_at_first=8), (W1,), 8),
    ],
)
def test_a_plan_begins_with_a_restore_on_each_host_and_a_few_in_all(
    limits: ExecutionLimits, targets: tuple[WorkerId, ...], first: int
) -> None:
    pace = begun(limits, carried_out(8, limits, *targets))
    assert (pace.restores(APP), pace.of(APP)) == (first, 8)


def test_what_has_nothing_to_restore_and_what_was_lost_begins_at_once() -> None:
    row = carried_out(8, EIGHT)
    warm = replace(row, handovers=tuple(replace(each, lacking_bytes=0) for each in row.handovers))
    assert [each.restores for each in warm.handovers] == [False] * 8
    assert begun(EIGHT, replace(row, lost=True)).restores(APP) == 8
    machine = started(*[W0] * 8, limits=replace(PACED, restores_at_first=1))
    moves = plan(*((number, W0, W1) for number in range(8)))
    rows = tuple(replace(each, lacking_bytes=0) for each in moves.plan.moves)
    machine.on_event(T0, replace(moves, plan=replace(moves.plan, moves=rows)))
    assert in_flight(machine) == 4


def test_each_calm_window_doubles_the_restores_until_the_job_suffers_and_then_adds_one() -> None:
    row = carried_out(8, EIGHT)
    pace = begun(EIGHT, row)
    numbers = []
    for at, grown_s in ((20, 0.0), (40, 1.0), (60, 2.0), (80, 11.0), (100, 0.0), (120, 0.0)):
        pace.see_window(T0 + at, APP, window(T0 + at - 1), behind(grown_s), row)
        numbers.append(pace.restores(APP))
    assert numbers == [2, 4, 8, 4, 4, 4], "the number of all hand-overs, which pauses raise, holds it back"
    for _ in range(20):
        pace.observe(T0 + 130, ended(0.1, T0 + 125))
    assert pace.restores(APP) == 6, "two windows have raised it since"


@pytest.mark.parametrize(
    ("what", "start_s", "lag"),
    [
        ("it began before the restores", -1.0, behind(0.0)),
        ("the job is somewhat behind", 1.0, behind(6.0)),
        ("nothing is known of the job", 1.0, behind(None)),
        ("a worker of the plan has not reported all of it", 1.0, replace(behind(0.0), whole=False)),
    ],
)
def test_a_window_that_does_not_show_the_job_calm_raises_nothing(what: str, start_s: float, lag: Lag) -> None:
    row = carried_out(8, EIGHT)
    pace = begun(EIGHT, row)
    pace.see_window(T0 + 20, APP, window(T0 + start_s + 10), lag, row)
    assert pace.restores(APP) == 1, what


def test_a_window_with_fewer_restores_than_are_allowed_raises_nothing() -> None:
    row = carried_out(2, EIGHT, W1, W2)
    pace = begun(replace(EIGHT, restores_at_first=7), carried_out(8, EIGHT, W1, W2))
    pace.see_window(T0 + 20, APP, window(T0 + 19), behind(0.0), row)
    assert pace.restores(APP) == 4, "two of two"
    pace.see_window(T0 + 40, APP, window(T0 + 39), behind(0.0), row)
    assert pace.restores(APP) == 4, "two of four"


def test_hosts_share_the_restores_evenly() -> None:
    machine = started(*[W0] * 12, limits=replace(PACED, restores_at_first=3))
    machine.on_event(T0, plan(*((number, W0, W1 if number < 11 else W2) for number in range(12))))
    begun_on = [each.target for each in machine.state.rounds[APP].handovers if each.phase is HandoverPhase.PREPARING]
    assert begun_on == [W1, W2]


def test_a_worker_that_is_behind_gets_no_further_restore_for_three_windows() -> None:
    machine = started(*[W0] * 12, limits=replace(PACED, restores_at_first=2))
    machine.on_event(T0 - 1, calm_window(T0 - 2))
    machine.on_event(T0, plan(*((number, W0, W1) for number in range(12))))
    machine.on_event(T0 + 12, calm_window(T0 + 11, measured=(W0,)))
    hand_over(machine, T0 + 13, 0.1)
    assert in_flight(machine) == 0, "w1 is silent"
    assert machine.wake_at == T0 + 42
    machine.on_tick(T0 + 42)
    assert in_flight(machine) == 1, "a drain, too, comes to its end"
    machine.on_event(T0 + 43, calm_window(T0 + 42, measured=(W0,)))
    hand_over(machine, T0 + 44, 0.1)
    assert in_flight(machine) == 0
    machine.on_event(T0 + 53, calm_window(T0 + 52))
    assert in_flight(machine) == 1, "it has reported again"


def test_the_promise_counts_that_a_plan_begins_slowly() -> None:
    def together(number: int) -> float:
        return float(number)

    assert slow_start_s(EIGHT, 80.0, 1, together, 10.0) == 20.0 + 20.0 + 5.0 - 10.0, "1, 2 and 4 at a time, not 8"
    assert slow_start_s(EIGHT, 80.0, 1, lambda _: 1.0, 10.0) == 0.0, "the host's disk is full with one"
    assert slow_start_s(replace(EIGHT, restores_at_first=8), 80.0, 1, together, 10.0) == 0.0
