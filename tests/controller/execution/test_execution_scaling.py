"""Stops and starts of workers, and the sizes of apps, in the execution."""

from dataclasses import replace

from tests.controller.execution.execution_transcripts import (
    APP,
    CLUSTER,
    HOSTS,
    LIMITS,
    OPERATOR,
    T0,
    W0,
    W1,
    W2,
    ack,
    handover,
    kg,
    published,
    refused,
    released,
    rows,
    started,
)
from trimtab_controller.execution.events import (
    ForgetWanted,
    PlacementWanted,
    Publish,
    ResizeWanted,
    Resumed,
    ScalingWanted,
)
from trimtab_controller.execution.handovers import ACK_GRACE_S
from trimtab_controller.execution.journal import JournalEntry, decode_entry, encode_entry
from trimtab_controller.execution.machine import ExecutionMachine
from trimtab_controller.execution.scalings import CHANGES_KEPT_S, IN_A_ROW_S, MAX_CHANGES
from trimtab_controller.execution.state import (
    AppSize,
    Execution,
    ScalingPhase,
    SizeChange,
    WorkerScaling,
    placement_of,
)
from trimtab_protocol.messages.commands import CommandKind, Phase, Refusal
from trimtab_protocol.messages.names import AppId, Epoch
from trimtab_protocol.messages.placement import Placement


def test_a_successor_repeats_a_stop_that_nobody_has_answered() -> None:
    machine = started(W1)
    stop = published(machine.on_event(T0, ScalingWanted(kind=CommandKind.STOP, worker=W0, host=HOSTS[W0])))
    successor = ExecutionMachine(CLUSTER, LIMITS, replace(machine.state, generation=2))
    assert published(successor.on_event(T0 + 5, Resumed())).commands == stop.commands


def test_an_empty_worker_is_stopped_and_stands_by_for_nobody() -> None:
    machine = started(W0)
    released(machine)
    machine.on_event(T0 + 3, ack(handover(machine).prepare, Phase.TOOK))
    [publish] = machine.on_event(T0 + 4, ScalingWanted(kind=CommandKind.STOP, worker=W0, host=HOSTS[W0]))
    assert isinstance(publish, Publish)
    [stop] = publish.commands
    assert (stop.kind, stop.host, rows(publish)) == (CommandKind.STOP, HOSTS[W0], {0: (W1,)})
    [done] = machine.on_event(T0 + 5, ack(stop, Phase.STOPPED, exit_code=0))
    assert isinstance(done, Publish)
    assert done.execution.scalings == {
        W0: WorkerScaling(command=stop, phase=ScalingPhase.DONE, at=T0 + 5, detail="exit code 0")
    }
    assert machine.on_event(T0 + 6, ack(stop, Phase.STOPPED, exit_code=0)) == [], "once more"


def test_who_is_stopped_stands_by_in_no_app() -> None:
    other = AppId("other")
    placements = {
        app: replace(placement_of(CLUSTER, app, Epoch(1, 1), {}, None), owners={OPERATOR: ((owner, W0), (W1,))})
        for app, owner in ((APP, W1), (other, W2))
    }
    machine = ExecutionMachine(CLUSTER, LIMITS, Execution(generation=1, number=1, placements=placements))
    publish = published(machine.on_event(T0, ScalingWanted(kind=CommandKind.STOP, worker=W0, host=HOSTS[W0])))
    assert {each.app: each.owners[OPERATOR] for each in publish.placements} == {
        APP: ((W1,), (W1,)),
        other: ((W2,), (W1,)),
    }


def test_a_stop_without_answer_fails_and_a_late_word_is_still_the_truth() -> None:
    machine = started(W1)
    [publish] = machine.on_event(T0, ScalingWanted(kind=CommandKind.STOP, worker=W0, host=HOSTS[W0]))
    assert isinstance(publish, Publish)
    assert (publish.placements, machine.wake_at) == ((), T0 + 60 + ACK_GRACE_S)
    machine.on_tick(T0 + 62)
    assert machine.state.scalings[W0].phase is ScalingPhase.FAILED
    machine.on_event(T0 + 70, ack(publish.commands[0], Phase.STOPPED, exit_code=0))
    assert machine.state.scalings[W0].stopped


def test_a_forgotten_app_has_no_placement_and_its_last_word_is_an_empty_one() -> None:
    given = started(W0, W1)
    [publish] = given.on_event(T0, ForgetWanted(answered=("forget/app/app",), app=APP))
    assert isinstance(publish, Publish)
    assert publish.placements == (Placement(cluster="c", app=APP, epoch=Epoch(1, 2), owners={}),)
    assert (publish.answered, dict(publish.execution.placements)) == (("forget/app/app",), {})
    [again] = given.on_event(T0, ForgetWanted(answered=("forget/app/app",), app=APP))
    assert isinstance(again, Publish)
    assert (again.placements, again.answered) == ((), ("forget/app/app",)), "asked for twice: answered twice"
    [back] = given.on_event(T0, PlacementWanted(app=APP, owners={kg(0): W1}))
    assert isinstance(back, Publish)
    assert back.execution.placements[APP].owners == {OPERATOR: ((W1,),)}, "and when it comes back it has one again"


def test_a_forgotten_worker_is_in_no_scaling_and_stands_by_for_nobody() -> None:
    given = started(W0)
    given.on_event(T0, ScalingWanted(kind=CommandKind.STOP, worker=W1, host=HOSTS[W1]))
    placement = replace(given.state.placements[APP], owners={OPERATOR: ((W0, W1, W2),)})
    given.state = replace(given.state, placements={APP: placement})
    [publish] = given.on_event(T0, ForgetWanted(answered=("forget/worker/w1", "drain/w1"), worker=W1))
    assert isinstance(publish, Publish)
    assert dict(publish.execution.scalings) == {}
    assert publish.execution.placements[APP].owners == {OPERATOR: ((W0, W2),)}
    assert publish.answered == ("forget/worker/w1", "drain/w1")


def test_a_wish_that_is_refused_ends_too() -> None:
    given = started(W0)
    before = given.state
    [publish] = given.on_event(T0, ForgetWanted(answered=("forget/app/app",)))
    assert isinstance(publish, Publish)
    assert (publish.placements, publish.execution) == ((), replace(before, number=2))


def test_repetitions_are_counted_until_the_kind_changes_and_a_successor_goes_on() -> None:
    machine = started(W1)
    stop = ScalingWanted(kind=CommandKind.STOP, worker=W0, host=HOSTS[W0])
    for times in (1, 2):
        at = T0 + 100 * times
        command = published(machine.on_event(at, stop)).commands[0]
        machine.on_event(at + 1, refused(command, Refusal.NOT_EMPTY))
        found = machine.state.scalings[W0]
        assert (found.times, found.refusal) == (times, Refusal.NOT_EMPTY)
    entry = JournalEntry(execution=machine.state)
    assert decode_entry(encode_entry(entry)).execution.scalings == machine.state.scalings
    machine.on_event(T0 + 300, replace(stop, kind=CommandKind.START))
    assert machine.state.scalings[W0].times == 1
    machine.on_event(T0 + 400, stop)
    machine.on_event(T0 + 400 + IN_A_ROW_S, stop)
    assert machine.state.scalings[W0].times == 1, "long after the last one"


# --- execution sizes --------------------------------------------------------------------------------------------------


OUT = SizeChange(at=T0, before=2, after=4, rate=120.5)
IN = SizeChange(at=T0, before=3, after=1, rate=12.0)


def test_all_workers_of_a_scale_out_are_started_in_one_transaction_and_a_successor_repeats_it() -> None:
    machine = started(W0)
    wanted = ResizeWanted(app=APP, start={W1: HOSTS[W1], W2: HOSTS[W2]}, change=OUT)
    [publish] = machine.on_event(T0, wanted)
    assert isinstance(publish, Publish)
    assert [(each.kind, each.worker, each.host, each.app, each.epoch) for each in publish.commands] == [
        (CommandKind.START, worker, HOSTS[worker], APP, publish.execution.epoch) for worker in (W1, W2)
    ]
    assert publish.execution.sizes == {APP: AppSize(changes=(OUT,))}
    successor = ExecutionMachine(CLUSTER, LIMITS, replace(machine.state, generation=2))
    assert set(published(successor.on_event(T0 + 5, Resumed())).commands) == set(publish.commands)


def test_a_worker_that_leaves_is_drained_until_it_is_stopped() -> None:
    machine = started(W0)
    published(machine.on_event(T0, ResizeWanted(app=APP, drain=(W1, W2), change=IN)))
    assert machine.state.leaving == {W1, W2}
    stop = published(
        machine.on_event(T0 + 1, ScalingWanted(kind=CommandKind.STOP, worker=W1, host=HOSTS[W1], app=APP))
    ).commands[0]
    assert machine.state.leaving == {W1, W2}
    published(machine.on_event(T0 + 2, ack(stop, Phase.STOPPED, exit_code=0)))
    assert (machine.state.sizes[APP].leaving, machine.state.scalings[W1].of_app) == ((W2,), APP)


def test_a_stop_whose_answer_is_late_ends_the_drain_all_the_same() -> None:
    machine = started(W0)
    machine.on_event(T0, ResizeWanted(app=APP, drain=(W1,), change=IN))
    stop = published(
        machine.on_event(T0 + 1, ScalingWanted(kind=CommandKind.STOP, worker=W1, host=HOSTS[W1], app=APP))
    ).commands[0]
    machine.on_tick(stop.deadline + ACK_GRACE_S + 1.0)
    assert (machine.state.scalings[W1].phase, machine.state.leaving) == (ScalingPhase.FAILED, {W1})
    machine.on_event(T0 + 100, ack(stop, Phase.STOPPED, exit_code=0))
    assert machine.state.leaving == frozenset()


def test_kept_started_and_forgotten_workers_do_not_leave() -> None:
    machine = started(W0)
    machine.on_event(T0, ResizeWanted(app=APP, drain=(W1, W2), change=IN))
    published(machine.on_event(T0 + 1, ResizeWanted(app=APP, keep=(W1,), answered=("undrain/w1",))))
    assert machine.state.sizes == {APP: AppSize(leaving=(W2,), changes=(IN,))}
    machine.on_event(T0 + 2, ForgetWanted(answered=(), worker=W2))
    assert machine.state.leaving == frozenset()
    machine.on_event(T0 + 3, ForgetWanted(answered=(), app=APP))
    assert machine.state.sizes == {}


def test_an_answer_without_a_change_only_ends_the_intent() -> None:
    machine = started(W0)
    publish = published(machine.on_event(T0, ResizeWanted(app=None, answered=("undrain/w9",))))
    assert (publish.answered, publish.commands, machine.state.sizes) == (("undrain/w9",), (), {})


def test_changes_are_kept_for_an_hour_and_not_too_many_of_them() -> None:
    machine = started(W0)
    for number in range(MAX_CHANGES + 20):
        machine.on_event(T0 + number, ResizeWanted(app=APP, change=replace(OUT, at=T0 + number)))
    kept = machine.state.sizes[APP].changes
    assert (len(kept), kept[-1].at) == (MAX_CHANGES, T0 + MAX_CHANGES + 19)
    late = T0 + 2 * CHANGES_KEPT_S
    machine.on_event(late, ResizeWanted(app=APP, change=replace(IN, at=late)))
    assert machine.state.sizes[APP].changes == (replace(IN, at=late),)


def test_the_journal_has_sizes_only_where_there_are_any() -> None:
    machine = started(W0)
    plain = machine.state
    assert b"sizes" not in encode_entry(JournalEntry(execution=plain))
    machine.on_event(T0, ResizeWanted(app=APP, start={W2: HOSTS[W2]}, drain=(W1,), change=OUT))
    machine.on_event(T0, ResizeWanted(app=AppId("other"), drain=(W0,)))
    again = decode_entry(encode_entry(JournalEntry(execution=machine.state))).execution
    assert (again.sizes, again.leaving) == (machine.state.sizes, {W0, W1})
    assert again.scalings[W2].of_app == APP
