"""Rolling restarts: which workers are emptied next, and when the next host has its turn."""

from dataclasses import replace

from tests.controller.decider.decider_situations import APP, W0, W1, a_scaling, kg
from tests.controller.decider.decider_situations import a_node as node
from tests.controller.decider.deciders import NEEDS, decider, execution, only, window
from tests.controller.decider.observed_snapshots import snapshot
from tests.narrow import not_none, of_type
from trimtab_controller.decider.machine import Decider
from trimtab_controller.decider.memory.intents import OperatorIntents
from trimtab_controller.decider.memory.observe import Liveness, check_cluster, held_apps
from trimtab_controller.decider.policies.rolling import draining, restarted, restarts
from trimtab_controller.decider.values.decision import MaintenanceEnded, Restarted, Scaled, Skip
from trimtab_controller.decider.values.reasons import SkipReason
from trimtab_controller.execution.state import Execution, ScalingPhase, WorkerScaling
from trimtab_protocol.messages.commands import CommandKind
from trimtab_protocol.messages.intents import Drain, RollingRestart
from trimtab_protocol.messages.names import AppId, HostId, OperatorId, WorkerId
from trimtab_protocol.messages.reason_text import WORKERS_DIFFER
from trimtab_protocol.messages.report import Absence, WorkerState
from trimtab_protocol.messages.snapshot import NodeWindow, Snapshot

ASKED_AT, START_S = 900.0, 1000.0
A0, A1, B0 = WorkerId("a0"), WorkerId("a1"), WorkerId("b0")
WISH = RollingRestart(app=APP, workers=(A0, A1, B0), by="ann", at=ASKED_AT, reason="new version")
RUNNING = [node(worker, host=HostId(worker[0]), declared=APP) for worker in (A0, A1, B0)]


def away(row: NodeWindow) -> NodeWindow:
    return replace(row, state=WorkerState.AWAY, app=None, steering=False, absence=Absence.STOPPED)


def seen(*rows: NodeWindow) -> Snapshot:
    return snapshot(list(rows), [])


def scaled(worker: WorkerId, kind: CommandKind, phase: ScalingPhase, at: float) -> WorkerScaling:
    return a_scaling(kind, worker, at, phase, host=HostId(worker[0]))


def after(*scalings: WorkerScaling) -> Execution:
    return Execution(generation=1, scalings={each.command.worker: each for each in scalings})


def started(worker: WorkerId, at: float = 990.0, phase: ScalingPhase = ScalingPhase.DONE) -> WorkerScaling:
    return scaled(worker, CommandKind.START, phase, at)


def stopped(worker: WorkerId, at: float = 950.0, phase: ScalingPhase = ScalingPhase.DONE) -> WorkerScaling:
    return scaled(worker, CommandKind.STOP, phase, at)


def test_the_workers_of_the_first_host_are_emptied_first() -> None:
    assert draining([WISH], after(), seen(*RUNNING)) == {A0, A1}
    assert draining([WISH], after(), None) == frozenset(), "nothing is known yet"


def test_a_worker_to_which_a_stop_was_sent_takes_nothing_until_it_has_stopped() -> None:
    for phase in (ScalingPhase.SENT, ScalingPhase.FAILED):
        assert draining([WISH], after(stopped(A0, phase=phase)), seen(*RUNNING)) == {A0, A1}
    assert draining([WISH], after(stopped(A0)), seen(*RUNNING)) == {A1}, "it is started again as soon as it is stopped"


def test_the_next_host_waits_until_all_workers_of_this_one_are_back() -> None:
    first, second, other = RUNNING
    for present, rows in (
        (after(started(A0), stopped(A1)), (first, away(second), other)),
        (after(started(A0), started(A1, phase=ScalingPhase.SENT)), (first, away(second), other)),
        (after(started(A0), started(A1, phase=ScalingPhase.FAILED)), (first, away(second), other)),
        (after(started(A0), started(A1)), (first, replace(second, state=WorkerState.REBALANCING), other)),
        (after(started(A0), started(A1)), (first, replace(second, steering=False), other)),
        (after(started(A0), started(A1, at=START_S + 1.0)), RUNNING),
        (after(started(A0), started(A1)), (first, other)),
    ):
        assert draining([WISH], present, seen(*rows)) == frozenset(), present
        [found] = restarts([WISH], present, seen(*rows))
        assert (found.done, restarted([WISH], present, seen(*rows))) == ((A0,), None)
    assert draining([WISH], after(started(A0), started(A1)), seen(*RUNNING)) == {B0}


def test_what_was_stopped_or_started_before_the_operator_asked_is_no_restart() -> None:
    early = after(started(A0, at=ASKED_AT - 1.0), started(A1, at=ASKED_AT - 1.0))
    assert draining([WISH], early, seen(*RUNNING)) == {A0, A1}


def test_a_worker_that_was_stopped_is_started_also_if_the_operator_s_clock_is_fast() -> None:
    """A new leader does not know when the restart was heard."""
    first, second, other = RUNNING
    before = after(stopped(A0, at=ASKED_AT - 1.0))
    assert draining([WISH], before, seen(away(first), second, other)) == {A1}
    [found] = restarts([WISH], before, seen(away(first), second, other))
    assert (found.host, found.done) == (HostId("a"), ())


def test_a_restart_dated_by_a_fast_clock_counts_from_when_it_was_heard() -> None:
    intents = OperatorIntents()
    intents.change(ASKED_AT - 120.0, (WISH,))
    intents.change(ASKED_AT - 60.0, (WISH, Drain(worker=B0, by="bob", at=1.0, reason="disk")))
    assert [each.at for each in intents.in_force] == [ASKED_AT - 120.0, 1.0]
    intents.change(ASKED_AT + 60.0, (replace(WISH, reason="another one"),))
    assert [each.at for each in intents.in_force] == [ASKED_AT], "that of a slow clock stays"


def test_it_ends_when_all_workers_are_back() -> None:
    present = after(started(A0), started(A1), started(B0))
    assert restarted([WISH], present, seen(*RUNNING)) == Restarted(
        app=APP, detail="restarted 3 of 3 workers", answered=(WISH.key,)
    )
    assert draining([WISH], present, seen(*RUNNING)) == frozenset()


def test_workers_that_their_agents_cannot_start_run_on_and_are_named() -> None:
    first, second, other = RUNNING
    by_hand = replace(second, declared=None)
    elsewhere = replace(other, app=AppId("other"))
    found = not_none(restarted([WISH], after(started(A0)), seen(first, by_hand, elsewhere)))
    assert found.detail == "restarted 1 of 3 workers; left out: a1, b0"
    assert draining([WISH], after(), seen(first, by_hand, elsewhere)) == {A0}


def test_it_goes_together_with_the_drains_of_operators() -> None:
    drain = Drain(worker=B0, by="bob", at=1.0, reason="disk")
    assert draining([WISH, drain], after(), seen(*RUNNING)) == {A0, A1, B0}
    assert draining([drain], after(), None) == {B0}


def test_it_does_not_wait_for_workers_that_are_to_stay_off() -> None:
    first, second, other = RUNNING
    drain = Drain(worker=A1, by="bob", at=950.0, reason="disk")
    present = after(started(A0), stopped(A1))
    assert draining([WISH], present, seen(first, away(second), other)) == frozenset(), "nobody drains it: it comes back"
    assert draining([WISH, drain], present, seen(first, away(second), other)) == {A1, B0}
    last = after(started(A0), stopped(A1), started(B0))
    told = not_none(restarted([WISH, drain], last, seen(first, away(second), other)))
    assert told.detail == "restarted 2 of 3 workers; left out: a1"
    command = replace(stopped(A1).command, app=APP)
    smaller = after(started(A0), replace(stopped(A1), command=command), started(B0))
    assert restarted([WISH], smaller, seen(first, away(second), other)) == told, "it left for the size of the app"


def test_the_hosts_of_one_zone_follow_each_other() -> None:
    c0 = WorkerId("c0")
    wish = replace(WISH, workers=(A0, B0, c0))
    rows = [node(worker, host=HostId(worker[0]), declared=APP) for worker in (A0, B0, c0)]
    zones = {HostId("a"): "z2", HostId("b"): "z1", HostId("c"): "z1"}
    now = seen(*rows)
    now = replace(now, hosts=tuple(replace(row, zone=zones[row.host]) for row in now.hosts))
    assert {row.host for row in now.hosts} == set(zones)
    assert draining([wish], after(), now) == {B0}
    assert draining([wish], after(started(B0)), now) == {c0}, "a is in the other zone"
    assert draining([wish], after(started(B0), started(c0)), now) == {A0}


DIFFER = f"{WORKERS_DIFFER}: a1, b0 against a0"


def mixed(*rows: NodeWindow) -> list[NodeWindow]:
    """The rows as workers report that differ from each other."""
    return [replace(row, steering=False, reason=DIFFER) for row in rows]


def test_a_version_with_other_tables_counts_as_back_and_the_next_worker_is_stopped_with_its_key_groups() -> None:
    """The leader of the group tells all workers that they differ, and none of them takes commands."""
    rows = mixed(*RUNNING)
    [found] = restarts([WISH], after(started(A0)), seen(*rows))
    assert (found.done, found.host, found.draining, found.undrained) == ((A0,), HostId("a"), frozenset(), (A1,))
    assert found.differ == DIFFER
    [found] = restarts([WISH], after(started(A0), started(A1)), seen(*rows))
    assert (found.done, found.undrained) == ((A0, A1), (B0,))
    [found] = restarts([WISH], after(started(A0), stopped(A1)), seen(*mixed(RUNNING[0], RUNNING[2]), away(RUNNING[1])))
    assert (found.done, found.returning, found.undrained) == ((A0,), (A1,), ())
    [found] = restarts([WISH], after(started(A0)), seen(*RUNNING))
    assert (found.differ, found.draining, found.undrained) == (None, {A1}, ()), "they agree again"


def test_workers_that_declare_other_operators_differ_too() -> None:
    first, *others = (replace(row, operators={OperatorId("all"): 4}) for row in RUNNING)
    first = replace(first, operators={OperatorId("sums"): 4})
    [found] = restarts([WISH], after(started(A0)), seen(first, *others))
    assert found.undrained == (A1,)
    assert found.differ is not None
    assert found.differ.startswith("its workers declare different operators")


def test_a_worker_that_does_not_steer_for_another_reason_is_not_back() -> None:
    reason = "tables in memory"
    rows = [replace(RUNNING[0], steering=False, reason=reason), *RUNNING[1:]]
    [found] = restarts([WISH], after(started(A0)), seen(*rows))
    assert (found.done, found.returning, found.draining, found.undrained) == ((), (A0,), {A1}, ())


def test_the_end_says_that_the_workers_still_differ() -> None:
    told = not_none(restarted([WISH], after(started(A0), started(A1), started(B0)), seen(*mixed(*RUNNING))))
    assert told.detail == (
        f"restarted 3 of 3 workers; but {DIFFER}: install one version on all hosts, and restart them again"
    )


# ---- maintenance of a host: its workers are drained and stay off, its silence is no loss, and it ends by itself


H1 = HostId("h1")
OFF = Drain(worker=W1, by="ann", at=900.0, reason="memory", until=1100.0, host=H1)
STOPPED = {W1: a_scaling(CommandKind.STOP)}
ON_W0 = {kg(0): W0, kg(1): W0}


def deciding(owners: dict = ON_W0, **changes: object) -> Decider:
    return decider(execution(owners, **changes), OFF)


def test_what_was_stopped_stays_off_until_its_end_and_is_started_then() -> None:
    made = deciding(scalings=STOPPED)
    of_type(Skip, only(made.on_event(1021.0, window(ON_W0, 1020.0, workers=(W0,)))))
    ended = only(made.on_event(1111.0, window(ON_W0, 1110.0, workers=(W0,))))
    assert ended == MaintenanceEnded(detail="the maintenance of h1 is over: w1 may run again", answered=(OFF.key,))
    assert made.intents == ()
    waits = only(made.on_event(1121.0, window(ON_W0, 1120.0, workers=(W0,))))
    assert isinstance(waits, Skip), "the host does not report: a start would only expire"
    back = window({kg(0): W0, kg(1): W0}, 1130.0)
    started = only(made.on_event(1131.0, back))
    assert started == Scaled(
        kind=CommandKind.START, worker=W1, host=H1, detail="it was drained and stopped, and may run again"
    )


def test_a_silent_host_in_maintenance_is_not_lost_and_lowers_no_coverage() -> None:
    both, one = window(ON_W0, 1010.0).snapshot, window(ON_W0, 1020.0, workers=(W0,)).snapshot
    one = replace(one, hosts_expected=2)
    liveness = Liveness()
    liveness.observe(both, [W0])
    liveness.observe(one, [W0])
    assert held_apps(one, liveness, {})[APP].reason is SkipReason.HOSTS_LOST
    assert held_apps(one, liveness, {}, {H1: frozenset({W1})}) == {}
    found = not_none(check_cluster(one, 1021.0, liveness, NEEDS))
    assert found.reason is SkipReason.LOW_COVERAGE
    assert check_cluster(one, 1021.0, liveness, NEEDS, {H1: frozenset({W1})}) is None
