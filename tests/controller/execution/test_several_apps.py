"""Plans of several apps at the same time, and plans that an operator stops."""

import json
from dataclasses import replace

import pytest

from tests.controller.execution.execution_transcripts import (
    APP,
    CLUSTER,
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
    rows,
    started,
)
from trimtab_controller.execution.events import (
    Action,
    ForgetWanted,
    HandoverEnded,
    PlacementWanted,
    Publish,
    Resumed,
    RoundEnded,
    StandbysWanted,
    StopWanted,
)
from trimtab_controller.execution.journal import JournalEntry, decode_entry, encode_entry
from trimtab_controller.execution.machine import ExecutionMachine
from trimtab_controller.execution.state import HandoverPhase
from trimtab_controller.execution.step import FORGOTTEN_S
from trimtab_protocol.messages.commands import CommandKind, Phase, Refusal
from trimtab_protocol.messages.names import AppId, WorkerId

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


def test_each_app_has_its_hand_overs_and_a_host_at_most_so_many() -> None:
    limits = replace(LIMITS, handovers_in_flight=2, key_groups_per_handover=1, handovers_per_host=3)
    machine = started(W0, W0, W0, apps=BOTH, limits=limits)
    machine.on_event(T0, plan((0, W0, W1), (1, W0, W1), (2, W0, W1)))
    machine.on_event(T0, plan((0, W0, W2), (1, W0, W2), app=OTHER))

    waiting, preparing = HandoverPhase.WAITING, HandoverPhase.PREPARING
    assert phases(machine) == [preparing, preparing, waiting], "two of each app"
    assert phases(machine, OTHER) == [preparing, waiting], "three from and to the host of w0"


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

    [publish] = machine.on_event(T0 + 2, stop(None))

    assert isinstance(publish, Publish)
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


def test_a_stop_without_a_plan_is_answered_too() -> None:
    [publish] = started(W0, W0).on_event(T0, stop(None))
    assert isinstance(publish, Publish)
    assert (publish.answered, publish.commands, publish.placements) == (("stop",), (), ())


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
