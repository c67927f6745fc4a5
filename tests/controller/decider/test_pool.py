"""The pool: which workers can be started for an app, and which of them crash."""

from dataclasses import replace

import pytest

from tests.controller.decider.decider_situations import APP, W0
from tests.controller.decider.decider_situations import a_node as node
from tests.controller.decider.deciders import BALANCED, decider, execution, window
from tests.controller.decider.hosted_job import Machine
from tests.controller.decider.observed_snapshots import owned, snapshot
from tests.controller.decider.test_hosts import H0, H1, W1, job, view_of
from trimtab_controller.decider.events import SnapshotArrived
from trimtab_controller.decider.policies.size_facts import helps, restartable, startable, with_gains
from trimtab_controller.decider.values.decision import PoolWorker
from trimtab_controller.decider.values.reasons import Concern, ConcernKind
from trimtab_controller.decider.window.concerns import crash_concerns
from trimtab_protocol.messages.intents import Drain
from trimtab_protocol.messages.names import AppId, HostId, WorkerId
from trimtab_protocol.messages.report import Absence, WorkerState
from trimtab_protocol.messages.snapshot import NodeWindow

OTHER = AppId("other")


def away(name: str, absence: Absence | None, declared: AppId | None = APP, **more: object) -> NodeWindow:
    row = node(WorkerId(name), app=None, state=WorkerState.AWAY, cpu=None, steering=False, **more)
    return replace(row, absence=absence, declared=declared)


def pooled(name: str) -> PoolWorker:
    return PoolWorker(worker=WorkerId(name), host=HostId(f"h{name[1:]}"), capacity=0.5)


def test_the_pool_has_the_declared_workers_that_were_not_started_or_were_stopped() -> None:
    rows = [
        node(W0),
        away("w6", Absence.STOPPED),
        away("w5", Absence.STOPPED),
        away("w4", Absence.STOPPED, OTHER),
        away("w3", Absence.STOPPED, None),
        away("w2", Absence.STARTING),
        away("w7", Absence.CRASHED),
        away("w8", None, None),
    ]
    seen = snapshot(rows, [owned(0, W0)])

    assert startable(seen, frozenset()) == {APP: (pooled("w5"), pooled("w6")), OTHER: (pooled("w4"),)}
    assert startable(seen, frozenset({WorkerId("w5"), WorkerId("w4")})) == {APP: (pooled("w6"),)}


def test_a_worker_adds_what_its_host_has_left_for_it() -> None:
    made = job({H0: Machine(1.5), H1: Machine(4.0, others=1.0)}, {W0: H0, W1: H1})
    decider = made.decider()
    window = made.window()
    decider.record(window.end_ms / 1000.0, window)
    elsewhere = HostId("h9")
    pool = [
        PoolWorker(worker=WorkerId(f"w{number}"), host=host, capacity=1.0)
        for number, host in ((5, H0), (6, H0), (7, H1), (8, elsewhere))
    ]
    found = with_gains(pool, view_of(decider), decider._situation.memory.hosts)
    assert [(each.worker, each.gain, helps(each)) for each in found] == [
        ("w7", 1.0, True),
        ("w8", 1.0, True),
        ("w5", pytest.approx(0.5), True),
        ("w6", pytest.approx(0.0), False),
    ]
    assert [each.adds is None for each in found] == [False, True, False, False], "nothing is known of h9"


def test_workers_that_run_the_app_for_which_they_are_declared_can_be_started_again() -> None:
    w1, w2 = WorkerId("w1"), WorkerId("w2")
    rows = [node(W0), node(w1, declared=APP), node(w2, declared=OTHER), away("w5", Absence.STOPPED)]

    assert restartable(snapshot(rows, [owned(0, W0)])) == {w1}


def test_crashed_workers_are_a_concern_of_the_app_that_they_are_declared_for_or_ran() -> None:
    said = "crashed 10 times in a row"
    rows = [
        away("w5", Absence.CRASHED, reason=said),
        away("w2", Absence.CRASHED, None),
        away("w3", Absence.CRASHED, None),
        away("w4", Absence.STARTING, reason="crashed once"),
    ]
    ran = {WorkerId("w2"): APP, WorkerId("w4"): APP}

    assert crash_concerns(snapshot(rows, []), ran) == (
        Concern(
            kind=ConcernKind.WORKER_CRASHES,
            app=APP,
            workers=(WorkerId("w2"), WorkerId("w5")),
            detail=f"w2 on h2 crashed, w5 on h5 {said}",
        ),
    )


def test_the_decider_knows_the_pool_and_the_crashes_of_the_last_window() -> None:
    drain = Drain(worker=WorkerId("w6"), by="ann", at=0.0, reason="off")
    made = decider(execution(None), drain)
    shown = window(BALANCED).snapshot
    rows = (away("w5", Absence.STOPPED), away("w6", Absence.STOPPED), away("w7", Absence.CRASHED, reason="crashed"))
    shown = replace(shown, nodes=(*shown.nodes, *rows))
    made.on_event(shown.end_ms / 1000.0, SnapshotArrived(snapshot=shown))

    assert made.known.pool == {APP: (pooled("w5"),)}
    assert [(concern.kind, concern.workers) for concern in made.known.concerns] == [
        (ConcernKind.WORKER_CRASHES, (WorkerId("w7"),))
    ]
