"""Maintenance of a host: its workers are drained and stay off, its silence is no loss, and it ends by itself."""

from dataclasses import replace

from tests.controller.decider.decider_situations import APP, W0, W1, kg, to_w1
from tests.controller.decider.deciders import BALANCED, NEEDS, decider, execution, only, window
from trimtab_controller.decider.events import Solve
from trimtab_controller.decider.machine import Decider
from trimtab_controller.decider.memory.observe import Liveness, check_cluster, held_apps
from trimtab_controller.decider.values.decision import MaintenanceEnded, Scaled, Skip
from trimtab_controller.decider.values.reasons import SkipReason
from trimtab_controller.execution.state import ScalingPhase, WorkerScaling
from trimtab_protocol.messages.commands import CommandKind
from trimtab_protocol.messages.intents import Drain, decode_intent, encode_intent
from trimtab_protocol.messages.names import HostId

H1 = HostId("h1")
OFF = Drain(worker=W1, by="ann", at=900.0, reason="memory", until=1100.0, host=H1)
STOPPED = {W1: WorkerScaling(command=to_w1(CommandKind.STOP), phase=ScalingPhase.DONE, at=1000.0)}
ON_W0 = {kg(0): W0, kg(1): W0}


def deciding(owners: dict = ON_W0, **changes: object) -> Decider:
    return decider(execution(owners, **changes), OFF)


def test_the_workers_of_the_host_are_drained() -> None:
    [action] = deciding(BALANCED).on_event(1011.0, window(BALANCED))
    assert isinstance(action, Solve)
    assert [(worker.id, worker.draining) for worker in action.view.workers] == [(W0, False), (W1, True)]


def test_what_was_stopped_stays_off_until_its_end_and_is_started_then() -> None:
    made = deciding(scalings=STOPPED)
    decision = only(made.on_event(1021.0, window(ON_W0, 1020.0, workers=(W0,))))
    assert isinstance(decision, Skip)
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
    found = check_cluster(one, 1021.0, liveness, NEEDS)
    assert found is not None
    assert found.reason is SkipReason.LOW_COVERAGE
    assert check_cluster(one, 1021.0, liveness, NEEDS, {H1: frozenset({W1})}) is None


def test_the_intent_says_when_it_ends_and_a_drain_without_an_end_is_as_before() -> None:
    assert decode_intent(OFF.key.encode(), encode_intent(OFF)) == OFF
    plain = replace(OFF, until=None, host=None)
    assert encode_intent(plain) == b'{"v":1,"by":"ann","at":900.0,"reason":"memory","worker":"w1"}'
