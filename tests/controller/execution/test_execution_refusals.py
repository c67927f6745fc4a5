"""Hand-overs that are refused, or of which nobody speaks."""

import pytest

from tests.controller.execution.execution_transcripts import (
    T0,
    UNCERTAIN,
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
    HandoverEnded,
    Publish,
    RoundEnded,
    WindowSeen,
)
from trimtab_controller.execution.handovers import RESOLVE_TIMEOUTS
from trimtab_controller.execution.machine import ExecutionMachine
from trimtab_controller.execution.state import (
    HandoverPhase,
)
from trimtab_protocol.messages.commands import CommandKind, Phase, Refusal
from trimtab_protocol.messages.decode import MAX_MESSAGE_BYTES
from trimtab_protocol.messages.names import Epoch


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
    assert machine.on_event(T0 + 30, WindowSeen(start_s=T0 + 22.9, end_s=T0 + 22.9, owners={kg(0): W1})) == [], (
        "began too early"
    )
    assert machine.on_event(T0 + 30, WindowSeen(start_s=T0 + 23, end_s=T0 + 23, owners={})) == [], (
        "not reported is not known"
    )
    machine.on_event(T0 + 30, WindowSeen(start_s=T0 + 23, end_s=T0 + 23, owners={kg(0): W1}))
    assert handover(machine).phase is HandoverPhase.DONE

    machine = unclear()
    back = published(machine.on_event(T0 + 30, WindowSeen(start_s=T0 + 23, end_s=T0 + 23, owners={kg(0): W0})))
    assert (handover(machine).phase, rows(back)) == (HandoverPhase.WAITING, {0: (W0,)}), "another attempt is left"

    machine = unclear()
    other = published(machine.on_event(T0 + 30, WindowSeen(start_s=T0 + 23, end_s=T0 + 23, owners={kg(0): W2})))
    assert (handover(machine).phase, rows(other)) == (HandoverPhase.FAILED, {0: (W2,)})

    machine = unclear()
    late = machine.on_event(T0 + 30, ack(handover(machine).prepare, Phase.TOOK, pause_s=9.0))
    assert handover(machine).phase is HandoverPhase.DONE
    assert published(late).placements == ()


def test_what_the_target_gave_back_stays_at_its_source_without_another_attempt() -> None:
    machine = started(W0)
    machine.on_event(T0 + 5, refused(released(machine).prepare, Refusal.CATCH_UP_TIMEOUT))
    back = published(machine.on_event(T0 + 30, WindowSeen(start_s=T0 + 10, end_s=T0 + 10, owners={kg(0): W0})))

    row = handover(machine)
    assert (row.phase, row.refusal, rows(back)) == (HandoverPhase.FAILED, Refusal.CATCH_UP_TIMEOUT, {0: (W0,)})
    assert "catch_up_timeout" in (row.detail or "")
    assert [command.kind for command in back.commands] == [CommandKind.ABANDON]


def given_up() -> ExecutionMachine:
    """The first attempt was released; the reports showed it at the source: it waits for the next one."""
    machine = started(W0)
    released(machine)
    machine.on_tick(T0 + 23)
    machine.on_event(T0 + 30, WindowSeen(start_s=T0 + 23, end_s=T0 + 23, owners={kg(0): W0}))
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
