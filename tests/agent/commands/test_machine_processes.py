"""The command machine keeps a worker running that it started, as transcripts: crashes, back-off, giving up, stops."""

import signal
from collections.abc import Sequence
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
    reborn,
    received,
)
from trimtab_agent.commands.events import (
    Action,
    Event,
    KeptNoted,
    KeptWorker,
    ProcessEnded,
    ProcessFailed,
    ProcessId,
    ProcessNoted,
    ProcessStarted,
    SayCrash,
    StartProcess,
    StopProcess,
    TellWorker,
    WorkerDisconnected,
    Write,
)
from trimtab_agent.commands.machine import WORKERS_RETURN_S, CommandMachine
from trimtab_agent.commands.restarts import RAN_WELL_S
from trimtab_agent.configuration import MAX_CRASHES
from trimtab_protocol.messages.commands import Command, CommandKind, Phase, Refusal
from trimtab_protocol.messages.report import Absence

LAST = "exit code 1"


def ended(process: ProcessId = PROCESS, exit_code: int | None = 1) -> ProcessEnded:
    return ProcessEnded(worker=W1, process=process, exit_code=exit_code)


def noted(kept: KeptWorker | None) -> Action:
    return Write(entry=KeptNoted(worker=W1, kept=kept))


def process_noted(process: ProcessId | None) -> Action:
    return Write(entry=ProcessNoted(worker=W1, process=process))


def crash(kept: KeptWorker) -> list[Action]:
    return [noted(kept), SayCrash(worker=W1, kept=kept), process_noted(None)]


def started() -> CommandMachine:
    """A machine whose worker runs since 50 s, by a START command."""
    m = machine(received(command(CommandKind.START, worker=W1)))
    m.on_event(NOW - 50, ProcessStarted(worker=W1, process=PROCESS))
    m.on_event(NOW - 50, connected(W1))
    return m


def go(m: CommandMachine, now: float, exit_code: int | None = 1) -> list[Action]:
    """The worker's connection and its process end."""
    m.on_event(now, WorkerDisconnected(worker=W1))
    return act(m, ended(exit_code=exit_code), now)


def back(m: CommandMachine, now: float) -> None:
    """Its process is there again, and it connects."""
    m.on_event(now, ProcessStarted(worker=W1, process=PROCESS))
    m.on_event(now, connected(W1))


def starts(actions: Sequence[Action]) -> bool:
    return StartProcess(worker=W1) in actions


def test_a_crashed_worker_is_started_again_after_a_second() -> None:
    m = started()
    once = KeptWorker(at=NOW, crashes=1, detail="exit code -9 (SIGKILL)")

    assert go(m, NOW, -9) == crash(once)
    assert m.wake_at == NOW + 1
    assert m.on_tick(NOW + 0.9) == ()
    assert list(m.on_tick(NOW + 1)) == [StartProcess(worker=W1)]
    assert m.on_tick(NOW + 1.1) == (), "it has been asked for"
    assert act(m, ProcessStarted(worker=W1, process=PROCESS), NOW + 1.2) == [
        process_noted(PROCESS),
        noted(replace(once, at=NOW + 1.2)),
    ]
    assert act(m, connected(W1), NOW + 3) == []


@pytest.mark.parametrize("exit_code", [0, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP, -signal.SIGPIPE])
def test_what_somebody_ended_stays_down(exit_code: int) -> None:
    m = started()

    assert go(m, NOW, exit_code) == [noted(None), process_noted(None)]
    assert m.on_tick(NOW + 1000) == ()
    assert m.absences(NOW) == {W1: (Absence.STOPPED, None)}


def test_the_back_off_doubles_up_to_a_minute_and_ends_with_the_last_crash() -> None:
    m, now, waits = started(), NOW, []
    for number in range(1, MAX_CRASHES):
        go(m, now)
        assert m.wake_at is not None
        waits.append(m.wake_at - now)
        now = m.wake_at
        assert starts(m.on_tick(now)), number
        back(m, now)

    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert go(m, now) == crash(KeptWorker(at=now, crashes=MAX_CRASHES, detail=LAST, given_up=True))
    assert m.given_up == {W1}
    assert m.on_tick(now + 10_000) == ()
    said = f"crashed 10 times in a row, the agent no longer starts it; last: {LAST}"
    assert m.absences(now) == {W1: (Absence.CRASHED, said)}


def test_crashes_before_a_long_run_do_not_count() -> None:
    m = started()
    go(m, NOW)
    m.on_tick(NOW + 1)
    back(m, NOW + 1)

    assert go(m, NOW + RAN_WELL_S)[0] == noted(KeptWorker(at=NOW + RAN_WELL_S, crashes=2, detail=LAST))
    m.on_tick(NOW + RAN_WELL_S + 2)
    back(m, NOW + RAN_WELL_S + 2)
    later = NOW + 2 * RAN_WELL_S + 2
    assert go(m, later)[0] == noted(KeptWorker(at=later, crashes=1, detail=LAST))


def test_a_process_that_cannot_be_started_counts_as_a_crash() -> None:
    m = started()
    go(m, NOW)
    m.on_tick(NOW + 1)
    twice = KeptWorker(at=NOW + 1, crashes=2, detail="cannot be started: no memory")

    failed = ProcessFailed(worker=W1, detail="cannot be started: no memory")
    assert act(m, failed, NOW + 1) == [noted(twice), SayCrash(worker=W1, kept=twice)]
    assert m.wake_at == NOW + 3


def test_a_stop_wins_over_the_back_off() -> None:
    m = started()
    go(m, NOW)
    stop = command(CommandKind.STOP, 6, worker=W1)

    assert act(m, received(stop)) == admitted(stop, Phase.STOPPED, detail="it was not running")
    assert m.on_tick(NOW + 1000) == ()
    assert m.absences(NOW) == {W1: (Absence.STOPPED, None)}


@pytest.mark.parametrize("exit_code", [0, 1, None])
def test_a_stopped_worker_stays_down_however_it_ends(exit_code: int | None) -> None:
    m, stop = started(), command(CommandKind.STOP, 6, worker=W1)
    act(m, owning(worker=W1))

    assert act(m, received(stop)) == [
        process_noted(PROCESS),
        *admitted(stop),
        StopProcess(worker=W1, process=PROCESS),
    ]
    m.on_event(NOW, WorkerDisconnected(worker=W1))
    assert m.absences(NOW) == {}, "it ends"
    assert act(m, ended(exit_code=exit_code)) == [
        *answered(stop, Phase.STOPPED, exit_code=exit_code),
        process_noted(None),
    ]
    assert m.on_tick(NOW + 1000) == ()


def test_a_stop_that_is_refused_changes_nothing() -> None:
    m, stop = started(), command(CommandKind.STOP, 6, worker=W1)
    act(m, owning(3, worker=W1))
    detail = "it owns 1 key groups (flights/sums/3 ...)"

    assert act(m, received(stop)) == admitted(stop, Phase.REFUSED, refusal=Refusal.NOT_EMPTY, detail=detail)
    assert go(m, NOW) == crash(KeptWorker(at=NOW, crashes=1, detail=LAST))


def test_a_start_ends_the_back_off_and_forgets_the_crashes() -> None:
    m, again = started(), command(CommandKind.START, 6, worker=W1)
    go(m, NOW)

    assert act(m, received(again)) == [*admitted(again), StartProcess(worker=W1)]
    assert KeptNoted(worker=W1, kept=KeptWorker(at=NOW)) in m.entries()
    assert m.on_tick(NOW + 1) == (), "the command starts it"


def test_a_start_of_a_running_worker_forgets_its_crashes() -> None:
    m, again = started(), command(CommandKind.START, 6, worker=W1)
    go(m, NOW)
    m.on_tick(NOW + 1)
    back(m, NOW + 1)

    expected = admitted(again, Phase.STARTED, NOW + 2, detail="it was running already")
    assert act(m, received(again), NOW + 2) == expected
    assert KeptNoted(worker=W1, kept=KeptWorker(at=NOW + 1)) in m.entries()


def test_a_start_that_fails_is_left_to_whoever_sent_it() -> None:
    m = machine(received(command(CommandKind.START, worker=W1)))
    m.on_event(NOW - 50, ProcessStarted(worker=W1, process=PROCESS))
    act(m, ended())

    assert m.on_tick(NOW + 1000) == ()
    said = "its start failed: it ended with exit code 1 before it connected"
    assert m.absences(NOW) == {W1: (Absence.CRASHED, said)}
    after = reborn(m, at=NOW - 100)
    assert noted(None) in after.resume(), "the next agent may have another command line"
    assert (after.given_up, after.wake_at) == (frozenset(), None)
    assert after.absences(NOW) == {W1: (Absence.STOPPED, None)}


def test_a_crashed_worker_that_somebody_starts_is_taken_up() -> None:
    m = started()
    go(m, NOW)
    by_hand = ProcessId(pid=99, created=7.0)

    assert act(m, connected(W1, process=by_hand), NOW + 0.5) == [
        noted(KeptWorker(at=NOW + 0.5, crashes=1, detail=LAST)),
        process_noted(by_hand),
    ]
    assert m.on_tick(NOW + 1) == ()


def test_a_worker_that_crashed_while_the_agent_was_away_is_started_once_workers_had_time_to_return() -> None:
    m = reborn(started(), at=NOW)

    assert m.absences(NOW) == {}
    assert act(m, ended(exit_code=None), NOW + 0.5) == crash(
        KeptWorker(at=NOW + 0.5, crashes=1, detail="unknown exit code")
    )
    said = "crashed once, the agent starts it again; last: unknown exit code"
    assert m.absences(NOW + 0.5) == {W1: (Absence.STARTING, said)}, "reports say so before it is started"
    assert m.wake_at == NOW + WORKERS_RETURN_S
    assert not starts(m.on_tick(NOW + 2)), "a stop may not have been read yet"
    assert starts(m.on_tick(NOW + WORKERS_RETURN_S))


def test_a_clock_that_is_set_back_after_a_boot_does_not_keep_workers_from_being_started() -> None:
    ahead = NOW + 9 * 3600
    m = reborn(started(), at=ahead)
    act(m, ended(exit_code=None), ahead + 0.5)
    stop = command(CommandKind.STOP, 6, worker=W0)

    assert starts(m.on_tick(NOW + 1))
    assert act(m, received(stop), NOW + 2) == list(admitted(stop, Phase.STOPPED, NOW + 2, detail="it was not running"))
    assert reborn(machine(), at=ahead).absences(NOW + 1) == {W1: (Absence.STOPPED, None)}


def test_a_stop_that_waits_for_the_worker_comes_before_its_restart() -> None:
    m, stop = reborn(started(), at=NOW), command(CommandKind.STOP, 6, worker=W1)
    act(m, ended(exit_code=None), NOW + 0.5)
    assert act(m, received(stop), NOW + 1) == []

    at = NOW + WORKERS_RETURN_S
    assert list(m.on_tick(at)) == admitted(stop, Phase.STOPPED, at, detail="it was not running")


def test_the_back_off_survives_a_restart_of_the_agent() -> None:
    m = started()
    go(m, NOW)
    m.on_tick(NOW + 1)
    back(m, NOW + 1)
    go(m, NOW + 10)
    after = reborn(m, at=NOW + 10)
    assert after.wake_at == NOW + 10 + WORKERS_RETURN_S
    assert starts(after.on_tick(NOW + 20))


def test_a_new_agent_tries_a_worker_again_that_had_crashed_too_often() -> None:
    over = machine()
    over.restore([KeptNoted(worker=W1, kept=KeptWorker(at=NOW, crashes=MAX_CRASHES, detail=LAST, given_up=True))])
    after = reborn(over)

    assert after.given_up == {W1}
    assert list(after.resume()) == [noted(KeptWorker(at=NOW))]
    assert after.wake_at == NOW + WORKERS_RETURN_S
    assert starts(after.on_tick(NOW + WORKERS_RETURN_S))


def test_an_agent_that_died_before_the_process_was_noted_starts_it() -> None:
    m = started()
    go(m, NOW)
    m.on_tick(NOW + 1)

    assert starts(reborn(m, at=NOW + 1).on_tick(NOW + 1 + WORKERS_RETURN_S))


def test_a_worker_whose_command_line_is_gone_is_forgotten() -> None:
    m = reborn(started(), rules=replace(RULES, startable=frozenset()))

    assert noted(None) in m.resume()
    assert not starts(m.on_tick(NOW + 1000))


def test_a_clock_that_was_set_back_does_not_prolong_the_back_off() -> None:
    m = started()
    go(m, NOW)

    assert starts(m.on_tick(NOW - 60))


# --- The command machine starts and stops processes, as transcripts


def start_and_note(m: CommandMachine, start: Command) -> list[Action]:
    assert act(m, received(start)) == [*admitted(start), StartProcess(worker=W1)]
    return act(m, ProcessStarted(worker=W1, process=PROCESS))


def test_a_start_ends_when_the_worker_says_hello() -> None:
    m, start = machine(), command(CommandKind.START, worker=W1)

    assert start_and_note(m, start) == [process_noted(PROCESS)]
    assert m.processes == {W1: PROCESS}
    assert act(m, connected(W1)) == answered(start, Phase.STARTED)


def test_a_start_fails_with_the_process_or_before_it() -> None:
    start = command(CommandKind.START, worker=W1)
    m = machine()
    act(m, received(start))
    assert act(m, ProcessFailed(worker=W1, detail="no such program")) == [
        *answered(start, Phase.REFUSED, refusal=Refusal.FAILED, detail="no such program"),
        noted(KeptWorker(at=NOW, detail="no such program", given_up=True)),
    ]

    m = machine()
    start_and_note(m, start)
    detail = "it ended with exit code 3 before it connected"
    assert act(m, ProcessEnded(worker=W1, process=PROCESS, exit_code=3)) == [
        *answered(start, Phase.REFUSED, refusal=Refusal.FAILED, detail=detail),
        noted(KeptWorker(at=NOW, detail=detail, given_up=True)),
        process_noted(None),
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
