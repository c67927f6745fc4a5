"""Changes of the number of workers: what is started, drained, kept and stopped, also under a successor."""

from dataclasses import replace

from tests.controller.execution.execution_transcripts import (
    APP,
    CLUSTER,
    HOSTS,
    LIMITS,
    T0,
    W0,
    W1,
    W2,
    ack,
    published,
    started,
)
from trimtab_controller.execution.events import ForgetWanted, Publish, ResizeWanted, Resumed, ScalingWanted
from trimtab_controller.execution.handovers import ACK_GRACE_S
from trimtab_controller.execution.journal import JournalEntry, decode_entry, encode_entry
from trimtab_controller.execution.machine import ExecutionMachine
from trimtab_controller.execution.scalings import CHANGES_KEPT_S, MAX_CHANGES
from trimtab_controller.execution.state import AppSize, ScalingPhase, SizeChange
from trimtab_protocol.messages.commands import CommandKind, Phase
from trimtab_protocol.messages.names import AppId

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
