"""The ways of a command through the machine, as transcripts: carried out, repeated, refused."""

from dataclasses import replace
from typing import Any

import pytest

from tests.agent.commands.agent_transcripts import (
    NOW,
    PROCESS,
    W0,
    W1,
    W9,
    ack,
    act,
    admitted,
    answered,
    command,
    connected,
    key_groups,
    machine,
    owning,
    reborn,
    received,
)
from trimtab_agent.commands import ledger
from trimtab_agent.commands.command_checks import FUTURE_LIMIT_S
from trimtab_agent.commands.events import (
    AckDelivered,
    Acked,
    Admitted,
    CommandReceived,
    Damaged,
    Delivered,
    ProcessEnded,
    ProcessNoted,
    SendAck,
    StartProcess,
    StopProcess,
    TellWorker,
    WorkerAcked,
    WorkerDisconnected,
    Write,
)
from trimtab_agent.commands.ledger import REMEMBER_S
from trimtab_protocol.messages.commands import Ack, Command, CommandKind, Phase, Refusal
from trimtab_protocol.messages.decode import BadMessage, Fault
from trimtab_protocol.messages.names import AppId, CommandId, Epoch, HostId, KeyGroup, OperatorId, WorkerId


def test_a_release_is_written_acked_handed_on_and_answered() -> None:
    m = machine(connected(), owning(3, 4))
    release = command(CommandKind.RELEASE)

    assert act(m, received(release)) == [*admitted(release), TellWorker(worker=W0, command=release)]
    said = ack(release, Phase.RELEASED, NOW + 1, generation=4)
    assert act(m, WorkerAcked(worker=W0, ack=said)) == [Write(entry=Acked(ack=said)), SendAck(ack=said)]
    assert m.wake_at is None


@pytest.mark.parametrize(("end", "told"), [(Phase.TOOK, {"pause_s": 0.1}), (Phase.ABANDONED, {})])
def test_a_prepare_goes_on_until_the_target_took_or_abandoned(end: Phase, told: dict[str, Any]) -> None:
    m = machine(connected(), owning(4))
    prepare = command(CommandKind.PREPARE)

    assert act(m, received(prepare)) == [*admitted(prepare), TellWorker(worker=W0, command=prepare)]
    for phase, more in ((Phase.PREPARED, {"lag_records": 7}), (end, told)):
        said = ack(prepare, phase, NOW + 1, **more)
        assert act(m, WorkerAcked(worker=W0, ack=said)) == answered(prepare, phase, NOW + 1, **more)


@pytest.mark.parametrize("change", [{"host": HostId("h1")}, {"cluster": "other"}])
def test_commands_for_others_are_nobody_s_business(change: dict[str, Any]) -> None:
    m = machine(connected())
    before = list(m.entries())

    assert act(m, received(command(CommandKind.REJOIN, **change))) == []
    assert list(m.entries()) == before


REFUSALS = [
    (command(CommandKind.REJOIN, 3), Refusal.OLD_EPOCH, "epoch 1.3, but 1.4 has been seen"),
    (command(CommandKind.REJOIN, worker=W9), Refusal.UNKNOWN_WORKER, "no worker w9 on this host"),
    (command(CommandKind.REJOIN, worker=W1), Refusal.WORKER_AWAY, "not connected to the agent"),
    (command(CommandKind.RELEASE), Refusal.PRECONDITION, "flights/sums/3 is not owned here"),
    (
        command(CommandKind.RELEASE, key_groups=key_groups(3, 8)),
        Refusal.PRECONDITION,
        "flights/sums/3 is not owned here",
    ),
    (
        command(CommandKind.PREPARE, key_groups=key_groups(3, 8)),
        Refusal.PRECONDITION,
        "flights/sums/8 is already owned here",
    ),
    (command(CommandKind.PREPARE, target=W1), Refusal.PRECONDITION, "prepare is for w1, not for w0"),
    (
        command(CommandKind.PREPARE, app=AppId("b"), key_groups=(KeyGroup(AppId("b"), OperatorId("s"), 1),)),
        Refusal.PRECONDITION,
        "the worker runs app flights",
    ),
    (
        command(CommandKind.REJOIN, issued_at=NOW + 90, deadline=NOW + 99),
        Refusal.FAILED,
        "issued 90 s in the future: compare the clocks",
    ),
    (command(CommandKind.START), Refusal.NOT_CONFIGURED, "no command line for worker w0 in the configuration"),
    (command(CommandKind.STOP), Refusal.NOT_EMPTY, "it owns 1 key groups (flights/sums/8 ...)"),
]


@pytest.mark.parametrize(
    ("refused", "refusal", "detail"), REFUSALS, ids=[f"{row[0].kind}: {row[2]}" for row in REFUSALS]
)
def test_refusals_are_written_too(refused: Command, refusal: Refusal, detail: str) -> None:
    m = machine(connected(), owning(8), received(command(CommandKind.REJOIN, 4)))

    assert act(m, received(refused)) == admitted(refused, Phase.REFUSED, refusal=refusal, detail=detail)


def test_a_plug_in_that_only_reports_gets_no_command() -> None:
    m = machine(connected(steering=False, reason="faust 0.16 is not known"), owning(3))
    release = command(CommandKind.RELEASE)

    expected = admitted(release, Phase.REFUSED, refusal=Refusal.NOT_STEERING, detail="faust 0.16 is not known")
    assert act(m, received(release)) == expected


@pytest.mark.parametrize("late_s", [0.0, 0.5])
@pytest.mark.parametrize("running_s", [100.0, 1.0], ids=["long running", "just started"])
def test_a_command_past_its_deadline_is_expired_and_waits_for_nobody(late_s: float, running_s: float) -> None:
    late = command(CommandKind.REJOIN, deadline=NOW - late_s)

    expected = admitted(late, Phase.EXPIRED, detail=f"{late_s:.1f} s too late")
    assert act(machine(started_at=NOW - running_s), received(late)) == expected


def test_a_worker_that_nobody_configured_is_commanded_while_it_is_connected() -> None:
    rejoin = command(CommandKind.REJOIN, worker=W9)

    assert act(machine(connected(W9)), received(rejoin))[-1] == TellWorker(worker=W9, command=rejoin)


@pytest.mark.parametrize(
    ("event", "detail"),
    [
        (received(command(CommandKind.PREPARE), disk=99), "99 bytes of disk free, at least 100 wanted"),
        (received(command(CommandKind.PREPARE), memory=9), "9 bytes of memory free, at least 200 wanted"),
        (received(command(CommandKind.START, worker=W1), memory=9), "9 bytes of memory free, at least 200 wanted"),
    ],
)
def test_the_guard_keeps_state_off_a_full_host(event: CommandReceived, detail: str) -> None:
    expected = admitted(event.command, Phase.REFUSED, refusal=Refusal.GUARD, detail=detail)
    assert act(machine(connected(), owning(4)), event) == expected


def test_the_guard_does_not_stop_what_frees_what_is_unknown_and_what_is_just_enough() -> None:
    m = machine(connected(), owning(3))
    release = command(CommandKind.RELEASE, 5)
    first, second = (command(CommandKind.PREPARE, number, key_groups=key_groups(number)) for number in (6, 7))

    assert act(m, received(release, disk=0, memory=0))[-1] == TellWorker(worker=W0, command=release)
    assert act(m, received(first, disk=None, memory=None))[-1] == TellWorker(worker=W0, command=first)
    assert act(m, received(second, disk=100, memory=200))[-1] == TellWorker(worker=W0, command=second)


def test_ownership_follows_a_hand_over_before_the_next_report() -> None:
    m = machine(connected(), owning(4))
    prepare = command(CommandKind.PREPARE, 5)
    act(m, received(prepare))
    act(m, WorkerAcked(worker=W0, ack=ack(prepare, Phase.TOOK)))
    first, second = command(CommandKind.RELEASE, 6), command(CommandKind.RELEASE, 7, handover="ho2")

    assert act(m, received(first))[-1] == TellWorker(worker=W0, command=first)
    act(m, WorkerAcked(worker=W0, ack=ack(first, Phase.RELEASED)))
    assert act(m, received(second))[-1] == SendAck(
        ack=ack(second, Phase.REFUSED, refusal=Refusal.PRECONDITION, detail="flights/sums/3 is not owned here")
    )


# --- The command machine and its workers, as transcripts: who comes and goes, and who may answer what


def test_a_worker_that_comes_back_is_asked_again_until_the_deadline() -> None:
    m = machine(connected(), owning(3))
    release = command(CommandKind.RELEASE)
    act(m, received(release))
    assert act(m, WorkerDisconnected(worker=W0)) == []

    assert act(m, connected(), NOW + 5) == [TellWorker(worker=W0, command=release)]
    assert act(m, connected(), NOW + 61) == []


def test_the_end_of_a_worker_s_process_refuses_what_it_was_doing() -> None:
    m = machine(connected(), owning(3))
    release = command(CommandKind.RELEASE)
    act(m, received(release))

    expected = answered(
        release, Phase.REFUSED, refusal=Refusal.WORKER_AWAY, detail="its process ended with unknown exit code"
    )
    assert act(m, ProcessEnded(worker=W0, process=PROCESS, exit_code=None)) == expected
    assert act(m, connected()) == []


@pytest.mark.parametrize(
    ("by", "said"),
    [
        (W0, ack(command(CommandKind.RELEASE, 77), Phase.RELEASED)),
        (W0, ack(command(CommandKind.RELEASE), Phase.TOOK)),
        (W0, replace(ack(command(CommandKind.RELEASE), Phase.RELEASED), epoch=Epoch(9, 9))),
        (W0, replace(ack(command(CommandKind.RELEASE), Phase.RELEASED), host=HostId("h8"))),
        (W0, replace(ack(command(CommandKind.RELEASE), Phase.RELEASED), command_id=CommandId("ff"))),
        (W0, replace(ack(command(CommandKind.RELEASE), Phase.RELEASED), handover="ho9")),
        (W1, ack(command(CommandKind.RELEASE), Phase.RELEASED)),
    ],
    ids=["not asked", "phase of another kind", "epoch", "host", "id", "hand-over", "another worker"],
)
def test_answers_that_nobody_asked_for_change_nothing(by: WorkerId, said: Ack) -> None:
    m = machine(connected(), owning(3), connected(W1))
    act(m, received(command(CommandKind.RELEASE)))
    before = list(m.entries())

    with pytest.raises(BadMessage, match="a command given to w1" if by == W1 else None):
        act(m, WorkerAcked(worker=by, ack=said))
    assert list(m.entries()) == before


@pytest.mark.parametrize(
    ("kind", "said"), [(CommandKind.RELEASE, Phase.RELEASED), (CommandKind.PREPARE, Phase.PREPARED)]
)
def test_an_answer_said_twice_is_sent_once(kind: CommandKind, said: Phase) -> None:
    m = machine(connected(), owning(*((3,) if kind is CommandKind.RELEASE else ())))
    asked = command(kind)
    act(m, received(asked))
    act(m, WorkerAcked(worker=W0, ack=ack(asked, said)))

    assert act(m, WorkerAcked(worker=W0, ack=ack(asked, said, NOW + 9))) == []


def test_after_its_end_a_command_has_no_other_end() -> None:
    m = machine(connected(), owning(3))
    release = command(CommandKind.RELEASE)
    act(m, received(release))
    act(m, WorkerAcked(worker=W0, ack=ack(release, Phase.RELEASED)))

    refused = ack(release, Phase.REFUSED, NOW + 9, refusal=Refusal.FAILED)
    assert act(m, WorkerAcked(worker=W0, ack=refused)) == []


# --- The command machine when the agent begins again, as transcripts: held, restored, after damage


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


# --- The command machine and time, as transcripts: deadlines, and what is remembered for how long


def test_what_is_long_over_is_forgotten_once_it_is_delivered() -> None:
    m = machine(connected(), owning(3))
    rejoin = command(CommandKind.REJOIN)
    act(m, received(rejoin))
    act(m, WorkerAcked(worker=W0, ack=ack(rejoin, Phase.REJOINED)))
    after = rejoin.deadline + REMEMBER_S + 1

    m.on_tick(after)
    assert act(m, received(rejoin), after) == [SendAck(ack=ack(rejoin, Phase.REJOINED))]
    for phase in (Phase.ACCEPTED, Phase.REJOINED):
        delivered = AckDelivered(command_id=rejoin.id, phase=phase)
        assert [len(act(m, delivered)) for _ in range(2)] == [1, 0], "written once"
    m.on_tick(after)
    assert act(m, received(rejoin), after)[0] == Write(
        entry=Admitted(command=rejoin, ack=ack(rejoin, Phase.EXPIRED, after, detail="3601.0 s too late"))
    )


def test_memory_is_bounded_and_what_is_under_way_is_the_last_to_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "MAX_REMEMBERED", 20)
    m = machine(connected())
    under_way = command(CommandKind.REJOIN, 0)
    act(m, received(under_way))
    for number in range(1, 30):
        act(m, received(command(CommandKind.REJOIN, number, worker=W9)))

    remembered = [entry.command for entry in m.entries() if isinstance(entry, Admitted)]
    assert len(remembered) == 20
    assert remembered[0] == under_way
