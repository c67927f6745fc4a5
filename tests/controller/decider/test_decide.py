"""The rules of a decision, each by itself: when a worker is stopped, the placement follows, the interval holds."""

from dataclasses import replace

import pytest

from tests.controller.decider.decider_situations import (
    APP,
    OPERATOR,
    W0,
    W1,
    a_command,
    a_worker,
    kg,
    owned,
    plannable,
)
from tests.controller.decider.deciders import window
from tests.narrow import not_none
from trimtab_controller.decider.memory.evaluate import Evaluation
from trimtab_controller.decider.memory.memory import WindowResult
from trimtab_controller.decider.policies.admission import SolveWanted, admit
from trimtab_controller.decider.policies.workers import SCALING_PATIENCE_S, drain_concerns, to_start, to_stop
from trimtab_controller.decider.values.decision import Scaled
from trimtab_controller.decider.values.reasons import ConcernKind
from trimtab_controller.decider.values.settings import Settings
from trimtab_controller.decider.window.view import PlannableView
from trimtab_controller.execution.state import Execution, ScalingPhase, WorkerScaling, placement_of
from trimtab_controller.plan import PlanReason
from trimtab_controller.solver.answer import Method
from trimtab_protocol.messages.commands import CommandKind, Refusal
from trimtab_protocol.messages.intents import Drain, Intent, RollingRestart
from trimtab_protocol.messages.names import AppId, Epoch, HostId, KeyGroup, WorkerId
from trimtab_protocol.messages.report import WorkerState

OTHER = AppId("other")
SETTINGS = Settings(load_distance=5.0, min_interval_s=30.0, min_windows=1)
STOP = a_command(CommandKind.STOP)


def view(owners: dict[KeyGroup, WorkerId], start_s: float = 1000.0, load: float = 10.0) -> PlannableView:
    """Two workers of one core; w1 is to be drained."""
    rows = [owned(each, owner, load) for each, owner in owners.items()]
    workers = [a_worker(worker, draining=worker == W1) for worker in (W0, W1)]
    return plannable(workers, rows, start_s=start_s, end_s=start_s + 10.0)


EMPTY = view({kg(0): W0, kg(1): W0})
DRAINING = frozenset({W1})
RESTART = RollingRestart(app=APP, workers=(W0, W1), by="ann", at=900.0, reason="release")


def test_a_drained_worker_is_stopped_when_the_placement_of_its_app_does_not_name_it() -> None:
    """`faust.App("orders", version=2)` has another id and the same workers: nobody runs the first app any more."""
    kept = placement_of("c", APP, Epoch(1, 1), {kg(0): W1}, None)
    free = replace(kept, owners={OPERATOR: ((W0, W1),)})  # it only stands by
    of_other = placement_of("c", OTHER, Epoch(1, 1), {kg(0, OTHER): W1}, None)

    assert to_stop(EMPTY, Execution(generation=1, placements={APP: kept}), DRAINING) is None
    assert to_stop(EMPTY, Execution(generation=1, placements={APP: free, OTHER: of_other}), DRAINING) == Scaled(
        kind=CommandKind.STOP, worker=W1, host=HostId("h1"), detail="it has been drained"
    )


@pytest.mark.parametrize(
    ("times", "start_s", "again"),
    [
        (1, 1061.9, False),
        (1, 1062.0, True),
        (2, 1062.0, True),
        (3, 1121.9, False),
        (3, 1122.0, True),
        (4, 1242.0, True),
        (100, 4601.9, False),
        (100, 4602.0, True),
    ],
)
def test_a_stop_is_asked_for_again_after_a_while_that_doubles(times: int, start_s: float, again: bool) -> None:
    refused = WorkerScaling(command=STOP, phase=ScalingPhase.FAILED, at=1002.0, times=times)
    present = Execution(generation=1, scalings={W1: refused})

    assert (to_stop(replace(EMPTY, start_s=start_s), present, DRAINING) is not None) is again


@pytest.mark.parametrize(
    ("kind", "phase", "intents", "why"),
    [
        (CommandKind.STOP, ScalingPhase.DONE, [], "it was drained and stopped, and may run again"),
        (CommandKind.STOP, ScalingPhase.DONE, [RESTART], "it was stopped to be restarted"),
        (CommandKind.START, ScalingPhase.FAILED, [], "it could not be started before"),
        (CommandKind.START, ScalingPhase.FAILED, [RESTART], "it could not be started before"),
    ],
)
def test_a_start_says_what_has_happened(
    kind: CommandKind, phase: ScalingPhase, intents: list[Intent], why: str
) -> None:
    present = Execution(generation=1, scalings={W1: WorkerScaling(command=a_command(kind), phase=phase, at=1000.0)})
    now, known = 1000.0 + SCALING_PATIENCE_S, seen()

    found = to_start(now, present, frozenset(), known, intents)
    assert found == Scaled(kind=CommandKind.START, worker=W1, host=HostId("h1"), detail=why)
    assert to_start(now, present, DRAINING, known, intents) is None
    assert to_start(now, present, frozenset(), WindowResult(), intents) is None, "nobody would answer"
    too_early = to_start(now - 0.1, present, frozenset(), known, intents)
    assert (too_early is None) is (phase is ScalingPhase.FAILED)


def seen(**of_w1: object) -> WindowResult:
    """A window from 1100 on with both hosts and their workers; without changes w1 is not reported."""
    snapshot = window({kg(0): W0, kg(1): W0}, 1110.0).snapshot
    w1 = [replace(snapshot.nodes[1], **of_w1)] if of_w1 else []  # type: ignore[arg-type]
    return WindowResult(snapshot=replace(snapshot, nodes=(snapshot.nodes[0], *w1)))


@pytest.mark.parametrize(
    ("refusal", "of_w1", "tried"),
    [
        (None, {}, True),
        (Refusal.GUARD, {"state": WorkerState.AWAY}, True),
        (Refusal.NOT_CONFIGURED, {"state": WorkerState.AWAY}, False),
        (Refusal.NOT_CONFIGURED, {}, False),
        (Refusal.NOT_CONFIGURED, {"state": WorkerState.AWAY, "declared": APP}, True),
    ],
    ids=str,
)
def test_a_start_is_not_tried_again_where_the_answer_cannot_change(
    refusal: Refusal | None, of_w1: dict[str, object], tried: bool
) -> None:
    """After `undrain`, of a worker that runs under systemd and has no command, the start was tried every minute."""
    start = a_command(CommandKind.START)
    failed = WorkerScaling(command=start, phase=ScalingPhase.FAILED, at=1000.0, refusal=refusal)
    found = to_start(1111.0, Execution(generation=1, scalings={W1: failed}), frozenset(), seen(**of_w1), [])
    assert (found is not None) is tried


def test_who_starts_a_drained_worker_again_and_again_is_asked_to_end_it() -> None:
    done = WorkerScaling(command=STOP, phase=ScalingPhase.DONE, at=1100.0, times=4)
    present, drain = Execution(generation=1, scalings={W1: done}), Drain(worker=W1, by="op", at=510.0, reason="kernel")
    snapshot = not_none(seen(state=WorkerState.RUNNING).snapshot)
    [concern] = drain_concerns(present, snapshot, DRAINING, [drain])
    assert (concern.kind, concern.app, concern.workers) == (ConcernKind.DRAINED_RUNS, APP, (W1,))
    assert concern.detail == (
        "w1 is drained for 10 min, and something has started it 4 times: undrain it or disable its unit; it is stopped "
        "again in 4 min"
    )
    later = Execution(generation=1, scalings={W1: replace(done, at=1101.0)})
    assert "has started it 3 times:" in next(drain_concerns(later, snapshot, DRAINING, [drain])).detail
    twice = Execution(generation=1, scalings={W1: replace(done, times=2)})
    assert list(drain_concerns(twice, snapshot, DRAINING, [drain])) == []
    assert list(drain_concerns(present, replace(snapshot, nodes=snapshot.nodes[:1]), DRAINING, [drain])) == []
    assert list(drain_concerns(present, snapshot, frozenset(), [])) == []


def test_a_worker_whose_drain_has_ended_since_the_window_is_not_stopped() -> None:
    started = WorkerScaling(command=replace(STOP, kind=CommandKind.START), phase=ScalingPhase.SENT, at=1000.0)

    assert to_stop(EMPTY, Execution(generation=1, scalings={W1: started}), frozenset()) is None


def test_a_load_distance_that_may_be_noise_asks_for_no_balance_though_collocation_asks_for_a_plan() -> None:
    calm = replace(EMPTY, workers=tuple(replace(worker, draining=False) for worker in EMPTY.workers))
    noisy = Evaluation(worker_loads={}, mean_load=10.0, load_distance=8.0, noise=9.0, collocation=0.5)
    albic = replace(SETTINGS, method=Method.ALBIC, remote_tuple_cpu_s=1e-4, min_gain=0.0)

    found = admit(1000.0, calm, noisy, Execution(generation=1), albic, windows=1)

    assert found == SolveWanted(view=calm, reason=PlanReason.COLLOCATION, detail="collocation 50%", balancing=False)
