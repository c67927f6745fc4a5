"""The command machine starts and stops processes, as transcripts."""

from dataclasses import replace

import pytest

from tests.agent.commands.agent_transcripts import (
    NOW,
    PROCESS,
    RULES,
    W0,
    W1,
    act,
    admitted,
    answered,
    command,
    connected,
    machine,
    owning,
    received,
)
from trimtab_agent.commands.events import (
    Action,
    Event,
    KeptNoted,
    KeptWorker,
    ProcessEnded,
    ProcessFailed,
    ProcessNoted,
    ProcessStarted,
    StartProcess,
    StopProcess,
    TellWorker,
    WorkerDisconnected,
    Write,
)
from trimtab_agent.commands.machine import CommandMachine
from trimtab_protocol.messages.commands import Command, CommandKind, Phase, Refusal


def start_and_note(m: CommandMachine, start: Command) -> list[Action]:
    assert act(m, received(start)) == [*admitted(start), StartProcess(worker=W1)]
    return act(m, ProcessStarted(worker=W1, process=PROCESS))


def given_up(detail: str) -> Action:
    return Write(entry=KeptNoted(worker=W1, kept=KeptWorker(at=NOW, detail=detail, given_up=True)))


def test_a_start_ends_when_the_worker_says_hello() -> None:
    m, start = machine(), command(CommandKind.START, worker=W1)

    assert start_and_note(m, start) == [Write(entry=ProcessNoted(worker=W1, process=PROCESS))]
    assert m.processes == {W1: PROCESS}
    assert act(m, connected(W1)) == answered(start, Phase.STARTED)


def test_a_start_fails_with_the_process_or_before_it() -> None:
    start = command(CommandKind.START, worker=W1)
    m = machine()
    act(m, received(start))
    assert act(m, ProcessFailed(worker=W1, detail="no such program")) == [
        *answered(start, Phase.REFUSED, refusal=Refusal.FAILED, detail="no such program"),
        given_up("no such program"),
    ]

    m = machine()
    start_and_note(m, start)
    detail = "it ended with exit code 3 before it connected"
    assert act(m, ProcessEnded(worker=W1, process=PROCESS, exit_code=3)) == [
        *answered(start, Phase.REFUSED, refusal=Refusal.FAILED, detail=detail),
        given_up(detail),
        Write(entry=ProcessNoted(worker=W1, process=None)),
    ]


def test_a_stop_of_an_empty_worker_ends_with_its_process() -> None:
    m, stop = machine(connected(), owning()), command(CommandKind.STOP)

    assert act(m, received(stop)) == [
        Write(entry=ProcessNoted(worker=W0, process=PROCESS)),
        *admitted(stop),
        StopProcess(worker=W0, process=PROCESS),
    ]
    act(m, WorkerDisconnected(worker=W0))
    assert act(m, ProcessEnded(worker=W0, process=PROCESS, exit_code=0)) == [
        *answered(stop, Phase.STOPPED, exit_code=0),
        Write(entry=ProcessNoted(worker=W0, process=None)),
    ]


def test_a_process_that_does_not_end_is_said_and_not_killed() -> None:
    m, stop = machine(connected(), owning()), command(CommandKind.STOP)
    act(m, received(stop))

    expected = answered(stop, Phase.EXPIRED, NOW + 60, detail="its process does not end by the deadline")
    assert list(m.on_tick(NOW + 60)) == expected
    assert act(m, ProcessEnded(worker=W0, process=PROCESS, exit_code=None), NOW + 90)[:2] == answered(
        stop, Phase.STOPPED, NOW + 90
    )


def test_a_worker_that_is_being_stopped_gets_nothing_new() -> None:
    m = machine(connected(), owning(), rules=replace(RULES, startable=frozenset({W0})))
    act(m, received(command(CommandKind.STOP)))

    for again in (command(CommandKind.PREPARE, 6), command(CommandKind.START, 7)):
        expected = admitted(again, Phase.REFUSED, refusal=Refusal.WORKER_AWAY, detail="it is being stopped")
        assert act(m, received(again)) == expected


@pytest.mark.parametrize(
    ("events", "refusal", "detail"),
    [
        ((connected(),), Refusal.NOT_EMPTY, "it has not reported yet: what it owns is unknown"),
        ((connected(), owning(complete=False)), Refusal.NOT_EMPTY, "its last report was incomplete"),
        ((connected(process=None), owning()), Refusal.FAILED, "its process is not visible to the agent"),
        (
            (ProcessStarted(worker=W0, process=PROCESS),),
            Refusal.WORKER_AWAY,
            "its process runs, but it is not connected: what it owns is unknown",
        ),
    ],
)
def test_a_stop_needs_to_know_that_the_worker_is_empty(
    events: tuple[Event, ...], refusal: Refusal, detail: str
) -> None:
    stop = command(CommandKind.STOP)

    assert act(machine(*events), received(stop)) == admitted(stop, Phase.REFUSED, refusal=refusal, detail=detail)


@pytest.mark.parametrize("events", [(connected(),), (connected(), owning(0, 1)), (connected(), owning(complete=False))])
def test_a_stop_that_says_so_ends_a_worker_with_key_groups(events: tuple[Event, ...]) -> None:
    m, stop = machine(*events), command(CommandKind.STOP, owning=True)

    assert act(m, received(stop)) == [
        Write(entry=ProcessNoted(worker=W0, process=PROCESS)),
        *admitted(stop),
        StopProcess(worker=W0, process=PROCESS),
    ]
    unseen = machine(connected(process=None), owning(0))
    detail = "its process is not visible to the agent"
    assert act(unseen, received(stop)) == admitted(stop, Phase.REFUSED, refusal=Refusal.FAILED, detail=detail)


def test_a_worker_that_was_stopped_and_is_back_gets_commands_again() -> None:
    m, rejoin = machine(connected(), owning()), command(CommandKind.REJOIN, 6)
    act(m, received(command(CommandKind.STOP)))
    act(m, WorkerDisconnected(worker=W0))
    act(m, ProcessEnded(worker=W0, process=PROCESS, exit_code=0))
    act(m, connected())

    assert act(m, received(rejoin))[-1] == TellWorker(worker=W0, command=rejoin)
