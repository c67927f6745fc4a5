"""The command machine when the agent begins again, as transcripts: held, restored, after damage."""

import pytest

from tests.agent.commands.agent_transcripts import (
    NOW,
    PROCESS,
    W0,
    W1,
    ack,
    act,
    admitted,
    command,
    connected,
    machine,
    owning,
    reborn,
    received,
)
from trimtab_agent.commands.command_checks import FUTURE_LIMIT_S
from trimtab_agent.commands.events import (
    AckDelivered,
    Damaged,
    Delivered,
    ProcessNoted,
    SendAck,
    StartProcess,
    StopProcess,
    TellWorker,
    WorkerAcked,
    Write,
)
from trimtab_protocol.messages.commands import CommandKind, Phase, Refusal
from trimtab_protocol.messages.decode import BadMessage, Fault


def test_just_after_the_start_commands_wait_for_their_workers() -> None:
    m = machine(started_at=NOW - 1)
    rejoin = command(CommandKind.REJOIN)

    assert (act(m, received(rejoin)), m.holding, m.wake_at) == ([], True, NOW + 4)
    assert m.on_tick(NOW + 1) == ()
    assert act(m, connected(), NOW + 2) == [*admitted(rejoin, at=NOW + 2), TellWorker(worker=W0, command=rejoin)]
    assert not m.holding


def test_a_stop_waits_for_the_first_report() -> None:
    m = machine(started_at=NOW - 1)
    stop = command(CommandKind.STOP)

    assert [*act(m, received(stop)), *act(m, connected())] == []
    assert act(m, owning())[-1] == StopProcess(worker=W0, process=PROCESS)


def test_a_restart_sends_what_may_not_have_arrived_and_asks_the_worker_again() -> None:
    m = machine(connected(), owning(3))
    release = command(CommandKind.RELEASE)
    act(m, received(release))
    assert act(m, AckDelivered(command_id=release.id, phase=Phase.ACCEPTED)) == [
        Write(entry=Delivered(command_id=release.id, phase=Phase.ACCEPTED))
    ]
    after = reborn(m)
    assert after.resume() == ()
    assert act(after, connected()) == [TellWorker(worker=W0, command=release)]

    act(after, WorkerAcked(worker=W0, ack=ack(release, Phase.RELEASED)))
    again = reborn(after)
    assert list(again.resume()) == [SendAck(ack=ack(release, Phase.RELEASED))]
    assert act(again, connected()) == []


def test_a_restart_goes_on_with_scaling() -> None:
    m = machine(connected(), owning())
    start, stop = command(CommandKind.START, worker=W1), command(CommandKind.STOP)
    act(m, received(start))
    act(m, received(stop))

    assert list(reborn(m).resume()) == [
        SendAck(ack=ack(start, Phase.ACCEPTED)),
        SendAck(ack=ack(stop, Phase.ACCEPTED)),
        StartProcess(worker=W1),
        StopProcess(worker=W0, process=PROCESS),
    ]


def test_a_stop_whose_process_a_damaged_journal_has_lost_is_not_begun_again() -> None:
    m = machine(connected(), owning())
    act(m, received(command(CommandKind.STOP)))
    fresh = machine()
    fresh.restore(entry for entry in m.entries() if not isinstance(entry, ProcessNoted))

    assert [type(action) for action in fresh.resume()] == [SendAck]


def test_a_restart_keeps_the_highest_epoch() -> None:
    m = machine(connected(), owning(3), received(command(CommandKind.REJOIN, 9)))
    old = command(CommandKind.RELEASE, 8)

    after = reborn(m, at=NOW - 100)
    act(after, connected())
    assert act(after, received(old)) == admitted(
        old, Phase.REFUSED, refusal=Refusal.OLD_EPOCH, detail="epoch 1.8, but 1.9 has been seen"
    )


def test_after_damage_older_commands_are_refused_and_newer_ones_are_not() -> None:
    m = machine(connected(), owning(3))
    m.restore([Damaged(at=NOW)])
    later = NOW + FUTURE_LIMIT_S + 1
    old = command(CommandKind.RELEASE, 5, issued_at=later - 1, deadline=later + 60)
    new = command(CommandKind.RELEASE, 6, issued_at=later, deadline=later + 60)
    detail = "the agent's journal was damaged: this command may have been carried out before"

    assert act(m, received(old)) == admitted(old, Phase.REFUSED, refusal=Refusal.FAILED, detail=detail)
    assert act(m, received(new), later)[-1] == TellWorker(worker=W0, command=new)
    assert Damaged(at=NOW) in list(reborn(m).entries())


def test_an_id_that_comes_again_with_other_content_is_refused_and_changes_nothing() -> None:
    release, other = command(CommandKind.RELEASE), command(CommandKind.RELEASE, generation=5)
    assert release.id == other.id
    on = machine(connected(), owning(3), received(release))
    before = list(on.entries())

    for present in (on, reborn(on)):
        with pytest.raises(BadMessage) as refused:
            present.on_event(NOW, received(other))
        assert refused.value.fault is Fault.REPEATED
    assert list(on.entries()) == before
    assert [type(action) for action in act(on, received(release))] == [SendAck]


def test_what_is_held_is_held_once_and_with_one_content() -> None:
    on = machine(started_at=NOW)
    release, other = command(CommandKind.RELEASE), command(CommandKind.RELEASE, generation=5)
    act(on, received(release))
    act(on, received(release))

    with pytest.raises(BadMessage):
        on.on_event(NOW, received(other))

    act(on, owning(3))
    assert act(on, connected()) == [*admitted(release), TellWorker(worker=W0, command=release)]
