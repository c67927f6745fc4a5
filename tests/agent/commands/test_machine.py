"""The command machine, as transcripts: event in, the whole list of actions out."""

from dataclasses import replace
from typing import Any

import pytest

from trimtab_agent.commands import ledger
from trimtab_agent.commands.admission import FUTURE_LIMIT_S, Rules
from trimtab_agent.commands.events import (
    AckDelivered,
    Acked,
    Action,
    Admitted,
    CommandReceived,
    Damaged,
    Delivered,
    Event,
    ProcessEnded,
    ProcessFailed,
    ProcessId,
    ProcessNoted,
    ProcessStarted,
    SendAck,
    StartProcess,
    StopProcess,
    TellWorker,
    WorkerAcked,
    WorkerConnected,
    WorkerDisconnected,
    WorkerReported,
    Write,
)
from trimtab_agent.commands.ledger import REMEMBER_S
from trimtab_agent.commands.machine import CommandMachine
from trimtab_models.messages.commands import Ack, Command, CommandKind, Phase, Refusal
from trimtab_models.messages.decode import BadMessage, Fault
from trimtab_models.messages.names import AppId, CommandId, Epoch, HostId, KeyGroup, OperatorId, WorkerId

NOW = 1000.0
H0, W0, W1, W9 = HostId("h0"), WorkerId("w0"), WorkerId("w1"), WorkerId("w9")
APP = AppId("flights")
PROCESS = ProcessId(pid=70, created=900.0)
RULES = Rules(
    configured=frozenset({W0, W1}), startable=frozenset({W1}), min_free_disk_bytes=100, min_free_memory_bytes=200
)


def key_groups(*partitions: int) -> tuple[KeyGroup, ...]:
    return tuple(KeyGroup(APP, OperatorId("sums"), partition) for partition in partitions)


def command(kind: CommandKind, number: int = 5, **changes: Any) -> Command:
    values: dict[str, Any] = {
        "cluster": "demo", "kind": kind, "epoch": Epoch(1, number), "host": H0, "worker": W0, "app": APP,
        "issued_at": NOW - 1, "deadline": NOW + 60,
    }  # fmt: skip
    if kind in (CommandKind.PREPARE, CommandKind.RELEASE, CommandKind.ABANDON):
        source, target = (W0, W9) if kind is CommandKind.RELEASE else (W9, W0)
        values |= {"handover": "ho1", "key_groups": key_groups(3), "source": source, "target": target}
    if kind is CommandKind.RELEASE:
        values |= {"generation": 4}
    return Command(**{**values, **changes})


def ack(to: Command, phase: Phase, at: float = NOW, **more: Any) -> Ack:
    return Ack(
        cluster=to.cluster, command_id=to.id, epoch=to.epoch, kind=to.kind, host=to.host, worker=to.worker,
        phase=phase, at=at, handover=to.handover, **more,
    )  # fmt: skip


def answered(to: Command, phase: Phase, at: float = NOW, **more: Any) -> list[Action]:
    """What a further answer looks like: first written, then sent."""
    answer = ack(to, phase, at, **more)
    return [Write(entry=Acked(ack=answer)), SendAck(ack=answer)]


def admitted(to: Command, phase: Phase = Phase.ACCEPTED, at: float = NOW, **more: Any) -> list[Action]:
    answer = ack(to, phase, at, **more)
    return [Write(entry=Admitted(command=to, ack=answer)), SendAck(ack=answer)]


def received(what: Command, disk: int | None = 10_000, memory: int | None = 10_000) -> CommandReceived:
    return CommandReceived(command=what, free_disk_bytes=disk, free_memory_bytes=memory)


def connected(worker: WorkerId = W0, **changes: Any) -> WorkerConnected:
    values = {"worker": worker, "app": APP, "process": PROCESS, "steering": True, **changes}
    return WorkerConnected(**values)


def owning(*partitions: int, worker: WorkerId = W0, complete: bool = True) -> WorkerReported:
    return WorkerReported(worker=worker, owned=frozenset(key_groups(*partitions)), complete=complete)


def machine(*events: Event, rules: Rules = RULES, started_at: float = NOW - 100) -> CommandMachine:
    """A machine that has long been running and saw these events."""
    made = CommandMachine(cluster="demo", host=H0, rules=rules, started_at=started_at)
    for event in events:
        made.on_event(NOW - 50, event)
    return made


def act(on: CommandMachine, event: Event, now: float = NOW) -> list[Action]:
    return list(on.on_event(now, event))


def reborn(of: CommandMachine, *, at: float = NOW) -> CommandMachine:
    """The machine after a restart of the agent."""
    fresh = CommandMachine(cluster="demo", host=H0, rules=RULES, started_at=at)
    fresh.restore(of.entries())
    return fresh


# --- the ways of a command


def test_a_release_is_written_acked_handed_on_and_answered() -> None:
    m = machine(connected(), owning(3, 4))
    release = command(CommandKind.RELEASE)

    assert act(m, received(release)) == [*admitted(release), TellWorker(worker=W0, command=release)]
    said = ack(release, Phase.RELEASED, NOW + 1, generation=4)
    assert act(m, WorkerAcked(worker=W0, ack=said)) == [Write(entry=Acked(ack=said)), SendAck(ack=said)]
    assert m.wake_at is None


def test_a_prepare_goes_on_until_the_target_took() -> None:
    m = machine(connected(), owning(4))
    prepare = command(CommandKind.PREPARE)

    assert act(m, received(prepare)) == [*admitted(prepare), TellWorker(worker=W0, command=prepare)]
    for phase, more in ((Phase.PREPARED, {"lag_records": 7}), (Phase.TOOK, {"pause_s": 0.1})):
        said = ack(prepare, phase, NOW + 1, **more)
        assert act(m, WorkerAcked(worker=W0, ack=said)) == answered(prepare, phase, NOW + 1, **more)


def test_a_repeat_gets_the_last_answer_again_and_nothing_else() -> None:
    m = machine(connected(), owning(3))
    release = command(CommandKind.RELEASE)
    act(m, received(release))
    act(m, WorkerAcked(worker=W0, ack=ack(release, Phase.RELEASED)))

    assert act(m, received(release), NOW + 3000) == [SendAck(ack=ack(release, Phase.RELEASED))]


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
    ("refused", "refusal", "detail"), REFUSALS, ids=[row[1] + "-" + row[0].kind for row in REFUSALS]
)
def test_refusals_are_written_too(refused: Command, refusal: Refusal, detail: str) -> None:
    m = machine(connected(), owning(8), received(command(CommandKind.REJOIN, 4)))

    assert act(m, received(refused)) == admitted(refused, Phase.REFUSED, refusal=refusal, detail=detail)


def test_a_plug_in_that_only_reports_gets_no_command() -> None:
    m = machine(connected(steering=False, reason="faust 0.16 is not known"), owning(3))
    release = command(CommandKind.RELEASE)

    expected = admitted(release, Phase.REFUSED, refusal=Refusal.NOT_STEERING, detail="faust 0.16 is not known")
    assert act(m, received(release)) == expected


def test_a_command_past_its_deadline_is_expired() -> None:
    late = command(CommandKind.REJOIN, deadline=NOW - 0.5)

    assert act(machine(connected()), received(late)) == admitted(late, Phase.EXPIRED, detail="0.5 s too late")


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


def test_the_guard_does_not_stop_what_frees_and_what_is_unknown() -> None:
    m = machine(connected(), owning(3))
    release, prepare = command(CommandKind.RELEASE, 5), command(CommandKind.PREPARE, 6, key_groups=key_groups(9))

    assert act(m, received(release, disk=0, memory=0))[-1] == TellWorker(worker=W0, command=release)
    assert act(m, received(prepare, disk=None, memory=None))[-1] == TellWorker(worker=W0, command=prepare)


def test_unknown_ownership_leaves_the_check_to_the_worker() -> None:
    for events in ((connected(),), (connected(), owning(complete=False))):
        release = command(CommandKind.RELEASE)
        assert act(machine(*events), received(release))[-1] == TellWorker(worker=W0, command=release)


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


# --- time


def test_silence_until_the_deadline_is_expired_and_a_late_answer_still_passes() -> None:
    m = machine(connected(), owning(3))
    release = command(CommandKind.RELEASE)
    act(m, received(release))

    assert m.wake_at == release.deadline
    assert m.on_tick(NOW + 59) == ()
    assert list(m.on_tick(NOW + 60)) == answered(release, Phase.EXPIRED, NOW + 60, detail="no answer by the deadline")
    assert (m.wake_at, m.on_tick(NOW + 61)) == (None, ())
    said = ack(release, Phase.RELEASED, NOW + 62)
    assert act(m, WorkerAcked(worker=W0, ack=said), NOW + 62) == answered(release, Phase.RELEASED, NOW + 62)


def test_a_prepared_standby_does_not_expire() -> None:
    m = machine(connected(), owning(4))
    prepare = command(CommandKind.PREPARE)
    act(m, received(prepare))
    act(m, WorkerAcked(worker=W0, ack=ack(prepare, Phase.PREPARED)))

    assert m.on_tick(NOW + 100) == ()


def test_what_is_long_over_is_forgotten_once_it_is_delivered() -> None:
    m = machine(connected(), owning(3))
    rejoin = command(CommandKind.REJOIN)
    act(m, received(rejoin))
    act(m, WorkerAcked(worker=W0, ack=ack(rejoin, Phase.REJOINED)))
    after = rejoin.deadline + REMEMBER_S + 1

    m.on_tick(after)
    assert act(m, received(rejoin), after) == [SendAck(ack=ack(rejoin, Phase.REJOINED))]
    for phase in (Phase.ACCEPTED, Phase.REJOINED):
        act(m, AckDelivered(command_id=rejoin.id, phase=phase))
    m.on_tick(after)
    assert act(m, received(rejoin), after)[0] == Write(
        entry=Admitted(command=rejoin, ack=ack(rejoin, Phase.EXPIRED, after, detail="3601.0 s too late"))
    )


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "MAX_REMEMBERED", 20)
    m = machine()
    for number in range(30):
        act(m, received(command(CommandKind.REJOIN, number, worker=W9)))

    assert len([entry for entry in m.entries() if isinstance(entry, Admitted)]) == 20


# --- workers that come and go


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
    "said",
    [
        ack(command(CommandKind.RELEASE, 77), Phase.RELEASED),
        ack(command(CommandKind.RELEASE), Phase.TOOK),
        replace(ack(command(CommandKind.RELEASE), Phase.RELEASED), epoch=Epoch(9, 9)),
        replace(ack(command(CommandKind.RELEASE), Phase.RELEASED), host=HostId("h8")),
        replace(ack(command(CommandKind.RELEASE), Phase.RELEASED), command_id=CommandId("ff")),
    ],
    ids=["not asked", "phase of another kind", "epoch", "host", "id"],
)
def test_answers_that_nobody_asked_for_change_nothing(said: Ack) -> None:
    m = machine(connected(), owning(3))
    act(m, received(command(CommandKind.RELEASE)))
    before = list(m.entries())

    with pytest.raises(BadMessage):
        act(m, WorkerAcked(worker=W0, ack=said))
    assert list(m.entries()) == before


def test_another_worker_cannot_answer() -> None:
    m = machine(connected(), owning(3), connected(W1))
    release = command(CommandKind.RELEASE)
    act(m, received(release))

    with pytest.raises(BadMessage, match="a command given to w1"):
        act(m, WorkerAcked(worker=W1, ack=ack(release, Phase.RELEASED)))


def test_an_answer_said_twice_is_sent_once() -> None:
    m = machine(connected(), owning(3))
    release = command(CommandKind.RELEASE)
    act(m, received(release))
    act(m, WorkerAcked(worker=W0, ack=ack(release, Phase.RELEASED)))

    assert act(m, WorkerAcked(worker=W0, ack=ack(release, Phase.RELEASED, NOW + 9))) == []


# --- scaling


def start_and_note(m: CommandMachine, start: Command) -> list[Action]:
    assert act(m, received(start)) == [*admitted(start), StartProcess(worker=W1)]
    return act(m, ProcessStarted(worker=W1, process=PROCESS))


def test_a_start_ends_when_the_worker_says_hello() -> None:
    m, start = machine(), command(CommandKind.START, worker=W1)

    assert start_and_note(m, start) == [Write(entry=ProcessNoted(worker=W1, process=PROCESS))]
    assert m.processes == {W1: PROCESS}
    assert act(m, connected(W1)) == [
        Write(entry=ProcessNoted(worker=W1, process=PROCESS)),
        *answered(start, Phase.STARTED),
    ]


def test_a_start_of_a_running_worker_is_done() -> None:
    start = command(CommandKind.START, worker=W1)

    expected = admitted(start, Phase.STARTED, detail="it was running already")
    assert act(machine(connected(W1)), received(start)) == expected


def test_a_start_fails_with_the_process_or_before_it() -> None:
    start = command(CommandKind.START, worker=W1)
    m = machine()
    act(m, received(start))
    expected = answered(start, Phase.REFUSED, refusal=Refusal.FAILED, detail="no such program")
    assert act(m, ProcessFailed(worker=W1, detail="no such program")) == expected

    m = machine()
    start_and_note(m, start)
    detail = "it ended with exit code 3 before it connected"
    assert act(m, ProcessEnded(worker=W1, process=PROCESS, exit_code=3)) == [
        *answered(start, Phase.REFUSED, refusal=Refusal.FAILED, detail=detail),
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


def test_a_stop_of_what_does_not_run_is_done() -> None:
    stop = command(CommandKind.STOP, worker=W1)

    assert act(machine(), received(stop)) == admitted(stop, Phase.STOPPED, detail="it was not running")


# --- restarts of the agent


def test_just_after_the_start_commands_wait_for_their_workers() -> None:
    m = machine(started_at=NOW - 1)
    rejoin = command(CommandKind.REJOIN)

    assert (act(m, received(rejoin)), m.holding, m.wake_at) == ([], True, NOW + 4)
    assert m.on_tick(NOW + 1) == ()
    assert act(m, connected(), NOW + 2) == [*admitted(rejoin, at=NOW + 2), TellWorker(worker=W0, command=rejoin)]
    assert not m.holding


def test_waiting_for_a_worker_ends() -> None:
    m = machine(started_at=NOW - 1)
    rejoin = command(CommandKind.REJOIN)
    act(m, received(rejoin))

    expected = admitted(
        rejoin, Phase.REFUSED, NOW + 4, refusal=Refusal.WORKER_AWAY, detail="not connected to the agent"
    )
    assert list(m.on_tick(NOW + 4)) == expected


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


def test_a_restart_keeps_the_highest_epoch() -> None:
    m = machine(connected(), owning(3), received(command(CommandKind.REJOIN, 9)))
    old = command(CommandKind.RELEASE, 8)

    after = reborn(m, at=NOW - 100)
    act(after, connected())
    assert act(after, received(old)) == admitted(
        old, Phase.REFUSED, refusal=Refusal.OLD_EPOCH, detail="epoch 1.8, but 1.9 has been seen"
    )


def test_a_future_dated_command_does_not_shut_out_the_real_ones() -> None:
    forged = command(CommandKind.REJOIN, issued_at=NOW + 90, deadline=NOW + 99, epoch=Epoch(99, 1))
    m = machine(connected(), owning(3))
    act(m, received(forged))
    release = command(CommandKind.RELEASE)

    assert act(m, received(release))[-1] == TellWorker(worker=W0, command=release)


def test_restoring_twice_gives_the_same_machine() -> None:
    m = machine(connected(), owning(3))
    for number, kind in enumerate((CommandKind.RELEASE, CommandKind.REJOIN, CommandKind.STOP), start=5):
        act(m, received(command(kind, number)))
    act(m, WorkerAcked(worker=W0, ack=ack(command(CommandKind.RELEASE), Phase.RELEASED)))
    act(m, AckDelivered(command_id=command(CommandKind.RELEASE).id, phase=Phase.ACCEPTED))

    assert list(reborn(m).entries()) == list(m.entries())
    assert list(reborn(reborn(m)).entries()) == list(m.entries())


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
