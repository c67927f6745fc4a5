"""Workers are stopped, and stand by for nobody."""

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
    Resumed,
    ScalingWanted,
)
from trimtab_controller.execution.handovers import ACK_GRACE_S
from trimtab_controller.execution.journal import JournalEntry, decode_entry, encode_entry
from trimtab_controller.execution.machine import ExecutionMachine
from trimtab_controller.execution.scalings import IN_A_ROW_S
from trimtab_controller.execution.state import (
    Execution,
    ScalingPhase,
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
