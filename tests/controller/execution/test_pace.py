"""How many hand-overs of an app are in flight: it halves after a long pause, and creeps up while the job is calm."""

from dataclasses import replace

from tests.controller.execution.execution_transcripts import (
    APP,
    CLUSTER,
    LIMITS,
    PREPARING,
    RELEASE,
    T0,
    W0,
    W1,
    ack,
    handover,
    kg,
    plan,
    started,
)
from trimtab_controller.execution.events import Limits, PaceChanged, Resumed
from trimtab_controller.execution.lags import Lag
from trimtab_controller.execution.machine import ExecutionMachine
from trimtab_controller.execution.pace import Pace
from trimtab_controller.execution.state import Handover, HandoverPhase
from trimtab_protocol.messages.commands import Phase
from trimtab_protocol.messages.names import AppId

OTHER = AppId("other")
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
    pace = Pace(Limits(handovers_in_flight=8))
    assert pace.of(APP) == 8
    assert pace.see(T0 + 10, ended(0.1)) is None, "it is at its limit"
    assert pace.see(T0 + 10, ended(LONG_S)) == PaceChanged(app=APP, before=8, after=4, pause_s=LONG_S)
    changes = [pace.see(T0 + 20, ended(0.1, T0 + 15)) for _ in range(5)]
    assert [each.after for each in changes if each] == [5]
    for _ in range(100):
        pace.see(T0 + 30, ended(0.1, T0 + 25))
    assert pace.of(APP) == 8


def test_what_was_released_before_the_number_was_halved_says_nothing_of_the_new_one() -> None:
    pace = Pace(Limits(handovers_in_flight=8))
    pace.see(T0 + 10, ended(LONG_S))
    assert pace.see(T0 + 11, ended(LONG_S, T0 + 2)) is None
    assert pace.see(T0 + 20, ended(LONG_S, T0 + 12)) == PaceChanged(app=APP, before=4, after=2, pause_s=LONG_S)


def test_it_never_falls_below_one_and_an_unknown_pause_says_nothing() -> None:
    pace = Pace(Limits(handovers_in_flight=2))
    for second in range(5):
        pace.see(T0 + 10 * second + 5, ended(LONG_S, T0 + 10 * second))
    assert pace.of(APP) == 1
    assert pace.see(T0 + 100, ended(None, T0 + 99)) is None
    assert pace.of(OTHER) == 2, "each app has its own"


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
    assert in_flight(machine) == 3, "calm ones have raised it"


def test_a_leader_that_takes_over_a_plan_goes_on_carefully() -> None:
    first = started(*[W0] * 8, limits=PACED)
    first.on_event(T0, plan((0, W0, W1)))
    successor = ExecutionMachine(CLUSTER, PACED, replace(first.state, generation=2))
    successor.on_event(T0 + 1, Resumed())
    assert hand_over(successor, T0 + 2, 0.1) == []
    successor.on_event(T0 + 3, plan(*((number, W0, W1) for number in range(1, 8))))
    assert in_flight(successor) == 2


def test_all_apps_together_have_a_limit() -> None:
    machine = started(*[W0] * 6, apps=(APP, OTHER), limits=replace(PACED, handovers_in_cluster=5))
    for app in (APP, OTHER):
        machine.on_event(T0, plan(*((number, W0, W1) for number in range(6)), app=app))
    assert (in_flight(machine), in_flight(machine, OTHER)) == (4, 1)
    assert handover(machine, 0, OTHER).key_groups == (kg(0, OTHER),)


def behind(grown_s: float | None, *, falling: bool = False) -> Lag:
    return Lag(lag_s=grown_s, grown_s=grown_s, falling=falling)


def test_a_job_that_falls_behind_halves_what_is_in_flight_window_by_window() -> None:
    pace = Pace(Limits(handovers_in_flight=32))
    assert pace.see_lag(T0, APP, T0 - 1, behind(9.0), 4) is None
    assert pace.see_lag(T0 + 10, APP, T0 + 9, behind(11.0), 4) == PaceChanged(app=APP, before=32, after=2, lag_s=11.0)
    assert pace.see_lag(T0 + 11, APP, T0 + 9, behind(11.0), 4) is None, "the window ended before"
    assert pace.see_lag(T0 + 20, APP, T0 + 19, behind(14.0, falling=True), 2) is None, "it catches up"
    assert pace.see_lag(T0 + 30, APP, T0 + 29, behind(15.0), 2) == PaceChanged(app=APP, before=2, after=1, lag_s=15.0)
    assert pace.see_lag(T0 + 40, APP, T0 + 39, behind(16.0), 1) is None, "never below one"


def test_calm_hand_overs_raise_nothing_while_the_job_is_behind() -> None:
    pace = Pace(Limits(handovers_in_flight=8))
    pace.see_lag(T0, APP, T0 - 1, behind(11.0), 2)
    assert [pace.see(T0 + 5, ended(0.1, T0 + 4)) for _ in range(9)] == [None] * 9
    pace.see_lag(T0 + 10, APP, T0 + 9, behind(6.0, falling=True), 2)
    assert pace.see(T0 + 15, ended(0.1, T0 + 14)) is None
    pace.see_lag(T0 + 20, APP, T0 + 19, behind(5.0, falling=True), 2)
    assert pace.see(T0 + 25, ended(0.1, T0 + 24)) == PaceChanged(app=APP, before=1, after=2, pause_s=0.1)


def test_an_unknown_lag_says_nothing() -> None:
    pace = Pace(Limits(handovers_in_flight=8))
    assert pace.see_lag(T0, APP, T0 - 1, behind(None), 8) is None
    assert pace.of(APP) == 8
