"""The execution machine: how plans are carried out, and what placements and successors follow."""

from dataclasses import replace

import pytest

from tests.controller.execution.execution_transcripts import (
    APP,
    BEGUN,
    CLUSTER,
    HOSTS,
    LIMITS,
    PREPARE,
    PREPARING,
    RELEASE,
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
from trimtab_controller.execution.disruption import Disruption, Pauses
from trimtab_controller.execution.events import (
    AckSeen,
    HandoverEnded,
    PlacementWanted,
    Publish,
    RestoreEnded,
    Resumed,
    RoundEnded,
    WindowSeen,
)
from trimtab_controller.execution.machine import ExecutionMachine
from trimtab_controller.execution.state import (
    Execution,
    HandoverPhase,
)
from trimtab_protocol.messages.commands import CommandKind, Phase, Refusal
from trimtab_protocol.messages.names import Epoch, HostId


def test_a_plan_begins_with_a_prepare_and_the_target_stands_by() -> None:
    [begun] = started(W0, W0).on_event(T0, plan((0, W0, W1)))

    assert isinstance(begun, Publish)
    assert begun.commands == (PREPARE,)
    assert rows(begun) == {0: (W0, W1), 1: (W0,)}, "the owner stays, the target is its first standby"
    assert begun.placements[0].epoch == Epoch(1, 2)
    assert begun.execution == replace(
        begun.execution, generation=1, number=2, rounds={APP: BEGUN}, placements={APP: begun.placements[0]}
    )


def test_a_hand_over_goes_from_prepared_over_its_release_to_its_end() -> None:
    machine = started(W0, W0)
    machine.on_event(T0, plan((0, W0, W1)))

    [given, warm] = machine.on_event(
        T0 + 1, ack(PREPARE, Phase.PREPARED, generation=7, lag_records=3, state_bytes=5000)
    )
    assert isinstance(given, Publish)
    assert warm == RestoreEnded(handover=PREPARING, seconds=1.0)
    assert given.commands == (RELEASE,)
    assert rows(given) == {0: (W1, W0), 1: (W0,)}, "the target owns, the source stands by"

    assert machine.on_event(T0 + 2, ack(RELEASE, Phase.RELEASED)) == []

    ended = machine.on_event(T0 + 3, ack(PREPARE, Phase.TOOK, pause_s=0.2))
    done = replace(
        PREPARING,
        phase=HandoverPhase.DONE,
        since=T0 + 3,
        wake_at=None,
        release=RELEASE,
        state_bytes=5000,
        pause_s=0.2,
    )
    over = replace(BEGUN, handovers=(done,), ended_at=T0 + 3)
    row = Pauses(began_at=T0 + 3, ended_at=T0 + 3, measured_s=0.2, key_groups=1)
    paused = Disruption(apps={APP: (row,)})
    assert ended == [
        Publish(execution=replace(given.execution, number=4, rounds={APP: over}, disruption=paused)),
        HandoverEnded(handover=done),
        RoundEnded(round=over),
    ]
    assert (machine.wake_at, machine.on_tick(T0 + 1000)) == (None, [])
    assert machine.on_event(T0 + 4, ack(PREPARE, Phase.TOOK, pause_s=0.2)) == [], "once more"


def test_nothing_is_taken_that_was_not_released() -> None:
    machine = started(W0)
    machine.on_event(T0, plan((0, W0, W1)))
    before = machine.state

    assert machine.on_event(T0 + 1, ack(PREPARE, Phase.TOOK, pause_s=0.1)) == []
    assert machine.state is before


def test_what_a_plan_found_elsewhere_goes_back_to_where_it_was_found() -> None:
    machine = started(W2)

    machine.on_event(T0, plan((0, W0, W1)))
    back = published(machine.on_event(T0 + 1, refused(handover(machine).prepare, Refusal.GUARD)))

    assert handover(machine).previous == ((W0,),)
    assert rows(back) == {0: (W0,)}


def test_each_further_attempt_waits_longer() -> None:
    machine = started(W0, limits=replace(LIMITS, attempts=3))
    machine.on_event(T0, plan((0, W0, W1)))
    waits = []
    for _ in range(2):
        machine.on_event(T0, refused(handover(machine).prepare, Refusal.GENERATION))
        waits.append((machine.wake_at or T0) - T0)
        machine.on_tick(T0 + 10)

    assert waits == [2.0, 4.0]


def test_key_groups_of_one_hand_over_that_the_reports_show_apart_stay_where_they_are() -> None:
    machine = started(W0, W0)
    machine.on_event(T0, plan((0, W0, W1), (1, W0, W1)))
    machine.on_event(T0 + 1, ack(handover(machine).prepare, Phase.PREPARED, generation=7))
    machine.on_tick(T0 + 23)

    apart = published(
        machine.on_event(T0 + 40, WindowSeen(start_s=T0 + 30, end_s=T0 + 30, owners={kg(0): W1, kg(1): W0}))
    )

    assert handover(machine).phase is HandoverPhase.FAILED
    assert rows(apart) == {0: (W1,), 1: (W0,)}


def test_moves_are_grouped_by_pair_and_limited_in_size_and_number() -> None:
    machine = started(W0, W0, W0, W1, limits=replace(LIMITS, handovers_in_flight=2))
    moves = ((3, W1, W2), (0, W0, W1), (1, W0, W1), (2, W0, W1))
    begun = published(machine.on_event(T0, plan(*moves)))
    assert [(c.target, c.key_groups) for c in begun.commands] == [(W2, (kg(3),)), (W1, (kg(0), kg(1)))]
    assert [row.phase for row in machine.state.rounds[APP].handovers] == [  # type: ignore[union-attr]
        HandoverPhase.PREPARING,
        HandoverPhase.PREPARING,
        HandoverPhase.WAITING,
    ], "w1 gives away first, then receives"


def test_a_free_place_is_taken_in_the_publication_that_frees_it() -> None:
    machine = started(W0, W0, limits=replace(LIMITS, key_groups_per_handover=1))
    machine.on_event(T0, plan((0, W0, W1), (1, W0, W1)))
    machine.on_event(T0, ack(handover(machine).prepare, Phase.PREPARED, generation=7))
    first = handover(machine)
    done, ended = machine.on_event(T0, ack(first.prepare, Phase.TOOK, pause_s=0.1))
    assert isinstance(done, Publish)
    assert [(c.kind, c.key_groups) for c in done.commands] == [(CommandKind.PREPARE, (kg(1),))]
    assert rows(done) == {0: (W1, W0), 1: (W0, W1)}
    assert ended == HandoverEnded(handover=handover(machine))


@pytest.mark.parametrize(
    "change",
    [{"host": HostId("h9")}, {"worker": W2}, {"command_id": "0" * 32}],
)
def test_an_ack_from_somebody_else_changes_nothing(change: dict[str, object]) -> None:
    machine = started(W0)
    machine.on_event(T0, plan((0, W0, W1)))
    before = machine.state
    told = ack(handover(machine).prepare, Phase.PREPARED, generation=7).ack
    assert machine.on_event(T0, AckSeen(ack=replace(told, **change))) == []  # type: ignore[arg-type]
    assert machine.state is before


def test_repeats_and_spurious_ticks_change_nothing() -> None:
    machine = started(W0)
    row = released(machine)
    before = machine.state
    assert machine.on_event(T0 + 2, ack(row.prepare, Phase.PREPARED, generation=7)) == []
    assert machine.on_event(T0 + 2, ack(row.prepare, Phase.ACCEPTED)) == []
    assert machine.on_tick(T0 + 2) == []
    assert machine.state is before


def test_a_successor_publishes_the_commands_in_flight_with_their_ids() -> None:
    machine = started(W0)
    row = released(machine)
    successor = ExecutionMachine(CLUSTER, LIMITS, replace(machine.state, generation=2))
    [again] = successor.on_event(T0 + 5, Resumed(answered=("accept-journal",)))
    assert isinstance(again, Publish)
    assert (again.commands, again.placements, again.answered) == ((row.release,), (), ("accept-journal",))
    assert again.execution.epoch == Epoch(2, 4)
    assert successor.state.hosts == {HOSTS[W0], HOSTS[W1]}, "their answers are waited for"
    over = published(successor.on_event(T0 + 6, ack(row.prepare, Phase.TOOK, pause_s=0.1)))
    assert (over.execution.busy(APP), over.execution.epoch) == (False, Epoch(2, 5))


def test_a_standby_that_owns_is_no_standby_any_more() -> None:
    machine = started(W0)
    released(machine)
    machine.on_event(T0 + 3, ack(handover(machine).prepare, Phase.TOOK))
    assert rows(published(machine.on_event(T0 + 4, PlacementWanted(app=APP, owners={kg(0): W0})))) == {0: (W0,)}


def test_a_placement_follows_the_reports() -> None:
    machine = started(W0, W0)
    released(machine)
    machine.on_event(T0 + 3, ack(handover(machine).prepare, Phase.TOOK))
    [publish] = machine.on_event(T0 + 4, PlacementWanted(app=APP, owners={kg(0): W1, kg(1): W2, kg(2): W2}))
    assert isinstance(publish, Publish)
    assert rows(publish) == {0: (W1, W0), 1: (W2,), 2: (W2,)}, "standbys stay, a new key group is added"
    assert publish.placements[0].epoch == publish.execution.epoch == Epoch(1, 5)


def test_a_plan_needs_a_placement_to_go_back_to() -> None:
    machine = ExecutionMachine(CLUSTER, LIMITS, Execution(generation=1))
    with pytest.raises(ValueError, match="a plan needs a published placement"):
        machine.on_event(T0, plan((0, W0, W1)))


def test_one_plan_in_flight() -> None:
    machine = started(W0, W0)
    machine.on_event(T0, plan((0, W0, W1)))
    before = machine.state
    for event in (plan((1, W0, W1)), PlacementWanted(app=APP, owners={kg(0): W2})):
        with pytest.raises(ValueError, match="in flight"):
            machine.on_event(T0, event)
    assert machine.state is before
