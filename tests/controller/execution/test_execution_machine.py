"""The execution machine: situation, event, and the whole list of actions."""

from dataclasses import replace

import pytest

from trimtab_controller.execution.answers import ACK_GRACE_S
from trimtab_controller.execution.events import (
    AckSeen,
    Action,
    HandoverEnded,
    Limits,
    OwnershipSeen,
    PlacementWanted,
    PlanDecided,
    Publish,
    Resumed,
    RoundEnded,
    ScalingWanted,
)
from trimtab_controller.execution.handovers import RESOLVE_TIMEOUTS
from trimtab_controller.execution.machine import ExecutionMachine
from trimtab_controller.execution.state import (
    Execution,
    Handover,
    HandoverPhase,
    Round,
    Scaling,
    ScalingPhase,
    placement_of,
)
from trimtab_controller.plan import Move, Plan
from trimtab_models.messages.commands import Ack, Command, CommandKind, Phase, Refusal
from trimtab_models.messages.decode import MAX_MESSAGE_BYTES
from trimtab_models.messages.names import AppId, Epoch, HostId, KeyGroup, OperatorId, WorkerId
from trimtab_models.messages.placement import Owners

CLUSTER, APP, OPERATOR = "c", AppId("app"), OperatorId("sums")
W0, W1, W2 = WorkerId("w0"), WorkerId("w1"), WorkerId("w2")
HOSTS = {W0: HostId("h0"), W1: HostId("h1"), W2: HostId("h2")}
UNCERTAIN = (
    Refusal.GENERATION,
    Refusal.FAILED,
    Refusal.COMMIT_REFUSED,
    Refusal.WORKER_AWAY,
    Refusal.PRECONDITION,
)
LIMITS = Limits(
    handovers_in_flight=1, key_groups_per_handover=2, prepare_timeout_s=60.0, handover_timeout_s=20.0, attempts=2
)
T0 = 1000.0


def kg(partition: int) -> KeyGroup:
    return KeyGroup(APP, OPERATOR, partition)


def started(*owners: WorkerId, generation: int = 1, limits: Limits = LIMITS) -> ExecutionMachine:
    """A machine whose placement names these owners of key groups 0, 1, ... under epoch 1.1."""
    placement = placement_of(CLUSTER, APP, Epoch(1, 1), {kg(p): owner for p, owner in enumerate(owners)}, None)
    return ExecutionMachine(CLUSTER, limits, Execution(generation=generation, number=1, placements={APP: placement}))


def plan(*moves: tuple[int, WorkerId, WorkerId]) -> PlanDecided:
    return PlanDecided(
        plan=Plan(
            app=APP,
            reason="load distance 18.4 above 5.0",
            moves=tuple(
                Move(key_group=kg(partition), source=source, target=target, state_bytes=100)
                for partition, source, target in moves
            ),
            hosts=HOSTS,
            before=18.4,
            planned=1.1,
            lower_bound=1.1,
            status="optimal",
        )
    )


def published(actions: list[Action]) -> Publish:
    [found] = [action for action in actions if isinstance(action, Publish)]
    return found


def rows(publish: Publish) -> dict[int, Owners]:
    """The owners in the one placement that is published."""
    [placement] = publish.placements
    return dict(enumerate(placement.owners[OPERATOR]))


def ack(command: Command | None, phase: Phase, **values: object) -> AckSeen:
    assert command is not None
    return AckSeen(ack=Ack.to(command, phase, at=T0, **values))


def refused(command: Command | None, refusal: Refusal) -> AckSeen:
    return ack(command, Phase.REFUSED, refusal=refusal)


def handover(machine: ExecutionMachine, index: int = 0) -> Handover:
    assert machine.state.round is not None
    return machine.state.round.handovers[index]


def released(machine: ExecutionMachine) -> Handover:
    """The first hand-over, up to its release."""
    machine.on_event(T0, plan((0, W0, W1)))
    machine.on_event(T0 + 1, ack(handover(machine).prepare, Phase.PREPARED, generation=7, lag_records=3))
    return handover(machine)


PREPARE = Command(
    cluster=CLUSTER,
    kind=CommandKind.PREPARE,
    epoch=Epoch(1, 2),
    host=HOSTS[W1],
    worker=W1,
    app=APP,
    issued_at=T0,
    deadline=T0 + 60,
    handover="1.2-0",
    key_groups=(kg(0),),
    source=W0,
    target=W1,
)
RELEASE = replace(
    PREPARE,
    kind=CommandKind.RELEASE,
    epoch=Epoch(1, 3),
    host=HOSTS[W0],
    worker=W0,
    issued_at=T0 + 1,
    deadline=T0 + 21,
    generation=7,
)
PREPARING = Handover(
    id="1.2-0",
    key_groups=(kg(0),),
    previous=((W0,),),
    source=W0,
    target=W1,
    source_host=HOSTS[W0],
    target_host=HOSTS[W1],
    state_bytes=100,
    since=T0,
    phase=HandoverPhase.PREPARING,
    attempt=1,
    wake_at=T0 + 60 + ACK_GRACE_S,
    prepare=PREPARE,
)
BEGUN = Round(
    plan="1.2",
    app=APP,
    reason="load distance 18.4 above 5.0",
    status="optimal",
    fallback=False,
    before=18.4,
    planned=1.1,
    lower_bound=1.1,
    started_at=T0,
    handovers=(PREPARING,),
)


def test_a_plan_begins_with_a_prepare_and_the_target_stands_by() -> None:
    [begun] = started(W0, W0).on_event(T0, plan((0, W0, W1)))

    assert isinstance(begun, Publish)
    assert begun.commands == (PREPARE,)
    assert rows(begun) == {0: (W0, W1), 1: (W0,)}, "the owner stays, the target is its first standby"
    assert begun.placements[0].epoch == Epoch(1, 2)
    assert begun.execution == replace(
        begun.execution, generation=1, number=2, round=BEGUN, placements={APP: begun.placements[0]}
    )


def test_a_hand_over_goes_from_prepared_over_its_release_to_its_end() -> None:
    machine = started(W0, W0)
    machine.on_event(T0, plan((0, W0, W1)))

    [given] = machine.on_event(T0 + 1, ack(PREPARE, Phase.PREPARED, generation=7, lag_records=3, state_bytes=5000))
    assert isinstance(given, Publish)
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
    assert ended == [
        Publish(execution=replace(given.execution, number=4, round=over)),
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

    apart = published(machine.on_event(T0 + 40, OwnershipSeen(start_s=T0 + 30, owners={kg(0): W1, kg(1): W0})))

    assert handover(machine).phase is HandoverPhase.FAILED
    assert rows(apart) == {0: (W1,), 1: (W0,)}


def test_moves_are_grouped_by_pair_and_limited_in_size_and_number() -> None:
    machine = started(W0, W0, W0, W1, limits=replace(LIMITS, handovers_in_flight=2))
    moves = ((3, W1, W2), (0, W0, W1), (1, W0, W1), (2, W0, W1))
    begun = published(machine.on_event(T0, plan(*moves)))
    assert [(c.target, c.key_groups) for c in begun.commands] == [(W2, (kg(3),)), (W1, (kg(0), kg(1)))]
    assert [row.phase for row in machine.state.round.handovers] == [  # type: ignore[union-attr]
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


@pytest.mark.parametrize("refusal", [Refusal.GUARD, Refusal.PRECONDITION, Refusal.CATCH_UP_TIMEOUT])
def test_a_refused_prepare_ends_in_the_previous_placement_under_a_new_epoch(refusal: Refusal) -> None:
    machine = started(W0)
    machine.on_event(T0, plan((0, W0, W1)))
    prepare = handover(machine).prepare
    publish, failed, over = machine.on_event(T0 + 1, refused(prepare, refusal))
    assert isinstance(publish, Publish)
    assert (rows(publish), publish.placements[0].epoch) == ({0: (W0,)}, Epoch(1, 3))
    assert [(c.kind, c.worker, c.handover) for c in publish.commands] == [(CommandKind.ABANDON, W1, "1.2-0")]
    assert failed == HandoverEnded(handover=handover(machine))
    assert handover(machine).phase is HandoverPhase.FAILED
    assert isinstance(over, RoundEnded)
    assert machine.on_event(T0 + 2, ack(prepare, Phase.PREPARED, generation=7)) == [], "too late"


@pytest.mark.parametrize("refusal", [Refusal.GENERATION, Refusal.NOT_PREPARED, Refusal.OLD_EPOCH])
def test_what_passes_is_prepared_for_again_until_the_attempts_are_used_up(refusal: Refusal) -> None:
    machine = started(W0)
    machine.on_event(T0, plan((0, W0, W1)))
    first = handover(machine).prepare
    [back] = machine.on_event(T0, refused(first, refusal))
    assert isinstance(back, Publish)
    assert (rows(back), back.commands, machine.wake_at) == ({0: (W0,)}, (), T0 + 2.0)
    assert machine.on_tick(T0 + 1.9) == []
    [again] = machine.on_tick(T0 + 2.0)
    assert isinstance(again, Publish)
    [second] = again.commands
    assert (second.kind, second.epoch, second.id != first.id) == (CommandKind.PREPARE, Epoch(1, 4), True)  # type: ignore[union-attr]
    assert machine.on_event(T0 + 3, ack(first, Phase.PREPARED, generation=7)) == [], "of the first attempt"
    last = published(machine.on_event(T0 + 3, refused(second, refusal)))
    assert (handover(machine).phase, rows(last)) == (HandoverPhase.FAILED, {0: (W0,)})


def test_a_prepare_without_answer_is_abandoned() -> None:
    machine = started(W0)
    machine.on_event(T0, plan((0, W0, W1)))
    assert machine.on_tick(T0 + 61) == []
    publish = published(machine.on_tick(T0 + 62))
    assert [c.kind for c in publish.commands] == [CommandKind.ABANDON]
    assert (rows(publish), handover(machine).phase) == ({0: (W0,)}, HandoverPhase.FAILED)


def test_a_release_refused_for_sure_gives_back_at_once() -> None:
    machine = started(W0)
    publish = published(machine.on_event(T0 + 2, refused(released(machine).release, Refusal.DRAIN_TIMEOUT)))
    assert (rows(publish), handover(machine).phase) == ({0: (W0,)}, HandoverPhase.FAILED)


@pytest.mark.parametrize(
    "word",
    [
        *(lambda row, refusal=refusal: refused(row.release, refusal) for refusal in UNCERTAIN),
        lambda row: ack(row.release, Phase.EXPIRED),
        lambda row: refused(row.prepare, Refusal.COMMIT_REFUSED),
        None,
    ],
)
def test_after_an_unclear_release_the_reports_decide(word: object) -> None:
    def unclear() -> ExecutionMachine:
        machine = started(W0)
        row = released(machine)
        actions = machine.on_event(T0 + 23, word(row)) if callable(word) else machine.on_tick(T0 + 23)
        assert published(actions).placements == (), "the placement names the target until more is known"
        assert handover(machine).phase is HandoverPhase.RESOLVING
        return machine

    machine = unclear()
    assert machine.on_event(T0 + 30, OwnershipSeen(start_s=T0 + 22.9, owners={kg(0): W1})) == [], "began too early"
    assert machine.on_event(T0 + 30, OwnershipSeen(start_s=T0 + 23, owners={})) == [], "not reported is not known"
    machine.on_event(T0 + 30, OwnershipSeen(start_s=T0 + 23, owners={kg(0): W1}))
    assert handover(machine).phase is HandoverPhase.DONE

    machine = unclear()
    back = published(machine.on_event(T0 + 30, OwnershipSeen(start_s=T0 + 23, owners={kg(0): W0})))
    assert (handover(machine).phase, rows(back)) == (HandoverPhase.WAITING, {0: (W0,)}), "another attempt is left"

    machine = unclear()
    other = published(machine.on_event(T0 + 30, OwnershipSeen(start_s=T0 + 23, owners={kg(0): W2})))
    assert (handover(machine).phase, rows(other)) == (HandoverPhase.FAILED, {0: (W2,)})

    machine = unclear()
    late = machine.on_event(T0 + 30, ack(handover(machine).prepare, Phase.TOOK, pause_s=9.0))
    assert handover(machine).phase is HandoverPhase.DONE
    assert published(late).placements == ()


def given_up() -> ExecutionMachine:
    """The first attempt was released; the reports showed it at the source: it waits for the next one."""
    machine = started(W0)
    released(machine)
    machine.on_tick(T0 + 23)
    machine.on_event(T0 + 30, OwnershipSeen(start_s=T0 + 23, owners={kg(0): W0}))
    assert handover(machine).phase is HandoverPhase.WAITING
    return machine


def test_what_was_given_up_too_early_is_done_and_the_placement_follows() -> None:
    machine = given_up()
    late = published(machine.on_event(T0 + 31, ack(handover(machine).prepare, Phase.TOOK, pause_s=9.0)))
    assert (handover(machine).phase, rows(late)) == (HandoverPhase.DONE, {0: (W1, W0)})


def test_the_next_attempt_knows_nothing_of_the_last_one_s_release() -> None:
    machine = given_up()
    first = handover(machine)
    assert machine.on_event(T0 + 31, refused(first.prepare, Refusal.COMMIT_REFUSED)) == []
    machine.on_tick(T0 + 32)
    again = handover(machine)
    assert (again.phase, again.attempt, again.release) == (HandoverPhase.PREPARING, 2, None)
    for word in (ack(first.release, Phase.EXPIRED), ack(again.prepare, Phase.TOOK)):
        assert machine.on_event(T0 + 33, word) == []


def test_a_release_that_nobody_can_tell_anything_about_ends_all_the_same() -> None:
    machine = started(W0)
    released(machine)
    machine.on_tick(T0 + 23)
    limit = T0 + 23 + RESOLVE_TIMEOUTS * 20
    assert machine.on_tick(limit - 0.1) == []
    publish, ended, over = machine.on_tick(limit)
    assert isinstance(publish, Publish)
    assert (publish.placements, publish.commands) == ((), ())
    assert handover(machine).phase is HandoverPhase.UNRESOLVED
    assert (type(ended), type(over)) == (HandoverEnded, RoundEnded)


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
    [again] = successor.on_event(T0 + 5, Resumed())
    assert isinstance(again, Publish)
    assert (again.commands, again.placements) == ((row.release,), ())
    assert again.execution.epoch == Epoch(2, 4)
    assert successor.state.hosts == {HOSTS[W0], HOSTS[W1]}, "their answers are waited for"
    over = published(successor.on_event(T0 + 6, ack(row.prepare, Phase.TOOK, pause_s=0.1)))
    assert (over.execution.busy, over.execution.epoch) == (False, Epoch(2, 5))


def test_a_successor_repeats_a_stop_that_nobody_has_answered() -> None:
    machine = started(W1)
    stop = published(machine.on_event(T0, ScalingWanted(kind=CommandKind.STOP, worker=W0, host=HOSTS[W0])))
    successor = ExecutionMachine(CLUSTER, LIMITS, replace(machine.state, generation=2))
    assert published(successor.on_event(T0 + 5, Resumed())).commands == stop.commands


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
        W0: Scaling(command=stop, phase=ScalingPhase.DONE, at=T0 + 5, detail="exit code 0")
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


def test_what_an_agent_gives_as_its_reason_is_cut_for_a_thousand_of_them_are_one_message() -> None:
    machine = started(W0, W0)
    machine.on_event(T0, plan((0, W0, W1)))
    machine.on_event(
        T0 + 1, ack(handover(machine).prepare, Phase.REFUSED, refusal=Refusal.GUARD, detail="\U0001f600" * 4000)
    )
    told = handover(machine).detail
    assert told is not None
    assert told.startswith("w1 on h1: guard (\U0001f600")
    assert 1000 * len(told.encode()) < MAX_MESSAGE_BYTES / 8
