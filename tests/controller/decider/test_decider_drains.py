"""Draining workers: emptied before all else, stopped when empty, started again when the drain is cancelled."""

from dataclasses import replace

from tests.controller.decider.decider_situations import APP, W0, W1, kg, to_w1
from tests.controller.decider.deciders import BALANCED, DRAIN_W1, ON_W0, answer, decider, execution, only, window
from trimtab_controller.decider.events import (
    Decided,
    ExecutionChanged,
    IntentsChanged,
    SnapshotArrived,
    Solve,
    SolverAnswered,
)
from trimtab_controller.decider.policies.judgement import DrainBlocked
from trimtab_controller.decider.values.decision import Decision, Planned, Scaled, Skip
from trimtab_controller.decider.values.reasons import SkipReason
from trimtab_controller.execution.state import ScalingPhase, WorkerScaling, placement_of
from trimtab_controller.solver.answer import Answer, Stuck
from trimtab_protocol.messages.commands import CommandKind
from trimtab_protocol.messages.intents import Drain
from trimtab_protocol.messages.names import AppId, Epoch, HostId, WorkerId


def test_key_groups_that_cannot_leave_a_drained_worker_are_said_with_the_decision() -> None:
    made = decider(execution(ON_W0), Drain(worker=W0, by="op", at=1.0, reason="kernel"))
    made.on_event(1011.0, window(ON_W0))
    why = "too heavy"
    stuck = (
        Stuck(key_group=0, worker=0, obstacle=why),
        Stuck(key_group=2, worker=0, obstacle=why),
        Stuck(key_group=1, worker=0, obstacle="pinned"),
    )
    reply = answer((2, 1))
    assert isinstance(reply.answer, Answer)
    *blocked, decided = made.on_event(1011.5, SolverAnswered(answer=replace(reply.answer, stuck=stuck)))
    assert blocked == [
        DrainBlocked(worker=W0, key_groups=(kg(0), kg(2)), obstacle=why),
        DrainBlocked(worker=W0, key_groups=(kg(1),), obstacle="pinned"),
    ]
    assert isinstance(decided, Decided)


def test_the_app_with_a_worker_to_be_drained_comes_first_then_the_larger_load_distance() -> None:
    other = AppId("other")
    near, far = kg(0)._replace(app=other), kg(1)._replace(app=other)
    both = {**ON_W0, near: WorkerId("x0"), far: WorkerId("x1")}
    seen = window(ON_W0).snapshot
    guests = [replace(seen.nodes[0], app=other, worker=both[each], host=HostId("hx")) for each in (near, far)]
    owned = [replace(seen.key_groups[0], key_group=each, worker=both[each]) for each in (near, far)]
    arrived = SnapshotArrived(
        snapshot=replace(seen, nodes=(*seen.nodes, *guests), key_groups=(*seen.key_groups, *owned))
    )
    placements = {
        app: placement_of("c", app, Epoch(1, 1), {each: who for each, who in both.items() if each.app == app}, None)
        for app in (APP, other)
    }
    drain = Drain(worker=WorkerId("x0"), by="op", at=1.0, reason="kernel")
    solved = []
    for intents in ((), (drain,)):
        [action] = decider(execution(None, placements=placements), *intents).on_event(1011.0, arrived)
        assert isinstance(action, Solve)
        solved.append(action.view.app)
    assert solved == [APP, other]


def test_a_drain_overrides_the_band() -> None:
    made = decider(execution(BALANCED), DRAIN_W1)
    [solve] = made.on_event(1011.0, window(BALANCED))
    assert isinstance(solve, Solve)
    assert [worker.id for worker in solve.view.workers if worker.draining] == [W1]
    decision = only(made.on_event(1011.5, answer((1, 0), to=20.0)))
    assert isinstance(decision, Planned)
    assert decision.plan.detail == "drain w1"


def test_a_drain_of_many_workers_names_a_few_of_them() -> None:
    """A round is journalled with its reason, which a successor must be able to read."""
    workers = tuple(WorkerId(f"w{number:04}") for number in range(1000))
    owners = {kg(number): worker for number, worker in enumerate(workers)}
    drains = [Drain(worker=worker, by="op", at=1.0, reason="kernel") for worker in workers[1:]]
    made = decider(execution(owners), *drains)
    assert [type(action) for action in made.on_event(1011.0, window(owners, workers=workers))] == [Solve]
    decision = only(made.on_event(1011.5, answer((1, 0))))
    assert isinstance(decision, Planned)
    assert decision.plan.detail == "drain w0001, w0002, w0003, w0004, w0005 and 994 more"


def test_a_drained_empty_worker_is_stopped_once_and_started_when_the_drain_is_taken_back() -> None:
    owners = {kg(0): W0, kg(1): W0}
    made = decider(execution(owners), DRAIN_W1)
    decision = only(made.on_event(1011.0, window(owners)))
    assert decision == Scaled(kind=CommandKind.STOP, worker=W1, host=HostId("h1"), detail="it has been drained")
    stop = to_w1(CommandKind.STOP, 1011.0)
    sent = execution(owners, scalings={W1: WorkerScaling(command=stop, phase=ScalingPhase.SENT, at=1011.0)})
    made.on_event(1011.0, ExecutionChanged(execution=sent))
    waiting = only(made.on_event(1021.0, window(owners, 1020.0)))
    assert isinstance(waiting, Skip)
    assert waiting.reason is SkipReason.SCALING_IN_FLIGHT
    done = execution(owners, scalings={W1: WorkerScaling(command=stop, phase=ScalingPhase.DONE, at=1022.0)})
    made.on_event(1022.0, ExecutionChanged(execution=done))
    alone = only(made.on_event(1041.0, window(owners, 1040.0, workers=(W0,))))
    assert isinstance(alone, Skip), "it is not missed"
    made.on_event(1050.0, IntentsChanged(intents=()))
    silent = only(made.on_event(1051.0, window(owners, 1050.0, workers=(W0,))))
    assert isinstance(silent, Skip), "its host does not report, and would not hear of it"
    hosts = window(owners).snapshot.hosts
    later = replace(window(owners, 1060.0, workers=(W0,)).snapshot, hosts=hosts)
    start = only(made.on_event(1061.0, SnapshotArrived(snapshot=later)))
    assert isinstance(start, Scaled)
    assert (start.kind, start.worker, start.host) == (CommandKind.START, W1, HostId("h1"))


def test_a_start_that_failed_is_repeated_as_soon_as_its_host_reports_but_not_at_once() -> None:
    owners = {kg(0): W0, kg(1): W0}
    start = to_w1(CommandKind.START, 1000.0)
    failed = execution(owners, scalings={W1: WorkerScaling(command=start, phase=ScalingPhase.FAILED, at=1062.0)})
    made = decider(failed)

    def decide(end_s: float, *hosts: str) -> Decision:
        seen = window(owners, end_s, workers=(W0,)).snapshot
        there = tuple(replace(seen.hosts[0], host=HostId(host)) for host in hosts)
        return only(made.on_event(end_s + 1.0, SnapshotArrived(snapshot=replace(seen, hosts=there))))

    assert isinstance(decide(1080.0, "h0", "h1"), Skip), "it has just failed"
    assert isinstance(decide(1130.0, "h0"), Skip), "nobody would answer"
    repeated = decide(1140.0, "h0", "h1")
    assert isinstance(repeated, Scaled)
    assert (repeated.kind, repeated.worker, repeated.host) == (CommandKind.START, W1, HostId("h1"))
