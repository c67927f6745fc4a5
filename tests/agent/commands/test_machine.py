"""The ways of a command through the machine, as transcripts: carried out, repeated, refused."""

from typing import Any

import pytest

from tests.agent.commands.agent_transcripts import (
    NOW,
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
    received,
)
from trimtab_agent.commands.events import Acked, CommandReceived, SendAck, TellWorker, WorkerAcked, Write
from trimtab_protocol.messages.commands import Command, CommandKind, Phase, Refusal
from trimtab_protocol.messages.names import AppId, HostId, KeyGroup, OperatorId


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
