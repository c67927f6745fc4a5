"""Plans of several apps at the same time, and plans that an operator stops."""

import json
from dataclasses import replace

import pytest

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
    plan,
    published,
    refused,
    released,
    rows,
    started,
)
from tests.narrow import only_one
from trimtab_controller.execution.events import (
    Action,
    ForgetWanted,
    HandoverEnded,
    IntentsAnswered,
    PlacementWanted,
    PlanProposed,
    ProposalDropped,
    Publish,
    ResizeWanted,
    Resumed,
    RoundEnded,
    ScalingWanted,
    StandbysWanted,
    StopWanted,
)
from trimtab_controller.execution.handovers import ACK_GRACE_S
from trimtab_controller.execution.journal import JournalEntry, decode_entry, encode_entry
from trimtab_controller.execution.machine import ExecutionMachine
from trimtab_controller.execution.scalings import CHANGES_KEPT_S, IN_A_ROW_S, MAX_CHANGES
from trimtab_controller.execution.state import (
    AppSize,
    HandMoved,
    HandoverPhase,
    Proposal,
    ScalingPhase,
    SizeChange,
    WorkerScaling,
)
from trimtab_controller.execution.step import FORGOTTEN_S
from trimtab_protocol.messages.commands import CommandKind, Phase, Refusal
from trimtab_protocol.messages.names import AppId, Epoch, WorkerId
from trimtab_protocol.messages.placement import Placement

OTHER = AppId("other")
BOTH = (APP, OTHER)
STOPPED = "stopped by op: too slow"


def stop(app: AppId | None) -> StopWanted:
    return StopWanted(app=app, reason=STOPPED, answered=("stop",))


def phases(machine: ExecutionMachine, app: AppId = APP) -> list[HandoverPhase]:
    return [each.phase for each in machine.state.rounds[app].handovers]


def took(machine: ExecutionMachine, app: AppId) -> list[Action]:
    machine.on_event(T0 + 2, ack(handover(machine, app=app).prepare, Phase.PREPARED, generation=7))
    return machine.on_event(T0 + 3, ack(handover(machine, app=app).prepare, Phase.TOOK))


def test_plans_of_two_apps_are_in_flight_at_the_same_time() -> None:
    machine = started(W0, W0, apps=BOTH)
    machine.on_event(T0, plan((0, W0, W1)))
    second = published(machine.on_event(T0 + 1, plan((0, W0, W1), app=OTHER)))
    assert [placement.app for placement in second.placements] == [OTHER], "the other app's placement stays"
    assert [row.app for row in machine.state.in_flight] == [APP, OTHER]

    ended = took(machine, OTHER)

    assert [action.round.app for action in ended if isinstance(action, RoundEnded)] == [OTHER]
    assert [row.app for row in machine.state.in_flight] == [APP]
    assert phases(machine) == [HandoverPhase.PREPARING]
    machine.on_event(T0 + 4, PlacementWanted(app=OTHER, owners={kg(0, OTHER): W1, kg(1, OTHER): W0}))
    machine.on_event(T0 + 5, ForgetWanted(answered=("forget/app/other",), app=OTHER))
    assert machine.state.changed_at(OTHER) == T0 + 5, "older windows do not bring it back"
    with pytest.raises(ValueError, match="in flight"):
        machine.on_event(T0 + 6, StandbysWanted(app=APP, rows={kg(1): (W0, W2)}))
    assert [action.round.app for action in took(machine, APP) if isinstance(action, RoundEnded)] == [APP]


def test_the_last_round_of_a_forgotten_app_is_dropped_in_the_end() -> None:
    machine = started(W0, W0, apps=BOTH)
    machine.on_event(T0, plan((0, W0, W1), app=OTHER))
    took(machine, OTHER)
    machine.on_event(T0 + 5, ForgetWanted(answered=("forget/app/other",), app=OTHER))

    machine.on_event(T0 + 6, stop(None))
    assert OTHER in machine.state.rounds
    machine.on_event(T0 + 5 + FORGOTTEN_S, stop(None))
    assert OTHER not in machine.state.rounds


def test_a_successor_goes_on_with_the_plans_of_all_apps() -> None:
    machine = started(W0, W0, apps=BOTH)
    machine.on_event(T0, plan((0, W0, W1)))
    alone = json.loads(encode_entry(JournalEntry(execution=machine.state)))
    assert "rounds" not in alone, "the only round is not written twice"
    machine.on_event(T0 + 1, plan((1, W0, W1), app=OTHER))

    entry = encode_entry(JournalEntry(execution=machine.state))
    found = decode_entry(entry).execution

    assert replace(found, placements=machine.state.placements) == machine.state
    assert json.loads(entry)["round"]["app"] == OTHER, "the newest plan in flight"
    successor = ExecutionMachine(CLUSTER, LIMITS, replace(machine.state, generation=2))
    resumed = published(successor.on_event(T0 + 2, Resumed()))
    assert [command.app for command in resumed.commands] == [APP, OTHER]


def test_what_has_ended_is_not_repeated_in_the_journal_for_ever() -> None:
    machine = started(W0, W0, apps=BOTH)
    machine.on_event(T0, plan((0, W0, W1)))
    took(machine, APP)
    assert len(machine.state.rounds[APP].handovers) == 1

    machine.on_event(T0 + 4, plan((0, W0, W1), app=OTHER))

    assert machine.state.rounds[APP].handovers == ()
    assert machine.state.changed_at(APP) == T0 + 3
    assert machine.state.changed_at(OTHER) is None


def test_a_stop_abandons_what_is_prepared_and_begins_nothing() -> None:
    machine = started(W0, W0, W0, limits=replace(LIMITS, key_groups_per_handover=1))
    machine.on_event(T0, plan((0, W0, W1), (1, W0, W1)))

    actions = machine.on_event(T0 + 1, stop(APP))

    publish = published(actions)
    assert publish.answered == ("stop",)
    assert [(command.kind, command.worker) for command in publish.commands] == [(CommandKind.ABANDON, W1)]
    assert rows(publish) == {0: (W0,), 1: (W0,), 2: (W0,)}
    failed = HandoverPhase.FAILED
    ended = [action.handover for action in actions if isinstance(action, HandoverEnded)]
    assert [(each.phase, each.detail) for each in ended] == [(failed, STOPPED), (failed, STOPPED)]
    [over] = [action.round for action in actions if isinstance(action, RoundEnded)]
    assert (over.stopped, over.ended_at) == (STOPPED, T0 + 1)


def test_a_stop_lets_released_key_groups_arrive() -> None:
    machine = started(W0, W0)
    machine.on_event(T0, plan((0, W0, W1)))
    machine.on_event(T0 + 1, ack(handover(machine).prepare, Phase.PREPARED, generation=7))

    publish = only_one(Publish, machine.on_event(T0 + 2, stop(None)))
    assert (publish.commands, publish.placements) == ((), ())
    assert phases(machine) == [HandoverPhase.RELEASING]
    ended = machine.on_event(T0 + 3, ack(handover(machine).prepare, Phase.TOOK))
    assert phases(machine) == [HandoverPhase.DONE]
    assert isinstance(ended[-1], RoundEnded)


def test_a_stopped_hand_over_is_not_tried_again() -> None:
    machine = started(W0, W0)
    machine.on_event(T0, plan((0, W0, W1)))
    machine.on_event(T0 + 1, ack(handover(machine).prepare, Phase.PREPARED, generation=7))
    machine.on_event(T0 + 2, stop(APP))

    actions = machine.on_event(T0 + 3, refused(handover(machine).release, Refusal.NOT_PREPARED))

    assert phases(machine) == [HandoverPhase.FAILED]
    assert [command.kind for command in published(actions).commands] == [CommandKind.ABANDON]
    assert rows(published(actions)) == {0: (W0,), 1: (W0,)}


def test_a_stop_during_the_pause_before_the_next_attempt_closes_the_prepared_state() -> None:
    machine = started(W0, W0)
    machine.on_event(T0, plan((0, W0, W1)))
    machine.on_event(T0 + 1, refused(handover(machine).prepare, Refusal.GENERATION))
    assert phases(machine) == [HandoverPhase.WAITING]

    publish = published(machine.on_event(T0 + 2, stop(APP)))

    assert [command.kind for command in publish.commands] == [CommandKind.ABANDON]
    assert phases(machine) == [HandoverPhase.FAILED]


def test_a_stop_of_one_app_leaves_the_plan_of_another_alone() -> None:
    machine = started(W0, W0, apps=BOTH)
    machine.on_event(T0, plan((0, W0, W1)))
    machine.on_event(T0, plan((0, W0, W1), app=OTHER))

    machine.on_event(T0 + 1, stop(OTHER))

    assert [row.app for row in machine.state.in_flight] == [APP]
    assert (machine.state.rounds[APP].stopped, machine.state.rounds[OTHER].stopped) == (None, STOPPED)


# --- an end for the sake of restores ----------------------------------------------------------------------------------

LOSS = "ended early, since w0 is away"
ONE_EACH = replace(LIMITS, key_groups_per_handover=1)


def end(*lost: WorkerId) -> StopWanted:
    return StopWanted(app=APP, reason=LOSS, lost=frozenset(lost))


def test_the_target_that_restores_what_a_lost_source_had_is_the_next_owner() -> None:
    machine = started(W0, W0, limits=ONE_EACH)
    machine.on_event(T0, plan((0, W0, W1)))

    actions = machine.on_event(T0 + 1, end(W0))

    assert published(actions).commands == (), "it goes on restoring"
    assert rows(published(actions)) == {0: (W0, W1), 1: (W0,)}
    assert handover(machine).detail == f"{LOSS}; w1 is the next owner and goes on restoring"
    assert not machine.state.busy(APP)
    assert decode_entry(encode_entry(JournalEntry(execution=machine.state))).execution.rounds == machine.state.rounds


def test_a_target_that_restores_gives_way_to_a_living_standby() -> None:
    machine = started(W0, W0, limits=ONE_EACH)
    machine.on_event(T0, StandbysWanted(app=APP, rows={kg(0): (W0, W2)}))
    machine.on_event(T0, plan((0, W0, W1)))

    actions = machine.on_event(T0 + 1, end(W0))

    assert [command.kind for command in published(actions).commands] == [CommandKind.ABANDON]
    assert rows(published(actions)) == {0: (W0, W2), 1: (W0,)}


@pytest.mark.parametrize("lost", [W0, W1])
def test_what_is_released_from_or_to_a_lost_worker_is_waited_for_no_longer(lost: WorkerId) -> None:
    machine = started(W0, W0)
    released(machine)

    actions = machine.on_event(T0 + 2, end(lost))

    assert phases(machine) == [HandoverPhase.UNRESOLVED]
    assert published(actions).placements == (), "the placement names the target, and then the source"
    assert not machine.state.busy(APP)


def test_what_is_released_among_the_living_arrives_and_the_rest_does_not_begin() -> None:
    machine = started(W0, W0, limits=ONE_EACH)
    machine.on_event(T0, plan((0, W0, W1), (1, W0, W1)))
    machine.on_event(T0 + 1, ack(handover(machine).prepare, Phase.PREPARED, generation=7))

    machine.on_event(T0 + 2, end(W2))

    assert phases(machine) == [HandoverPhase.RELEASING, HandoverPhase.FAILED]
    machine.on_event(T0 + 3, ack(handover(machine).prepare, Phase.TOOK))
    assert not machine.state.busy(APP)


# ---- plans that wait for approval, and what operators moved, in the execution and its journal


PLAN = plan((0, W0, W1)).plan
PROPOSED = PlanProposed(plan=PLAN, expires_at=T0 + 600)
ROW = Proposal(id="1.2", plan=PLAN, at=T0, expires_at=T0 + 600)


def proposed() -> ExecutionMachine:
    machine = started(W0, W1)
    machine.on_event(T0, PROPOSED)
    return machine


def test_a_successor_knows_the_plan_that_waits_and_what_operators_moved() -> None:
    state = replace(proposed().state, placements={}, hand_moved={kg(1): HandMoved(worker=W1, until=T0 + 9)})
    read = decode_entry(encode_entry(JournalEntry(execution=state))).execution
    assert read == state
    turned_down = replace(state, proposals={APP: ROW.turned_down("by ann: no", T0 + 900)})
    assert decode_entry(encode_entry(JournalEntry(execution=turned_down))).execution == turned_down


def test_an_approved_plan_keeps_its_name_and_waits_no_longer() -> None:
    machine = proposed()
    actions = machine.on_event(T0 + 5, replace(plan((0, W0, W1)), id="1.2", answered=("approve/1.2",)))
    assert published(actions).answered == ("approve/1.2",)
    assert (machine.state.rounds[APP].plan, dict(machine.state.proposals)) == ("1.2", {})
    assert machine.state.rounds[APP].handovers[0].id == "1.3-0"


def test_a_rejected_plan_is_remembered_and_a_withdrawn_one_is_not() -> None:
    rejected = ProposalDropped(
        app=APP, plan="1.2", detail="by ann: no", rejected_until=T0 + 900, answered=("reject/1.2",)
    )
    machine = proposed()
    assert published(machine.on_event(T0 + 5, rejected)).answered == ("reject/1.2",)
    assert dict(machine.state.proposals) == {APP: ROW.turned_down("by ann: no", T0 + 900)}
    machine.on_event(T0 + 6, ProposalDropped(app=APP, plan="1.2", detail="loads"))
    assert dict(machine.state.proposals) == {}


def test_what_is_said_of_another_plan_changes_nothing_but_is_answered() -> None:
    machine = proposed()
    actions = machine.on_event(T0 + 5, ProposalDropped(app=APP, plan="1.1", detail="", answered=("reject/1.1",)))
    assert (published(actions).answered, dict(machine.state.proposals)) == (("reject/1.1",), {APP: ROW})
    assert published(machine.on_event(T0 + 6, IntentsAnswered(answered=("move/1",)))).answered == ("move/1",)


def test_what_an_operator_moved_is_remembered_until_then() -> None:
    machine = started(W0, W1)
    machine.on_event(T0, replace(plan((0, W0, W1)), keep_until=T0 + 100, answered=("move/1",)))
    assert dict(machine.state.hand_moved) == {kg(0): HandMoved(worker=W1, until=T0 + 100)}
    later = ExecutionMachine("c", machine._limits, replace(machine.state, rounds={}))
    later.on_event(T0 + 101, plan((1, W1, W0)))
    assert dict(later.state.hand_moved) == {}


def test_a_forgotten_app_has_no_plan_that_waits() -> None:
    machine = proposed()
    machine.on_event(T0 + 1, ForgetWanted(answered=("forget/app/app",), app=APP))
    assert dict(machine.state.proposals) == {}


# ---- stops and starts of workers, and the sizes of apps, in the execution


def test_an_empty_worker_is_stopped_and_stands_by_for_nobody() -> None:
    machine = started(W0)
    released(machine)
    machine.on_event(T0 + 3, ack(handover(machine).prepare, Phase.TOOK))
    publish = only_one(
        Publish, machine.on_event(T0 + 4, ScalingWanted(kind=CommandKind.STOP, worker=W0, host=HOSTS[W0]))
    )
    [stop] = publish.commands
    assert (stop.kind, stop.host, rows(publish)) == (CommandKind.STOP, HOSTS[W0], {0: (W1,)})
    done = only_one(Publish, machine.on_event(T0 + 5, ack(stop, Phase.STOPPED, exit_code=0)))
    assert done.execution.scalings == {
        W0: WorkerScaling(command=stop, phase=ScalingPhase.DONE, at=T0 + 5, detail="exit code 0")
    }
    assert machine.on_event(T0 + 6, ack(stop, Phase.STOPPED, exit_code=0)) == [], "once more"


def test_a_stop_without_answer_fails_and_a_late_word_is_still_the_truth() -> None:
    machine = started(W1)
    publish = only_one(Publish, machine.on_event(T0, ScalingWanted(kind=CommandKind.STOP, worker=W0, host=HOSTS[W0])))
    assert (publish.placements, machine.wake_at) == ((), T0 + 60 + ACK_GRACE_S)
    machine.on_tick(T0 + 62)
    assert machine.state.scalings[W0].phase is ScalingPhase.FAILED
    machine.on_event(T0 + 70, ack(publish.commands[0], Phase.STOPPED, exit_code=0))
    assert machine.state.scalings[W0].stopped


def test_a_forgotten_app_has_no_placement_and_its_last_word_is_an_empty_one() -> None:
    given = started(W0, W1)
    publish = only_one(Publish, given.on_event(T0, ForgetWanted(answered=("forget/app/app",), app=APP)))
    assert publish.placements == (Placement(cluster="c", app=APP, epoch=Epoch(1, 2), owners={}),)
    assert (publish.answered, dict(publish.execution.placements)) == (("forget/app/app",), {})
    again = only_one(Publish, given.on_event(T0, ForgetWanted(answered=("forget/app/app",), app=APP)))
    assert (again.placements, again.answered) == ((), ("forget/app/app",)), "asked for twice: answered twice"
    back = only_one(Publish, given.on_event(T0, PlacementWanted(app=APP, owners={kg(0): W1})))
    assert back.execution.placements[APP].owners == {OPERATOR: ((W1,),)}, "and when it comes back it has one again"


def test_a_forgotten_worker_is_in_no_scaling_and_stands_by_for_nobody() -> None:
    given = started(W0)
    given.on_event(T0, ScalingWanted(kind=CommandKind.STOP, worker=W1, host=HOSTS[W1]))
    placement = replace(given.state.placements[APP], owners={OPERATOR: ((W0, W1, W2),)})
    given.state = replace(given.state, placements={APP: placement})
    publish = only_one(Publish, given.on_event(T0, ForgetWanted(answered=("forget/worker/w1", "drain/w1"), worker=W1)))
    assert dict(publish.execution.scalings) == {}
    assert publish.execution.placements[APP].owners == {OPERATOR: ((W0, W2),)}
    assert publish.answered == ("forget/worker/w1", "drain/w1")


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
    publish = only_one(Publish, machine.on_event(T0, wanted))
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
